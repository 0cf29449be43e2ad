// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// clusterFixture holds workloads that share budgets.
type clusterFixture struct {
	rng       *rand.Rand
	budgets   *BudgetTracker
	workloads []*fixture
}

func (w *clusterFixture) key(i int) Key {
	return Key{Namespace: fmt.Sprintf("ns-%d", i%3), Kind: "Deployment", Name: fmt.Sprint(i)}
}

func newClusterFixture(t *testing.T, seed uint64) *clusterFixture {
	w := &clusterFixture{rng: rand.New(rand.NewPCG(seed, 7)), budgets: NewBudgetTracker()}
	for range 12 {
		amount := func() int64 { return 20 + w.rng.Int64N(2000) }
		b := newFixture(t, 1+w.rng.IntN(9), requests(amount(), amount()), requests(amount(), amount()))
		b.in.Policy.MaxPerNamespace, b.in.Policy.MaxPerCluster = 2, 4
		w.hideRequests(b)
		w.workloads = append(w.workloads, b)
	}

	return w
}

// hideRequests removes requests from the template that the pods keep, as by the defaults of a LimitRange.
func (w *clusterFixture) hideRequests(b *fixture) {
	b.in.Effective = b.in.Template.Clone()
	r := b.in.Template.Containers["app"]
	if w.rng.IntN(3) == 0 {
		r.CPURequest = nil
	}
	if w.rng.IntN(3) == 0 {
		r.MemoryRequest = nil
	}

	b.in.Template = appSize(r)
}

// harm causes a random regression of a workload.
func (w *clusterFixture) harm(b *fixture) {
	p := &b.in.Pods[w.rng.IntN(len(b.in.Pods))]
	switch w.rng.IntN(4) {
	case 0:
		p.Containers[0].KilledAt = b.in.Now
	case 1:
		p.Containers[0].EndedAt = b.in.Now
	case 2:
		p.Ready = !p.Ready
		p.UnreadySince = b.in.Now
	default:
		b.in.Signals.KilledAt = b.in.Now
	}
}

// TestDecide_Invariants checks for random sizes and regressions that budgets hold, that no step exceeds its share, its goal
// or its floor, that a rollback restores the original sizes exactly, and that the same input gives the same plan.
func TestDecide_Invariants(t *testing.T) {
	for seed := range uint64(8) {
		w := newClusterFixture(t, seed)
		for range 80 {
			for i, b := range w.workloads {
				b.in.Now = b.in.Now.Add(time.Duration(w.rng.IntN(120)) * time.Second)
				if w.rng.IntN(40) == 0 {
					w.harm(b)
				}
				if w.rng.IntN(60) == 0 {
					b.in.DesiredSize = appSize(requests(20+w.rng.Int64N(2000), 20+w.rng.Int64N(2000)))
				}

				for j := range b.in.Pods { // Unready pods recover at random.
					b.in.Pods[j].Ready = b.in.Pods[j].Ready || w.rng.IntN(3) == 0
				}
				w.step(t, i, b)
			}

			w.checkBudgets(t)
		}
	}
}

func (w *clusterFixture) step(t *testing.T, i int, b *fixture) {
	t.Helper()

	key := w.key(i)
	b.in.Allowance = w.budgets.AllowanceFor(key, b.in.Policy, b.in.Now)
	before := b.in.State.Clone()
	first := Decide(b.in)

	second := Decide(b.in)
	if fmt.Sprintf("%+v", first.Resizes) != fmt.Sprintf("%+v", second.Resizes) || !first.State.Current.Equal(second.State.Current) {
		t.Fatalf("Decide with one input = %+v, then %+v, want the same plan", first, second)
	}

	b.reconcile()
	w.budgets.Set(key, b.in.State)

	if b.in.State.Phase == Untouched && before.Phase == Untouched && b.resized > 0 {
		t.Fatalf("%d pods were resized without a stored state, want none", b.resized)
	}

	now := b.in.State
	if now.Steps > before.Steps {
		checkStep(t, b, now)
	}

	checkResizes(t, b)

	if len(now.Outcomes) > 0 && len(before.Outcomes) < len(now.Outcomes) && now.Outcomes[len(now.Outcomes)-1].Regression != "" {
		if before.Phase != Held && !now.Current.Equal(before.Previous) {
			t.Fatalf("rolled back to %s, want %s", now.Current, before.Previous)
		}
	}
}

// checkResizes checks that no pod loses more than the share of a step at once, whatever its template says.
func checkResizes(t *testing.T, b *fixture) {
	t.Helper()

	if phase := b.in.State.Phase; phase != Lowering && phase != Watching && phase != Resting {
		return // A rollback may undo a raise.
	}

	for _, r := range b.plan.Resizes {
		for _, a := range r.From.amounts() {
			from, _ := r.From.get(a)
			to, _ := r.To.get(a)
			if float64(from-to) > float64(b.in.Policy.Step)*float64(from)+1 {
				t.Fatalf("phase %s: pod %s goes from %s to %s at once, want at most a share of %v less", b.in.State.Phase, r.Pod, r.From, r.To, b.in.Policy.Step)
			}
		}
	}
}

// checkStep checks the amounts of one step down.
func checkStep(t *testing.T, b *fixture, s State) {
	t.Helper()

	for _, a := range s.Current.amounts() {
		now, _ := s.Current.get(a)
		had, ok := s.Previous.get(a)
		want, _ := b.in.DesiredSize.get(a)

		if !ok || now >= had {
			if ok && now > had {
				t.Fatalf("a step down raises %v from %d to %d, want less", a, had, now)
			}

			continue
		}

		if now < want || now < b.in.Policy.floor(a.field) {
			t.Fatalf("lowered %v to %d, want at least the goal %d and the floor %d", a, now, want, b.in.Policy.floor(a.field))
		}

		if float64(had-now) > float64(b.in.Policy.Step)*float64(had)+1 {
			t.Fatalf("lowered %v from %d to %d in one step, want at most a share of %v", a, had, now, b.in.Policy.Step)
		}
	}

	atOnce := max(1, len(b.in.Pods)/4)
	if b.resized > atOnce && len(b.plan.Resizes) > 0 && reduces(b.plan.Resizes[0].From, b.plan.Resizes[0].To) {
		t.Fatalf("%d of %d pods lowered at once, want at most %d", b.resized, len(b.in.Pods), atOnce)
	}
}

func (w *clusterFixture) checkBudgets(t *testing.T) {
	t.Helper()

	perNamespace := map[string]int{}
	all := 0
	for i, b := range w.workloads {
		if b.in.State.UnderWay() {
			perNamespace[w.key(i).Namespace]++
			all++
		}
	}

	if all > 4 || all != w.budgets.UnderWay() {
		t.Fatalf("%d workloads under way, the tracker counts %d, want the same, at most 4", all, w.budgets.UnderWay())
	}

	for ns, n := range perNamespace {
		if n > 2 {
			t.Fatalf("%d workloads under way in %s, want at most 2", n, ns)
		}
	}
}

// TestOpenBreakers: the circuit breaker opens above the share of worse workloads, not for one alone, and closes after its window.
func TestOpenBreakers(t *testing.T) {
	p := DefaultPolicy()
	b := NewBudgetTracker()
	set := func(b *BudgetTracker, namespace string, i int, worse string) {
		b.Set(Key{Namespace: namespace, Name: fmt.Sprint(i)}, State{Phase: Held, Outcomes: []Outcome{{At: noon, Regression: worse}}})
	}
	for i := range 20 {
		set(b, "shop", i, "")
	}

	for i := range 4 {
		set(b, "shop", i, "killed")
	}

	if open := b.OpenBreakers(p, noon); len(open) != 0 {
		t.Errorf("OpenBreakers at a fifth = %v, want none", open)
	}

	set(b, "shop", 4, "killed")
	if room := b.AllowanceFor(Key{Namespace: "shop", Name: "x"}, p, noon); room.BreakerOpen == "" {
		t.Error("the breaker of the namespace is closed at 5 of 20 workloads, want open")
	}
	if room := b.AllowanceFor(Key{Namespace: "bank", Name: "x"}, p, noon); room.BreakerOpen != "" {
		t.Errorf("the breaker of another namespace is open: %s, want closed", room.BreakerOpen)
	}

	for i := range 3 {
		set(b, "mail", i, "killed")
	}

	want := []Breaker{{Worse: 8, Of: 23}, {Namespace: "mail", Worse: 3, Of: 3}, {Namespace: "shop", Worse: 5, Of: 20}}
	if open := b.OpenBreakers(p, noon); !slices.Equal(open, want) {
		t.Errorf("OpenBreakers = %v, want %v", open, want)
	}
	if room := b.AllowanceFor(Key{Namespace: "bank", Name: "x"}, p, noon); room.BreakerOpen == "" {
		t.Error("the breaker of the cluster is closed with two degraded namespaces, want open")
	}
	if open := b.OpenBreakers(p, noon.Add(p.BreakerWindow)); len(open) != 0 {
		t.Errorf("OpenBreakers after the window = %v, want none", open)
	}

	few := NewBudgetTracker()
	set(few, "shop", 0, "killed")

	if open := few.OpenBreakers(p, noon); len(open) != 0 {
		t.Errorf("OpenBreakers after one degraded workload = %v, want none", open)
	}

	for i := range 20 {
		b.Set(Key{Namespace: "shop", Name: fmt.Sprint(i)}, State{})
		b.Set(Key{Namespace: "mail", Name: fmt.Sprint(i)}, State{})
	}

	if len(b.entries) != 0 || b.UnderWay() != 0 {
		t.Errorf("%d workloads tracked, %d under way after all were reset, want none", len(b.entries), b.UnderWay())
	}
}

func TestPolicyValidate(t *testing.T) {
	if err := DefaultPolicy().Validate(); err != nil {
		t.Error(err)
	}

	for name, change := range map[string]func(*Policy){
		"step 0":    func(p *Policy) { p.Step = 0 },
		"step 1":    func(p *Policy) { p.Step = 1 },
		"watch":     func(p *Policy) { p.Watch = 0 },
		"namespace": func(p *Policy) { p.MaxPerNamespace = 0 },
		"floor":     func(p *Policy) { p.MinCPU = -1 },
		"at once":   func(p *Policy) { p.PodsAtOnce = 0 },
	} {
		p := DefaultPolicy()
		change(&p)

		if p.Validate() == nil {
			t.Errorf("Validate with a wrong %s succeeds, want an error", name)
		}
	}
}

// FuzzState checks that every annotation is either rejected or leads to a plan whose state can be parsed again.
func FuzzState(f *testing.F) {
	f.Add("", int64(500), int64(100))
	f.Add(`{"phase":"Watching","since":"2026-03-01T11:59:00Z","earlier":{"containers":{"app":{"cpuRequest":1000}}},"before":{"containers":{"app":{"cpuRequest":1000}}},"current":{"containers":{"app":{"cpuRequest":800}}},"steps":1}`, int64(1), int64(1))
	f.Add(`{"phase":"Held","earlier":{"replicas":3},"current":{"replicas":1}}`, int64(9), int64(9))

	f.Fuzz(func(t *testing.T, text string, cpu, memory int64) {
		state, err := ParseState(text)
		if err != nil {
			if !state.Current.Empty() {
				t.Fatalf("ParseState = %+v, %v, want no state with an error", state, err)
			}

			return
		}

		b := newFixture(t, 3, requests(1000, 1000), requests(max(0, cpu%(1<<40)), max(0, memory%(1<<30))))
		b.in.State = state
		b.reconcile() // Parses the new state.

		for _, c := range b.plan.Resizes {
			for _, a := range c.To.amounts() {
				if v, _ := c.To.get(a); v < 0 {
					t.Fatalf("%v becomes %d, want 0 or more", a, v)
				}
			}
		}
	})
}
