// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"strings"
	"testing"
)

func TestParseKubelet(t *testing.T) {
	k := kubelet(t, "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m, memory: 1Gi}\nsystemReserved: {cpu: \"1\"}\nreservedSystemCPUs: 0-1\nnewField: {a: [b]}\n")
	cpu, memory := k.Reserved["cpu"], k.Reserved["memory"]
	if !k.Static || cpu.String() != "2" || memory.String() != "1Gi" || k.ReservedCPUs.String() != "0-1" {
		t.Errorf("%+v", k)
	}
	if k := kubelet(t, "memoryManagerPolicy: Static\n"); !k.StaticMemory || k.Static {
		t.Errorf("%+v", k)
	}
	for want, text := range map[string]string{
		"kind is":            "kind: Pod\n",
		"kubeReserved":       "kind: KubeletConfiguration\nkubeReserved: {cpu: -1}\n",
		"of the order of":    "kind: KubeletConfiguration\nkubeReserved: {memory: 1e999999999}\n",
		"systemReserved":     "kind: KubeletConfiguration\nsystemReserved: {memory: much}\n",
		"out of range":       "kind: KubeletConfiguration\nkubeReserved: {memory: 1Pi}\nsystemReserved: {memory: 1Ki}\n",
		"reservedSystemCPUs": "kind: KubeletConfiguration\nreservedSystemCPUs: 3-1\n",
		"no configuration":   "kind: [",
	} {
		if k, err := ParseKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, k, err, want)
		}
	}
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte("kind: KubeletConfiguration\nkubeReserved: {cpu: 500m, memory: 1Gi}\nreservedSystemCPUs: 0-1\n"))
	f.Add([]byte(`{"kubeletconfig":{"cpuManagerPolicy":"static"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, parse := range []func([]byte) (Kubelet, error){ParseKubelet, parseConfigz} {
			k, err := parse(content)
			if err != nil {
				continue
			}
			facts := Facts{Machine: &Machine{Zones: []Zone{{Memory: 1 << 30}}}, Kubelet: k}
			for _, q := range facts.Build().Reserved {
				if q.Sign() < 0 {
					t.Fatalf("%q reserves %s", content, q.String())
				}
			}
		}
	})
}
