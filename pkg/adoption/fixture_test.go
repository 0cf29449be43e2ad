// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const mib = 1 << 20

// requests returns the size of a container in millicores and MiB; 0 is absent.
func requests(cpu, memory int64) rightsize.Resources { return requestsAndLimits(cpu, 0, memory, 0) }

func requestsAndLimits(cpu, cpuLimit, memory, memoryLimit int64) rightsize.Resources {
	var r rightsize.Resources
	for _, f := range []struct {
		to *(*units.MilliCPU)
		v  int64
	}{{&r.CPURequest, cpu}, {&r.CPULimit, cpuLimit}} {
		if f.v > 0 {
			v := units.MilliCPU(f.v)
			*f.to = &v
		}
	}

	for _, f := range []struct {
		to *(*units.Bytes)
		v  int64
	}{{&r.MemoryRequest, memory}, {&r.MemoryLimit, memoryLimit}} {
		if f.v > 0 {
			v := units.Bytes(f.v * mib)
			*f.to = &v
		}
	}

	return r
}

func appSize(r rightsize.Resources) Size {
	return Size{Containers: map[string]rightsize.Resources{"app": r}}
}

// fixture is a workload in a simulated cluster that carries out each plan immediately.
type fixture struct {
	t    *testing.T
	in   Input
	plan Plan
	// events are the reasons of the recorded events.
	events []string
	// resized counts the pods that the last plan changed.
	resized int
	// refusing holds the UIDs of pods whose resizes fail.
	refusing map[string]bool
}

func newFixture(t *testing.T, pods int, now, want rightsize.Resources) *fixture {
	t.Helper()

	b := &fixture{t: t, in: Input{
		Now: noon, Policy: DefaultPolicy(), DesiredSize: appSize(want), Recommendation: "shop/web", Template: appSize(now), Owner: "kubectl", DisruptionsAllowed: -1,
	}}
	for i := range pods {
		b.in.Pods = append(b.in.Pods, newPod(i, now))
	}

	return b
}

func newPod(i int, r rightsize.Resources) Pod {
	return Pod{
		Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("uid-%d", i), Created: noon.Add(-time.Hour + time.Duration(i)), Ready: true,
		Containers: []Container{{Name: "app", Size: r}},
	}
}

// reconcile decides, encodes and parses the state, and carries out the plan.
func (b *fixture) reconcile() Plan {
	b.t.Helper()

	plan := Decide(b.in)
	text, err := plan.State.Encode()
	if err != nil {
		b.t.Fatal(err)
	}

	b.in.State, err = ParseState(text)
	if err != nil {
		b.t.Fatalf("ParseState(%s): %v, want no error", text, err)
	}

	for _, n := range plan.Events {
		b.events = append(b.events, n.Reason)
	}

	b.resized = 0
	for _, c := range plan.Resizes {
		for i := range b.in.Pods {
			p := &b.in.Pods[i]
			if p.UID != c.UID || b.refusing[c.UID] {
				continue
			}

			b.resized++
			for j := range p.Containers {
				if size, ok := c.To.Containers[p.Containers[j].Name]; ok {
					p.Containers[j].Size = size
				}
			}
		}
	}

	for _, to := range plan.Targets {
		for i := range b.in.Targets {
			if b.in.Targets[i].sameRequest(to) {
				b.in.Targets[i] = to
			}
		}
	}

	if plan.Replicas != nil {
		b.in.Template.Replicas = plan.Replicas
	}
	if plan.Template != nil {
		b.in.Template = plan.Template.Clone()
	}

	b.plan = plan
	return plan
}

// wait reconciles until the given time has passed.
func (b *fixture) wait(d time.Duration) {
	b.t.Helper()

	end := b.in.Now.Add(d)
	for !b.in.Now.After(end) {
		b.reconcile()
		step := b.plan.RequeueAfter
		if step <= 0 || step > time.Minute {
			step = time.Minute
		}

		b.in.Now = b.in.Now.Add(step)
	}
}

func (b *fixture) sizes() map[string]int {
	out := map[string]int{}
	for _, p := range b.in.Pods {
		out[p.size().String()]++
	}

	return out
}

// expectSize fails the test unless every pod has the size.
func (b *fixture) expectSize(want rightsize.Resources) {
	b.t.Helper()

	if got := b.sizes(); len(got) != 1 || got[appSize(want).String()] != len(b.in.Pods) {
		b.t.Errorf("pods have %v, want %s", got, appSize(want))
	}
}

func (b *fixture) expectPhase(want Phase) {
	b.t.Helper()

	if b.in.State.Phase != want {
		b.t.Errorf("phase %q (%s), want %q", b.in.State.Phase, b.plan.Summary, want)
	}
}
