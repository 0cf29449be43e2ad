// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/recommendation/controller"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// startControllers runs the controllers with a Prometheus server as data source.
func startControllers(t *testing.T, address string) (stop func()) {
	t.Helper()
	return startControllersOn(t, func(*rest.Config) metrics.Capabilities { return newPrometheusSource(t, address).Capabilities() })
}

func newPrometheusSource(t *testing.T, address string) *prometheus.Source {
	t.Helper()

	cfg := prometheus.DefaultConfig()
	cfg.Address = address
	cfg.MaxAttempts = 1

	cfg.Now = func() time.Time { return now }
	source, err := prometheus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return source
}

// startControllersOn runs the controllers with the permissions of craned until stop is called or the test ends.
func startControllersOn(t *testing.T, history func(*rest.Config) metrics.Capabilities) (stop func()) {
	t.Helper()

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}

	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}

	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}

	clk := testingclock.NewFakeClock(now)
	err = controller.AddToManager(t.Context(), mgr, controller.Config{
		History: profile.Source{Capabilities: history(config)}, Settings: configfile.Fixed(controller.BuiltinRegistry().DefaultSettings(), clk),
		Namespace: "crane-system", Outdated: 24 * time.Hour, Registry: prom.NewRegistry(), Clock: clk,
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("the controllers failed:", err)
		}
	})

	t.Cleanup(stop)
	return stop
}

func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := newAdminClient()
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// createRule creates a rule that runs one recommender once for all objects of a kind. The rule and its
// Recommendations are deleted at the end of the test.
func createRule(t *testing.T, c client.Client, recommender, kind string, settings ...string) *analysisv1alpha1.RecommendationRule {
	t.Helper()

	conf := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		conf[settings[i]] = settings[i+1]
	}

	r := &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule-" + strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), "_", "-"))},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: kind}},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{Any: true},
			Recommenders:      []analysisv1alpha1.Recommender{{Name: recommender, Config: conf}},
		},
	}

	if err := c.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := c.Delete(ctx, r)
		// The control plane has no garbage collector.
		for _, rec := range recommendations(ctx, t, c, r.Name) {
			err = errors.Join(err, client.IgnoreNotFound(c.Delete(ctx, &rec)))
		}

		if err != nil {
			t.Error(err)
		}
	})

	return r
}

// awaitReady waits until the Ready condition of a rule has a reason, and returns the condition.
func awaitReady(t *testing.T, c client.Client, r *analysisv1alpha1.RecommendationRule, reason string) *metav1.Condition {
	t.Helper()

	var found *metav1.Condition
	harness.Eventually(t.Context(), t, waitTimeout, "rule "+r.Name+" "+reason, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return err
		}

		found = meta.FindStatusCondition(r.Status.Conditions, analysisv1alpha1.ConditionReady)
		if found == nil || found.Reason != reason || found.ObservedGeneration != r.Generation {
			return fmt.Errorf("condition %+v", found)
		}

		return nil
	})

	return found
}

// recommendations returns the Recommendations of a rule by the name of their target.
func recommendations(ctx context.Context, t *testing.T, c client.Client, rule string) map[string]analysisv1alpha1.Recommendation {
	t.Helper()

	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.MatchingLabels{analysisv1alpha1.LabelRuleName: rule}); err != nil {
		t.Fatal(err)
	}

	out := map[string]analysisv1alpha1.Recommendation{}
	for _, r := range list.Items {
		out[r.Spec.TargetRef.Name] = r
	}

	return out
}

// expectedRecommendation is the expected Recommendation of a target.
type expectedRecommendation struct {
	action analysisv1alpha1.Action
	// reason is the reason of the Ready condition; description is a part of the description.
	reason, description  string
	recommended, current string
	// notApplicable is set if the recommendation must not be applied.
	notApplicable bool
}

const (
	completed = "RecommendationReady"
	learning  = "InsufficientHistory"
	noData    = "NoUsage"
)

func checkRecommendations(t *testing.T, recommender string, got map[string]analysisv1alpha1.Recommendation, want map[string]expectedRecommendation) {
	t.Helper()

	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		t.Errorf("recommendations for %v, want %v", a, b)
	}

	for name, w := range want {
		r, found := got[name]
		if !found {
			continue
		}

		s := r.Status
		cond := meta.FindStatusCondition(s.Conditions, analysisv1alpha1.ConditionReady)
		if cond == nil || cond.Reason != w.reason {
			t.Errorf("%s: condition Ready: %+v, want %s", name, cond, w.reason)
		}

		if string(r.Spec.Type) != recommender || s.Action != w.action || !strings.Contains(s.Description, w.description) {
			t.Errorf("%s: %s %s %q, want %s with %q", name, r.Spec.Type, s.Action, s.Description, w.action, w.description)
		}
		if s.RecommendedInfo != w.recommended || s.CurrentInfo != w.current {
			t.Errorf("%s: recommendedInfo %s\ncurrentInfo %s\nwant %s\nand %s", name, s.RecommendedInfo, s.CurrentInfo, w.recommended, w.current)
		}

		if notApplicable := meta.IsStatusConditionFalse(s.Conditions, analysisv1alpha1.ConditionApplicable); notApplicable != w.notApplicable {
			t.Errorf("%s: not applicable: %v, want %v", name, notApplicable, w.notApplicable)
		}

		ok := w.reason == completed
		if message := r.Annotations[analysisv1alpha1.AnnotationMessage]; (message == analysisv1alpha1.MessageSuccess) != ok {
			t.Errorf("%s: message %q, want success: %v", name, message, ok)
		}
		if r.Labels[analysisv1alpha1.LabelRuleRecommender] != recommender || r.Labels[analysisv1alpha1.LabelTargetName] != name {
			t.Errorf("%s: labels %v, want recommender %s and the target's name", name, r.Labels, recommender)
		}
		if r.Spec.TargetRef.Namespace == "" && r.Namespace != "crane-system" {
			t.Errorf("%s is in namespace %s, want crane-system", name, r.Namespace)
		}
	}
}

// containerPatch returns a patch of the container of a workload.
func containerPatch(resources string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":` + resources + `}]}}}}`
}

// TestRecommenders checks each recommender for objects with a complete and with an incomplete history.
func TestRecommenders(t *testing.T) {
	c := newClient(t)
	startControllers(t, server.URL())

	for name, test := range map[string]struct {
		recommender, kind string
		settings          []string
		want              map[string]expectedRecommendation
	}{
		"idle nodes": {"IdleNode", "Node", nil, map[string]expectedRecommendation{
			"empty": {action: analysisv1alpha1.ActionDelete, reason: completed, description: "nothing but pods of DaemonSets"},
			"low":   {action: analysisv1alpha1.ActionDelete, reason: completed, description: "p99 of cpu use over 7d 5 % of capacity (limit 10)"},
			"new":   {action: analysisv1alpha1.ActionDelete, reason: completed, description: "nothing but pods of DaemonSets"},
			"dark":  {reason: noData, description: "No number of its pods is known"},
		}},
		"idle nodes need days": {"IdleNode", "Node", []string{"empty-for", "3d", "cpu-usage-utilization", "0"}, map[string]expectedRecommendation{
			"empty": {action: analysisv1alpha1.ActionDelete, reason: completed, description: "For 3d"},
			"new":   {reason: learning, description: "of the last 72 hours"},
			"dark":  {reason: noData, description: "No number of its pods is known"},
		}},
		"volumes": {"Volume", "PersistentVolume", nil, map[string]expectedRecommendation{
			"pv-orphan":   {action: analysisv1alpha1.ActionDelete, reason: completed, description: "No pod has mounted claim shop/orphan for 7d"},
			"pv-released": {action: analysisv1alpha1.ActionDelete, reason: completed, description: "claim shop/gone, whose data it holds, is gone"},
			"pv-fresh":    {reason: learning, description: "It has been released for 3h"},
			"pv-blind":    {reason: noData, description: "No number of pods that mounted claim shop/blind is known"},
		}},
		"services": {"Service", "Service", nil, map[string]expectedRecommendation{
			"lb-orphan": {action: analysisv1alpha1.ActionDelete, reason: completed, description: "its selector chooses no pod"},
			"lb-blind":  {reason: noData, description: "No number of addresses"},
		}},
		"services by traffic": {"Service", "Service", []string{"net-receive-bytes", "100", "net-transfer-bytes", "100"}, map[string]expectedRecommendation{
			"lb-orphan": {action: analysisv1alpha1.ActionDelete, reason: completed, description: "its selector"},
			"lb-quiet":  {action: analysisv1alpha1.ActionDelete, reason: completed, description: "receive next to nothing"},
			"lb-blind":  {reason: noData, description: "No number of addresses"},
		}},
		"unused": {"Unused", "Deployment", nil, map[string]expectedRecommendation{
			"forgotten": {
				action: analysisv1alpha1.ActionPatch, reason: completed, description: "It has not been used for 7d", notApplicable: true,
				recommended: `{"spec":{"replicas":0}}`, current: `{"spec":{"replicas":1}}`,
			},
			"newborn": {reason: learning, description: "of the last 168 hours"},
			"unheard": {reason: noData, description: "No received traffic is known"},
		}},
		"throttled": {"Throttle", "Deployment", nil, map[string]expectedRecommendation{
			"tight": {
				action: analysisv1alpha1.ActionPatch, reason: completed, description: "The limit of 500m throttles app in 50 % of the periods",
				recommended: containerPatch(`{"limits":{"cpu":"750m"}}`), current: containerPatch(`{"limits":{"cpu":"500m"}}`),
			},
			"uncounted": {reason: noData, description: "No throttling of app is known"},
		}},
		"packing": {"Packing", "Deployment", nil, map[string]expectedRecommendation{
			"giant": {
				action: analysisv1alpha1.ActionPatch, reason: completed, description: "One more fits on none of the 2 nodes that take it",
				recommended: "*", current: containerPatch(`{"requests":{"cpu":"3","memory":"128Mi"}}`),
			},
			"unknown": {action: analysisv1alpha1.ActionNone, reason: completed, description: "is not known well enough"},
		}},
		"gpus": {"GPU", "Deployment", nil, map[string]expectedRecommendation{
			"untouched": {
				action: analysisv1alpha1.ActionPatch, reason: completed, description: "app holds 2 GPUs and has not used one for 7d, nor opened one", notApplicable: true,
				recommended: containerPatch(`{"requests":{"nvidia.com/gpu":"0"},"limits":{"nvidia.com/gpu":"0"}}`),
				current:     containerPatch(`{"requests":{"nvidia.com/gpu":"2"},"limits":{"nvidia.com/gpu":"2"}}`),
			},
			"half": {
				action: analysisv1alpha1.ActionPatch, reason: completed, description: "none of its pods has used more than 1", notApplicable: true,
				recommended: containerPatch(`{"requests":{"nvidia.com/gpu":"1"},"limits":{"nvidia.com/gpu":"1"}}`),
				current:     containerPatch(`{"requests":{"nvidia.com/gpu":"2"},"limits":{"nvidia.com/gpu":"2"}}`),
			},
			"dark": {reason: noData, description: "No use of the GPUs of app is known"},
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := createRule(t, c, test.recommender, test.kind, test.settings...)
			awaitReady(t, c, r, "RoundCompleted")

			got := recommendations(t.Context(), t, c, r.Name)
			for name, w := range test.want {
				if w.recommended == "*" { // The value depends on the sizing policy; it only has to differ from the current one.
					w.recommended = got[name].Status.RecommendedInfo
					if w.recommended == "" || w.recommended == w.current {
						t.Errorf("%s: recommendedInfo %s, want another value than the current one", name, w.recommended)
					}

					test.want[name] = w
				}
			}

			checkRecommendations(t, test.recommender, got, test.want)
		})
	}
}
