// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait. On an idle machine a wait takes a second or two.
const waitTimeout = 90 * time.Second

func nan() float64 { return math.NaN() }

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// newClient returns the uncached client of an administrator.
func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := harness.NewClient(control.Config(), analysisv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// servePrometheus opens a server on a copy of the shared history.
func servePrometheus(t *testing.T) *promserver.Server {
	t.Helper()
	return harness.ServeHistory(t, history, promserver.Options{})
}

// startCraned runs craned with leader election until the test ends.
func startCraned(t *testing.T, prometheusURL string, flags ...string) *harness.Craned {
	t.Helper()

	return harness.StartCraned(t, waitTimeout, control, binary, prometheusURL, append([]string{
		// A slow machine does not lose a lease of 20 s. craned releases the lease when it stops.
		"--leader-elect=true", "--lease-duration=20s", "--lease-renew-period=18s", "--lease-retry-period=1s",
	}, flags...)...)
}

// template returns a pod template with one container that requests one core and 1 GiB.
func template(app, container string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: container, Image: "i",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
			}},
		}}},
	}
}

func deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name, "team": "red"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, "app"),
		},
	}
}

func statefulSet(namespace, name, container string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, container),
		},
	}
}

// create creates objects and their namespaces, and deletes the objects at the end of the test, with the Recommendations of
// rules.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()

	for _, o := range objects {
		switch o.(type) {
		case *corev1.Pod:
			harness.EnsureNamespace(t, c, o.GetNamespace())
			harness.AwaitServiceAccount(t.Context(), t, waitTimeout, c, o.GetNamespace())
		case *analysisv1alpha1.RecommendationRule:
			t.Cleanup(func() { awaitCollected(context.WithoutCancel(t.Context()), t, c, o.GetName()) }) // runs after the deletion
		}

		harness.Create(t, c, o)
	}
}

// awaitCollected waits until the Recommendations of a deleted rule are deleted, so that they do not affect the next test.
func awaitCollected(ctx context.Context, t *testing.T, c client.Client, rule string) {
	t.Helper()

	// The garbage collector looks for new kinds every 30 s, and then takes up to 30 s until it watches all of them.
	const collectTimeout = 3 * time.Minute
	harness.Eventually(ctx, t, collectTimeout, "Recommendations of rule "+rule+" are deleted", func(ctx context.Context) error {
		left, err := recommendations(ctx, c, rule)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are left", len(left))
		}

		return err
	})
}

// rule returns a rule for the Deployments and StatefulSets of namespaces. Its margin of 15 % above a constant usage determines
// the recommended values.
func rule(name, interval string, namespaces ...string) *analysisv1alpha1.RecommendationRule {
	return &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{
				{Kind: "Deployment", APIVersion: "apps/v1"}, {Kind: "StatefulSet"},
			},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{MatchNames: namespaces},
			RunInterval:       interval,
			Recommenders: []analysisv1alpha1.Recommender{{
				Name: "Resource", Config: map[string]string{"cpu-request-margin-fraction": "0.15", "mem-request-margin-fraction": "0.15"},
			}},
		},
	}
}

// recommendations returns the Recommendations of a rule by namespace/name of their target.
func recommendations(ctx context.Context, c client.Client, rule string) (map[string]analysisv1alpha1.Recommendation, error) {
	var list analysisv1alpha1.RecommendationList
	if err := c.List(ctx, &list, client.MatchingLabels{analysisv1alpha1.LabelRuleName: rule}); err != nil {
		return nil, err
	}

	out := map[string]analysisv1alpha1.Recommendation{}
	for _, r := range list.Items {
		out[r.Spec.TargetRef.Namespace+"/"+r.Spec.TargetRef.Name] = r
	}

	return out, nil
}

// awaitRule waits until the Ready condition of a rule has a reason.
func awaitRule(t *testing.T, c client.Client, name, reason string) *analysisv1alpha1.RecommendationRule {
	t.Helper()
	return harness.AwaitRule(t, waitTimeout, c, name, reason)
}

// containsLine reports whether a line of a page starts with a text.
func containsLine(page, text string) bool {
	return strings.HasPrefix(page, text) || strings.Contains(page, "\n"+text)
}
