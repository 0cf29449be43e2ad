// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// bound is how long a test waits for what takes a second or two on an idle machine.
const bound = 90 * time.Second

func nan() float64 { return math.NaN() }

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, bound, what, check)
}

// newClient returns a client of an administrator that reads from the API server.
func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(control.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// servePrometheus opens a server on a copy of the shared history.
func servePrometheus(t *testing.T) *promserver.Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}
	s, err := promserver.Open(promserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// process is a craned that runs.
type process struct {
	*harness.Process
	metrics, probes string
}

// startCraned runs craned with the rights that config/rbac gives it.
func startCraned(t *testing.T, prometheus string, flags ...string) *process {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{metrics: harness.FreeAddress(t), probes: harness.FreeAddress(t)}
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=" + prometheus,
		"--metrics-bind-address=" + p.metrics, "--metrics-secure=false", "--server-bind-port=0", "--health-probe-bind-address=" + p.probes,
		// Not lost on a slow machine; what ends in order gives it back.
		"--lease-duration=20s", "--lease-renew-period=18s", "--lease-retry-period=1s",
	}, flags...)
	p.Process = harness.Start(t, bound, binary, args...)
	return p
}

// template is a pod template with one container that asks for one core and one gibibyte.
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

// create makes objects, namespaces of theirs included, and deletes them at the end of the test.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if ns := o.GetNamespace(); ns != "" {
			err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			if _, isPod := o.(*corev1.Pod); isPod {
				harness.AwaitServiceAccount(t.Context(), t, bound, c, ns)
			}
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
			if _, isRule := o.(*analysisv1alpha1.RecommendationRule); isRule {
				collected(ctx, t, c, o.GetName())
			}
		})
	}
}

// collected waits until the recommendations of a deleted rule are gone, so that the next test does not meet them.
func collected(ctx context.Context, t *testing.T, c client.Client, rule string) {
	t.Helper()
	// The garbage collector looks every half a minute for kinds that have come or gone, collects nothing until it follows all of them, and
	// gives itself half a minute for that.
	const rounds = 3 * time.Minute
	harness.Eventually(ctx, t, rounds, "recommendations of rule "+rule+" collected", func(ctx context.Context) error {
		left, err := recommendations(ctx, c, rule)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are left", len(left))
		}
		return err
	})
}

// rule selects Deployments and StatefulSets of namespaces, with gocrane's percentile and margin so that the numbers
// are known: 15 % above a constant use.
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

// recommendations of a rule by the name of their target.
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

// complete waits until a rule's last round is over and its Ready condition has the given reason.
func complete(t *testing.T, c client.Client, name, reason string) *analysisv1alpha1.RecommendationRule {
	t.Helper()
	rule := &analysisv1alpha1.RecommendationRule{}
	eventually(t, "rule "+name+" "+reason, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, rule); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != rule.Generation {
			return fmt.Errorf("condition %+v", ready)
		}
		return nil
	})
	return rule
}

func condition(r analysisv1alpha1.Recommendation, kind string) string {
	c := meta.FindStatusCondition(r.Status.Conditions, kind)
	if c == nil {
		return "absent"
	}
	return strings.Join([]string{string(c.Status), c.Reason}, "/")
}

// containsLine tells whether a line of the page begins with the text.
func containsLine(page, text string) bool {
	return strings.HasPrefix(page, text) || strings.Contains(page, "\n"+text)
}
