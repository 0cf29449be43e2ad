// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/metrics/promscope"
)

// validateObject validates an object by its kind.
func validateObject(t *testing.T, kind string, content map[string]any, f Facts) (Result, bool) {
	t.Helper()

	switch kind {
	case "RecommendationRule":
		return validateAs(t, content, f, ValidateRecommendationRule), true
	case "Recommendation":
		return validateAs(t, content, f, ValidateRecommendation), true
	case "Analytics":
		return validateAs(t, content, f, ValidateAnalytics), true
	case "EffectiveHorizontalPodAutoscaler":
		return validateAs(t, content, f, ValidateEffectiveHorizontalPodAutoscaler), true
	case "EffectiveVerticalPodAutoscaler":
		return validateAs(t, content, f, ValidateEffectiveVerticalPodAutoscaler), true

	case "TimeSeriesPrediction":
		return validateAs(t, content, f, ValidateTimeSeriesPrediction), true
	case "ClusterNodePrediction":
		return validateAs(t, content, f, ValidateClusterNodePrediction), true
	case "NodeQOS":
		return validateAs(t, content, f, ValidateNodeQOS), true

	case "PodQOS":
		return validateAs(t, content, f, ValidatePodQOS), true
	case "AvoidanceAction":
		return validateAs(t, content, f, ValidateAvoidanceAction), true
	case "NodeResourceTopology":
		return validateAs(t, content, f, ValidateNodeResourceTopology), true
	}

	return Result{}, false
}

func validateAs[T any](t *testing.T, content map[string]any, f Facts, look func(*T, Facts) Result) Result {
	t.Helper()

	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, o); err != nil {
		t.Fatal(err)
	}

	return look(o, f)
}

// TestValidate_Examples checks that the examples in the repository cause neither errors nor warnings.
func TestValidate_Examples(t *testing.T) {
	files, err := filepath.Glob("../../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}

	facts := Facts{Namespace: "crane-system", Actions: map[string]ensurancev1alpha1.AvoidanceActionSpec{
		"throttle-batch": {Throttle: &ensurancev1alpha1.ThrottleAction{}}, "evict-batch": {Eviction: &ensurancev1alpha1.EvictionAction{}},
		"make-room-on-disks": {}, "hold-back-batch": {Throttle: &ensurancev1alpha1.ThrottleAction{}},
	}}

	looked := 0
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		objects, err := manifest.ParseString(string(raw))
		if err != nil {
			continue // A file of another kind, such as a price book.
		}

		for _, o := range objects {
			v, known := validateObject(t, o.GetKind(), o.Object, facts)
			if known {
				looked++
			}
			if len(v.Errors) > 0 || len(v.Warnings) > 0 {
				t.Errorf("%s, %s %s: errors %v, warnings %q, want none", name, o.GetKind(), o.GetName(), v.Errors, v.Warnings)
			}
		}
	}

	if looked < 5 {
		t.Errorf("%d objects of Crane's kinds were validated, want 5 or more", looked)
	}
}

func TestValidate_EmptyObjects(t *testing.T) {
	for _, kind := range []string{
		"RecommendationRule", "Recommendation", "Analytics", "EffectiveHorizontalPodAutoscaler", "EffectiveVerticalPodAutoscaler",
		"TimeSeriesPrediction", "ClusterNodePrediction", "NodeQOS", "PodQOS", "AvoidanceAction", "NodeResourceTopology",
	} {
		if _, known := validateObject(t, kind, map[string]any{}, Facts{}); !known {
			t.Errorf("validateObject has no validation of kind %s, want one", kind)
		}
	}

	DefaultTimeSeriesPrediction(&predictionv1alpha1.TimeSeriesPrediction{})
	DefaultAnalytics(&analysisv1alpha1.Analytics{})
	DefaultRecommendation(&analysisv1alpha1.Recommendation{})
	DefaultEffectiveHorizontalPodAutoscaler(&autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{})
	DefaultEffectiveVerticalPodAutoscaler(&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{})
}

func TestRatchet(t *testing.T) {
	bad := func(i int, value string) *field.Error {
		return field.Invalid(field.NewPath("a").Index(i).Child("b"), value, "no")
	}
	for name, test := range map[string]struct {
		before, after field.ErrorList
		refused       int
		warned        int
	}{
		"the same":                  {field.ErrorList{bad(0, "x")}, field.ErrorList{bad(0, "x")}, 0, 1},
		"moved in the list":         {field.ErrorList{bad(0, "x")}, field.ErrorList{bad(3, "x")}, 0, 1},
		"another value":             {field.ErrorList{bad(0, "x")}, field.ErrorList{bad(0, "y")}, 1, 0},
		"one more of the same":      {field.ErrorList{bad(0, "x")}, field.ErrorList{bad(0, "x"), bad(1, "x")}, 1, 1},
		"mended":                    {field.ErrorList{bad(0, "x")}, nil, 0, 0},
		"new":                       {nil, field.ErrorList{bad(0, "x")}, 1, 0},
		"one mended, one as it was": {field.ErrorList{bad(0, "x"), bad(1, "y")}, field.ErrorList{bad(0, "y")}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := Ratchet(Result{Errors: test.before}, Result{Errors: test.after})
			if len(got.Errors) != test.refused || len(got.Warnings) != test.warned {
				t.Errorf("Ratchet: errors %v, warnings %q, want %d and %d", got.Errors, got.Warnings, test.refused, test.warned)
			}
		})
	}
}

// TestValidateNodeQOS_DistributedAbove100 checks that a rule on the share of elastic CPU that pods hold accepts more than 100 %.
func TestValidateNodeQOS_DistributedAbove100(t *testing.T) {
	for metric, warned := range map[string]bool{ensurancev1alpha1.MetricExtCPUTotalDistribute: false, ensurancev1alpha1.MetricCPUTotalUtilization: true} {
		q := &ensurancev1alpha1.NodeQOS{Spec: ensurancev1alpha1.NodeQOSSpec{Rules: []ensurancev1alpha1.Rule{{
			Name: "r", AvoidanceActionName: "evict", MetricRule: &ensurancev1alpha1.MetricRule{Name: metric, Value: resource.MustParse("110")},
		}}}}

		if v := ValidateNodeQOS(q, Facts{}); len(v.Errors) > 0 || (len(v.Warnings) > 0) != warned {
			t.Errorf("ValidateNodeQOS of %s above 110 = %+v, want no error, and a warning: %t", metric, v, warned)
		}
	}
}

// TestValidateNodeQOS_ThrottledDisks checks that an action with throttling has a warning in a rule about disks, and other actions have none.
func TestValidateNodeQOS_ThrottledDisks(t *testing.T) {
	facts := Facts{Actions: map[string]ensurancev1alpha1.AvoidanceActionSpec{
		"throttle": {Throttle: &ensurancev1alpha1.ThrottleAction{CPUThrottle: &ensurancev1alpha1.CPUThrottle{StepCPURatio: 10}}}, "evict": {Eviction: &ensurancev1alpha1.EvictionAction{}},
	}}
	for _, metric := range []string{"pod_interference_io_ratio", "pod_disk_write_bytes_per_second", "disk_read_iops", "node_disk_busy_ratio", "node_pressure_io_full_avg60_ratio", "pod_interference_cpu_ratio"} {
		for action := range facts.Actions {
			q := &ensurancev1alpha1.NodeQOS{Spec: ensurancev1alpha1.NodeQOSSpec{Rules: []ensurancev1alpha1.Rule{{
				Name: "r", AvoidanceActionName: action, MetricRule: &ensurancev1alpha1.MetricRule{Name: metric, Value: resource.MustParse("100m")},
			}}}}

			v := ValidateNodeQOS(q, facts)
			warned := len(v.Warnings) == 1 && strings.Contains(v.Warnings[0], "throttles nothing for "+metric)
			if want := action == "throttle" && metric != "pod_interference_cpu_ratio"; len(v.Errors) > 0 || warned != want || !want && len(v.Warnings) > 0 {
				t.Errorf("ValidateNodeQOS of %s with action %s = %+v, want a warning that nothing is throttled: %t", metric, action, v, want)
			}
		}
	}
}

// TestValidateNodeQOS_Capacity checks that a rule on a capacity, as opposed to usage, can only disable scheduling.
func TestValidateNodeQOS_Capacity(t *testing.T) {
	facts := Facts{Actions: map[string]ensurancev1alpha1.AvoidanceActionSpec{"evict": {Eviction: &ensurancev1alpha1.EvictionAction{}}, "schedule": {}}}
	for _, metric := range []string{ensurancev1alpha1.MetricCPUCoreNumbers, ensurancev1alpha1.MetricExclusiveCPUIdle, ensurancev1alpha1.MetricCPUTotalUsage} {
		for action := range facts.Actions {
			q := &ensurancev1alpha1.NodeQOS{Spec: ensurancev1alpha1.NodeQOSSpec{Rules: []ensurancev1alpha1.Rule{{
				Name: "r", AvoidanceActionName: action, MetricRule: &ensurancev1alpha1.MetricRule{Name: metric, Value: resource.MustParse("10")},
			}}}}

			v := ValidateNodeQOS(q, facts)
			warned := len(v.Warnings) == 1 && strings.Contains(v.Warnings[0], "does nothing for "+metric)
			if want := action == "evict" && metric != ensurancev1alpha1.MetricCPUTotalUsage; len(v.Errors) > 0 || warned != want || !want && len(v.Warnings) > 0 {
				t.Errorf("ValidateNodeQOS of %s with action %s = %+v, want a warning that nothing is done: %t", metric, action, v, want)
			}
		}
	}
}

// TestValidateNodeQOS_Contradictions needs known actions.
func TestValidateNodeQOS_Contradictions(t *testing.T) {
	facts := Facts{Actions: map[string]ensurancev1alpha1.AvoidanceActionSpec{
		"throttle": {Throttle: &ensurancev1alpha1.ThrottleAction{}}, "evict": {Eviction: &ensurancev1alpha1.EvictionAction{}}, "schedule": {},
	}}
	rule := func(name, action, value string) ensurancev1alpha1.Rule {
		return ensurancev1alpha1.Rule{Name: name, AvoidanceActionName: action, MetricRule: &ensurancev1alpha1.MetricRule{
			Name: ensurancev1alpha1.MetricCPUTotalUsage, Value: resource.MustParse(value),
		}}
	}

	preview := rule("b", "evict", "1")
	preview.Strategy = ensurancev1alpha1.AvoidanceActionStrategyPreview
	some := rule("b", "evict", "1")

	some.MetricRule.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"PodName": "x"}}
	for name, test := range map[string]struct {
		rules []ensurancev1alpha1.Rule
		want  string
	}{
		"throttle, then evict":   {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), rule("b", "evict", "3")}, ""},
		"evict first":            {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), rule("b", "evict", "1")}, "rule b evicts pods before rule a"},
		"evict first, listed so": {[]ensurancev1alpha1.Rule{rule("a", "evict", "1"), rule("b", "throttle", "2")}, "rule a evicts pods before rule b"},
		"at once":                {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), rule("b", "evict", "2")}, "rule b evicts pods before rule a"},
		"the same":               {[]ensurancev1alpha1.Rule{rule("a", "evict", "2"), rule("b", "evict", "2")}, "rule b says the same as rule a"},
		"only taint":             {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), rule("b", "schedule", "1")}, ""},
		"preview":                {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), preview}, ""},
		"other series":           {[]ensurancev1alpha1.Rule{rule("a", "throttle", "2"), some}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := validateRulePairs(test.rules, facts, field.NewPath("rules"))
			if test.want == "" && len(v.Warnings) > 0 || test.want != "" && (len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], test.want)) {
				t.Errorf("%q, want %q", v.Warnings, test.want)
			}
		})
	}
}

func TestValidate_UnknownFacts(t *testing.T) {
	q := &ensurancev1alpha1.NodeQOS{Spec: ensurancev1alpha1.NodeQOSSpec{Rules: []ensurancev1alpha1.Rule{{
		Name: "a", AvoidanceActionName: "x", MetricRule: &ensurancev1alpha1.MetricRule{Name: "cpu_total_usage", Value: resource.MustParse("1")},
	}}}}

	if v := ValidateNodeQOS(q, Facts{}); len(v.Warnings) > 0 {
		t.Errorf("ValidateNodeQOS without knowledge of actions: warnings %q, want none", v.Warnings)
	}
	if v := ValidateNodeQOS(q, Facts{Actions: map[string]ensurancev1alpha1.AvoidanceActionSpec{}}); len(v.Warnings) != 1 {
		t.Errorf("%q, want one of the action that is not there", v.Warnings)
	}

	r := &analysisv1alpha1.RecommendationRule{Spec: analysisv1alpha1.RecommendationRuleSpec{
		ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment"}}, Recommenders: []analysisv1alpha1.Recommender{{Name: "Mine"}},
		NamespaceSelector: analysisv1alpha1.NamespaceSelector{Any: true},
	}}

	if v := ValidateRecommendationRule(r, Facts{}); len(v.Warnings) > 0 {
		t.Errorf("ValidateRecommendationRule without a configuration: warnings %q, want none", v.Warnings)
	}
	if v := ValidateRecommendationRule(r, Facts{ValidateRecommender: func(r analysisv1alpha1.Recommender) error { return fmt.Errorf("unknown recommender %q", r.Name) }}); len(v.Warnings) != 1 || v.Warnings[0] != `spec.recommenders[0]: cannot run: unknown recommender "Mine"` {
		t.Errorf("ValidateRecommendationRule with an unknown recommender: warnings %q, want one that names it", v.Warnings)
	}
}

func TestValidateRecommendation_Namespace(t *testing.T) {
	for name, test := range map[string]struct {
		own, kind, target string
		refused           bool
	}{
		"at home":                     {"shop", "Deployment", "shop", false},
		"not said":                    {"shop", "Deployment", "", true},
		"elsewhere":                   {"shop", "Deployment", "bank", true},
		"a node, in shop":             {"shop", "Node", "", true},
		"a node, in Crane's own":      {"crane-system", "Node", "", false},
		"elsewhere, from Crane's own": {"crane-system", "Deployment", "shop", true},
	} {
		r := &analysisv1alpha1.Recommendation{ObjectMeta: metav1.ObjectMeta{Namespace: test.own}}
		r.Spec.TargetRef.Kind = test.kind

		r.Spec.TargetRef.Name = "x"
		r.Spec.TargetRef.Namespace = test.target
		if v := ValidateRecommendation(r, Facts{Namespace: "crane-system"}); (len(v.Errors) > 0) != test.refused {
			t.Errorf("%s: errors %v, want some: %t", name, v.Errors, test.refused)
		}
	}
}

func TestValidateNodeResourceTopology_Cycles(t *testing.T) {
	n := &topologyv1alpha1.NodeResourceTopology{Zones: []topologyv1alpha1.Zone{
		{Name: "a", Parent: "b"}, {Name: "b", Parent: "c"}, {Name: "c", Parent: "b"}, {Name: "d", Parent: "d"}, {Name: "e", Parent: "f"}, {Name: "f"},
	}}

	v := ValidateNodeResourceTopology(n, Facts{})
	if len(v.Errors) != 4 { // a leads into the cycle of b and c; d is its own parent.
		t.Errorf("ValidateNodeResourceTopology of zones in cycles: errors %v, want 4", v.Errors)
	}
}

func TestDefault_Idempotent(t *testing.T) {
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	e.Spec.ScaleTargetRef.Kind = "Deployment"
	e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "a"}, {CronName: "b", TimeZone: new("Europe/Berlin")}, {CronName: "c", TimeZone: new("")}}
	DefaultEffectiveHorizontalPodAutoscaler(e)
	once := e.DeepCopy()
	DefaultEffectiveHorizontalPodAutoscaler(e)

	if !reflect.DeepEqual(e, once) || e.Spec.Crons[0].TimeZone != nil || *e.Spec.Crons[1].TimeZone != "Europe/Berlin" || *e.Spec.Crons[2].TimeZone != "" {
		t.Errorf("DefaultEffectiveHorizontalPodAutoscaler twice = %+v, want no further change and the time zones of the user", e.Spec)
	}

	custom := &predictionv1alpha1.TimeSeriesPrediction{}
	DefaultTimeSeriesPrediction(custom)

	if custom.Spec.TargetRef != nil {
		t.Errorf("DefaultTimeSeriesPrediction adds the target %+v, want none", custom.Spec.TargetRef)
	}
}

// TestValidateExpression_Hostile checks that neither deep nor long expressions break craned.
func TestValidateExpression_Hostile(t *testing.T) {
	for name, text := range map[string]string{
		"deep":      strings.Repeat("(", promscope.MaxExpression),
		"closed":    strings.Repeat("(", promscope.MaxExpression/2-1) + "1" + strings.Repeat(")", promscope.MaxExpression/2-1),
		"unary":     strings.Repeat("-", promscope.MaxExpression-1) + "1",
		"nested":    strings.Repeat("abs(", promscope.MaxExpression/5-1) + "x" + strings.Repeat(")", promscope.MaxExpression/5-1),
		"too long":  strings.Repeat("x", promscope.MaxExpression+1),
		"no text":   "\x00\xff",
		"a million": strings.Repeat("1+", 1<<20) + "1",
	} {
		start := cpuTime(t)
		if v := validateExpression(text, field.NewPath("e")); len(v.Errors) > 0 || len(v.Warnings) > 1 || name != "nested" && len(v.Warnings) == 0 {
			t.Errorf("validateExpression(%s): errors %v, warnings %.200q, want at most one warning", name, v.Errors, v.Warnings)
		}
		if took := cpuTime(t) - start; took > 20*time.Second {
			t.Errorf("validateExpression(%s) took %s, want at most 20s", name, took)
		}
	}
}

// cpuTime returns the CPU time of this process, which does not depend on the load of the machine.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()

	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{"sum(rate(x[5m]))", "x[5m]", "1", `"a"`, "x offset -5m @ start()", "{__name__=~`.`}", "sum by (", "\u2028"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if v := validateExpression(text, field.NewPath("e")); len(v.Errors) > 0 {
			t.Errorf("validateExpression: errors %v, want warnings alone", v.Errors)
		}
	})
}

func FuzzCron(f *testing.F) {
	f.Add("0 8 * * *", "0 9 * * 1-5", "Asia/Shanghai", int32(3))
	f.Add("@every 1h", "TZ=UTC 0 0 * * *", "../../etc/passwd", int32(-1))
	f.Add("0 0 31 2 *", "*/0 * * * *", "Local", int32(0))
	f.Add("TZ=UTC\t0\t8\t*\t*\t*", "0 9 * * *", "UTC", int32(1))

	f.Fuzz(func(t *testing.T, start, end, zone string, replicas int32) {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
		e.Spec.MaxReplicas = 5
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{{
			CronName: "a", Start: autoscalingv1alpha1.CronExpression(start), End: autoscalingv1alpha1.CronExpression(end), TimeZone: &zone, TargetReplicas: replicas,
		}}

		v := ValidateEffectiveHorizontalPodAutoscaler(e, Facts{})
		if again := Ratchet(v, v); len(again.Errors) > 0 {
			t.Errorf("Ratchet of an unchanged object: errors %v, want none", again.Errors)
		}

		for _, w := range v.Warnings {
			if !strings.HasPrefix(w, "spec.") {
				t.Errorf("warning %q, want one that begins with its field", w)
			}
		}

		_ = fmt.Sprint(v.Errors.ToAggregate())
	})
}
