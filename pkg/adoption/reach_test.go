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

// nursery is a bed whose evicted pods are replaced by others.
type nursery struct {
	*bed
	// broken: whoever makes new pods their size does not.
	broken bool
	// slow is how long a new pod takes until it is ready.
	slow time.Duration
	made int
	// evicted counts evictions by the pod's place; most is the most at once.
	evicted map[string]int
	most    int
}

func newNursery(t *testing.T, pods int, reach Reach, now, want rightsize.Resources) *nursery {
	n := &nursery{bed: newBed(t, pods, now, want), slow: 20 * time.Second, evicted: map[string]int{}}
	n.in.Reach = reach
	return n
}

// look carries evictions out too.
func (n *nursery) look() Plan {
	n.t.Helper()
	for i := range n.in.Pods {
		if p := &n.in.Pods[i]; !p.Ready && n.in.Now.Sub(p.Created) >= n.slow {
			p.Ready = true
		}
	}
	serving := 0
	for _, p := range n.in.Pods {
		if p.Ready {
			serving++
		}
	}
	plan := n.bed.look()
	n.most = max(n.most, len(plan.Evictions))
	for _, e := range plan.Evictions {
		for i := range n.in.Pods {
			p := &n.in.Pods[i]
			if p.UID != e.UID {
				continue
			}
			if p.Ready && serving < len(n.in.Pods) {
				n.t.Errorf("%s was evicted while only %d of %d pods served", p.Name, serving, len(n.in.Pods))
			}
			n.made++
			n.evicted[p.Name]++
			size := n.in.Template.Containers["app"]
			if given, ok := n.in.State.ForNewPods(); ok && !n.broken {
				size = given.Containers["app"]
			}
			*p = Pod{
				Name: p.Name, UID: fmt.Sprint("new-", n.made), Created: n.in.Now.Truncate(time.Second), UnreadySince: n.in.Now, Containers: []Container{{Name: "app", Size: size}},
			}
		}
	}
	return plan
}

func (n *nursery) wait(d time.Duration) {
	n.t.Helper()
	for end := n.in.Now.Add(d); !n.in.Now.After(end); {
		n.look()
		step := n.last.Again
		if step <= 0 || step > 10*time.Second {
			step = 10 * time.Second
		}
		n.in.Now = n.in.Now.Add(step)
	}
}

// TestNewPodsOnly: running pods are never touched, and new ones get the size, downwards step by step.
func TestNewPodsOnly(t *testing.T) {
	n := newNursery(t, 4, NewPods, of(1000, 512), of(500, 512))
	n.wait(3 * time.Hour)
	n.all(of(1000, 512))
	given, ok := n.in.State.ForNewPods()
	if !ok || !given.Is(app(of(512, 512))) || n.in.State.Steps != 3 { // The rest is below what is worth a step.
		t.Errorf("new pods get %s in %d steps", given, n.in.State.Steps)
	}
	n.in.Wanted = Size{}
	n.wait(time.Hour)
	n.all(of(1000, 512))
	if n.in.State.Phase != Untouched || n.made > 0 {
		t.Errorf("%+v, %d pods made", n.in.State, n.made)
	}
}

// TestRecreate: every pod is replaced once, a quarter at a time, in one step.
func TestRecreate(t *testing.T) {
	for name, want := range map[string]rightsize.Resources{"down": of(200, 512), "up": of(3000, 1024)} {
		n := newNursery(t, 8, Recreate, of(1000, 512), want)
		n.wait(3 * time.Hour)
		n.all(want)
		if n.most > 2 || n.made != 8 || n.in.State.Phase != Resting {
			t.Errorf("%s: %d evictions, %d at once: %+v", name, n.made, n.most, n.last)
		}
		// Nothing is evicted to give something back.
		n.in.Wanted = Size{}
		n.wait(time.Hour)
		if n.made != 8 || n.in.State.Phase != Untouched {
			t.Errorf("%s: %d pods were evicted on the way out; %+v", name, n.made-8, n.in.State)
		}
	}
}

// TestRecreateWithoutWebhook: a pod that comes back as it was is not evicted for the same size again and again.
func TestRecreateWithoutWebhook(t *testing.T) {
	n := newNursery(t, 4, Recreate, of(1000, 512), of(200, 512))
	n.broken = true
	n.wait(12 * time.Hour)
	for name, times := range n.evicted {
		if times > 1 {
			t.Errorf("%s was evicted %d times", name, times)
		}
	}
	if text := strings.Join(n.last.Remarks, "\n"); !strings.Contains(text, "the webhook for new pods did not change it") {
		t.Errorf("remarks %q", text)
	}
}

// TestRecreateIsHeldBack by too few pods, by disruption budgets, and by pods that do not come up.
func TestRecreateIsHeldBack(t *testing.T) {
	alone := newNursery(t, 1, Recreate, of(1000, 512), of(200, 512))
	alone.wait(2 * time.Hour)
	if alone.made > 0 || !strings.Contains(strings.Join(alone.last.Remarks, "\n"), "none is evicted below 2") {
		t.Errorf("the only pod: %d evictions, %+v", alone.made, alone.last)
	}
	alone.in.MinReplicas = 1
	alone.wait(2 * time.Hour)
	alone.all(of(200, 512))

	few := newNursery(t, 4, Recreate, of(1000, 512), of(200, 512))
	few.in.MinReplicas = 5
	few.wait(2 * time.Hour)
	if few.made > 0 || !strings.Contains(strings.Join(few.last.Remarks, "\n"), "none is touched below 5") {
		t.Errorf("%d evictions, %+v", few.made, few.last)
	}

	budget := newNursery(t, 4, Recreate, of(1000, 512), of(200, 512))
	budget.in.Disruptions = 0
	budget.wait(2 * time.Hour)
	if budget.made > 0 {
		t.Errorf("%d evictions beyond the budget", budget.made)
	}

	ill := newNursery(t, 8, Recreate, of(1000, 512), of(200, 512))
	ill.slow = 10000 * time.Hour
	ill.wait(4 * time.Minute)
	if ill.made != 2 {
		t.Errorf("%d evictions although the first pods do not come up", ill.made)
	}
	ill.wait(time.Hour)
	if ill.in.State.Rollbacks != 1 || !strings.Contains(ill.in.State.Reason, "took the place of another") {
		t.Errorf("%+v", ill.in.State)
	}
}

// TestInfeasible: what a node can never give is evicted where the reach says so, and only there.
func TestInfeasible(t *testing.T) {
	for reach, want := range map[Reach]int{InPlace: 0, InPlaceOrRecreate: 1} {
		n := newNursery(t, 4, reach, of(1000, 512), of(3000, 512))
		n.look()
		for i := range n.in.Pods { // Every pod has the new size in its spec; one node says that it never will.
			if n.in.Pods[i].Name == "web-2" {
				n.in.Pods[i].Resize, n.in.Pods[i].Message = Infeasible, "Node didn't have enough capacity"
			}
		}
		n.wait(time.Hour)
		if n.made != want || n.evicted["web-2"] != want {
			t.Errorf("reach %q: evicted %v, want %d", reach, n.evicted, want)
		}
		n.all(of(3000, 512))
	}
}

// TestRefused: what the API server refuses because the node could never give it is as what the node says so of, for that size.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		reach   Reach
		refused rightsize.Resources
		want    int
	}{
		"another way":     {InPlaceOrRecreate, of(3000, 512), 1},
		"no other way":    {InPlace, of(3000, 512), 0},
		"of another size": {InPlaceOrRecreate, of(4000, 512), 0},
	} {
		n := newNursery(t, 4, c.reach, of(1000, 512), of(3000, 512))
		n.in.Pods[2].Refused, n.in.Pods[2].RefusedSize = "no room, ever", app(c.refused)
		n.stubborn = map[string]bool{"uid-2": true}
		n.wait(10 * time.Minute)
		if n.made != c.want || n.evicted["web-2"] != c.want {
			t.Errorf("%s: evicted %v, want %d", name, n.evicted, c.want)
		}
	}
}

// TestBestEffort: a pod without requests gets them by eviction only.
func TestBestEffort(t *testing.T) {
	for reach, want := range map[Reach]int{InPlace: 0, InPlaceOrRecreate: 4, Recreate: 4, NewPods: 0} {
		n := newNursery(t, 4, reach, of(0, 0), of(300, 512))
		n.wait(2 * time.Hour)
		if n.made != want {
			t.Errorf("reach %q: %d evictions, want %d; %+v", reach, n.made, want, n.last)
		}
	}
}

// TestEvictionsAreBounded: whatever is wanted and however long pods take, none is evicted twice for one size, and never more than
// the share at once.
func TestEvictionsAreBounded(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := newNursery(t, 2+r.IntN(9), []Reach{Recreate, InPlaceOrRecreate}[r.IntN(2)], of(1000, 512), of(1000, 512))
		n.slow, n.broken = time.Duration(r.IntN(120))*time.Second, r.IntN(3) == 0
		sizes := 1 + r.IntN(3)
		for range sizes {
			n.in.Wanted = app(of(100+r.Int64N(3000), 64+r.Int64N(2000)))
			n.wait(40 * time.Minute)
		}
		if most := max(1, len(n.in.Pods)/4); n.most > most {
			t.Fatalf("seed %d: %d evicted at once, want at most %d", seed, n.most, most)
		}
		for name, times := range n.evicted {
			if changes := n.in.State.Steps + n.in.State.Rollbacks + sizes; times > changes {
				t.Fatalf("seed %d: %s was evicted %d times for %d sizes", seed, name, times, changes)
			}
		}
	}
}
