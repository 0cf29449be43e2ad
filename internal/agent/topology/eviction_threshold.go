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
	// memoryAvailable is the kubelet's name of the memory that a node has left.
	memoryAvailable = "memory.available"
	// defaultEviction is how much a kubelet keeps available that is told nothing (DefaultEvictionHard of Kubernetes 1.36 on Linux).
	defaultEviction = "100Mi"
)

// EvictionThreshold is how much of a node's memory is to stay available: an amount, or a share of all there is. The zero value is none.
type EvictionThreshold struct {
	Bytes numa.Amount
	// Share is from 0 to 1. The kubelet has it in single precision, in which 10 % is a little more than a tenth.
	Share float32
}

// Resolve is the threshold of a node with so much memory.
func (t EvictionThreshold) Resolve(memory numa.Amount) numa.Amount {
	if t.Bytes > 0 {
		return t.Bytes
	}
	return numa.Amount(float64(memory) * float64(t.Share))
}

// parseEvictionThreshold reads what the kubelet reads: a quantity above 0, or a percentage of which 0% and 100% mean none. Empty is none.
func parseEvictionThreshold(text string) (EvictionThreshold, error) {
	if text == "" || text == "0%" || text == "100%" {
		return EvictionThreshold{}, nil
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(percent, 32)
		share := float32(v) / 100
		if err != nil || !(share >= 0 && share <= 1) {
			return EvictionThreshold{}, fmt.Errorf("%.40q is no percentage from 0 to 100", text)
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
		return EvictionThreshold{}, errors.New("a threshold of 0 bytes, want more, or 0% for none")
	}
	return EvictionThreshold{Bytes: n}, nil
}
