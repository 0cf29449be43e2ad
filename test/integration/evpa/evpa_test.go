// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

const mib = 1 << 20

// TestEffectiveVPA runs all cases with one craned, because starting one takes longer than any of them.
func TestEffectiveVPA(t *testing.T) {
	history := t.TempDir()
	installVPA(t)
	startCraned(t, history)

	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*fixture){
			"off": testOff, "learning": testLearning, "initial": testInitial, "in place": testInPlace, "auto": testAuto, "recreate": testRecreate, "recreate with a default request": testRecreateDefaulted, "infeasible": testInfeasible,
			"two of one target": testTwoOfOneTarget, "foreign VPA": testForeignVPA, "target deleted": testTargetDeleted, "killed": testOOMKill,
			"estimators": testEstimators, "effective HPA": testEffectiveHPA, "foreign HPA": testForeignHPA, "a rule beside it": testBesideRule,
			"version not served": testVersionNotServed, "shared decision": testSharedDecision, "finalizer": testFinalizer,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newFixture(t, history))
			})
		}
	})
}

// testFinalizer checks that gocrane's finalizer does not keep a deleted autoscaler.
func testFinalizer(f *fixture) {
	f.Deploy("web", 1)
	e := autoscaler("web", "", "web")
	e.Finalizers = []string{autoscalingv1alpha1.Finalizer}
	f.CreateAll(e)

	if err := admin.Delete(f.T.Context(), e); err != nil {
		f.T.Fatal(err)
	}

	f.AwaitGone(&autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, "web")
}

// testOff checks that the status has targets, bounds, estimators and reasons, and that nothing is applied.
func testOff(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 1)
	f.CreateAll(autoscaler("web", "", "web"))

	e := f.await("web", "is ready", condition("Ready", metav1.ConditionTrue, "RecommendationReady", ""))
	if len(e.Status.Recommendation.ContainerRecommendations) != 1 {
		f.T.Fatalf("recommendation %+v, want one container", e.Status.Recommendation)
	}

	if !strings.HasPrefix(e.Status.Change, "cpu 1 → 2") || !strings.Contains(e.Status.Change, ", memory ") {
		f.T.Errorf("change %q, want CPU from 1 to 2 and a change of memory", e.Status.Change)
	}

	c := e.Status.Recommendation.ContainerRecommendations[0]
	if cpu := c.Target.Cpu().MilliValue(); c.ContainerName != "app" || cpu < 225 || cpu > 236 {
		f.T.Errorf("target %v, want about 230m", c.Target)
	}
	if c.LowerBound.Cpu().Cmp(*c.Target.Cpu()) > 0 || c.UpperBound.Cpu().Cmp(*c.Target.Cpu()) < 0 || c.LowerBound.Memory().IsZero() {
		f.T.Errorf("bounds %v and %v around %v, want bounds that contain the target", c.LowerBound, c.UpperBound, c.Target)
	}
	if c.UncappedTarget.Cpu().Cmp(*c.Target.Cpu()) != 0 {
		f.T.Errorf("uncapped %v, want the target of CPU", c.UncappedTarget)
	}

	d := decision(e, corev1.ResourceCPU)
	if d.Action != autoscalingv1alpha1.VerticalActionLower || d.Estimator != "Percentile" || !strings.Contains(d.Reason, "to be lowered from 1") || d.LoweredAt != nil {
		f.T.Errorf("decision on CPU: %+v, want it lowered later by Percentile", d)
	}
	if len(e.Status.ResourceEstimators) != 1 || e.Status.ResourceEstimators[0].Type != "Percentile" || e.Status.ResourceEstimators[0].LastUpdateTime == nil {
		f.T.Errorf("estimators %+v, want Percentile with a time", e.Status.ResourceEstimators)
	}

	for _, check := range []error{
		condition("Applied", metav1.ConditionFalse, "Off", "applies nothing")(e), condition("Estimating", metav1.ConditionTrue, "AllAnswer", "")(e),
	} {
		if check != nil {
			f.T.Errorf("condition: %v, want Applied False and Estimating True", check)
		}
	}

	f.noRecommendation("web")

	// The allowed range bounds the target.
	f.change("web", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		e.Spec.ResourcePolicy = &autoscalingv1alpha1.PodResourcePolicy{ContainerPolicies: []autoscalingv1alpha1.ContainerResourcePolicy{{
			ContainerName: "app", MinAllowed: autoscalingv1alpha1.ResourceBounds(harness.ResourceList("400m", "")), MaxAllowed: autoscalingv1alpha1.ResourceBounds(harness.ResourceList("800m", "")),
			ControlledResources: []corev1.ResourceName{corev1.ResourceCPU},
		}}}
	})

	f.await("web", "is bounded", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		c := e.Status.Recommendation.ContainerRecommendations[0]
		if c.Target.Cpu().MilliValue() != 400 || c.UncappedTarget.Cpu().MilliValue() > 236 {
			return fmt.Errorf("target %v of %v", c.Target, c.UncappedTarget)
		}

		if _, there := c.Target[corev1.ResourceMemory]; there {
			return errors.New("memory is not controlled")
		}

		return nil
	})

	f.AwaitPods("web", "are untouched", requestsCPU(1000, 1))
}

// testLearning checks that nothing is recommended without history.
func testLearning(f *fixture) {
	f.Deploy("new", 1)
	f.CreateAll(autoscaler("new", "", "new", updateMode(autoscalingv1alpha1.UpdateModeAuto)))

	e := f.await("new", "has nothing to say", condition("Ready", metav1.ConditionFalse, "NoEstimate", "no use was measured"))
	if e.Status.Recommendation != nil {
		f.T.Errorf("recommendation %+v, want none", e.Status.Recommendation)
	}
	if d := decision(e, corev1.ResourceCPU); d.Action != autoscalingv1alpha1.VerticalActionNone || d.Request != nil {
		f.T.Errorf("decision on CPU: %+v, want none", d)
	}

	f.noRecommendation("new")
	f.AwaitPods("new", "are untouched", requestsCPU(1000, 1))
}
