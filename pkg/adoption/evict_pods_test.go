// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
)

// evictionFixture is a fixture that replaces evicted pods.
type evictionFixture struct {
	*fixture
	// unsized is what new pods get instead of the adopted size; nil while the webhook for new pods runs.
	unsized *rightsize.Resources
	// readyAfter is the time from the creation of a pod until it is ready.
	readyAfter time.Duration
	created    int
	// evicted counts evictions by pod name; maxAtOnce is the largest number in one decision.
	evicted   map[string]int
	maxAtOnce int
}

func newEvictionFixture(t *testing.T, pods int, reach Reach, now, want rightsize.Resources) *evictionFixture {
	n := &evictionFixture{fixture: newFixture(t, pods, now, want), readyAfter: 20 * time.Second, evicted: map[string]int{}}
	n.in.Reach = reach
	return n
}

// reconcile also carries out evictions.
func (n *evictionFixture) reconcile() Plan {
	n.t.Helper()

	for i := range n.in.Pods {
		if p := &n.in.Pods[i]; !p.Ready && n.in.Now.Sub(p.Created) >= n.readyAfter {
			p.Ready = true
		}
	}

	serving := 0
	for _, p := range n.in.Pods {
		if p.Ready {
			serving++
		}
	}

	plan := n.fixture.reconcile()
	n.maxAtOnce = max(n.maxAtOnce, len(plan.Evictions))
	for _, e := range plan.Evictions {
		for i := range n.in.Pods {
			p := &n.in.Pods[i]
			if p.UID != e.UID {
				continue
			}

			if p.Ready && serving < len(n.in.Pods) {
				n.t.Errorf("%s was evicted while %d of %d pods served, want all of them", p.Name, serving, len(n.in.Pods))
			}

			n.created++
			n.evicted[p.Name]++
			size := n.in.Template.Containers["app"]
			if given, ok := n.in.State.NewPodSize(); ok {
				size = given.Containers["app"]
			}
			if n.unsized != nil {
				size = *n.unsized
			}

			*p = Pod{
				Name: p.Name, UID: fmt.Sprint("new-", n.created), Created: n.in.Now.Truncate(time.Second), UnreadySince: n.in.Now, Containers: []Container{{Name: "app", Size: size}},
			}
		}
	}

	return plan
}

func (n *evictionFixture) wait(d time.Duration) {
	n.t.Helper()

	for end := n.in.Now.Add(d); !n.in.Now.After(end); {
		n.reconcile()
		step := n.plan.RequeueAfter
		if step <= 0 || step > 10*time.Second {
			step = 10 * time.Second
		}

		n.in.Now = n.in.Now.Add(step)
	}
}

// TestDecide_NewPodsOnly: running pods are never resized, and new pods get the size, which still decreases in steps.
func TestDecide_NewPodsOnly(t *testing.T) {
	n := newEvictionFixture(t, 4, NewPods, requests(1000, 512), requests(500, 512))
	n.wait(3 * time.Hour)
	n.expectSize(requests(1000, 512))

	given, ok := n.in.State.NewPodSize()
	if !ok || !given.Equal(appSize(requests(512, 512))) || n.in.State.Steps != 3 { // The remaining change is below the minimum of a step.
		t.Errorf("new pods get %s after %d steps, want %s after 3", given, n.in.State.Steps, appSize(requests(512, 512)))
	}

	n.in.DesiredSize = Size{}
	n.wait(time.Hour)
	n.expectSize(requests(1000, 512))

	if n.in.State.Phase != Untouched || n.created > 0 {
		t.Errorf("state %+v, %d pods replaced, want an untouched workload and none", n.in.State, n.created)
	}
}

// TestDecide_Recreate: one step replaces every pod once, a quarter of them at a time.
func TestDecide_Recreate(t *testing.T) {
	for name, want := range map[string]rightsize.Resources{"down": requests(200, 512), "up": requests(3000, 1024)} {
		n := newEvictionFixture(t, 8, Recreate, requests(1000, 512), want)
		n.wait(3 * time.Hour)
		n.expectSize(want)

		if n.maxAtOnce > 2 || n.created != 8 || n.in.State.Phase != Resting {
			t.Errorf("%s: %d evictions, %d at once: %+v, want 8, at most 2 at once", name, n.created, n.maxAtOnce, n.plan)
		}

		// Restoring the original size evicts no pod.
		n.in.DesiredSize = Size{}
		n.wait(time.Hour)

		if n.created != 8 || n.in.State.Phase != Untouched {
			t.Errorf("%s: %d pods evicted after adoption was switched off, want none; state %+v", name, n.created-8, n.in.State)
		}
	}
}

// TestDecide_ReplacementWithoutSize checks that one pod alone is evicted for nothing when replacements do not get the size, whatever the reason
// for the eviction, and that evictions go on once a new pod has it.
func TestDecide_ReplacementWithoutSize(t *testing.T) {
	for name, c := range map[string]struct {
		reach    Reach
		now      rightsize.Resources
		template rightsize.Resources
	}{
		"recreate":                     {Recreate, requests(1000, 512), requests(1000, 512)},
		"not possible in place":        {InPlaceOrRecreate, requests(0, 0), requests(0, 0)},
		"changed by another webhook":   {Recreate, requests(1000, 512), requests(777, 512)},
		"an amount of another webhook": {Recreate, requests(1000, 512), requestsAndLimits(1000, 4000, 512, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			n := newEvictionFixture(t, 12, c.reach, c.now, requests(200, 512))
			n.unsized = &c.template
			n.wait(40 * time.Minute)

			if n.created != 1 {
				t.Errorf("%d pods were evicted while replacements do not get the size, want 1: %v", n.created, n.evicted)
			}
			if text := strings.Join(n.plan.Remarks, "\n"); !strings.Contains(text, "no more pods are evicted") {
				t.Errorf("remarks %q, want one that no more pods are evicted", text)
			}

			// A pod that is created for another reason gets the size.
			n.unsized = nil
			n.in.Pods[11] = newPod(11, requests(200, 512))
			n.in.Pods[11].Created = n.in.Now
			n.wait(40 * time.Minute)

			if n.created != 11 {
				t.Errorf("%d pods were evicted after a new pod got the size, want 11: all but the one without it and the new one", n.created)
			}
		})
	}
}

// TestDecide_ReplacementWithoutSizeLater checks that evictions end when the webhook stops in the middle of them.
func TestDecide_ReplacementWithoutSizeLater(t *testing.T) {
	n := newEvictionFixture(t, 12, Recreate, requests(1000, 512), requests(200, 512))
	for n.created < 4 {
		n.wait(10 * time.Second)
	}

	n.unsized = new(requests(1000, 512))
	before := n.created
	n.wait(40 * time.Minute)

	if most := before + podsAtOnce(n.in); n.created > most {
		t.Errorf("%d pods were evicted, %d of them before the webhook stopped, want at most %d", n.created, before, most)
	}
}

// TestDecide_RecreateLimits by the number of pods, by disruption budgets, and by replacements that do not become ready.
func TestDecide_RecreateLimits(t *testing.T) {
	alone := newEvictionFixture(t, 1, Recreate, requests(1000, 512), requests(200, 512))
	alone.wait(2 * time.Hour)

	if alone.created > 0 || !strings.Contains(strings.Join(alone.plan.Remarks, "\n"), "no pod is evicted with fewer than 2 running: 1 pod now") {
		t.Errorf("%d evictions of the only pod, want none and a remark: %+v", alone.created, alone.plan)
	}

	alone.in.MinReplicas = 1
	alone.wait(2 * time.Hour)
	alone.expectSize(requests(200, 512))

	few := newEvictionFixture(t, 4, Recreate, requests(1000, 512), requests(200, 512))
	few.in.MinReplicas = 5
	few.wait(2 * time.Hour)

	if few.created > 0 || !strings.Contains(strings.Join(few.plan.Remarks, "\n"), "no pod is touched with fewer than 5 running: 4 pods now") {
		t.Errorf("%d evictions below the minimum of 5, want none and a remark: %+v", few.created, few.plan)
	}

	budget := newEvictionFixture(t, 4, Recreate, requests(1000, 512), requests(200, 512))
	budget.in.DisruptionsAllowed = 0
	budget.wait(2 * time.Hour)

	if budget.created > 0 {
		t.Errorf("%d evictions with a disruption budget of 0, want none", budget.created)
	}

	ill := newEvictionFixture(t, 8, Recreate, requests(1000, 512), requests(200, 512))
	ill.readyAfter = 10000 * time.Hour
	ill.wait(4 * time.Minute)

	if ill.created != 1 {
		t.Errorf("%d evictions while the first replacement is not ready, want 1", ill.created)
	}

	ill.wait(time.Hour)
	if ill.in.State.Rollbacks != 1 || !strings.Contains(ill.in.State.Reason, "replaced another") {
		t.Errorf("state %+v, want one rollback because of a replacement", ill.in.State)
	}
}

// TestDecide_InfeasibleResize checks that a pod whose node can never provide the size is evicted only with the reach
// InPlaceOrRecreate.
func TestDecide_InfeasibleResize(t *testing.T) {
	for reach, want := range map[Reach]int{InPlace: 0, InPlaceOrRecreate: 1} {
		n := newEvictionFixture(t, 4, reach, requests(1000, 512), requests(3000, 512))
		n.reconcile()

		for i := range n.in.Pods { // Every pod has the new size in its spec; one node reports it as infeasible.
			if n.in.Pods[i].Name == "web-2" {
				n.in.Pods[i].ResizeStatus = ResizeInfeasible
				n.in.Pods[i].ResizeMessage = "Node didn't have enough capacity"
			}
		}

		n.wait(time.Hour)
		if n.created != want || n.evicted["web-2"] != want {
			t.Errorf("reach %q: evicted %v, want %d", reach, n.evicted, want)
		}

		n.expectSize(requests(3000, 512))
	}
}

// TestDecide_RefusedResize: a resize that the API server refuses for good counts as infeasible, for that size.
func TestDecide_RefusedResize(t *testing.T) {
	for name, c := range map[string]struct {
		reach   Reach
		refused rightsize.Resources
		want    int
	}{
		"another way":     {InPlaceOrRecreate, requests(3000, 512), 1},
		"no other way":    {InPlace, requests(3000, 512), 0},
		"of another size": {InPlaceOrRecreate, requests(4000, 512), 0},
	} {
		n := newEvictionFixture(t, 4, c.reach, requests(1000, 512), requests(3000, 512))
		n.in.Pods[2].Refused = "no room, ever"
		n.in.Pods[2].RefusedSize = appSize(c.refused)
		n.refusing = map[string]bool{"uid-2": true}
		n.wait(10 * time.Minute)

		if n.created != c.want || n.evicted["web-2"] != c.want {
			t.Errorf("%s: evicted %v, want %d", name, n.evicted, c.want)
		}
	}
}

// TestDecide_BestEffortPod: a pod without requests gets them only by eviction.
func TestDecide_BestEffortPod(t *testing.T) {
	for reach, want := range map[Reach]int{InPlace: 0, InPlaceOrRecreate: 4, Recreate: 4, NewPods: 0} {
		n := newEvictionFixture(t, 4, reach, requests(0, 0), requests(300, 512))
		n.wait(2 * time.Hour)

		if n.created != want {
			t.Errorf("reach %q: %d evictions, want %d; %+v", reach, n.created, want, n.plan)
		}
	}
}

// TestDecide_EvictionsAreBounded: for random sizes and start-up times, no pod is evicted twice for one size, and no decision evicts more than
// its share.
func TestDecide_EvictionsAreBounded(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := newEvictionFixture(t, 2+r.IntN(9), []Reach{Recreate, InPlaceOrRecreate}[r.IntN(2)], requests(1000, 512), requests(1000, 512))

		n.readyAfter = time.Duration(r.IntN(120)) * time.Second
		if r.IntN(3) == 0 {
			n.unsized = new(requests(1000, 512))
		}

		sizes := 1 + r.IntN(3)
		for range sizes {
			n.in.DesiredSize = appSize(requests(100+r.Int64N(3000), 64+r.Int64N(2000)))
			n.wait(40 * time.Minute)
		}

		if most := max(1, len(n.in.Pods)/4); n.maxAtOnce > most {
			t.Fatalf("seed %d: %d evicted at once, want at most %d", seed, n.maxAtOnce, most)
		}

		for name, times := range n.evicted {
			if changes := n.in.State.Steps + n.in.State.Rollbacks + sizes; times > changes {
				t.Fatalf("seed %d: %s was evicted %d times, want at most %d, once for each size", seed, name, times, changes)
			}
		}
	}
}

// TestReplacementSize: a replacement has the QoS class of the pod, except that a pod without any request may get some.
func TestReplacementSize(t *testing.T) {
	for name, c := range map[string]struct {
		pod, goal, want []int64
		reason          string
	}{
		"burstable":                {[]int64{100, 200, 100, 100}, []int64{50, 200, 60, 100}, []int64{50, 200, 60, 100}, ""},
		"best effort to burstable": {[]int64{0, 0, 0, 0}, []int64{50, 0, 60, 0}, []int64{50, 0, 60, 0}, ""},
		"guaranteed to burstable":  {[]int64{100, 100, 100, 100}, []int64{50, 100, 60, 100}, []int64{100, 100, 100, 100}, "guaranteed its resources"},
		"burstable to guaranteed":  {[]int64{100, 200, 100, 100}, []int64{300, 300, 100, 100}, []int64{100, 200, 100, 100}, "its QoS class would change"},
	} {
		size := func(v []int64) Size { return appSize(requestsAndLimits(v[0], v[1], v[2], v[3])) }
		p := newPod(0, size(c.pod).Containers["app"])
		got, reason := p.replacementSize(size(c.goal))

		if !got.Equal(size(c.want)) || (c.reason == "") != (reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: replacementSize(%s) = %s, %q, want %s, %q", name, size(c.goal), got, reason, size(c.want), c.reason)
		}
	}
}
