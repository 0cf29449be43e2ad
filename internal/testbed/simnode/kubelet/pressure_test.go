// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestOOMKillAndRecovery(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.load["web"] = Use{CPU: 0.1, Memory: 256<<20 + 1, Known: true}
	w.measure()

	s := w.pod(p).Status.ContainerStatuses[0]
	if s.State.Terminated == nil || s.State.Terminated.Reason != "OOMKilled" || s.State.Terminated.ExitCode != 137 || s.Ready {
		t.Fatalf("state right after = %+v, want OOMKilled with 137 and not ready", s.State)
	}

	if w.eventCount("OOMKilling") != 1 || isTrue(w.pod(p), corev1.PodReady) {
		t.Errorf("after the OOM kill: %d OOMKilling events, Ready %t; want 1 and false", w.eventCount("OOMKilling"), isTrue(w.pod(p), corev1.PodReady))
	}

	w.load["web"] = Use{CPU: 0.1, Memory: 256 << 20, Known: true}
	w.pass(2 * time.Second)
	w.measure()

	s = w.pod(p).Status.ContainerStatuses[0]
	if s.RestartCount != 1 || !s.Ready || s.LastTerminationState.Terminated.Reason != "OOMKilled" {
		t.Errorf("container with a use of just the limit = %+v, want ready after one restart", s)
	}
	if got := w.node.Containers(nil, true); len(got) != 1 || got[0].OOMKills != 1 || got[0].Restarts != 1 {
		t.Errorf("Containers = %+v, want one with one OOM kill and one restart", got)
	}
}

func TestImpossibleUseIsUnknown(t *testing.T) {
	for name, u := range map[string]Use{
		"NaN": {CPU: math.NaN(), Memory: 1 << 40, Known: true}, "infinite": {CPU: 1, Memory: math.Inf(1), Known: true},
		"negative": {CPU: -1, Memory: 1 << 40, Known: true}, "unknown": {CPU: 1, Memory: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			p := newPod("web", "500m", "256Mi")
			w.put(p)
			w.pass(2 * time.Second)
			w.load["web"] = u
			w.measure()

			got := w.node.Containers(nil, true)
			if len(got) != 1 || got[0].Use.Known || got[0].CPUSeconds != 0 || got[0].OOMKills != 0 {
				t.Errorf("Containers = %+v, want one with an unknown use and no counters", got)
			}
		})
	}
}

func TestMeterCapsCPUAndCountsThrottling(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "500m", "256Mi")
	w.put(p)
	w.pass(2 * time.Second)
	w.load["web"] = Use{CPU: 0.25, Memory: 1, Known: true}
	w.measure()
	before := w.node.Containers(nil, true)[0]
	w.load["web"] = Use{CPU: 2, Memory: 1, Known: true}
	w.now = w.now.Add(10 * time.Second)
	w.measure()

	after := w.node.Containers(nil, true)[0]
	if after.Use.CPU != 0.5 || math.Abs(after.CPUSeconds-before.CPUSeconds-5) > 1e-9 {
		t.Errorf("use %v cores, %v CPU seconds more; want 0.5 and 5", after.Use.CPU, after.CPUSeconds-before.CPUSeconds)
	}
	if math.Abs(after.ThrottledPeriods-100) > 1e-9 || math.Abs(after.ThrottledSeconds-15) > 1e-9 || before.ThrottledPeriods != 0 {
		t.Errorf("throttled for %v periods, %v seconds; want 100 and 15, and none before", after.ThrottledPeriods, after.ThrottledSeconds)
	}
	if s := w.node.State(); !s.Use.Known || s.Use.CPU != 0.5 || math.Abs(s.CPUSeconds-after.CPUSeconds) > 1e-9 {
		t.Errorf("State() of the node = %+v, want 0.5 cores and the CPU seconds of its container", s)
	}
}

func burstable(limitless bool, pr int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.QOSClass = corev1.PodQOSBurstable
		p.Spec.Priority = new(pr)
		if limitless {
			p.Spec.Containers[0].Resources.Limits = nil
		}
	}
}

func TestEvictionOrder(t *testing.T) {
	const gi = 1 << 30
	for _, tc := range []struct {
		name string
		pods map[string]*corev1.Pod
		use  map[string]float64
		want string
	}{
		{
			"above request goes before low priority",
			map[string]*corev1.Pod{"low": newPod("low", "100m", "4Gi", burstable(true, 0)), "over": newPod("over", "100m", "1Gi", burstable(true, 1000))},
			map[string]float64{"low": 4 * gi, "over": 4.5 * gi},
			"over",
		},
		{
			"then priority",
			map[string]*corev1.Pod{"low": newPod("low", "100m", "1Gi", burstable(true, 1)), "high": newPod("high", "100m", "1Gi", burstable(true, 2))},
			map[string]float64{"low": 2 * gi, "high": 6.5 * gi},
			"low",
		},
		{
			"then the largest excess",
			map[string]*corev1.Pod{"a": newPod("a", "100m", "4Gi", burstable(true, 0)), "b": newPod("b", "100m", "1Gi", burstable(true, 0))},
			map[string]float64{"a": 4.5 * gi, "b": 4 * gi},
			"b",
		},
		{
			"never a critical pod",
			map[string]*corev1.Pod{"crit": newPod("crit", "100m", "1Gi", burstable(true, criticalPriority)), "b": newPod("b", "100m", "4Gi", burstable(true, 0))},
			map[string]float64{"crit": 6 * gi, "b": 3 * gi},
			"b",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newFixture(t)
			for name, p := range tc.pods {
				w.put(p)
				w.load[name] = Use{Memory: tc.use[name], Known: true}
			}

			w.pass(2 * time.Second)
			w.measure()

			for name, p := range tc.pods {
				s := w.pod(p).Status
				if evicted := s.Reason == "Evicted" && s.Phase == corev1.PodFailed; evicted != (name == tc.want) {
					t.Errorf("pod %s: evicted %v, want only %s to be evicted", name, evicted, tc.want)
				}
			}

			if active, _ := w.node.Pressure(); !active || w.eventCount("Evicted") != 1 {
				t.Errorf("Pressure() = %v, %d Evicted events; want true and 1", active, w.eventCount("Evicted"))
			}
		})
	}
}

func TestPressureEndsAndKeepsBestEffortOut(t *testing.T) {
	w := newFixture(t)
	p := newPod("web", "100m", "1Gi", burstable(true, 0))
	w.put(p)
	w.pass(2 * time.Second)
	w.load["web"] = Use{Memory: 9 << 30, Known: true}
	w.measure()

	best := newPod("best", "0", "0", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		p.Status.QOSClass = corev1.PodQOSBestEffort
	})
	w.put(best)

	if got := w.pod(best).Status; got.Reason != "Evicted" {
		t.Errorf("BestEffort pod under pressure: phase %s, reason %s; want Evicted", got.Phase, got.Reason)
	}

	w.now = w.now.Add(DefaultTiming().PressureHold)
	w.measure()

	if active, since := w.node.Pressure(); active || !since.Equal(w.now) {
		t.Errorf("Pressure() = %v since %v, want false since %v", active, since, w.now)
	}
}

func TestSpecAndTimingRefuseNonsense(t *testing.T) {
	good := NodeSpec{Name: "n", CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")}
	for name, edit := range map[string]func(*NodeSpec){
		"name": func(s *NodeSpec) { s.Name = "Not A Name" }, "cpu": func(s *NodeSpec) { s.CPU = resource.Quantity{} },
		"pods": func(s *NodeSpec) { s.MaxPods = 251 }, "reserve": func(s *NodeSpec) { s.ReservedCPU = resource.MustParse("2") },
		"negative": func(s *NodeSpec) { s.ReservedMemory = resource.MustParse("-1") }, "tiny": func(s *NodeSpec) { s.Memory = resource.MustParse("90Mi") },
	} {
		s := good
		edit(&s)

		if s.Validate() == nil {
			t.Errorf("Validate of a node with %s: no error, want one", name)
		}
	}

	if err := good.Validate(); err != nil {
		t.Error(err)
	}

	bad := DefaultTiming()
	bad.BackOffMax = 0
	if bad.Validate() == nil {
		t.Error("Validate of a backoff that shrinks: no error, want one")
	}

	bad = DefaultTiming()
	bad.Ready = -1
	if bad.Validate() == nil || DefaultTiming().Validate() != nil {
		t.Errorf("Validate of a negative duration = %v, of the defaults = %v; want an error only for the first", bad.Validate(), DefaultTiming().Validate())
	}
}
