// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"strings"
	"testing"
	"time"
)

// TestInPlaceSize: a resize in place keeps the QoS class of the pod, and neither adds nor removes an amount.
func TestInPlaceSize(t *testing.T) {
	for name, c := range map[string]struct {
		pod, goal, want []int64
		why             string
	}{
		"burstable":                       {[]int64{100, 0, 100, 0}, []int64{50, 0, 60, 0}, []int64{50, 0, 60, 0}, ""},
		"best effort":                     {[]int64{0, 0, 0, 0}, []int64{50, 0, 60, 0}, []int64{0, 0, 0, 0}, "BestEffort"},
		"guaranteed, requests alone":      {[]int64{100, 100, 100, 100}, []int64{50, 0, 60, 0}, []int64{100, 100, 100, 100}, "QoS"},
		"guaranteed, both":                {[]int64{100, 100, 100, 100}, []int64{50, 50, 60, 60}, []int64{50, 50, 60, 60}, ""},
		"to guaranteed":                   {[]int64{50, 100, 100, 100}, []int64{100, 0, 100, 0}, []int64{50, 100, 100, 100}, "QoS"},
		"no request to add":               {[]int64{100, 0, 0, 0}, []int64{50, 0, 60, 0}, []int64{50, 0, 0, 0}, ""},
		"a request that was removed":      {[]int64{100, 0, 100, 0}, []int64{0, 0, 60, 0}, []int64{100, 0, 60, 0}, ""},
		"a limit that was removed":        {[]int64{100, 200, 100, 200}, []int64{50, 0, 60, 0}, []int64{50, 200, 60, 200}, ""},
		"no limit to add":                 {[]int64{100, 0, 100, 0}, []int64{50, 100, 60, 120}, []int64{50, 0, 60, 0}, ""},
		"a request above the pod's limit": {[]int64{100, 150, 100, 0}, []int64{500, 0, 100, 0}, []int64{100, 150, 100, 0}, ""},
	} {
		r := func(v []int64) Size { return appSize(requestsAndLimits(v[0], v[1], v[2], v[3])) }
		p := newPod(0, r(c.pod).Containers["app"])

		if name == "a request above the pod's limit" {
			c.want = []int64{150, 150, 100, 0}
		}

		got, why := p.InPlaceSize(r(c.goal))
		if !got.Equal(r(c.want)) || (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s (%q), want %s", name, got, why, r(c.want))
		}
	}
}

// TestDecide_RestartsWithinBudget: disruption budgets bound resizes that restart containers, and no others.
func TestDecide_RestartsWithinBudget(t *testing.T) {
	for _, c := range []struct {
		restarts          bool
		disruptions, want int
	}{{true, 0, 0}, {true, 1, 1}, {true, -1, 2}, {false, 0, 8}} {
		b := newFixture(t, 8, requests(1000, 1000), requests(1000, 2000))
		for i := range b.in.Pods {
			b.in.Pods[i].Containers[0].RestartsForMemory = c.restarts
		}

		b.in.DisruptionsAllowed = c.disruptions
		b.reconcile()

		if b.resized != c.want {
			t.Errorf("%+v: %d pods resized, want %d", c, b.resized, c.want)
		}
	}
}

// TestDecide_SlowNodes: a resize that a node delays or refuses delays no other pod, and is not sent again.
func TestDecide_SlowNodes(t *testing.T) {
	for _, how := range []ResizeStatus{ResizeDeferred, ResizeInfeasible, ResizeFailed, ResizeInProgress} {
		b := newFixture(t, 4, requests(1000, 1000), requests(800, 1000))
		b.reconcile()
		b.wait(time.Minute)
		b.in.Pods[0].ResizeStatus = how
		b.in.Pods[0].ResizeMessage = "no room"
		b.wait(6 * time.Minute)

		if b.in.State.Phase != Watching || b.resized != 0 {
			t.Errorf("resize status %s: phase %s, %d resized, want Watching and none", how, b.in.State.Phase, b.resized)
		}
		if len(b.plan.Remarks) != 1 || !strings.Contains(b.plan.Remarks[0], string(how)) {
			t.Errorf("resize status %s: remarks %v, want one with the status", how, b.plan.Remarks)
		}
	}
}

// TestDecide_PodsWithoutSize: the summary counts the pods that do not get the size, with each reach that changes running pods.
func TestDecide_PodsWithoutSize(t *testing.T) {
	for name, edit := range map[string]func(*Input){
		"a pod that does not run":    func(in *Input) { in.Pods[1].NotResizable = "it does not run: Pending" },
		"a pod that is not replaced": func(in *Input) { in.Pods[1].NotResizable = "it does not run: Pending"; in.Reach = Recreate },
		"guaranteed pods that are kept": func(in *Input) {
			in.Reach = Recreate
			in.DesiredSize = appSize(requests(500, 1000))
			for i := range in.Pods {
				in.Pods[i].Containers[0].Size = requestsAndLimits(1000, 1000, 1000, 1000)
			}
			in.Template = in.Pods[0].size()
		},
		"fewer pods than are changed":   func(in *Input) { in.MinReplicas = 3 },
		"fewer pods than are evictable": func(in *Input) { in.MinReplicas = 3; in.Reach = Recreate },
	} {
		b := newFixture(t, 2, requests(1000, 1000), requests(2000, 1000))
		edit(&b.in)
		var plan Plan
		for range 4 {
			plan = b.reconcile()
			b.in.Now = b.in.Now.Add(11 * time.Minute)
		}

		if plan.Summary == asRecommended || len(plan.Remarks) == 0 {
			t.Errorf("%s: Decide = %q with remarks %q while a pod has %s, want the pods without the size", name, plan.Summary, plan.Remarks, b.in.Pods[1].size())
		}
	}
}

// TestDecide_RefusedPodsWaitBehindOthers: pods that do not get a lower size, because their resize is refused or fails, do not keep the others
// from it.
func TestDecide_RefusedPodsWaitBehindOthers(t *testing.T) {
	to := requests(800, 1000)
	for name, change := range map[string]func(*Pod){
		"refused by the API server": func(p *Pod) {
			p.Refused = "denied by a policy"
			p.RefusedSize = appSize(to)
		},
		"failed on the node": func(p *Pod) {
			p.Containers[0].Size = to
			p.ResizeStatus = ResizeFailed
		},
	} {
		b := newFixture(t, 4, requests(1000, 1000), to)
		b.refusing = map[string]bool{"uid-0": true}
		b.reconcile()
		change(&b.in.Pods[0])
		b.wait(15 * time.Minute)

		if got := b.sizes()[appSize(to).String()]; got < 3 {
			t.Errorf("%s: %d pods have %s, want all but the first: %v; %s", name, got, appSize(to), b.sizes(), b.plan.Summary)
		}
	}
}
