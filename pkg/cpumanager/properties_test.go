// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"crane.io/crane/pkg/numa"
)

// TestAssign_Random adds, resizes and removes pods with all policies, changes the reserved CPUs, and checks each plan. At the end all CPUs
// are shared.
func TestAssign_Random(t *testing.T) {
	policies := []numa.Policy{numa.PolicyNone, numa.PolicyExclusive, numa.PolicyNUMA, numa.PolicyImmovable}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 21))
		m := newMachine(t, 1+r.IntN(3), 1+r.IntN(5))
		var pods []Pod

		var before []Assignment
		for step := range 60 {
			switch {
			case r.IntN(3) > 0 && len(pods) < 8:
				p := newPod(fmt.Sprintf("p%d", step), policies[r.IntN(4)], map[string]int{}, 1+r.IntN(3))
				if r.IntN(2) == 0 {
					p.Containers = append(p.Containers, Container{Name: "z", CPUs: 1 + r.IntN(3)})
				}

				for z := range r.IntN(3) + 1 {
					p.Zones[fmt.Sprint("node", z)] = r.IntN(4)
				}
				pods = append(pods, p)

			case r.IntN(3) > 0 && len(pods) > 0:
				i := r.IntN(len(pods))
				pods[i].Containers[0].CPUs = 1 + r.IntN(5)
				pods[i].Policy = policies[r.IntN(4)]

			case r.IntN(4) == 0:
				m.Reserved = numa.NewCPUSet(r.IntN(8), 64+r.IntN(8))

			case len(pods) > 0:
				i := r.IntN(len(pods))
				pods = append(pods[:i:i], pods[i+1:]...)
			}

			plan := Assign(m, before, pods)
			verifyPlan(t, m, &plan, before, pods, fmt.Sprintf("seed %d step %d", seed, step))

			if again := Assign(m, plan.Assignments, pods); len(plan.Refused) == 0 && formatPlan(&again) != formatPlan(&plan) {
				t.Fatalf("seed %d step %d: Assign with its own result:\ngot  %s\nwant %s", seed, step, formatPlan(&again), formatPlan(&plan))
			}

			before = plan.Assignments
		}

		if plan := Assign(m, before, nil); plan.Shared != m.Layout.All() || len(plan.Assignments) != 0 {
			t.Fatalf("seed %d: Assign without pods = %s, want all CPUs shared", seed, formatPlan(&plan))
		}
	}
}

// verifyPlan fails if a CPU is assigned twice, a reserved one is newly assigned, none is left to share, or a container has another number
// than it requested.
func verifyPlan(t *testing.T, m Machine, plan *Plan, before []Assignment, pods []Pod, when string) {
	t.Helper()

	had := map[ID]numa.CPUSet{}
	refused := map[ID]Refusal{}
	wants := map[ID]int{}

	for _, assignment := range before {
		had[assignment.ID] = assignment.CPUs
	}

	for _, r := range plan.Refused {
		if r.Reason == "" {
			t.Fatalf("%s: %s is refused without a reason, want one", when, r.ID)
		}

		refused[r.ID] = r
	}

	for _, p := range pods {
		for _, c := range p.Containers {
			wants[ID{p.UID, c.Name}] = c.CPUs
		}
	}

	if plan.Shared == (numa.CPUSet{}) {
		t.Fatalf("%s: no CPU is shared, want one or more: %s", when, formatPlan(plan))
	}

	var given, alone numa.CPUSet
	for _, assignment := range plan.Assignments {
		_, isRefused := refused[assignment.ID]
		if !isRefused && sumCounts(assignment.Zones) != wants[assignment.ID] {
			t.Fatalf("%s: %s has %v, want %d CPUs", when, assignment.ID, assignment.Zones, wants[assignment.ID])
		}

		cpus := plan.CPUs(assignment.ID)
		if cpus == (numa.CPUSet{}) {
			t.Fatalf("%s: %s has no CPUs, want one or more", when, assignment.ID)
		}

		if assignment.Policy == numa.PolicyNUMA {
			if cpus.Difference(plan.Shared).Len() > 0 || cpus.Len() < sumCounts(assignment.Zones) {
				t.Fatalf("%s: %s runs on %s, want %v of the shared CPUs %s", when, assignment.ID, cpus, assignment.Zones, plan.Shared)
			}

			continue
		}

		if cpus.Intersection(given).Len() > 0 {
			t.Fatalf("%s: CPUs of %s belong to another container too, want its own: %s", when, assignment.ID, formatPlan(plan))
		}

		if m.Reserved.Intersection(cpus).Difference(had[assignment.ID]).Len() > 0 {
			t.Fatalf("%s: %s has CPUs %s, want no reserved ones beside those that it had", when, assignment.ID, cpus)
		}

		if !isRefused && cpus.Len() != wants[assignment.ID] {
			t.Fatalf("%s: %s has %s, wants %d", when, assignment.ID, cpus, wants[assignment.ID])
		}

		given = given.Union(cpus)
		if assignment.Policy == numa.PolicyExclusive {
			alone = alone.Union(cpus)
		}
	}

	if alone != plan.Exclusive() || alone.Union(plan.Shared) != m.Layout.All() || alone.Intersection(plan.Shared).Len() > 0 {
		t.Fatalf("%s: %s are exclusive and %s shared, want a partition of %s", when, alone, plan.Shared, m.Layout.All())
	}
}

// FuzzDivide checks that every container gets its request and no zone gives more than it has.
func FuzzDivide(f *testing.F) {
	f.Add(uint8(4), uint8(2), uint8(3), uint8(1), uint8(2), uint8(2))
	f.Fuzz(func(t *testing.T, a, b, x, y, hadA, hadB uint8) {
		zones := map[string]int{"node0": int(a), "node1": int(b)}
		wants := []int{int(x), int(y)}

		out, err := Divide(zones, wants, []map[string]int{{"node0": int(hadA)}, {"node1": int(hadB), "gone": 3}})
		if (err != nil) != (int(x)+int(y) > int(a)+int(b)) {
			t.Fatalf("%v of %v: %v", wants, zones, err)
		}
		if err != nil {
			return
		}

		for i, share := range out {
			if sumCounts(share) != wants[i] {
				t.Fatalf("%v of %v: container %d has %v", wants, zones, i, share)
			}
		}

		for zone, n := range zones {
			if out[0][zone]+out[1][zone] > n {
				t.Fatalf("%v of %v: %v", wants, zones, out)
			}
		}
	})
}
