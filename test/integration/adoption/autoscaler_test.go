// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

func metricAt(percent int32) []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}}
}

// autoscale makes an autoscaler of Deployment web that acts at 60 % of the CPU request; with own, Crane's, which nobody but the test
// looks after.
func autoscale(t *testing.T, ns string, own bool) {
	t.Helper()
	few := int32(1)
	to := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: to, MinReplicas: &few, MaxReplicas: 4, Metrics: metricAt(60)},
	}
	if own {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: to, MinReplicas: &few, MaxReplicas: 4, Metrics: metricAt(60), ScaleStrategy: autoscalingv1alpha1.ScaleStrategyAuto,
			},
		}
		if err := admin.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		yes := true
		hpa.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler", Name: e.Name, UID: e.UID, Controller: &yes,
		}}
	}
	if err := admin.Create(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
}

// target waits until the target of Crane's autoscaler is as wanted.
func target(t *testing.T, ns string, want int32) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	t.Helper()
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	eventually(t, fmt.Sprintf("a target of %d %%", want), func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, e); err != nil {
			return err
		}
		if got := *e.Spec.Metrics[0].Resource.Target.AverageUtilization; got != want {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
	return e
}

func untouched(t *testing.T, ns, name string) {
	t.Helper()
	pods, err := podsOf(t.Context(), ns, name)
	if err != nil || len(pods) == 0 {
		t.Fatalf("%v, %v", pods, err)
	}
	for _, p := range pods {
		if p.Generation != 1 {
			t.Errorf("pod %s was touched", p.Name)
		}
	}
	if s := state(t, ns, name); s.Phase != adoption.Untouched {
		t.Errorf("written down: %+v", s)
	}
}

// testAutoscaler: beside somebody else's autoscaler nothing is begun, neither requests nor replicas; nor where the Recommendation
// says that it must not be applied; and when the reason is gone, it is.
func testAutoscaler(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	autoscale(t, ns, false)
	recommend(t, ns, "web", auto, "2", "512Mi")
	replicas := &analysisv1alpha1.Recommendation{}
	replicas.Namespace, replicas.Name = ns, "replicas"
	replicas.Spec = analysisv1alpha1.RecommendationSpec{
		TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: "web"},
		Type:      analysisv1alpha1.AnalysisTypeReplicas, AdoptionType: auto,
	}
	if err := admin.Create(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
	set(t, replicas, "replicasRecommendation:\n  replicas: 4\n")
	notAdopted(t, ns, "web", "AutoscalerPresent")
	notAdopted(t, ns, "replicas", "AutoscalerPresent")
	untouched(t, ns, "web")

	deploy(t, ns, "held", 1)
	rec := recommend(t, ns, "held", analysisv1alpha1.AdoptionTypeStatus, "2", "512Mi")
	condition := func(status metav1.ConditionStatus) {
		t.Helper()
		eventually(t, "the condition", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(rec), rec); err != nil {
				return err
			}
			meta.SetStatusCondition(&rec.Status.Conditions, metav1.Condition{
				Type: analysisv1alpha1.ConditionApplicable, Status: status, Reason: "AutoscalerNotOwned", Message: "HorizontalPodAutoscaler web is not Crane's.",
			})
			return admin.Status().Update(ctx, rec)
		})
	}
	condition(metav1.ConditionFalse)
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"Auto"}}`))); err != nil {
		t.Fatal(err)
	}
	notAdopted(t, ns, "held", "NotApplicable")
	untouched(t, ns, "held")
	condition(metav1.ConditionTrue)
	podsUntil(t, ns, "held", "raised", sized("2", "512Mi"))
}

// testOwnAutoscaler: with Crane's own autoscaler requests and target change together, and both go back together; whoever sets the
// target has the last word.
func testOwnAutoscaler(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	autoscale(t, ns, true)
	rec := recommend(t, ns, "web", auto, "500m", "512Mi")
	podsUntil(t, ns, "web", "lowered", sized("500m", "512Mi"))
	e := target(t, ns, 120)
	ours := false
	for _, f := range e.ManagedFields {
		ours = ours || f.Manager == "craned-adoption-resource"
	}
	if !ours {
		t.Errorf("the target is not ours: %v", e.ManagedFields)
	}
	phase(t, ns, "web", adoption.Resting)
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"Status"}}`))); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "as they were", sized("1", "512Mi"))
	target(t, ns, 60)
	forgotten(t, ns)
	recommendationUntil(t, ns, "web", "says nothing of adoption", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption != nil {
			return fmt.Errorf("adoption %+v", rec.Status.Adoption)
		}
		return nil
	})

	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"Auto"}}`))); err != nil {
		t.Fatal(err)
	}
	e = target(t, ns, 120)
	phase(t, ns, "web", adoption.Resting)
	of := client.MergeFrom(e.DeepCopy())
	e.Spec.Metrics = metricAt(50)
	if err := admin.Patch(t.Context(), e, of, client.FieldOwner("owner")); err != nil {
		t.Fatal(err)
	}
	value(t, rec, "2", "512Mi") // A change of the value lets it look again.
	notAdopted(t, ns, "web", "Stopped")
	podsUntil(t, ns, "web", "as they were then", sized("500m", "512Mi"))
}

// testAutoscalerRefused: where the autoscaler cannot be told, no pod is changed: together, or not at all.
func testAutoscalerRefused(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	autoscale(t, ns, true)
	all, deny := admissionv1.Equivalent, admissionv1.Deny
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "locked-" + ns},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy: &all, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{autoscalingv1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "it is locked"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{deny}},
	}
	unlock := func() error {
		ctx := context.WithoutCancel(t.Context())
		return errors.Join(client.IgnoreNotFound(admin.Delete(ctx, binding)), client.IgnoreNotFound(admin.Delete(ctx, policy)))
	}
	t.Cleanup(func() {
		if err := unlock(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(admin.Create(t.Context(), policy), admin.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is locked", func(ctx context.Context) error {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
		mark := fmt.Sprintf(`{"metadata":{"annotations":{"tried":"%d"}}}`, time.Now().UnixNano())
		if err := admin.Patch(ctx, e, client.RawPatch(types.MergePatchType, []byte(mark))); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
	recommend(t, ns, "web", auto, "700m", "512Mi")
	message(t, ns, "web", "it is locked")
	pods, err := podsOf(t.Context(), ns, "web")
	if err != nil || len(pods) != 2 || pods[0].Generation != 1 || pods[1].Generation != 1 {
		t.Errorf("touched: %v, %v", pods, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	target(t, ns, 86)
}
