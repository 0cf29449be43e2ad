// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

// interferenceRules protect the web server; batch pods may be throttled.
const interferenceRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: mixed}
spec:
  rules:
  - {name: interference, avoidanceThreshold: 2, restoreThreshold: 3, actionName: calm-down, metricRule: {name: pod_interference_cpu_ratio, value: 100m}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: calm-down}
spec: {coolDownSeconds: 20, throttle: {cpuThrottle: {minCPURatio: 10, stepCPURatio: 50}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: web}
spec: {labelSelector: {matchLabels: {app: web}}, resourceQOS: {cpuQOS: {cpuPriority: 0}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [calm-down], labelSelector: {matchExpressions: [{key: app, operator: In, values: [steady, hog]}]}, resourceQOS: {cpuQOS: {cpuPriority: 7}}}
`

// interferenceFixture is a simulated host with a web server, a steady and a varying batch pod.
type interferenceFixture struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	host  *kernel.Machine
	bed   fixture
	parts *wiredAgent
	loop  *loop
	dir   string
	group map[string]string
	got   map[string]kernel.Use
}

func newInterferenceFixture(t *testing.T, v1 bool) *interferenceFixture {
	t.Helper()
	return neighborsOn(t, kernel.Spec{V1: v1}, interferenceRules)
}

func neighborsOn(t *testing.T, spec kernel.Spec, rules string) *interferenceFixture {
	t.Helper()

	n := &interferenceFixture{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), group: map[string]string{}}
	var err error
	if n.host, err = kernel.NewMachine(n.dir, spec, n.clock); err != nil {
		t.Fatal(err)
	}

	var pods []*corev1.Pod
	for i, p := range []struct {
		name, class string
		request     int64
	}{{"web", "Burstable", 500}, {"steady", "Burstable", 100}, {"hog", "Burstable", 2000}} {
		uid := strings.Repeat(string(rune('1'+i)), 8) + "-0000-0000-0000-000000000000"
		id := containerID(string(rune('1' + i)))
		if err := n.host.AddPod(kernel.Pod{UID: uid, Class: p.class, Containers: []kernel.Container{{ID: id, RequestCPU: p.request}}}); err != nil {
			t.Fatal(err)
		}

		n.group[p.name] = n.host.ContainerGroup(n.host.PodGroup(uid, p.class), id)
		pods = append(pods, podOn(uid, p.name, id))
	}

	n.bed = fixture{n.dir, t.TempDir(), n.clock, n.host.Tree(), known(t, rules, pods...)}
	n.start()
	return n
}

// start starts an agent.
func (n *interferenceFixture) start() {
	n.t.Helper()
	n.parts, n.loop, _ = n.bed.agent(n.t, enforceThrottle)
}

// want sets the demands of the pods in cores.
func (n *interferenceFixture) want(cores ...float64) {
	n.t.Helper()

	for i, c := range cores {
		id := containerID(string(rune('1' + i)))
		if err := n.host.SetDemand(strings.Repeat(string(rune('1'+i)), 8)+"-0000-0000-0000-000000000000", id, kernel.Load{CPU: c}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// tick advances the clock by seconds.
func (n *interferenceFixture) tick(seconds int) qos.Plan {
	n.t.Helper()

	n.clock.Step(time.Duration(seconds) * time.Second)
	var err error
	if n.got, err = n.host.Advance(); err != nil {
		n.t.Fatal(err)
	}

	return n.loop.tick(n.clock.Now())
}

func (n *interferenceFixture) limited(name string) bool {
	n.t.Helper()

	file, none := "cpu.max", "max"
	if n.host.Tree().V1 {
		file, none = "cpu.cfs_quota_us", "-1"
	}

	content, err := os.ReadFile(filepath.Join(n.host.Tree().Dir, n.group[name], file))
	if err != nil {
		n.t.Fatal(err)
	}

	return !strings.HasPrefix(string(content), none)
}

// TestInterference checks the path from kernel files to a limit of the right pod and back, by pressure and by run queues.
func TestInterference(t *testing.T) {
	for name, test := range map[string]struct {
		v1     bool
		within int // ticks until it acts
	}{"pressure": {false, 2}, "run queues": {true, 45}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := newInterferenceFixture(t, test.v1)
			n.want(1, 1, 0.3)

			for range 27 {
				if plan := n.tick(5); len(plan.Throttles) > 0 {
					t.Fatalf("a calm node has throttles %+v, want none", plan.Throttles)
				}
			}

			n.want(1, 1, 6)
			ticks := 0
			for ; ticks < test.within && !n.limited("hog"); ticks++ {
				n.tick(1)
			}

			if !n.limited("hog") || n.limited("steady") || n.limited("web") {
				t.Fatalf("after %d s hog is limited: %t, steady: %t, findings %+v; want only hog within %d s", ticks, n.limited("hog"), n.limited("steady"), n.tick(1).Rules, test.within)
			}

			for range 30 {
				n.tick(1)
			}

			if got := n.got[containerID("1")].CPU; got < 0.95 || n.limited("steady") {
				t.Errorf("web gets %g of a core, steady is limited: %t; want at least 0.95 and no limit", got, n.limited("steady"))
			}

			n.want(1, 1, 0.3)
			for range 20 {
				n.tick(5)
			}

			if n.limited("hog") {
				t.Error("hog is still limited on a calm node, want its CPU restored")
			}
		})
	}
}

// TestNoInterference checks that a web server held up by its own limit is not protected.
func TestNoInterference(t *testing.T) {
	n := newInterferenceFixture(t, false)
	if err := n.host.Tree().Write(filepath.Join(n.host.Tree().Dir, n.group["web"], "cpu.max"), "110000 100000"); err != nil {
		t.Fatal(err)
	}

	n.want(1, 1, 0.3)
	for range 27 {
		n.tick(5)
	}

	n.want(3, 1, 1.8)
	for range 20 {
		if plan := n.tick(1); len(plan.Throttles) > 0 || plan.Rules[0].Phase != qos.Calm {
			t.Fatalf("the plan is %+v, want a calm rule without throttles", plan)
		}
	}
}
