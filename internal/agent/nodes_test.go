// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"strings"
	"testing"

	"crane.io/crane/test/hostrecording"
)

// TestNodes checks recordings of real nodes with every cgroup driver: pods, measurements and planned actions.
func TestNodes(t *testing.T) {
	for _, name := range hostrecording.Nodes() {
		t.Run(name, func(t *testing.T) {
			r := runOnce(t, name, "--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed")
			states := map[string]string{}
			for _, f := range r.Features {
				states[f.Name] = f.String()
			}

			driver, pods := "cgroupfs", "kubepods"
			if strings.Contains(name, "-systemd-") {
				driver, pods = "systemd", "kubepods.slice"
			}

			socket := "/run/containerd/containerd.sock"
			if strings.HasSuffix(name, "-crio") {
				socket = "/run/crio/crio.sock"
			}

			for feature, want := range map[string]string{
				"cgroups": "driver " + driver, "pods": "on: in " + pods, "pod-pressure": "on", "pod-throttling": "on", "kubelet-cpu-manager": "on: policy static",
				"runtime": socket, "disks": "on", "network": "on",
			} {
				if !strings.Contains(states[feature], want) {
					t.Errorf("feature %s is %q, want %q", feature, states[feature], want)
				}
			}

			if len(r.Problems) > 0 || r.UsedMemory == nil || len(r.Topology.Zones) != 1 {
				t.Errorf("problems %v, memory %v, zones %+v; want no problem, a value and one zone", r.Problems, r.UsedMemory, r.Topology)
			}

			checkNodePods(t, r)
			// A rule selects pod web, which waits for its own limit; the candidates use nothing.
			if len(r.Rules) != 4 || r.Rules[0].Phase != "firing" || !strings.Contains(r.Rules[0].Why, "2 containers are at their floor") {
				t.Errorf("rules %+v, throttles %+v; want the first of 4 firing with 2 containers at their floor", r.Rules, r.Throttles)
			}
		})
	}
}

// checkNodePods checks the values of the recorded pods, one of which is not listed.
func checkNodePods(t *testing.T, r jsonReport) {
	t.Helper()

	if len(r.Pods) != 4 {
		t.Errorf("%d pods, want 4: %+v", len(r.Pods), r.Pods)
	}

	for _, p := range r.Pods {
		if p.UsedCPU == nil || p.WorkingSet == nil || *p.WorkingSet <= 0 || p.Throttled == nil {
			t.Errorf("pod %s is %+v, want all values", p.UID, p)
			continue
		}

		want := map[string]float64{"web": 0.5, "": 1, "sort": 0, "grep": 0}[p.Name]
		if math.Abs(*p.UsedCPU-want) > 0.2 {
			t.Errorf("pod %q uses %g cores, want about %g", p.Name, *p.UsedCPU, want)
		}
		if held := p.Limit != nil && *p.Limit == 0.5 && *p.Throttled > 0.5; held != (p.Name == "web") {
			t.Errorf("pod %q: limit %v, throttled %g, want only web held at half a core", p.Name, p.Limit, *p.Throttled)
		}
		if touchable := len(p.Allowed) == 2; touchable != (p.Name == "sort" || p.Name == "grep") {
			t.Errorf("pod %q has allowed actions %v, want two for sort and grep only", p.Name, p.Allowed)
		}
	}
}
