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

	"crane.io/crane/internal/numawire"
	"crane.io/crane/pkg/numa"
)

// static is the kubelet's policy of assigning CPUs itself, and with a capital that of assigning memory.
const static = "static"

// Kubelet is what matters here of a kubelet's configuration.
type Kubelet struct {
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
}

// configuration has the fields of kubelet.config.k8s.io/v1beta1 that are read. Others may be whatever a later kubelet has.
type configuration struct {
	Kind                string            `json:"kind"`
	CPUManagerPolicy    string            `json:"cpuManagerPolicy"`
	MemoryManagerPolicy string            `json:"memoryManagerPolicy"`
	KubeReserved        map[string]string `json:"kubeReserved"`
	SystemReserved      map[string]string `json:"systemReserved"`
	ReservedSystemCPUs  string            `json:"reservedSystemCPUs"`
}

// ParseKubelet reads a KubeletConfiguration, as YAML or JSON.
func ParseKubelet(content []byte) (Kubelet, error) {
	var c configuration
	if err := yaml.Unmarshal(content, &c); err != nil {
		return Kubelet{}, fmt.Errorf("no configuration: %w", err)
	}
	if c.Kind != "KubeletConfiguration" {
		return Kubelet{}, fmt.Errorf("kind is %.40q, want KubeletConfiguration", c.Kind)
	}
	return c.kubelet()
}

// parseConfigz reads what /configz of a kubelet answers.
func parseConfigz(content []byte) (Kubelet, error) {
	var answer struct {
		Configuration *configuration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return Kubelet{}, fmt.Errorf("no JSON: %w", err)
	}
	if answer.Configuration == nil {
		return Kubelet{}, errors.New("has no kubeletconfig")
	}
	return answer.Configuration.kubelet()
}

func (c *configuration) kubelet() (Kubelet, error) {
	k := Kubelet{
		Static: c.CPUManagerPolicy == static, StaticMemory: strings.ToLower(c.MemoryManagerPolicy) == static, Reserved: corev1.ResourceList{},
	}
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for name, text := range list {
			name := corev1.ResourceName(name)
			q, err := resource.ParseQuantity(text)
			sum := k.Reserved[name]
			if err == nil {
				if _, err = numawire.Amount(name, q); err == nil {
					sum.Add(q)
					_, err = numawire.Amount(name, sum)
				}
			}
			if err != nil {
				return Kubelet{}, fmt.Errorf("%s: %.40q of %.40q: %w", field, text, name, err)
			}
			k.Reserved[name] = sum
		}
	}
	var err error
	if k.ReservedCPUs, err = numa.ParseCPUSet(c.ReservedSystemCPUs); err != nil {
		return Kubelet{}, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	if n := k.ReservedCPUs.Len(); n > 0 {
		k.Reserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return k, nil
}
