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
	"crane.io/crane/test/integration/harness"
)

// cpuMetrics returns a metric with a target percentage of the CPU request.
func cpuMetrics(percent int32) []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}}
}

// createAutoscaler creates an HPA of Deployment web with a target of 60 % of the CPU request. With managed, an
// EffectiveHorizontalPodAutoscaler owns it, whose controller does not run.
func (f *fixture) createAutoscaler(managed bool) {
	f.T.Helper()

	few := int32(1)
	to := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: to, MinReplicas: &few, MaxReplicas: 4, Metrics: cpuMetrics(60)},
	}

	if managed {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web"},
			Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
				ScaleTargetRef: to, MinReplicas: &few, MaxReplicas: 4, Metrics: cpuMetrics(60), ScaleStrategy: autoscalingv1alpha1.ScaleStrategyAuto,
			},
		}

		if err := f.Create(f.T.Context(), e); err != nil {
			f.T.Fatal(err)
		}

		yes := true
		hpa.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler", Name: e.Name, UID: e.UID, Controller: &yes,
		}}
	}

	if err := f.Create(f.T.Context(), hpa); err != nil {
		f.T.Fatal(err)
	}
}

// awaitTarget waits until the target of the EffectiveHorizontalPodAutoscaler is a percentage, and returns the autoscaler.
func (f *fixture) awaitTarget(want int32) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	f.T.Helper()

	return harness.Await(f.Namespace, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, "web", fmt.Sprintf("has a target of %d %%", want),
		func(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error {
			if got := *e.Spec.Metrics[0].Resource.Target.AverageUtilization; got != want {
				return fmt.Errorf("target %d %%", got)
			}

			return nil
		})
}

// testUnmanagedAutoscaler checks that neither requests nor replicas are adopted beside an HPA that Crane does not manage, that
// a Recommendation with condition Applicable=False is not adopted, and that it is adopted once the condition is True.
func testUnmanagedAutoscaler(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.createAutoscaler(false)
	f.recommend("web", auto, "2", "512Mi")
	f.recommendReplicas("web", "replicas", 4)
	f.awaitNotAdopted("web", "AutoscalerPresent")
	f.awaitNotAdopted("replicas", "AutoscalerPresent")
	f.checkUntouched("web")

	f.Deploy("restricted", 1)
	rec := f.recommend("restricted", analysisv1alpha1.AdoptionTypeStatus, "2", "512Mi")
	setApplicable := func(status metav1.ConditionStatus) {
		t.Helper()

		f.Eventually("the condition is written", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(rec), rec); err != nil {
				return err
			}

			meta.SetStatusCondition(&rec.Status.Conditions, metav1.Condition{
				Type: analysisv1alpha1.ConditionApplicable, Status: status, Reason: "AutoscalerNotOwned", Message: "HorizontalPodAutoscaler web is not Crane's.",
			})

			return admin.Status().Update(ctx, rec)
		})
	}

	setApplicable(metav1.ConditionFalse)
	setAdoptionType(t, rec, auto)
	f.awaitNotAdopted("restricted", "NotApplicable")
	f.checkUntouched("restricted")
	setApplicable(metav1.ConditionTrue)
	f.AwaitPods("restricted", "have the raised requests", checkRequests("2", "512Mi"))
}

// testManagedAutoscaler checks that the requests and the target of an EffectiveHorizontalPodAutoscaler change together and are
// restored together, and that adoption stops when the owner changes the target.
func testManagedAutoscaler(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.createAutoscaler(true)
	rec := f.recommend("web", auto, "500m", "512Mi")
	f.AwaitPods("web", "have the lowered requests", checkRequests("500m", "512Mi"))

	e := f.awaitTarget(120)
	if !managedBy(e, "craned-adoption-resource") {
		t.Errorf("craned does not own the target: %v, want it to be the manager", e.ManagedFields)
	}

	f.awaitPhase("web", adoption.Resting)
	setAdoptionType(t, rec, analysisv1alpha1.AdoptionTypeStatus)
	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.awaitTarget(60)
	f.awaitStateRemoved()

	f.awaitRecommendation("web", "has no adoption status", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption != nil {
			return fmt.Errorf("adoption %+v", rec.Status.Adoption)
		}

		return nil
	})

	setAdoptionType(t, rec, auto)
	e = f.awaitTarget(120)
	f.awaitPhase("web", adoption.Resting)

	of := client.MergeFrom(e.DeepCopy())
	e.Spec.Metrics = cpuMetrics(50)
	if err := admin.Patch(t.Context(), e, of, client.FieldOwner("owner")); err != nil {
		t.Fatal(err)
	}

	setRequests(t, rec, "2", "512Mi") // A new value triggers the next comparison.
	f.awaitNotAdopted("web", "Stopped")
	f.AwaitPods("web", "keep the adopted requests", checkRequests("500m", "512Mi"))
}

// testAutoscalerRejects checks that no pod is changed while the API server rejects the change of the autoscaler.
func testAutoscalerRejects(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.createAutoscaler(true)
	all, deny := admissionv1.Equivalent, admissionv1.Deny

	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "read-only-" + f.Name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy: &all, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.Name}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{autoscalingv1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "read-only"}},
		},
	}

	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{deny}},
	}
	removePolicy := func() error {
		ctx := context.WithoutCancel(t.Context())
		return errors.Join(client.IgnoreNotFound(admin.Delete(ctx, binding)), client.IgnoreNotFound(admin.Delete(ctx, policy)))
	}

	t.Cleanup(func() {
		if err := removePolicy(); err != nil {
			t.Error(err)
		}
	})

	if err := errors.Join(admin.Create(t.Context(), policy), admin.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}

	f.Eventually("the policy is in force", func(ctx context.Context) error {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web"}}
		mark := fmt.Sprintf(`{"metadata":{"annotations":{"tried":"%d"}}}`, time.Now().UnixNano())
		if err := admin.Patch(ctx, e, client.RawPatch(types.MergePatchType, []byte(mark))); err == nil {
			return errors.New("the API server accepted a change")
		}

		return nil
	})

	f.recommend("web", auto, "700m", "512Mi")
	f.awaitMessage("web", "read-only")

	if pods := f.Pods("web"); len(pods) != 2 || pods[0].Generation != 1 || pods[1].Generation != 1 {
		t.Errorf("pods %v, want two unchanged ones", pods)
	}
	if err := removePolicy(); err != nil {
		t.Fatal(err)
	}

	f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))
	f.awaitTarget(86)
}
