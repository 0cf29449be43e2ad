// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/cost"
)

// TestSavingsOfTwoTypes checks that the recommendations of several types for one target are distinct series, and that the sum counts the target once.
func TestSavingsOfTwoTypes(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	values := parsedValue{
		containers: map[string]corev1.ResourceList{"app": {corev1.ResourceCPU: resource.MustParse("1")}}, replicas: new(int32(3)),
	}
	for kind, monthly := range map[analysisv1alpha1.AnalysisType]string{
		analysisv1alpha1.AnalysisTypeResource: "10", analysisv1alpha1.AnalysisTypeUnused: "30",
	} {
		rec := recommendationOf(string(kind), now, now)
		rec.Spec.Type = kind
		rec.Status.Savings = &analysisv1alpha1.Savings{Monthly: monthly, Currency: "EUR", CPU: resource.MustParse(monthly), Memory: resource.MustParse(monthly)}
		rec.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{{Container: "app", Target: "0.005", Achieved: "0.01"}}
		m.observe(rec, values)
	}

	const target = `apiversion="apps/v1",`
	want := `# HELP crane_analysis_recommendation_monthly_savings Monthly savings (730 hours) of the recommended requests in the currency; negative if they cost more.
# TYPE crane_analysis_recommendation_monthly_savings gauge
crane_analysis_recommendation_monthly_savings{` + target + `currency="EUR",namespace="shop",owner_kind="Deployment",owner_name="web",type="Resource"} 10
crane_analysis_recommendation_monthly_savings{` + target + `currency="EUR",namespace="shop",owner_kind="Deployment",owner_name="web",type="Unused"} 30
# HELP crane_analysis_recommendations_savings_monthly Sum of the monthly savings (730 hours) of all recommendations, each target once.
# TYPE crane_analysis_recommendations_savings_monthly gauge
crane_analysis_recommendations_savings_monthly{currency="EUR"} 30
# HELP crane_analysis_recommendations_savings_cpu_cores Reduction of the requested CPU of all targets in cores.
# TYPE crane_analysis_recommendations_savings_cpu_cores gauge
crane_analysis_recommendations_savings_cpu_cores 30
`

	err := testutil.GatherAndCompare(registry, strings.NewReader(want), "crane_analysis_recommendation_monthly_savings",
		"crane_analysis_recommendations_savings_monthly", "crane_analysis_recommendations_savings_cpu_cores")
	if err != nil {
		t.Errorf("metrics differ from what is wanted: %v", err)
	}

	for _, name := range []string{
		"crane_analysis_resource_recommendation", "crane_analysis_replicas_recommendation",
		"crane_analysis_calibration_target_ratio", "crane_analysis_calibration_achieved_ratio",
	} {
		n, err := testutil.GatherAndCount(registry, name)
		if n != 2 || err != nil {
			t.Errorf("GatherAndCount(%s) = %d, %v, want 2 series", name, n, err)
		}
	}
}

// TestHostileStatus checks that values which no workload can have are left out, and that a Recommendation has a bounded number of series.
func TestHostileStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status analysisv1alpha1.RecommendationStatus
		value  string
		want   int // series beside the two of each Recommendation
	}{
		"savings":            {status: savingsOf("12.5", "EUR", "1", "1Gi"), want: 4},
		"not a number":       {status: savingsOf("NaN", "EUR", "1", "1Gi")},
		"infinite":           {status: savingsOf("-Inf", "EUR", "1", "1Gi")},
		"absurd savings":     {status: savingsOf("99999999999999999999999999999999", "EUR", "1", "1Gi")},
		"absurd cores":       {status: savingsOf("1", "EUR", "-9e99", "1Gi")},
		"absurd memory":      {status: savingsOf("1", "EUR", "1", "9e99")},
		"long currency":      {status: savingsOf("1", strings.Repeat("E", 1<<20), "1", "1Gi")},
		"negative shares":    {status: evidenceOf("app", "-0.1", "0.5")},
		"shares above 1":     {status: evidenceOf("app", "0.1", "1e9")},
		"share not a number": {status: evidenceOf("app", "nan", "0.1")},
		"shares":             {status: evidenceOf("app", "0.1", "0.2"), want: 2},
		"negative replicas":  {value: "replicasRecommendation: {replicas: -1}"},
		"absurd replicas":    {value: "replicasRecommendation: {replicas: 2147483647}"},
		"replicas":           {value: "replicasRecommendation: {replicas: 3}", want: 1},
		"negative request":   {value: requestValue("app", "cpu", "-1")},
		"absurd request":     {value: requestValue("app", "memory", "9e30")},
		"long container":     {value: requestValue(strings.Repeat("a", 1<<16), "cpu", "1")},
		"long resource":      {value: requestValue("app", strings.Repeat("a", 1<<16), "1")},
		"request":            {value: requestValue("app", "cpu", "1"), want: 1},
		"many containers":    {value: manyContainers(10_000, 1), want: maxExportedContainers},
		"many resources":     {value: manyContainers(1, 10_000), want: maxExportedResources},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
			rec := recommendationOf("web", now, now)
			updated := rec.Status.LastUpdateTime
			rec.Status = test.status
			rec.Status.LastUpdateTime = updated

			values, err := parseValue(test.value)
			if err != nil {
				t.Fatal(err)
			}

			m.observe(rec, values)
			if n := gathered(t, m); n != test.want+2 {
				t.Errorf("the Recommendation has %d series, want %d", n, test.want+2)
			}
		})
	}
}

// TestHostileCurrencies checks that the sum in the currency of other namespaces stays beside many currencies of one namespace.
func TestHostileCurrencies(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	m := NewMetrics(func() time.Time { return now }, 24*time.Hour)
	for i := range 1000 {
		rec := recommendationOf(fmt.Sprintf("evil-%d", i), now, now)
		rec.Spec.TargetRef.Name = rec.Name
		rec.Status = savingsOf("1", fmt.Sprintf("E%d", i), "1", "1")
		m.observe(rec, parsedValue{})
	}

	honest := recommendationOf("web", now, now)
	honest.Namespace = "zoo"
	honest.Spec.TargetRef.Namespace = "zoo"
	honest.Status = savingsOf("7", "EUR", "1", "1")
	m.observe(honest, parsedValue{})

	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	sums := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "crane_analysis_recommendations_savings_monthly" {
			for _, s := range f.GetMetric() {
				sums[s.GetLabel()[0].GetValue()] = s.GetGauge().GetValue()
			}
		}
	}

	if len(sums) != 2 || sums["EUR"] != 7 {
		t.Errorf("the sums of savings are %v, want one of the hostile namespace, and that of EUR 7", sums)
	}
}

func savingsOf(monthly, currency, cpu, memory string) analysisv1alpha1.RecommendationStatus {
	return analysisv1alpha1.RecommendationStatus{Savings: &analysisv1alpha1.Savings{
		Monthly: monthly, Currency: currency, CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory),
	}}
}

func evidenceOf(container, target, achieved string) analysisv1alpha1.RecommendationStatus {
	one := analysisv1alpha1.CalibrationEvidence{Container: container, Target: target, Achieved: achieved}
	return analysisv1alpha1.RecommendationStatus{Evidence: []analysisv1alpha1.CalibrationEvidence{one, one}}
}

func requestValue(container, name, amount string) string {
	return fmt.Sprintf("resourceRequest: {containers: [{containerName: %s, target: {? %s : %q}}]}", container, name, amount)
}

func manyContainers(containers, resources int) string {
	var b strings.Builder
	b.WriteString("resourceRequest:\n  containers:\n")

	for i := range containers {
		fmt.Fprintf(&b, "  - containerName: c%d\n    target:\n", i)
		for j := range resources {
			fmt.Fprintf(&b, "      r%d: \"1\"\n", j)
		}
	}

	return b.String()
}

// TestTotalSavings_Hostile checks that what one namespace writes into its Recommendations adds at most the cost of the cluster to the totals, and
// that the total is at most that.
func TestTotalSavings_Hostile(t *testing.T) {
	m := NewMetrics(time.Now, time.Hour)
	split := cost.Split{CPU: 2e9}
	m.Costs = func() (*cost.Tariff, cost.Allocation, bool) { return nil, cost.Allocation{Cluster: split}, true }
	limit := split.Total().PerMonth()

	observe := func(namespace, name string, monthly float64) {
		rec := recommendationOf(name, time.Now(), time.Now())
		rec.Namespace = namespace
		rec.Spec.TargetRef.Namespace = namespace
		rec.Spec.TargetRef.Name = name
		rec.Status.Savings = &analysisv1alpha1.Savings{Monthly: strconv.FormatFloat(monthly, 'f', 2, 64), Currency: "USD", CPU: resource.MustParse("1")}
		m.observe(rec, parsedValue{})
	}

	observe("shop", "web", limit/4)
	observe("loss", "web", -1e8)
	total := func() float64 {
		t.Helper()

		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, family := range families {
			if family.GetName() == "crane_analysis_recommendations_savings_monthly" {
				return family.GetMetric()[0].GetGauge().GetValue()
			}
		}

		return math.NaN()
	}

	if got, want := total(), limit/4-limit; math.Abs(got-want) > 0.01 {
		t.Errorf("the total beside a loss of 1e8 is %v, want %v", got, want)
	}

	for i := range 10 {
		observe("evil", fmt.Sprintf("web-%d", i), 1e8)
	}
	if got, want := total(), limit/4; math.Abs(got-want) > 0.01 {
		t.Errorf("the total beside ten savings of 1e8 is %v, want %v", got, want)
	}

	observe("evil-2", "web", 1e8)
	observe("evil-3", "web", 1e8)
	if got := total(); math.Abs(got-limit) > 0.01 {
		t.Errorf("the total beside savings of 1e8 in three namespaces is %v, want the cost of the cluster, %v", got, limit)
	}
}
