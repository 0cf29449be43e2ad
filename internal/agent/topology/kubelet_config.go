// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// policyStatic is the policy of a kubelet that assigns CPUs, and in upper case ("Static") of one that assigns memory.
const policyStatic = "static"

// KubeletConfig holds the parts of a kubelet's configuration that affect the topology.
type KubeletConfig struct {
	// Source describes where the configuration is from.
	Source string
	// Static means that the kubelet assigns CPUs itself.
	Static bool
	// StaticMemory means that the kubelet binds containers to memory zones itself.
	StaticMemory bool
	// Reserved is reserved for the kubelet and the system; it includes CPU unless ReservedCPUs names the CPUs.
	Reserved corev1.ResourceList
	// ReservedCPUs holds CPUs reserved by number.
	ReservedCPUs numa.CPUSet
	// EvictionThreshold is the hard eviction threshold of memory, which is not allocatable.
	EvictionThreshold EvictionThreshold
	// CgroupRoot is the group below which the kubelet keeps its pods, empty for the root; CgroupDriver is cgroupfs or systemd, empty if it is
	// not set.
	CgroupRoot, CgroupDriver string
	// ReservedMemory holds the memory manager's reservations by zone. It applies only with StaticMemory.
	ReservedMemory map[int]numa.Amount
}

// kubeletConfiguration holds the fields of kubelet.config.k8s.io/v1beta1 that are read; others are ignored.
type kubeletConfiguration struct {
	Kind                string            `json:"kind"`
	CPUManagerPolicy    string            `json:"cpuManagerPolicy"`
	MemoryManagerPolicy string            `json:"memoryManagerPolicy"`
	KubeReserved        map[string]string `json:"kubeReserved"`
	SystemReserved      map[string]string `json:"systemReserved"`
	ReservedSystemCPUs  string            `json:"reservedSystemCPUs"`
	EvictionHard        map[string]string `json:"evictionHard"`
	MergeDefaults       bool              `json:"mergeDefaultEvictionSettings"`
	CgroupRoot          string            `json:"cgroupRoot"`
	CgroupDriver        string            `json:"cgroupDriver"`
	ReservedMemory      []struct {
		Zone   int                 `json:"numaNode"`
		Limits corev1.ResourceList `json:"limits"`
	} `json:"reservedMemory"`
}

// ParseKubelet parses a KubeletConfiguration in YAML or JSON.
func ParseKubelet(content []byte) (KubeletConfig, error) {
	var c kubeletConfiguration
	if err := yaml.Unmarshal(content, &c); err != nil {
		return KubeletConfig{}, fmt.Errorf("invalid configuration: %w", err)
	}

	if c.Kind != "KubeletConfiguration" {
		return KubeletConfig{}, fmt.Errorf("kind is %.40q instead of KubeletConfiguration", c.Kind)
	}

	if _, found := c.EvictionHard[memoryAvailable]; !found && (c.EvictionHard == nil || c.MergeDefaults) {
		c.EvictionHard = map[string]string{memoryAvailable: defaultEviction}
	}

	return c.convert()
}

// parseConfigz parses the kubelet's answer to /configz, and returns its fields that are read as well. The answer includes defaults, so that
// missing fields are not set.
func parseConfigz(content []byte) (KubeletConfig, *kubeletConfiguration, error) {
	var answer struct {
		Configuration *kubeletConfiguration `json:"kubeletconfig"`
	}

	if err := json.Unmarshal(content, &answer); err != nil {
		return KubeletConfig{}, nil, fmt.Errorf("invalid JSON: %w", err)
	}

	if answer.Configuration == nil {
		return KubeletConfig{}, nil, errors.New("has no kubeletconfig")
	}

	k, err := answer.Configuration.convert()
	return k, answer.Configuration, err
}

func (c *kubeletConfiguration) convert() (KubeletConfig, error) {
	k := KubeletConfig{
		Static:       c.CPUManagerPolicy == policyStatic,
		StaticMemory: strings.ToLower(c.MemoryManagerPolicy) == policyStatic,
		Reserved:     corev1.ResourceList{},
		CgroupRoot:   c.CgroupRoot,
		CgroupDriver: c.CgroupDriver,
	}
	// Each quantity and each sum must be an amount that the scheduler can represent.
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for name, text := range list {
			name := corev1.ResourceName(name)
			q, err := resource.ParseQuantity(text)
			sum := k.Reserved[name]
			if err == nil {
				if _, err = topologyconv.ParseAmount(name, q); err == nil {
					sum.Add(q)
					_, err = topologyconv.ParseAmount(name, sum)
				}
			}

			if err != nil {
				return KubeletConfig{}, fmt.Errorf("%s: %.40q of %.40q: %w", field, text, name, err)
			}

			k.Reserved[name] = sum
		}
	}

	var err error
	if k.ReservedCPUs, err = numa.ParseCPUSet(c.ReservedSystemCPUs); err != nil {
		return KubeletConfig{}, fmt.Errorf("reservedSystemCPUs: %w", err)
	}

	// Numbered CPUs replace the reserved amounts of CPU, as in the kubelet.
	if n := k.ReservedCPUs.Len(); n > 0 {
		k.Reserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}

	if k.EvictionThreshold, err = parseEvictionThreshold(c.EvictionHard[memoryAvailable]); err != nil {
		return KubeletConfig{}, fmt.Errorf("evictionHard: %s: %w", memoryAvailable, err)
	}

	if k.ReservedMemory, err = c.parseReservedMemory(); err != nil {
		return KubeletConfig{}, fmt.Errorf("reservedMemory: %w", err)
	}

	return k, nil
}

// parseReservedMemory returns the reservations by zone, nil for none. Huge pages are ignored: a kubelet with reserved huge pages does not
// start.
func (c *kubeletConfiguration) parseReservedMemory() (map[int]numa.Amount, error) {
	var out map[int]numa.Amount
	for _, r := range c.ReservedMemory {
		q, found := r.Limits[corev1.ResourceMemory]
		if !found {
			continue
		}

		n, err := topologyconv.ParseAmount(corev1.ResourceMemory, q)
		if err != nil {
			return nil, fmt.Errorf("zone %d: %w", r.Zone, err)
		}

		if _, duplicate := out[r.Zone]; duplicate {
			return nil, fmt.Errorf("zone %d is listed twice", r.Zone)
		}

		if out == nil {
			out = map[int]numa.Amount{}
		}
		out[r.Zone] = n
	}

	return out, nil
}

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
