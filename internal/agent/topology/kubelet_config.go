// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// policyStatic is the kubelet's policy of assigning CPUs itself, and with a capital that of assigning memory.
const policyStatic = "static"

// KubeletConfig is what matters here of a kubelet's configuration.
type KubeletConfig struct {
	// Source says where it is from.
	Source string
	// Static says that the kubelet assigns CPUs itself.
	Static bool
	// StaticMemory says that it binds containers to zones of memory itself.
	StaticMemory bool
	// Reserved is what it keeps for itself and for the system; CPU among it where ReservedCPUs does not say which.
	Reserved corev1.ResourceList
	// ReservedCPUs are those that it keeps by number.
	ReservedCPUs numa.CPUSet
	// EvictionThreshold is the memory that is to stay available on the node: below it the kubelet evicts at once, and so pods are not given it.
	EvictionThreshold EvictionThreshold
	// ReservedMemory is what the memory manager keeps of zones, by their number. It means something with StaticMemory alone.
	ReservedMemory map[int]numa.Amount
}

// kubeletConfiguration has the fields of kubelet.config.k8s.io/v1beta1 that are read. Others may be whatever a later kubelet has.
type kubeletConfiguration struct {
	Kind                string            `json:"kind"`
	CPUManagerPolicy    string            `json:"cpuManagerPolicy"`
	MemoryManagerPolicy string            `json:"memoryManagerPolicy"`
	KubeReserved        map[string]string `json:"kubeReserved"`
	SystemReserved      map[string]string `json:"systemReserved"`
	ReservedSystemCPUs  string            `json:"reservedSystemCPUs"`
	EvictionHard        map[string]string `json:"evictionHard"`
	MergeDefaults       bool              `json:"mergeDefaultEvictionSettings"`
	ReservedMemory      []struct {
		Zone   int                 `json:"numaNode"`
		Limits corev1.ResourceList `json:"limits"`
	} `json:"reservedMemory"`
}

// ParseKubelet reads a KubeletConfiguration, as YAML or JSON.
func ParseKubelet(content []byte) (KubeletConfig, error) {
	var c kubeletConfiguration
	if err := yaml.Unmarshal(content, &c); err != nil {
		return KubeletConfig{}, fmt.Errorf("no configuration: %w", err)
	}
	if c.Kind != "KubeletConfiguration" {
		return KubeletConfig{}, fmt.Errorf("kind is %.40q, want KubeletConfiguration", c.Kind)
	}
	if _, there := c.EvictionHard[memoryAvailable]; !there && (c.EvictionHard == nil || c.MergeDefaults) {
		c.EvictionHard = map[string]string{memoryAvailable: defaultEviction}
	}
	return c.convert()
}

// parseConfigz reads what /configz of a kubelet answers. Defaults are in it: what is absent there is not.
func parseConfigz(content []byte) (KubeletConfig, error) {
	var answer struct {
		Configuration *kubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return KubeletConfig{}, fmt.Errorf("no JSON: %w", err)
	}
	if answer.Configuration == nil {
		return KubeletConfig{}, errors.New("has no kubeletconfig")
	}
	return answer.Configuration.convert()
}

func (c *kubeletConfiguration) convert() (KubeletConfig, error) {
	k := KubeletConfig{
		Static: c.CPUManagerPolicy == policyStatic, StaticMemory: strings.ToLower(c.MemoryManagerPolicy) == policyStatic, Reserved: corev1.ResourceList{},
	}
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

// parseReservedMemory is what is kept of each zone; nil where nothing is said. Huge pages are no matter of it: a kubelet that is told to keep some
// does not start.
func (c *kubeletConfiguration) parseReservedMemory() (map[int]numa.Amount, error) {
	var out map[int]numa.Amount
	for _, r := range c.ReservedMemory {
		q, there := r.Limits[corev1.ResourceMemory]
		if !there {
			continue
		}
		n, err := topologyconv.ParseAmount(corev1.ResourceMemory, q)
		if err != nil {
			return nil, fmt.Errorf("zone %d: %w", r.Zone, err)
		}
		if _, twice := out[r.Zone]; twice {
			return nil, fmt.Errorf("zone %d stands twice", r.Zone)
		}
		if out == nil {
			out = map[int]numa.Amount{}
		}
		out[r.Zone] = n
	}
	return out, nil
}
