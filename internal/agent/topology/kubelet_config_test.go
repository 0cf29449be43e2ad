// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"strings"
	"testing"
)

func TestParseKubelet(t *testing.T) {
	k := parseTestKubelet(t, "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m, memory: 1Gi}\nsystemReserved: {cpu: \"1\"}\nreservedSystemCPUs: 0-1\nnewField: {a: [b]}\n")
	cpu := k.Reserved["cpu"]
	memory := k.Reserved["memory"]
	if !k.Static || cpu.String() != "2" || memory.String() != "1Gi" || k.ReservedCPUs.String() != "0-1" {
		t.Errorf("ParseKubelet = %+v, want static with 2 CPUs, 0-1, and 1Gi reserved", k)
	}
	if k := parseTestKubelet(t, "memoryManagerPolicy: Static\n"); !k.StaticMemory || k.Static {
		t.Errorf("ParseKubelet = %+v, want only a static memory manager", k)
	}

	for want, text := range map[string]string{
		"kind is":                "kind: Pod\n",
		"kubeReserved":           "kind: KubeletConfiguration\nkubeReserved: {cpu: -1}\n",
		"of the order of":        "kind: KubeletConfiguration\nkubeReserved: {memory: 1e999999999}\n",
		"systemReserved":         "kind: KubeletConfiguration\nsystemReserved: {memory: much}\n",
		"out of range":           "kind: KubeletConfiguration\nkubeReserved: {memory: 1Pi}\nsystemReserved: {memory: 1Ki}\n",
		"reservedSystemCPUs":     "kind: KubeletConfiguration\nreservedSystemCPUs: 3-1\n",
		"invalid configuration":  "kind: [",
		"not a percentage":       "kind: KubeletConfiguration\nevictionHard: {memory.available: NaN%}\n",
		"101%":                   "kind: KubeletConfiguration\nevictionHard: {memory.available: 101%}\n",
		"-1%":                    "kind: KubeletConfiguration\nevictionHard: {memory.available: -1%}\n",
		"evictionHard":           "kind: KubeletConfiguration\nevictionHard: {memory.available: much}\n",
		"0 bytes":                "kind: KubeletConfiguration\nevictionHard: {memory.available: \"0\"}\n",
		"\"-1Gi\"":               "kind: KubeletConfiguration\nevictionHard: {memory.available: -1Gi}\n",
		"zone 1 is listed twice": "kind: KubeletConfiguration\nreservedMemory: [{numaNode: 1, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 1Gi}}]\n",
		"zone 2":                 "kind: KubeletConfiguration\nreservedMemory: [{numaNode: 2, limits: {memory: -1Gi}}]\n",
	} {
		if k, err := ParseKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, k, err, want)
		}
	}
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte("kind: KubeletConfiguration\nkubeReserved: {cpu: 500m, memory: 1Gi}\nreservedSystemCPUs: 0-1\n"))
	f.Add([]byte(`{"kubeletconfig":{"cpuManagerPolicy":"static"}}`))
	f.Add([]byte("kind: KubeletConfiguration\nmemoryManagerPolicy: Static\nevictionHard: {memory.available: 5%}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n"))

	f.Fuzz(func(t *testing.T, content []byte) {
		for _, parse := range []func([]byte) (KubeletConfig, error){ParseKubelet, configOf} {
			k, err := parse(content)
			if err != nil {
				continue
			}

			facts := NodeTopology{Machine: &Machine{Zones: []Zone{{Memory: 1 << 30}}}, Kubelet: k}
			n := facts.Build()
			for _, q := range n.Reserved {
				if q.Sign() < 0 {
					t.Fatalf("%q reserves %s, want no negative amount", content, q.String())
				}
			}

			if left := n.Zones[0].Resources.Allocatable.Memory().Value(); left < 0 || left > 1<<30 {
				t.Fatalf("%q leaves %d bytes of 1 GiB, want an amount from 0 to 1 GiB", content, left)
			}
		}
	})
}

// configOf returns the configuration in an answer to /configz.
func configOf(answer []byte) (KubeletConfig, error) {
	k, _, err := parseConfigz(answer)
	return k, err
}
