// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// newFixture returns Deployment shop/web with one pod that requests one core, a Recommendation of 500m for it, and other objects.
func newFixture(t *testing.T, others ...client.Object) (Previewer, *analysisv1alpha1.Recommendation) {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	yes := true
	one := int32(1)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1"), corev1.ResourceMemory: apiresource.MustParse("1Gi")},
	}}}}
	labels := map[string]string{"app": "web"}

	owned := func(kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid-" + uid), Controller: &yes}}
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-d"},
		Spec:       appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{Spec: spec}},
		Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1},
	}

	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-r", Labels: labels, OwnerReferences: owned("Deployment", "web", "d")}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a", UID: "uid-p", Labels: labels, OwnerReferences: owned("ReplicaSet", "web-1", "r")},
		Spec:       spec,
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}

	rec := recommended(value, "")
	rec.Status.RecommendedValue = strings.Replace(strings.Replace(value, "250m", "500m", 1), "256Mi", "1Gi", 1)
	rec.Namespace = "shop"
	rec.Name = "web"
	rec.UID = "uid-rec"
	rec.Spec = analysisv1alpha1.RecommendationSpec{
		Type: analysisv1alpha1.AnalysisTypeResource, TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
	}

	objects := append([]client.Object{d, rs, pod, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, others...)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	policy := adoption.DefaultPolicy()
	policy.Step = 0.5

	return Previewer{SnapshotReader: SnapshotReader{Live: c}, Settings: Settings{Policy: policy}, Budgets: adoption.NewBudgetTracker()}, rec
}

func metrics(name corev1.ResourceName, percent int32) []autoscalingv2.MetricSpec {
	absolute := apiresource.MustParse("10")
	return []autoscalingv2.MetricSpec{
		{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "rps"}, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &absolute},
		}},
		{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		}},
	}
}

func hpa(name, owner string, m []autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3, Metrics: m,
		},
	}

	if owner != "" {
		yes := true
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "autoscaling.crane.io/v1alpha1", Kind: "EffectiveHorizontalPodAutoscaler", Name: owner, Controller: &yes}}
	}

	return out
}

func effective(name string, m []autoscalingv2.MetricSpec) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	return &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-e"},
		Spec:       autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{Metrics: m},
	}
}

// TestScalePoint: with Crane's own autoscaler requests and targets are changed together; with another one nothing is changed.
func TestScalePoint(t *testing.T) {
	point := func(text string) func(*analysisv1alpha1.Recommendation) {
		return func(r *analysisv1alpha1.Recommendation) {
			r.Annotations = map[string]string{analysisv1alpha1.AnnotationScalePoint: text}
		}
	}

	held := func(r *analysisv1alpha1.Recommendation) {
		r.Status.Conditions = []metav1.Condition{{Type: analysisv1alpha1.ConditionApplicable, Status: metav1.ConditionFalse, Message: "not by itself"}}
	}

	cpu := metrics(corev1.ResourceCPU, 60)
	for name, c := range map[string]struct {
		others  []client.Object
		edit    func(*analysisv1alpha1.Recommendation)
		refused string
		want    []string // addresses of the requests
	}{
		"no autoscaler":               {nil, nil, "", []string{"deployments/web", "pods/web-1-a/resize"}},
		"not applicable":              {nil, held, "not by itself", nil},
		"owned by others":             {[]client.Object{hpa("web", "", cpu)}, nil, "not Crane's", nil},
		"by requests per second":      {[]client.Object{hpa("web", "", cpu[:1])}, nil, "", []string{"deployments/web", "pods/web-1-a/resize"}},
		"Crane's":                     {[]client.Object{hpa("web", "e", cpu), effective("e", cpu)}, point(`{"name":"e"}`), "", []string{"deployments/web", "effectivehorizontalpodautoscalers/e", "pods/web-1-a/resize"}},
		"Crane's, without annotation": {[]client.Object{hpa("web", "e", cpu), effective("e", cpu)}, nil, "", []string{"deployments/web", "effectivehorizontalpodautoscalers/e", "pods/web-1-a/resize"}},
		"Crane's, not applicable":     {[]client.Object{hpa("web", "e", cpu), effective("e", cpu)}, held, "not by itself", nil},
		"Crane's, of memory":          {[]client.Object{hpa("web", "e", metrics(corev1.ResourceMemory, 60)), effective("e", metrics(corev1.ResourceMemory, 60))}, nil, "", []string{"deployments/web", "pods/web-1-a/resize"}},
		"decided with another":        {[]client.Object{hpa("web", "e", cpu), effective("e", cpu)}, point(`{"name":"other"}`), "decided with autoscaler other", nil},
		"annotation is nonsense":      {[]client.Object{hpa("web", "e", cpu), effective("e", cpu)}, point(`{`), "annotation", nil},
		"Crane's is gone":             {[]client.Object{hpa("web", "e", cpu)}, nil, "not Crane's", nil},
		"Crane's names no targets":    {[]client.Object{hpa("web", "e", cpu), effective("e", nil)}, nil, "not Crane's", nil},
		"two of them":                 {[]client.Object{hpa("web", "e", cpu), effective("e", cpu), hpa("web-2", "", cpu)}, nil, "web and web-2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, rec := newFixture(t, c.others...)
			if c.edit != nil {
				c.edit(rec)
			}

			got, err := p.Preview(t.Context(), rec, nil, time.Now())
			if err != nil || !strings.Contains(got.Refused, c.refused) || (got.Refused == "") != (c.refused == "") {
				t.Fatalf("refused %q, %v; want %q", got.Refused, err, c.refused)
			}
			if len(got.Requests) != len(c.want) {
				t.Fatalf("%v, want %v", got.Requests, c.want)
			}

			for i, r := range got.Requests {
				if r.String() != c.want[i] {
					t.Errorf("request %d is %s, want %s", i, r, c.want[i])
				}
			}
		})
	}
}

// TestAutoscalerRequest: a merge patch of all metrics, of which one target has changed, for the UID and version of the snapshot.
func TestTargetsRequest(t *testing.T) {
	cpu := metrics(corev1.ResourceCPU, 60)
	p, rec := newFixture(t, hpa("web", "e", cpu), effective("e", cpu))
	got, err := p.Preview(t.Context(), rec, nil, time.Now())
	if err != nil || len(got.Requests) != 3 {
		t.Fatalf("Preview = %+v, error %v, want 3 requests", got, err)
	}

	r := got.Requests[1]
	raw, err := json.Marshal(r.Body)
	if err != nil {
		t.Fatal(err)
	}

	var body struct {
		Metadata struct{ UID, ResourceVersion string }
		Spec     struct{ Metrics []autoscalingv2.MetricSpec }
	}

	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}

	m := body.Spec.Metrics
	if body.Metadata.UID != "uid-e" || body.Metadata.ResourceVersion == "" || len(m) != 2 || m[0].Pods == nil || m[0].Pods.Target.AverageValue.String() != "10" ||
		*m[1].Resource.Target.AverageUtilization != 120 || r.Manager != "craned-adoption-resource" || r.Reason == "" {
		t.Errorf("request %s as %s because of %q, want the Pods metric unchanged and a utilization of 120", raw, r.Manager, r.Reason)
	}
}
