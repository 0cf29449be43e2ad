// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// ranOnce returns the profile of pods, one per day, whose container ran for some minutes with constant usage.
func ranOnce(pods, minutes int, cores, bytes float64) *rightsize.Profile {
	p := rightsize.NewProfile()
	for i := range pods {
		s := series.Series{Start: now.Add(-time.Duration(i+1)*24*time.Hour + time.Hour), Step: time.Minute, Values: make([]float64, minutes)}
		fill := func(v float64) rightsize.Usage {
			for k := range s.Values {
				s.Values[k] = v
			}

			return rightsize.Usage{Pod: fmt.Sprint("p", i), Series: s}
		}

		p.AddCPU(fill(cores))
		p.AddMemory(fill(bytes))
	}

	return p
}

func requests(cpu units.MilliCPU, memory units.Bytes) rightsize.Resources {
	return rightsize.Resources{CPURequest: &cpu, MemoryRequest: &memory}
}

// TestDecide_InitContainers: each is sized by the peaks of its own runs, and does not decide about the workload as a whole.
func TestDecide_InitContainers(t *testing.T) {
	const mib = 1 << 20
	app := Container{Name: "app", Profile: used(10, 0.2, 100*mib), Current: requests(1000, 1<<30)}
	decide := func(all ...Container) Plan {
		return Decide(Input{Policy: policy(t), Now: now, Containers: all})
	}

	migrate := Container{Name: "migrate", Init: true, Profile: ranOnce(5, 3, 1.5, 300*mib), Current: requests(2000, 64*mib)}
	plan := decide(migrate, app)
	if len(plan.Containers) != 2 || !plan.Containers[0].Init || plan.Containers[1].Init || plan.State != recommend.Ready || plan.Incomplete {
		t.Fatalf("Decide = %+v, want a complete plan for the init container and the app", plan)
	}

	r := plan.Containers[0]
	if got := *r.Target.CPURequest; got < 1500 || got > 1800 || !strings.Contains(r.CPU.Message, "5 runs") {
		t.Errorf("init container: %d, %q, want 1500 to 1800 of 5 runs", got, r.CPU.Message)
	}
	if plan.Pod.CPUNow != 2000 || plan.Pod.CPUAfter != *r.Target.CPURequest || plan.Pod.CPUInitContainer != "migrate" || plan.Pod.MemoryInitContainer != "migrate" {
		t.Errorf("pod request %+v, want that of the init container migrate", plan.Pod)
	}
	if text := plan.Description; !strings.Contains(text, "the pod as a whole requests 2 of cpu -> 1") || !strings.Contains(text, "its init container migrate") {
		t.Errorf("description %q, want the request of the pod and its init container", text)
	}

	// The request of the pods decreases by the reduction of the whole pod, not by that of the app container.
	saving := plan.SavingOf(cost.UnitPrice{CPU: 1, Memory: 1}, 3, false)
	if want := 3 * (plan.Pod.CPUNow - plan.Pod.CPUAfter); saving.CPU != want || saving.Memory != 3*(plan.Pod.MemoryNow-plan.Pod.MemoryAfter) {
		t.Errorf("saving %+v of pods %+v, want the reduction of three pods", saving, plan.Pod)
	}

	sum := units.MilliCPU(0)
	for i := range plan.Containers {
		sum += plan.ContainerSaving(i, cost.UnitPrice{CPU: 1, Memory: 1}, 3, false).CPU
	}

	if sum != saving.CPU {
		t.Errorf("the savings of the containers add up to %d, want %d", sum, saving.CPU)
	}

	young := decide(Container{Name: "migrate", Init: true, Profile: ranOnce(1, 3, 1.5, 300*mib)}, app)
	if len(young.Containers) != 2 || young.Incomplete || young.Containers[0].CPU.Message != "learning, 1 of 3 runs" {
		t.Errorf("sizing after a single run: %+v, want it learning", young.Containers[0].CPU)
	}

	unseen := decide(Container{Name: "migrate", Init: true, Current: requests(2000, 0)}, app)
	if len(unseen.Containers) != 1 || unseen.Incomplete || !strings.Contains(unseen.Description, "migrate: runs before the others and was never seen") {
		t.Errorf("description %q, want the init container left as it is", unseen.Description)
	}
	if s := unseen.SavingOf(cost.UnitPrice{CPU: 1}, 1, false); s.CPU != 0 {
		t.Errorf("saving %+v, want 0 CPU: the pod requests 2 cores before and after", s)
	}
	if proofs := CollectEvidence(Input{Policy: policy(t), Now: now, Containers: []Container{migrate, app}}); len(proofs) != len(plan.Containers) {
		t.Errorf("CollectEvidence returns %d results, want one for each of %d containers", len(proofs), len(plan.Containers))
	}
}

// TestPodRequest follows the rule of the scheduler: a sidecar holds its request while the init containers after it run.
func TestPodRequest(t *testing.T) {
	for name, c := range map[string]struct {
		all  []Container
		want units.MilliCPU
		by   string
	}{
		"sum":                 {[]Container{{Name: "a", Current: requests(300, 0)}, {Name: "b", Current: requests(200, 0)}}, 500, ""},
		"init above the sum":  {[]Container{{Name: "i", Init: true, Current: requests(700, 0)}, {Name: "a", Current: requests(300, 0)}}, 700, "i"},
		"init below the sum":  {[]Container{{Name: "i", Init: true, Current: requests(300, 0)}, {Name: "a", Current: requests(300, 0)}}, 300, ""},
		"sidecar before init": {[]Container{{Name: "s", Sidecar: true, Current: requests(100, 0)}, {Name: "i", Init: true, Current: requests(350, 0)}, {Name: "a", Current: requests(300, 0)}}, 450, "i"},
		"init before sidecar": {[]Container{{Name: "i", Init: true, Current: requests(350, 0)}, {Name: "s", Sidecar: true, Current: requests(100, 0)}, {Name: "a", Current: requests(300, 0)}}, 400, ""},
		"nothing requested":   {[]Container{{Name: "i", Init: true}, {Name: "a"}}, 0, ""},
	} {
		if got := podRequest(c.all, Plan{}); got.CPUNow != c.want || got.CPUAfter != c.want || got.CPUInitContainer != c.by {
			t.Errorf("%s: %+v, want %d by %q", name, got, c.want, c.by)
		}
	}
}

// TestDecide_Jobs: a job's requests are held only while it runs.
func TestDecide_Jobs(t *testing.T) {
	job := Container{Name: "etl", Job: true, Profile: ranOnce(10, 144, 0.5, 200<<20), Current: requests(2000, 1<<30)}
	plan := Decide(Input{Policy: policy(t), Now: now, Containers: []Container{job}})
	// 144 of 1440 minutes a day.
	if math.Abs(plan.MeanPods-0.1) > 1e-6 || !strings.Contains(plan.Description, "On average 0.1 pods of the job ran at once") {
		t.Errorf("mean pods %v: %s, want 0.1", plan.MeanPods, plan.Description)
	}

	per := 2000 - *plan.Containers[0].Target.CPURequest
	if s := plan.SavingOf(cost.UnitPrice{CPU: 1}, 1, true); s.CPU != per/10 || s.Counted != 2 {
		t.Errorf("%+v, want a tenth of %d", s, per)
	}
}
