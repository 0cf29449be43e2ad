// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

const (
	// memoryAvailable is the kubelet's signal of available memory.
	memoryAvailable = "memory.available"
	// defaultEviction is the kubelet's default threshold (DefaultEvictionHard of Kubernetes 1.36 on Linux).
	defaultEviction = "100Mi"
)

// EvictionThreshold is the memory that must stay available on a node: an amount, or a share of all memory. The zero value is none.
type EvictionThreshold struct {
	Bytes numa.Amount
	// Share is from 0 to 1, in the kubelet's single precision, in which 10 % is slightly more than a tenth.
	Share float32
}

// Resolve returns the threshold in bytes for a node's memory.
func (t EvictionThreshold) Resolve(memory numa.Amount) numa.Amount {
	if t.Bytes > 0 {
		return t.Bytes
	}
	return numa.Amount(float64(memory) * float64(t.Share))
}

// parseEvictionThreshold accepts the kubelet's format: a quantity above 0, or a percentage. Empty, 0% and 100% mean none.
func parseEvictionThreshold(text string) (EvictionThreshold, error) {
	if text == "" || text == "0%" || text == "100%" {
		return EvictionThreshold{}, nil
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(percent, 32)
		share := float32(v) / 100
		if err != nil || !(share >= 0 && share <= 1) {
			return EvictionThreshold{}, fmt.Errorf("%.40q is not a percentage from 0 to 100", text)
		}
		return EvictionThreshold{Share: share}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return EvictionThreshold{}, fmt.Errorf("%.40q: %w", text, err)
	}
	n, err := topologyconv.ParseAmount(corev1.ResourceMemory, q)
	if err != nil {
		return EvictionThreshold{}, fmt.Errorf("%.40q: %w", text, err)
	}
	if n == 0 {
		return EvictionThreshold{}, errors.New("a threshold of 0 bytes is not allowed; use 0% for none")
	}
	return EvictionThreshold{Bytes: n}, nil
}
