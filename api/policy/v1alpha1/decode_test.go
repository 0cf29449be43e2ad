// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/api/policy/v1alpha1"
)

const policyHeader = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\n"

func TestDecodeDynamicSchedulerPolicy(t *testing.T) {
	got, err := v1alpha1.DecodeDynamicSchedulerPolicy([]byte("# a comment\n---\n" + policyHeader + `spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 3m}
  predicate:
  - {name: cpu_usage_avg_5m, maxLimitPecent: 0.65}
  - {name: cpu_usage_max_avg_1d, maxLimitPecent: 0}
  priority:
  - {name: cpu_usage_avg_5m, weight: 0.2}
  hotValue:
  - {timeRange: 5m, count: 5}
  waterMarks:
    cpu: {low: 0, schedule: 0.65, evict: 1}
`))
	if err != nil {
		t.Fatal(err)
	}

	want := &v1alpha1.DynamicSchedulerPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduler.policy.crane.io/v1alpha1", Kind: "DynamicSchedulerPolicy"},
		Spec: v1alpha1.PolicySpec{
			SyncPeriod: []v1alpha1.SyncPolicy{{Name: "cpu_usage_avg_5m", Period: metav1.Duration{Duration: 3 * time.Minute}}},
			Predicate: []v1alpha1.PredicatePolicy{
				{Name: "cpu_usage_avg_5m", MaxLimitPercent: 0.65},
				{Name: "cpu_usage_max_avg_1d"},
			},
			Priority:   []v1alpha1.PriorityPolicy{{Name: "cpu_usage_avg_5m", Weight: 0.2}},
			HotValue:   []v1alpha1.HotValuePolicy{{TimeRange: metav1.Duration{Duration: 5 * time.Minute}, Count: 5}},
			WaterMarks: map[corev1.ResourceName]v1alpha1.WaterMarks{"cpu": {Schedule: 0.65, Evict: 1}},
		},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadDynamicSchedulerPolicies(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"empty":               {"", "the file is empty"},
		"blank":               {"\n---\n\n", "the file is empty"},
		"two documents":       {policyHeader + "---\n" + policyHeader, "more than one document"},
		"no kind":             {"apiVersion: scheduler.policy.crane.io/v1alpha1\n", `found "scheduler.policy.crane.io/v1alpha1" and ""`},
		"other kind":          {"apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\nrecommenders: []\n", "want apiVersion scheduler.policy.crane.io/v1alpha1"},
		"unknown kind":        {"apiVersion: v1\nkind: Pod\n", `found "v1" and "Pod"`},
		"other version":       {"apiVersion: scheduler.policy.crane.io/v1\nkind: DynamicSchedulerPolicy\n", "scheduler.policy.crane.io/v1"},
		"no YAML":             {"{", "yaml"},
		"correctly spelled":   {policyHeader + "spec: {predicate: [{name: a, maxLimitPercent: 0.5}]}", `unknown field "spec.predicate[0].maxLimitPercent"`},
		"a field twice":       {policyHeader + "spec:\n  hotValue: []\n  hotValue: []\n", "hotValue"},
		"number in a string":  {policyHeader + `spec: {priority: [{name: a, weight: "1"}]}`, "weight"},
		"period in days":      {policyHeader + "spec: {syncPolicy: [{name: a, period: 1d}]}", "1d"},
		"no name":             {policyHeader + "spec: {syncPolicy: [{period: 3m}]}", "spec.syncPolicy[0].name: Required value"},
		"name twice":          {policyHeader + "spec: {syncPolicy: [{name: a, period: 3m}, {name: a, period: 1m}]}", "spec.syncPolicy[1].name: Duplicate value"},
		"no period":           {policyHeader + "spec: {syncPolicy: [{name: a}]}", "spec.syncPolicy[0].period: Invalid value"},
		"negative period":     {policyHeader + "spec: {syncPolicy: [{name: a, period: -3m}]}", "spec.syncPolicy[0].period: Invalid value"},
		"limit in percent":    {policyHeader + "spec: {predicate: [{name: a, maxLimitPecent: 65}]}", "spec.predicate[0].maxLimitPecent: Invalid value"},
		"negative limit":      {policyHeader + "spec: {predicate: [{name: a, maxLimitPecent: -0.1}]}", "spec.predicate[0].maxLimitPecent: Invalid value"},
		"limit without name":  {policyHeader + "spec: {predicate: [{maxLimitPecent: 0.5}]}", "spec.predicate[0].name: Required value"},
		"negative weight":     {policyHeader + "spec: {priority: [{name: a, weight: -1}]}", "spec.priority[0].weight: Invalid value"},
		"weights of no sum":   {policyHeader + "spec: {priority: [{name: a, weight: 0}]}", "spec.priority: Invalid value"},
		"weights too large":   {policyHeader + "spec: {priority: [{name: a, weight: 1e308}, {name: b, weight: 1e308}]}", "spec.priority: Invalid value"},
		"count of none":       {policyHeader + "spec: {hotValue: [{timeRange: 5m, count: 0}]}", "spec.hotValue[0].count: Invalid value"},
		"no time range":       {policyHeader + "spec: {hotValue: [{count: 5}]}", "spec.hotValue[0].timeRange: Invalid value"},
		"marks out of order":  {policyHeader + "spec: {waterMarks: {cpu: {low: 0.7, schedule: 0.6, evict: 0.8}}}", "spec.waterMarks[cpu].low: Invalid value"},
		"marks that touch":    {policyHeader + "spec: {waterMarks: {cpu: {low: 0.5, schedule: 0.8, evict: 0.8}}}", "spec.waterMarks[cpu].schedule: Invalid value"},
		"mark above 1":        {policyHeader + "spec: {waterMarks: {memory: {low: 0.5, schedule: 0.8, evict: 80}}}", "spec.waterMarks[memory].evict: Invalid value"},
		"marks without evict": {policyHeader + "spec: {waterMarks: {memory: {low: 0.5, schedule: 0.8}}}", "spec.waterMarks[memory].schedule: Invalid value"},
		"key of hot value":    {policyHeader + "spec: {syncPolicy: [{name: node_hot_value, period: 3m}]}", "is the key of the hot value"},
		"key of a rule":       {policyHeader + "spec: {syncPolicy: [{name: 'a:b', period: 3m, query: up}]}", "is the key of an annotation"},
		"no series":           {policyHeader + "spec: {syncPolicy: [{name: a-b, period: 3m}]}", "give a query"},
		"unknown source":      {policyHeader + "spec: {syncPolicy: [{name: a, period: 3m, source: Statsd}]}", "spec.syncPolicy[0].source: Unsupported value"},
		"query of a forecast": {policyHeader + "spec: {syncPolicy: [{name: cpu_a, period: 3m, source: Forecast, query: up}]}", "spec.syncPolicy[0].query: Forbidden"},
		"times of a forecast": {policyHeader + "spec: {syncPolicy: [{name: cpu_a, period: 3m, source: Forecast, sampleTime: up}]}", "spec.syncPolicy[0].sampleTime: Forbidden"},
		"forecast of what":    {policyHeader + "spec: {syncPolicy: [{name: a, period: 3m, source: Forecast}]}", "spec.syncPolicy[0].resource: Required value"},
		"unknown resource":    {policyHeader + "spec: {syncPolicy: [{name: a, period: 3m, resource: disk}]}", "spec.syncPolicy[0].resource: Unsupported value"},
		"marks of disks":      {policyHeader + "spec: {waterMarks: {disk: {low: 0.5, schedule: 0.8, evict: 0.9}}}", "spec.waterMarks[disk]: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := v1alpha1.DecodeDynamicSchedulerPolicy([]byte(test.file))
			if err == nil {
				t.Fatalf("accepted: %+v", policy)
			}

			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q in: %v", test.want, err)
			}
		})
	}
}

const configurationHeader = "apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\n"

func TestDecodeRecommendationConfiguration(t *testing.T) {
	got, err := v1alpha1.DecodeRecommendationConfiguration([]byte(configurationHeader + `recommenders:
- name: Resource
  acceptedResources:
  - kind: Deployment
    apiVersion: apps/v1
  config:
    cpu-request-percentile: "0.98"
- name: HPA
  acceptedResources: []
recommenderPlugins:
- anything: {goes: here}
`))
	if err != nil {
		t.Fatal(err)
	}

	want := &v1alpha1.RecommendationConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "analysis.crane.io/v1alpha1", Kind: "RecommendationConfiguration"},
		Recommenders: []v1alpha1.RecommenderConfiguration{
			{
				Name:              "Resource",
				AcceptedResources: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
				Config:            map[string]string{"cpu-request-percentile": "0.98"},
			},
			{Name: "HPA", AcceptedResources: []analysisv1alpha1.ResourceSelector{}},
		},
		RecommenderPlugins: []runtime.RawExtension{{Raw: []byte(`{"anything":{"goes":"here"}}`)}},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadRecommendationConfigurations(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"other kind":       {policyHeader, "want apiVersion analysis.crane.io/v1alpha1"},
		"unknown field":    {configurationHeader + "recommenders: [{name: a, accepted: []}]", `unknown field "recommenders[0].accepted"`},
		"no name":          {configurationHeader + "recommenders: [{acceptedResources: []}]", "recommenders[0].name: Required value"},
		"name twice":       {configurationHeader + "recommenders: [{name: a}, {name: a}]", "recommenders[1].name: Duplicate value"},
		"no kind":          {configurationHeader + "recommenders: [{name: a, acceptedResources: [{apiVersion: v1}]}]", "recommenders[0].acceptedResources[0].kind: Required value"},
		"number in config": {configurationHeader + "recommenders: [{name: a, config: {b: 0.9}}]", "config"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := v1alpha1.DecodeRecommendationConfiguration([]byte(test.file))
			if err == nil {
				t.Fatalf("accepted: %+v", config)
			}

			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q in: %v", test.want, err)
			}
		})
	}
}

// FuzzDecodeDynamicSchedulerPolicy wants no panic, and of what is accepted that its marks and weights can be used.
func FuzzDecodeDynamicSchedulerPolicy(f *testing.F) {
	f.Add([]byte(policyHeader))
	f.Add([]byte(policyHeader + "spec: {waterMarks: {cpu: {low: 0.5, schedule: 0.6, evict: 0.8}}}"))
	f.Add([]byte(policyHeader + "spec: {priority: [{name: a, weight: .inf}]}"))
	f.Add([]byte(`{"apiVersion":"scheduler.policy.crane.io/v1alpha1","kind":"DynamicSchedulerPolicy","spec":{"hotValue":[{"timeRange":"5m","count":5}]}}`))

	f.Fuzz(func(t *testing.T, data []byte) {
		policy, err := v1alpha1.DecodeDynamicSchedulerPolicy(data)
		if err != nil {
			return
		}

		for resource, marks := range policy.Spec.WaterMarks {
			if !(0 <= marks.Low && marks.Low < marks.Schedule && marks.Schedule < marks.Evict && marks.Evict <= 1) {
				t.Errorf("accepted the marks %+v of %s", marks, resource)
			}
		}

		for _, hot := range policy.Spec.HotValue {
			if hot.Count < 1 || hot.TimeRange.Duration <= 0 {
				t.Errorf("accepted %+v", hot)
			}
		}
	})
}

// FuzzDecodeRecommendationConfiguration wants no panic and names that stand once.
func FuzzDecodeRecommendationConfiguration(f *testing.F) {
	f.Add([]byte(configurationHeader))
	f.Add([]byte(configurationHeader + "recommenders: [{name: a, acceptedResources: [{kind: Node}], config: {b: c}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := v1alpha1.DecodeRecommendationConfiguration(data)
		if err != nil {
			return
		}

		seen := map[string]bool{}
		for _, recommender := range config.Recommenders {
			if recommender.Name == "" || seen[recommender.Name] {
				t.Errorf("accepted the name %q", recommender.Name)
			}
			seen[recommender.Name] = true
		}
	})
}
