// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

// TestRandomSequence adds, changes and deletes pods, restarts containers, changes cgroups from outside, changes reservations and kills
// agents at random. After each step exclusive CPUs must belong to one container, and all others must run on the rest.
func TestRandomSequence(t *testing.T) {
	for seed := range uint64(2) {
		for _, v1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-v1-%t", seed, v1), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 4))
				b := newFixture(t, v1)
				b.runPod("other", "", 0)

				for step := range 30 {
					what := b.changeAtRandom(r, step)
					b.clock.Step(DefaultPeriod)
					b.Reconcile()
					b.verifyPlan(fmt.Sprintf("step %d: %s", step, what))
				}

				b.pods = b.pods[:1]
				b.invalidateState()

				for _, p := range b.deletedPods() {
					b.stopContainer(p, "a")
					b.stopContainer(p, "sandbox")
				}

				b.clock.Step(DefaultPeriod)
				b.Reconcile()

				if got := b.cpus("other", "a"); got != "" && got != "0-7" || len(b.config.Journal.Entries()) > 0 {
					t.Errorf("at the end CPUs are %q with entries %+v, want all and none", got, b.config.Journal.Entries())
				}
			})
		}
	}
}

// deletedPods returns pods with cgroups that the cluster no longer knows.
func (b *fixture) deletedPods() (out []string) {
	there, err := b.listContainers()
	if err != nil {
		b.t.Fatal(err)
	}

	for uid := range there {
		if uid != "other" {
			out = append(out, uid)
		}
	}

	return out
}

// changeAtRandom applies a random change and describes it.
func (b *fixture) changeAtRandom(r *rand.Rand, step int) string {
	policies := []string{"exclusive", "numa", "immovable", "none", "exclusive"}
	one := func() (int, *corev1.Pod) {
		i := 1 + r.IntN(len(b.pods)-1)
		b.pods[i] = b.pods[i].DeepCopy()
		b.invalidateState()

		return i, b.pods[i]
	}

	kind := r.IntN(9)
	if len(b.pods) == 1 || kind < 3 && len(b.pods) < 6 {
		p := b.runPod(fmt.Sprintf("p%d", step), fmt.Sprintf("node0=%d,node1=%d", r.IntN(3), r.IntN(3)), 1+r.IntN(3))
		p.Annotations[topologyv1alpha1.AnnotationPodCPUPolicy] = policies[r.IntN(len(policies))]
		return "run " + p.Name
	}

	i, p := one()
	switch kind {
	case 0, 1, 2, 3:
		p.Annotations[topologyv1alpha1.AnnotationPodCPUPolicy] = policies[r.IntN(len(policies))]
		return "policy of " + p.Name

	case 4:
		now := resources(1 + r.IntN(4))
		p.Spec.Containers[0].Resources = now
		p.Status.ContainerStatuses[0].Resources = &now

		return "resize " + p.Name

	case 5:
		b.stopContainer(p.Name, "a")
		b.startContainer(p.Name, "a")
		return "restart " + p.Name

	case 6:
		path, err := b.layout.SettingFile(containerPath(p.Name, "a"), "cpuset.cpus")
		if err != nil {
			b.t.Fatal(err)
		}

		if err := b.tree.Write(path, fmt.Sprint(r.IntN(8))); err != nil {
			b.t.Fatal(err)
		}

		return "a stranger moves " + p.Name

	case 7:
		if r.IntN(2) == 0 {
			b.setKubeletConfig(fmt.Sprintf("reservedSystemCPUs: \"%d\"\n", r.IntN(8)))
			return "other reserved CPUs"
		}

		n := 0
		at := r.IntN(4)
		b.writeError = func(string, string) error {
			n++

			if n > at {
				return fmt.Errorf("killed")
			}

			return nil
		}

		b.clock.Step(time.Minute)
		b.Reconcile()
		b.writeError = nil
		b.startAgent()

		return "an agent was killed"

	default:
		b.pods = append(b.pods[:i:i], b.pods[i+1:]...)
		b.stopContainer(p.Name, "a")
		b.stopContainer(p.Name, "sandbox")

		return "end " + p.Name
	}
}

// verifyPlan compares the cgroups with the plan and checks the plan's invariants.
func (b *fixture) verifyPlan(when string) {
	b.t.Helper()

	there, err := b.listContainers()
	if err != nil {
		b.t.Fatal(err)
	}

	own := map[string]cpumanager.Assignment{}
	var alone numa.CPUSet
	for _, h := range b.plan.Assignments {
		own[h.Pod] = h
		if h.Policy == numa.PolicyExclusive {
			if alone.Intersection(h.CPUs).Len() > 0 {
				b.t.Fatalf("%s: two containers have CPUs of %s, want exclusive ones", when, h.CPUs)
			}

			alone = alone.Union(h.CPUs)
		}
	}

	for uid, list := range there {
		for _, c := range list {
			text, _, err := b.cpusets.readSetting(c.Path, "cpuset.cpus")
			if err != nil {
				b.t.Fatal(err)
			}

			if text == "" {
				text = "0-7" // inherited from the parent
			}

			runs, err := numa.ParseCPUSet(text)
			if err != nil || runs.Len() == 0 {
				b.t.Fatalf("%s: %s of %s has CPUs %q, %v; want a list with a CPU", when, c.ID, uid, text, err)
			}

			h, holds := own[uid]
			switch main := strings.HasSuffix(containerPath(uid, "a"), c.ID); {
			case holds && main && h.Policy != numa.PolicyNUMA:
				if runs != h.CPUs {
					b.t.Fatalf("%s: %s runs on %s, want %s\n%s", when, uid, runs, h.CPUs, strings.Join(b.log, "\n"))
				}
			case runs.Intersection(alone).Len() > 0:
				b.t.Fatalf("%s: %s runs on %s, want none of the exclusive %s\n%s", when, uid, runs, alone, strings.Join(b.log, "\n"))
			}
		}
	}

	if b.plan.Shared == (numa.CPUSet{}) {
		b.t.Fatalf("%s: no CPU is shared, want at least one", when)
	}
}
