// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/series"
)

func recommendation(change func(*analysisv1alpha1.Recommendation)) *analysisv1alpha1.Recommendation {
	rec := &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-resource-1", Labels: map[string]string{"team": "a", analysisv1alpha1.LabelRuleName: "all", "pod-template-hash": "x"},
	}}
	rec.Spec.Type = analysisv1alpha1.AnalysisTypeResource
	rec.Spec.TargetRef.Kind = "Deployment"
	rec.Spec.TargetRef.Name = "web"
	rec.Spec.TargetRef.Namespace = "shop"
	rec.Status.Action = analysisv1alpha1.ActionPatch
	rec.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "RecommendationReady"}}
	rec.Status.CurrentInfo = `{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}},{"name":"b","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}]}}}}`

	rec.Status.RecommendedInfo = `{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"200m","memory":"512Mi"},"limits":{"cpu":null}}},{"name":"b","resources":{"requests":{"cpu":"100m","memory":"256Mi"}}}]}}}}`
	rec.Status.Savings = &analysisv1alpha1.Savings{CPU: resource.MustParse("2400m"), Memory: resource.MustParse("1Gi"), Monthly: "12.34", Currency: "USD"}
	if change != nil {
		change(rec)
	}

	return rec
}

func TestRowOf(t *testing.T) {
	row := RowOf("prod", recommendation(nil))
	if row.State != contract.StateReady || *row.Now.CPUMilli != 1500 || *row.Recommended.CPUMilli != 300 || *row.Recommended.MemoryBytes != 768<<20 {
		t.Errorf("RowOf = %+v with %+v now, want 1500m now, 300m and 768Mi recommended", row, row.Now)
	}
	if *row.SavingPerMonth != 12.34 || *row.SavedCPUMilli != 2400 || row.Rule != "all" || len(row.Labels) != 1 || row.Labels["team"] != "a" {
		t.Errorf("RowOf = %+v, want a saving of 12.34, 2400m, rule all and label team", row)
	}
	if want := []string{"MemoryHalved", "CPUQuartered"}; !slices.Equal(row.RiskReasons, want) || row.Risk != 50 {
		t.Errorf("risk = %d for %v, want 50 for %v", row.Risk, row.RiskReasons, want)
	}

	broken := RowOf("prod", recommendation(func(r *analysisv1alpha1.Recommendation) {
		r.Status.Savings.Monthly = "NaN"
		r.Status.CurrentInfo = "{"
		r.Status.RecommendedInfo = `{"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}}}`
	}))
	if broken.SavingPerMonth != nil || broken.Now != nil || broken.Recommended != nil {
		t.Errorf("row of invalid numbers = %+v, want none of them", broken)
	}
}

func TestStateOf(t *testing.T) {
	set := func(kind string, status metav1.ConditionStatus, reason string) func(*analysisv1alpha1.Recommendation) {
		return func(r *analysisv1alpha1.Recommendation) {
			r.Status.Conditions = append(slices.DeleteFunc(r.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind }),
				metav1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}

	auto := func(phase string) func(*analysisv1alpha1.Recommendation) {
		return func(r *analysisv1alpha1.Recommendation) {
			r.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeAuto
			if phase != "" {
				r.Status.Adoption = &analysisv1alpha1.AdoptionStatus{Phase: phase}
			}
		}
	}

	for name, c := range map[string]struct {
		want   contract.State
		change []func(*analysisv1alpha1.Recommendation)
	}{
		"no condition":     {contract.StateNoData, []func(*analysisv1alpha1.Recommendation){func(r *analysisv1alpha1.Recommendation) { r.Status.Conditions = nil }}},
		"learning":         {contract.StateLearning, []func(*analysisv1alpha1.Recommendation){set("Ready", "False", "InsufficientHistory"), set("Learning", "True", "InsufficientHistory")}},
		"no usage":         {contract.StateNoData, []func(*analysisv1alpha1.Recommendation){set("Ready", "False", "NoUsage")}},
		"refused":          {contract.StateRefused, []func(*analysisv1alpha1.Recommendation){set("Ready", "False", "TargetRefused")}},
		"not applicable":   {contract.StateRefused, []func(*analysisv1alpha1.Recommendation){set("Applicable", "False", "AutoscalerNotOwned")}},
		"failed":           {contract.StateFailed, []func(*analysisv1alpha1.Recommendation){set("Failed", "True", "DataSourceFailed")}},
		"nothing to do":    {contract.StateClear, []func(*analysisv1alpha1.Recommendation){func(r *analysisv1alpha1.Recommendation) { r.Status.Action = analysisv1alpha1.ActionNone }}},
		"starts":           {contract.StateAdopting, []func(*analysisv1alpha1.Recommendation){auto("")}},
		"lowers":           {contract.StateAdopting, []func(*analysisv1alpha1.Recommendation){auto("Lowering")}},
		"adopted":          {contract.StateAdopted, []func(*analysisv1alpha1.Recommendation){auto("Resting")}},
		"held":             {contract.StateRolledBack, []func(*analysisv1alpha1.Recommendation){auto("Held")}},
		"stopped":          {contract.StateStopped, []func(*analysisv1alpha1.Recommendation){auto("Stopped")}},
		"disabled":         {contract.StatePaused, []func(*analysisv1alpha1.Recommendation){auto("Resting"), set("Adopted", "False", "Disabled")}},
		"held, then ended": {contract.StateReady, []func(*analysisv1alpha1.Recommendation){auto("Held"), func(r *analysisv1alpha1.Recommendation) { r.Spec.AdoptionType = analysisv1alpha1.AdoptionTypeStatus }}},
	} {
		got, _, _ := stateOf(recommendation(func(r *analysisv1alpha1.Recommendation) {
			for _, change := range c.change {
				change(r)
			}
		}))
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSummarize(t *testing.T) {
	row := func(state contract.State, saving float64, kind string) contract.Row {
		return contract.Row{Cluster: "c", Namespace: "shop", Type: kind, State: state, SavingPerMonth: &saving, AdoptionType: map[contract.State]string{contract.StateAdopted: "Auto", contract.StateRolledBack: "Auto"}[state]}
	}

	out := Summarize(NewWorklist([]contract.Row{
		row(contract.StateReady, 10, "Resource"), row(contract.StateReady, -4, "Resource"), row(contract.StateAdopted, 100, "Resource"),
		row(contract.StateRolledBack, 0, "Resource"), row(contract.StateLearning, 0, "Resource"), row(contract.StateReady, 7, "Replicas"),
	}, "USD", contract.Origin{}), math.Inf(1))
	if out.Money.RecoverablePerMonth != 10 || out.Money.NeededPerMonth != 4 {
		t.Errorf("money = %+v, want 10 recoverable and 4 needed", out.Money)
	}
	if c := out.Coverage; c.Workloads != 5 || c.Learning != 1 || c.WithNumber != 4 || c.Adopted != 2 {
		t.Errorf("coverage = %+v, want 5 workloads, 1 learning, 4 with a number, 2 adopted", c)
	}

	if len(out.Attention) != 2 || out.Attention[0].Reason != "RolledBack" || out.Attention[1].Reason != "UnderRequested" {
		t.Errorf("attention = %+v, want the rollback first, then the low request", out.Attention)
	}
	if len(out.Top) != 2 || *out.Top[0].SavingPerMonth != 10 || out.Adoption.RolledBack != 1 {
		t.Errorf("top = %+v, adoption = %+v, want 2 rows, 10 first, and 1 rollback", out.Top, out.Adoption)
	}
}

// TestSummarize_Hostile checks that what one namespace writes into the status of its Recommendations adds at most the cost of the cluster to the sums.
func TestSummarize_Hostile(t *testing.T) {
	const limit = 1000
	row := func(namespace string, saving float64) contract.Row {
		cpu := int64(4000)
		memory := int64(1 << 30)
		return contract.Row{
			Namespace: namespace, Type: "Resource", State: contract.StateReady,
			SavingPerMonth: &saving, SavedCPUMilli: &cpu, SavedMemoryBytes: &memory,
		}
	}

	honest := []contract.Row{row("shop", 100), row("shop", -50)}
	out := Summarize(NewWorklist(append(slices.Clone(honest), row("evil", -1e11)), "USD", contract.Origin{}), limit)
	if out.Money.RecoverablePerMonth != 100 || out.Money.NeededPerMonth != limit {
		t.Errorf("money beside a loss of 1e11 = %+v, want 100 recoverable and %d needed", out.Money, limit)
	}

	out = Summarize(NewWorklist(append(slices.Clone(honest), row("evil", 1e11), row("evil", 1e11)), "USD", contract.Origin{}), limit)
	if out.Money.RecoverablePerMonth != limit || out.Money.NeededPerMonth != 50 || out.Money.SavedCPUMilli > 4000 {
		t.Errorf("money beside savings of 1e11 = %+v, want %d recoverable, 50 needed, and no more CPU than of an honest row", out.Money, limit)
	}
	if n := out.Namespaces; len(n) != 2 || n[0].SavingPerMonth != limit || n[1].SavingPerMonth != 50 {
		t.Errorf("namespaces = %+v, want evil with %d and shop with 50", n, limit)
	}
}

// TestThin checks that thinning keeps the extremes, the order, the bound and whole gaps.
func TestThin(t *testing.T) {
	const n = 20_160
	s := series.Series{Start: time.Unix(0, 0), Step: time.Minute, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = math.Sin(float64(i) / 100)
	}

	s.Values[777] = 50
	s.Values[15_001] = -50
	for i := 5000; i < 6000; i++ {
		s.Values[i] = math.NaN()
	}

	out, thinned := Thin(s, 1200)
	if !thinned || len(out.T) > 1200 || len(out.T) != len(out.V) {
		t.Fatalf("Thin: thinned %v to %d times and %d values, want at most 1200", thinned, len(out.T), len(out.V))
	}

	found := map[float64]int64{}
	gaps := 0
	for i, v := range out.V {
		if i > 0 && out.T[i] <= out.T[i-1] {
			t.Fatalf("time %d follows %d, want rising times", out.T[i], out.T[i-1])
		}

		if v == nil {
			gaps++
			continue
		}

		found[*v] = out.T[i]
	}

	if found[50] != 777*60 || found[-50] != 15_001*60 || gaps < 20 {
		t.Errorf("extremes at %d and %d with %d gaps, want those of the series and 20 gaps or more", found[50], found[-50], gaps)
	}
	if out, thinned := Thin(series.Series{Step: time.Minute, Values: []float64{1, math.NaN(), math.Inf(1)}}, 1200); thinned || len(out.V) != 3 || out.V[1] != nil || out.V[2] != nil {
		t.Errorf("Thin of a short series = %+v, want 3 values, two of them unknown", out)
	}
}

// TestShared checks that callers share a read, and that the last value stays after an error, with the reason.
func TestShared(t *testing.T) {
	var reads atomic.Int32
	var fail atomic.Bool
	clock := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	release := make(chan struct{})

	s := &Shared[int]{Clock: clock, TTL: time.Minute, Timeout: time.Hour, Patience: time.Second, Read: func(context.Context) (*int, error) {
		n := int(reads.Add(1))
		<-release

		if fail.Load() {
			return nil, errors.New("no route to host")
		}

		return &n, nil
	}}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()

	if _, _, _, err := s.Get(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Get of a request that ended = %v, want %v", err, context.Canceled)
	}

	results := make(chan error, 10)
	for range cap(results) {
		go func() {
			_, _, _, err := s.Get(t.Context())
			results <- err
		}()
	}

	for !clock.HasWaiters() {
		runtime.Gosched()
	}

	close(release)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}

	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads for 11 callers, want 1", n)
	}

	fail.Store(true)
	if v, _, stale, err := s.Get(t.Context()); err != nil || *v != 1 || stale != "" {
		t.Errorf("Get of a fresh value = %v, stale %q, %v, want 1", v, stale, err)
	}

	clock.Step(2 * time.Minute)
	if v, _, stale, err := s.Get(t.Context()); err != nil || *v != 1 || stale == "" {
		t.Errorf("Get after a failed read = %v, stale %q, %v, want the value before and the reason", v, stale, err)
	}

	first := &Shared[int]{Clock: clock, TTL: time.Minute, Timeout: time.Hour, Patience: time.Second, Read: func(context.Context) (*int, error) { <-t.Context().Done(); return nil, errors.New("ended") }}
	go func() {
		_, _, _, err := first.Get(t.Context())
		results <- err
	}()

	for !clock.HasWaiters() {
		runtime.Gosched()
	}

	clock.Step(time.Second)
	if err := <-results; FailureOf(err).Body.Reason != contract.ReasonStarting {
		t.Errorf("Get during the first read = %v, want the reason %s", err, contract.ReasonStarting)
	}
}
