// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

func ptr[T any](v T) *T { return new(v) }

func TestObjectName(t *testing.T) {
	web := identityOf(workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, "Resource")
	name := objectName("rule", web)
	if !strings.HasPrefix(name, "web-resource-") || name != objectName("rule", web) {
		t.Errorf("objectName = %s, want the same name with prefix web-resource- each time", name)
	}

	other := web
	other.namespace = "bank"
	newer := identityOf(workload.Ref{Namespace: "shop", APIVersion: "apps/v2", Kind: "Deployment", Name: "web"}, "Resource")

	if objectName("rule", other) == name || objectName("rule2", web) == name {
		t.Error("objectName is the same for another target or rule, want another name")
	}
	if objectName("rule", newer) != name {
		t.Error("objectName differs for another version of the API, want the same name")
	}

	for _, target := range []string{strings.Repeat("a", 253), strings.Repeat("a.", 126) + "b", "a"} {
		long := web
		long.name = target
		if name := objectName("rule", long); len(validation.IsDNS1123Subdomain(name)) > 0 || !strings.Contains(name, "-resource-") {
			t.Errorf("objectName of target %.20s… = %s, want a valid name with -resource-", target, name)
		}
	}
}

func TestLabelsOf(t *testing.T) {
	long := strings.Repeat("n", 250)
	r := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("r", 61) + ".." + "x", UID: "uid"}}
	w := workload.Workload{
		Ref:    workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: long},
		Labels: map[string]string{"team": "red", analysisv1alpha1.LabelRuleUID: "forged"},
	}

	got := labelsOf(r, w, "Resource")
	for key, value := range got {
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			t.Errorf("label %s has value %q, want a valid one: %v", key, value, errs)
		}
	}

	if got["team"] != "red" || got[analysisv1alpha1.LabelRuleUID] != "uid" || got[analysisv1alpha1.LabelTargetVersion] != "v1" {
		t.Errorf("labelsOf = %v, want team red, the UID of the rule and version v1", got)
	}
	if labelValue(long) == labelValue(long+"x") {
		t.Error("labelValue is the same for two long names, want different values")
	}
	if w.Labels[analysisv1alpha1.LabelRuleUID] != "forged" {
		t.Error("labelsOf changed the labels of the workload, want a copy")
	}
}

func TestParseSchedule(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	ready := func(generation int64, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", ObservedGeneration: generation, Reason: reason}}
	}
	for name, c := range map[string]struct {
		interval   string
		last       *metav1.Time
		conditions []metav1.Condition
		wait       time.Duration
		never      bool
	}{
		"first run":                     {"24h", nil, nil, 0, false},
		"first and only run":            {"", nil, nil, 0, false},
		"once is enough":                {" ", ago(time.Hour), ready(2, "RoundCompleted"), 0, true},
		"once, by gocrane":              {"", ago(time.Hour), nil, 0, true},
		"once, but not all selected":    {"", ago(time.Minute), ready(2, reasonSelectorFailed), 9 * time.Minute, false},
		"once, and the spec changed":    {"", ago(time.Hour), ready(1, "RoundCompleted"), 0, false},
		"not yet":                       {"24h", ago(time.Hour), ready(2, "RoundCompleted"), 23 * time.Hour, false},
		"due":                           {"24h", ago(25 * time.Hour), ready(2, "RoundCompleted"), 0, false},
		"days":                          {"7d", ago(24 * time.Hour), ready(2, "RoundCompleted"), 6 * 24 * time.Hour, false},
		"too short to be useful":        {"1ns", ago(4 * time.Second), ready(2, "RoundCompleted"), 6 * time.Second, false},
		"the clock was set back a year": {"24h", ago(-365 * 24 * time.Hour), ready(2, "RoundCompleted"), 0, false},
		"clocks differ by a second":     {"24h", ago(-time.Second), ready(2, "RoundCompleted"), 24*time.Hour + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &analysisv1alpha1.RecommendationRule{
				ObjectMeta: metav1.ObjectMeta{Generation: 2},
				Spec:       analysisv1alpha1.RecommendationRuleSpec{RunInterval: c.interval},
				Status:     analysisv1alpha1.RecommendationRuleStatus{LastUpdateTime: c.last, Conditions: c.conditions},
			}

			s, err := parseSchedule(r)
			if err != nil {
				t.Fatal(err)
			}

			if wait, never := s.wait(r, now); wait != c.wait || never != c.never {
				t.Errorf("wait %s, never %t; want %s, %t", wait, never, c.wait, c.never)
			}
		})
	}

	for _, interval := range []string{"soon", "-1h", "0", "9999999999h", "1w"} {
		r := &analysisv1alpha1.RecommendationRule{Spec: analysisv1alpha1.RecommendationRuleSpec{RunInterval: interval}}
		if _, err := parseSchedule(r); err == nil || !strings.Contains(err.Error(), "spec.runInterval") {
			t.Errorf("parseSchedule(%q) returned error %v, want one about spec.runInterval", interval, err)
		}
	}
}

// sized is a plan with one container for each of the given recommendations.
func sized(all ...rightsize.Recommendation) resource.Plan {
	for i := range all {
		all[i].CPU.Status, all[i].Memory.Status = rightsize.Ready, rightsize.Ready
	}

	return resource.Plan{Containers: all}
}

func TestWireFormats(t *testing.T) {
	w := workload.Workload{Ref: workload.Ref{Kind: "Deployment"}, Containers: []workload.Container{
		{Name: "proxy", Role: workload.Sidecar}, {Name: "app", Role: workload.App},
	}}
	plan := sized(rightsize.Recommendation{
		Container: "app",
		Current:   rightsize.Resources{CPURequest: ptr(units.MilliCPU(1000)), MemoryRequest: ptr(units.Bytes(1 << 30))},
		Target:    rightsize.Resources{CPURequest: ptr(units.MilliCPU(900)), MemoryRequest: ptr(units.Bytes(345 << 20))},
	})

	for kind, want := range map[string]string{
		"Deployment": `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"900m","memory":"345Mi"}}}]}}}}`,
		"CronJob":    `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"900m","memory":"345Mi"}}}]}}}}}}`,
		"Pod":        `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"900m","memory":"345Mi"}}}]}}`,
	} {
		_, recommended := changesOf(w, plan)
		if got, err := encodePatch(kind, recommended); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", kind, got, err, want)
		}
	}

	_, recommended := changesOf(w, plan)
	value, err := encodeValue(recommended)
	if err != nil {
		t.Fatal(err)
	}

	const want = "resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: 900m\n      memory: 345Mi\n"
	if value != want {
		t.Errorf("value is\n%s\nwant\n%s", value, want)
	}

	back, err := parseValue(value)
	app := back.containers["app"]
	if err != nil || app.Cpu().MilliValue() != 900 || app.Memory().Value() != 345<<20 {
		t.Errorf("parseValue = %v, error %v, want 900m and 345Mi for app", back, err)
	}
}

// TestWireLimits: limits are in a patch only where they change, on both sides; sidecars are init containers.
func TestWireLimits(t *testing.T) {
	w := workload.Workload{Containers: []workload.Container{{Name: "proxy", Role: workload.Sidecar}, {Name: "app", Role: workload.App}}}
	current, recommended := changesOf(w, sized(
		rightsize.Recommendation{
			Container: "proxy",
			Current:   rightsize.Resources{CPULimit: ptr(units.MilliCPU(500)), MemoryLimit: ptr(units.Bytes(1 << 30))},
			Target:    rightsize.Resources{CPURequest: ptr(units.MilliCPU(600)), MemoryLimit: ptr(units.Bytes(1 << 30))},
		},
		rightsize.Recommendation{
			Container: "app",
			Current:   rightsize.Resources{CPULimit: ptr(units.MilliCPU(500))},
			Target:    rightsize.Resources{CPURequest: ptr(units.MilliCPU(600)), CPULimit: ptr(units.MilliCPU(700))},
		},
	))

	before, err := encodePatch("Deployment", current)
	if err != nil {
		t.Fatal(err)
	}

	after, err := encodePatch("Deployment", recommended)
	if err != nil {
		t.Fatal(err)
	}

	const wantBefore = `{"spec":{"template":{"spec":{"initContainers":[{"name":"proxy","resources":{"requests":{},"limits":{"cpu":"500m"}}}],"containers":[{"name":"app","resources":{"requests":{},"limits":{"cpu":"500m"}}}]}}}}`
	const wantAfter = `{"spec":{"template":{"spec":{"initContainers":[{"name":"proxy","resources":{"requests":{"cpu":"600m"},"limits":{"cpu":null}}}],"containers":[{"name":"app","resources":{"requests":{"cpu":"600m"},"limits":{"cpu":"700m"}}}]}}}}`
	if before != wantBefore || after != wantAfter {
		t.Errorf("current is\n%s\nwant\n%s\nrecommended is\n%s\nwant\n%s", before, wantBefore, after, wantAfter)
	}
}

func TestParseValueOfOthers(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true,
		"replicasRecommendation:\n  replicas: 3\n": true,
		"resourceRequest: {}":                      true,
		"resourceRequest: [":                       false,
		"resourceRequest:\n  containers:\n  - containerName: a\n    target: {cpu: many}\n": false,
	} {
		if _, err := parseValue(text); (err == nil) != ok {
			t.Errorf("parseValue(%q) returned error %v, want none: %t", text, err, ok)
		}
	}
}

func TestConfigure(t *testing.T) {
	const header = "apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\nrecommenders:\n"
	shipped, err := BuiltinRegistry().ParseSettings([]byte(header + `- name: Resource
  acceptedResources: [{kind: Deployment, apiVersion: apps/v1}]
  config: {cpu-request-percentile: "0.95"}
- name: Ours
  acceptedResources: [{kind: Deployment, apiVersion: apps/v1}]
`))
	if err != nil {
		t.Fatal(err)
	}

	plain, err := resourceRun(shipped, analysisv1alpha1.Recommender{Name: "Resource"})
	if err != nil || plain.policies.Default.CPU.Percentile != 0.95 {
		t.Fatalf("configured CPU policy %+v, error %v, want percentile 0.95", plain.policies.Default.CPU, err)
	}

	own, err := resourceRun(shipped, analysisv1alpha1.Recommender{Name: "Resource", Config: map[string]string{
		"cpu-request-margin-fraction": "0.5", "creation-cooldown": "5m",
	}})
	if err != nil || own.policies.Default.CPU.Percentile != 0.95 || own.policies.Default.CPU.Margin != 0.5 || own.cooldown != 5*time.Minute {
		t.Errorf("settings of the rule %+v, error %v, want percentile 0.95, margin 0.5 and cooldown 5m", own, err)
	}

	again, err := resourceRun(shipped, analysisv1alpha1.Recommender{Name: "Resource"})
	if err != nil || again.policies.Default.CPU.Margin != plain.policies.Default.CPU.Margin || again.cooldown != 0 {
		t.Errorf("settings of another rule %+v, error %v, want those of the file: one rule changed those of another", again, err)
	}

	deployment := workload.Workload{Ref: workload.Ref{APIVersion: "apps/v1", Kind: "Deployment"}}
	daemonSet := workload.Workload{Ref: workload.Ref{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	if !plain.accepts(deployment) || plain.accepts(daemonSet) {
		t.Error("accepts is wrong: want Deployments and no DaemonSets")
	}

	builtin, err := resourceRun(BuiltinRegistry().DefaultSettings(), analysisv1alpha1.Recommender{Name: "Resource", Config: map[string]string{"policy": "batch"}})
	if err != nil || !builtin.accepts(daemonSet) || builtin.policies.Default.Name != "batch" {
		t.Errorf("built-in settings %+v, error %v, want policy batch for DaemonSets too", builtin, err)
	}

	for name, r := range map[string]analysisv1alpha1.Recommender{
		"unknown":      {Name: "Nonsense"},
		"not served":   {Name: "Ours"},
		"percentile":   {Name: "Resource", Config: map[string]string{"cpu-request-percentile": "ninety"}},
		"unknown key":  {Name: "Resource", Config: map[string]string{"cpu-percentil": "0.9"}},
		"cooldown":     {Name: "Resource", Config: map[string]string{"creation-cooldown": "soon"}},
		"policy":       {Name: "Resource", Config: map[string]string{"policy": "brave"}},
		"two policies": {Name: "Resource", Config: map[string]string{"policy": "batch", "cpu-request-margin-fraction": "0.5"}},
	} {
		if _, err := resourceRun(shipped, r); err == nil {
			t.Errorf("%s: configuring the recommender returned no error, want one", name)
		}
	}

	for name, text := range map[string]string{
		"empty": "", "not YAML": "{", "unknown field": header + "- {name: Resource, acceptedResources: [], cofig: {}}\n",
		"twice": header + "- {name: A, acceptedResources: []}\n- {name: A, acceptedResources: []}\n", "another kind": "apiVersion: v1\nkind: Pod\n",
	} {
		if _, err := BuiltinRegistry().ParseSettings([]byte(text)); err == nil {
			t.Errorf("%s: ParseSettings returned no error, want one", name)
		}
	}
}

func TestResolve(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}, meta.RESTScopeNamespace)
	lists := []*metav1.APIResourceList{
		{GroupVersion: "argoproj.io/v1alpha1", APIResources: []metav1.APIResource{
			{Name: "rollouts/scale", Kind: "Rollout"}, {Name: "rollouts", Kind: "Rollout", Verbs: metav1.Verbs{"get", "list"}},
		}},
		{GroupVersion: "a/b/c"},
	}

	kinds := DiscoveryKinds{Mapper: mapper, Preferred: func() ([]*metav1.APIResourceList, error) { return lists, errors.New("one group is down") }}
	for name, c := range map[string]struct{ apiVersion, kind, want string }{
		"built in":           {"", "StatefulSet", "apps/v1, Kind=StatefulSet"},
		"named":              {"apps/v1", "Deployment", "apps/v1, Kind=Deployment"},
		"a version that was": {"apps/v1beta1", "Deployment", "apps/v1, Kind=Deployment"},
		"searched":           {"", "Rollout", "argoproj.io/v1alpha1, Kind=Rollout"},
		"unknown":            {"x.io/v1", "Rollout", ""},
		"nowhere":            {"", "Nonsense", ""},
		"not a version":      {"a/b/c", "Deployment", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kinds.Resolve(c.apiVersion, c.kind)
			if c.want == "" {
				if err == nil {
					t.Errorf("Resolve(%q, %q) = %v, want an error", c.apiVersion, c.kind, got)
				}

				return
			}

			if err != nil || len(got) != 1 || got[0].String() != c.want {
				t.Errorf("%v, %v; want %s", got, err, c.want)
			}
		})
	}
}

// changing is a mapper that maps a kind to another version after each Reset.
type changing struct {
	meta.RESTMapper
	version int
}

func (c *changing) Reset() {
	c.version++
	gv := schema.GroupVersion{Group: "argoproj.io", Version: fmt.Sprint("v", c.version)}
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv})
	m.Add(gv.WithKind("Rollout"), meta.RESTScopeNamespace)
	c.RESTMapper = m
}

// TestKindChangesVersion: a rule that names a version which is served no longer goes on with the one that is, without a restart.
func TestKindChangesVersion(t *testing.T) {
	kinds := DiscoveryKinds{Mapper: &changing{RESTMapper: meta.NewDefaultRESTMapper(nil)}}
	for _, want := range []string{"v1", "v2", "v3"} {
		if got, err := kinds.Resolve("argoproj.io/v1", "Rollout"); err != nil || len(got) != 1 || got[0].Version != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
}

func TestSetCondition(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var conditions []metav1.Condition
	s := condition{conditionType: "Ready", status: true, reason: "A", message: strings.Repeat("ä", maxConditionMessage)}
	if !s.set(&conditions, 1, t0) || s.set(&conditions, 1, t0.Add(time.Hour)) {
		t.Error("set reports the wrong changes, want one for the first call alone")
	}
	if len(conditions[0].Message) > 2*maxConditionMessage || !conditions[0].LastTransitionTime.Time.Equal(t0) {
		t.Errorf("condition %+v, want a shortened message and the time of the first call", conditions[0])
	}

	s.reason = "B"
	if !s.set(&conditions, 1, t0.Add(time.Hour)) || !conditions[0].LastTransitionTime.Time.Equal(t0) {
		t.Error("set of another reason: want a change without a transition")
	}

	s.status = false
	if !s.set(&conditions, 1, t0.Add(2*time.Hour)) || conditions[0].LastTransitionTime.Time.Equal(t0) {
		t.Error("set of another status: want a change with a transition")
	}
}

func TestJoinErrors(t *testing.T) {
	var errs []error
	for range 7 {
		errs = append(errs, errors.New("bad\nline"))
	}

	if diff := cmp.Diff("bad; line; bad; line; bad; line; bad; line; bad; line; and 2 more", joinErrors(errs)); diff != "" {
		t.Errorf("joinErrors differs (-want +got):\n%s", diff)
	}
}

func TestSameReference(t *testing.T) {
	ref := corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "a", Name: "b", UID: types.UID("1")}
	same := ref
	same.ResourceVersion = "7"
	if !sameReference(ref, same) {
		t.Error("sameReference with another resource version = false, want true")
	}

	same.UID = "2"
	if sameReference(ref, same) {
		t.Error("sameReference with another UID = true, want false")
	}
}

// TestInvalidSetting checks that an invalid setting of the file leaves all other recommenders usable, and that a rule can override it.
func TestInvalidSetting(t *testing.T) {
	s, err := BuiltinRegistry().ParseSettings([]byte(`apiVersion: analysis.crane.io/v1alpha1
kind: RecommendationConfiguration
recommenders:
- {name: Resource, acceptedResources: [], config: {cpu-request-percentile: "2"}}
- {name: Replicas, acceptedResources: [], config: {cpu-percentil: "0.9"}}
- {name: HPA, acceptedResources: [], config: {fluctuation-threshold: "0"}}
`))
	if err != nil {
		t.Fatal(err)
	}

	for _, part := range []string{"recommenders[0] Resource", "cpu-request-percentile", "recommenders[1] Replicas", "cpu-percentile"} {
		if err := s.Invalid(); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Invalid() = %v, want one with %q", err, part)
		}
	}

	for _, c := range []struct {
		recommender analysisv1alpha1.Recommender
		usable      bool
	}{
		{analysisv1alpha1.Recommender{Name: "HPA"}, true},
		{analysisv1alpha1.Recommender{Name: "Replicas"}, false},
		{analysisv1alpha1.Recommender{Name: "Resource"}, false},
		{analysisv1alpha1.Recommender{Name: "Resource", Config: map[string]string{"cpu-request-percentile": "0.9"}}, true},
	} {
		if err := s.Check(c.recommender); (err == nil) != c.usable {
			t.Errorf("Check(%+v) returned error %v, want none: %t", c.recommender, err, c.usable)
		}
	}
}

// TestPrefixedKeys checks the keys of gocrane's Analytics and ConfigSets.
func TestPrefixedKeys(t *testing.T) {
	for name, c := range map[string]struct{ given, want map[string]string }{
		"prefixes": {
			map[string]string{"replicas.workload-min-replicas": "1", "ehpa.fluctuation-threshold": "0", "resource.cpu-request-percentile": "0.98"},
			map[string]string{"workload-min-replicas": "1", "fluctuation-threshold": "0", "cpu-request-percentile": "0.98"},
		},
		"percent":        {map[string]string{"replicas.cpu-percentile": "95"}, map[string]string{"cpu-percentile": "0.95"}},
		"not prefixed":   {map[string]string{"cpu-percentile": "95"}, map[string]string{"cpu-percentile": "95"}},
		"both":           {map[string]string{"ehpa.default-min-replicas": "1", "default-min-replicas": "2"}, map[string]string{"default-min-replicas": "2"}},
		"another prefix": {map[string]string{"node.cpu": "1"}, map[string]string{"node.cpu": "1"}},
	} {
		if got := withoutPrefixes(c.given); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAnalyticsOfGocrane checks the examples of gocrane's documentation: the recommender runs, and keys without effect are named.
func TestAnalyticsOfGocrane(t *testing.T) {
	r := &AnalyticsReconciler{Settings: BuiltinRegistry().DefaultSettings}
	a := &analysisv1alpha1.Analytics{Spec: analysisv1alpha1.AnalyticsSpec{Type: analysisv1alpha1.AnalysisTypeReplicas, Config: map[string]string{
		"replicas.fluctuation-threshold": "0", "ehpa.min-cpu-usage-threshold": "0", "replicas.workload-min-replicas": "1",
	}}}

	recommender, ignored := r.recommenderOf(a)
	if err := r.Settings().Check(recommender); err != nil || len(recommender.Config) != 1 || len(a.Spec.Config) != 3 {
		t.Errorf("recommenderOf = %v with error %v of Check, want one valid setting, and those of the Analytics unchanged", recommender, err)
	}

	rule := &analysisv1alpha1.RecommendationRule{}
	rule.Name, rule.Generation = "r", 2
	states := []condition{analyticsCondition(rule, ignored)}
	for _, c := range []condition{
		{analysisv1alpha1.ConditionReady, false, reasonInvalidConfig, "unknown recommender."}, {analysisv1alpha1.ConditionReady, true, reasonRoundCompleted, "Done."},
	} {
		c.set(&rule.Status.Conditions, 2, time.Now())
		states = append(states, analyticsCondition(rule, ignored))
	}

	rule.Generation = 3
	states = append(states, analyticsCondition(rule, nil))
	for i, want := range []struct {
		ready           bool
		reason, message string
	}{
		{false, reasonNotEvaluated, "ehpa.min-cpu-usage-threshold, replicas.fluctuation-threshold"},
		{false, reasonInvalidConfig, "unknown recommender."},
		{true, reasonAnalyticsReady, "RecommendationRule r: Done."},
		{false, reasonNotEvaluated, "RecommendationRule r has not been evaluated yet."},
	} {
		if got := states[i]; got.status != want.ready || got.reason != want.reason || !strings.Contains(got.message, want.message) {
			t.Errorf("state %d: %+v, want %+v", i, got, want)
		}
	}
}
