// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"math"
	"strings"
	"testing"

	"crane.io/crane/test/hostrecording"
)

// exclusive is the pod with an exclusive CPU.
const exclusive = "3e5d7a90-52c4-4c1e-9a77-b1d2c3e4f504"

// TestNodes checks recordings of real nodes: all pods are found, and the kubelet's service, systemd's scopes and mounts and the runtime's
// monitors are not mistaken for pods.
func TestNodes(t *testing.T) {
	for _, name := range hostrecording.Nodes() {
		t.Run(name, func(t *testing.T) {
			rec, _, layout, tree := openRecording(t, name)
			want := Layout{Version: V2, Driver: CgroupFS, Pods: "kubepods"}
			if strings.Contains(name, "-systemd-") {
				want.Driver = Systemd
				want.Pods = "kubepods.slice"
			}

			if strings.Contains(name, "-hybrid-") {
				want.Version = Hybrid
			}
			if layout.Version != want.Version || layout.Driver != want.Driver || layout.Pods != want.Pods || layout.MissingReason("cpu") != "" || layout.MissingReason("memory") != "" {
				t.Errorf("%+v, want %+v", layout, want)
			}

			runtime, containers := "containerd", 2 // including the sandbox
			if strings.HasSuffix(name, "-crio") {
				runtime = "cri-o"
				if layout.Driver == Systemd {
					containers = 1 // The sandbox's group has no .scope suffix.
				}
			}

			pods := readPods(t, tree)
			classes := map[string]Class{guaranteed: Guaranteed, exclusive: Guaranteed, burstable: Burstable, bestEffort: BestEffort}
			if len(pods) != len(classes) {
				t.Errorf("%d pods, want %d", len(pods), len(classes))
			}

			before := map[string]Stat{}
			for uid, class := range classes {
				p := pods[uid]
				if p == nil || p.Class != class || len(p.Containers) != containers {
					t.Fatalf("%s: %+v, want class %s with %d groups of containers", uid, p, class, containers)
				}

				if all := CPU | Quota | Memory | Pressure; p.Stat.Has != all {
					t.Errorf("%s has %b, want %b", uid, p.Stat.Has, all)
				}

				for _, c := range p.Containers {
					if c.Runtime != runtime || len(c.ID) != idLength || c.Stat.Has != CPU|Quota|Memory {
						t.Errorf("container %+v, want one of %s with all its parts", c, runtime)
					}
				}

				before[uid] = p.Stat
			}

			if s := before[guaranteed]; s.Limit.Cores() != 0.5 || s.Throttled == 0 || s.Stalled.CPU.Some.Total == 0 {
				t.Errorf("the limited pod has %+v, want half a core, throttling and stall time", s)
			}
			if s := before[burstable]; !s.Limit.Unlimited() || s.Cache < 20<<20 || s.Cache > 128<<20 || s.RSS > s.Cache {
				t.Errorf("the pod that reads files has %+v, want no limit and more cache than RSS", s)
			}

			rec.To(1)
			after := readPods(t, tree)
			for uid, want := range map[string]float64{guaranteed: 0.5, exclusive: 1, bestEffort: 0} {
				cores := float64(after[uid].Stat.CPUTime-before[uid].CPUTime) / float64(rec.Moments[1].At)
				// The machine was emulated on a busy host; reading it took a second or more of the ten in between.
				if math.Abs(cores-want) > 0.2 {
					t.Errorf("%s uses %g cores, want about %g", uid, cores, want)
				}
			}
		})
	}
}
