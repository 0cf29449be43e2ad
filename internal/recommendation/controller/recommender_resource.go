// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// resourceEvaluator recommends the requests of containers.
type resourceEvaluator struct{ policies rightsize.PolicySet }

func (e *resourceEvaluator) usageWindow() time.Duration { return e.policies.Window() }

func (e *resourceEvaluator) gather(ctx context.Context, d *runData, _ []workload.Workload) error {
	if err := d.dropOptedOut(ctx); err != nil {
		return err
	}

	if _, err := d.usage(ctx); err != nil {
		return err
	}

	d.prices(ctx)
	return d.readVerticalAutoscalers(ctx)
}

func (e *resourceEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	policy, why := e.policies.For(target.Subject())
	in := d.read.usage.ResourceInput(target, policy, d.now)
	in.PolicyWhy = why
	in.Reacts = d.reacting[target.Ref]
	plan := resource.Decide(in)
	d.plans[target.Ref] = plan

	out := decision{
		plan: recommend.Plan{
			State:       plan.State,
			Action:      plan.Action,
			Description: plan.Description,
			Incomplete:  plan.Incomplete,
			Steps:       plan.Steps(),
		},
		annotations: map[string]string{analysisv1alpha1.AnnotationScalePoint: ""},
	}

	// Two sources of requests for one workload confuse its owner, so differences are named.
	out.plan.Description += d.describeDifferences(target.Ref, plan)
	if plan.State != recommend.Ready {
		return out, nil
	}

	out, err := out.withResources(target, plan)
	if err != nil {
		return out, err
	}

	out.evidence = calibrationEvidence(plan)
	out.savings = d.read.prices.savingsOf(target, plan)
	out.pricesUnknown = d.read.prices == nil

	return d.bindScalePoint(out, target.Ref, plan.ScalePoint)
}

// reacts reports whether the pods of a target are raised within the day, unless its namespace opts out: it is calibrated, and its
// Recommendation is adopted in place. One that was not adopted yet, was rolled back or is stopped does not count.
func (e *resourceEvaluator) reacts(t task, systemNamespace string) bool {
	rec := t.existing
	if rec == nil || !targetsnapshot.Reacts(rec, systemNamespace) || targetsnapshot.OptedOut(t.target.Labels) ||
		rec.Status.Adoption == nil || meta.IsStatusConditionFalse(rec.Status.Conditions, analysisv1alpha1.ConditionAdopted) {
		return false
	}

	if a := rec.Spec.Adoption; a != nil && a.MinReplicas != nil && t.target.Replicas < *a.MinReplicas {
		return false
	}

	switch adoption.Phase(rec.Status.Adoption.Phase) {
	case adoption.RollingBack, adoption.Held, adoption.Withdrawing, adoption.Stopped:
		return false
	case adoption.Untouched, adoption.Resting, adoption.Lowering, adoption.Watching:
	}

	policy, _ := e.policies.For(t.target.Subject())
	return policy.CPU.Method == rightsize.Calibrated
}

// dropOptedOut removes the reacting targets of namespaces that opt out of adoption.
func (d *runData) dropOptedOut(ctx context.Context) error {
	optedOut := map[string]bool{}
	for ref := range d.reacting {
		if _, checked := optedOut[ref.Namespace]; !checked {
			ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
			if err := d.live.Get(ctx, client.ObjectKey{Name: ref.Namespace}, ns); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading namespace %s: %w", ref.Namespace, err)
			}

			optedOut[ref.Namespace] = targetsnapshot.OptedOut(ns.Labels)
		}

		if optedOut[ref.Namespace] {
			delete(d.reacting, ref)
		}
	}

	return nil
}

// withResources returns the decision with the requests and limits of a plan in gocrane's formats.
func (d decision) withResources(target workload.Workload, plan resource.Plan) (decision, error) {
	current, recommended := changesOf(target, plan)
	d, err := d.withPatch(target.Kind, current, recommended)
	if err != nil {
		return d, err
	}

	d.value, err = encodeValue(recommended)
	return d, err
}

// maxEvidence bounds the containers in the evidence of a Recommendation.
const maxEvidence = 32

// calibrationEvidence returns the calibrations of the containers of a plan; nil if none is calibrated.
func calibrationEvidence(plan resource.Plan) []analysisv1alpha1.CalibrationEvidence {
	var out []analysisv1alpha1.CalibrationEvidence
	share := func(r units.Ratio) string { return strconv.FormatFloat(float64(r), 'f', 6, 64) }
	for _, r := range plan.Containers {
		c := r.CPU.Calibration
		if c == nil || r.CPU.Status != rightsize.Ready || len(out) == maxEvidence {
			continue
		}

		out = append(out, analysisv1alpha1.CalibrationEvidence{
			Container: r.Container,
			Target:    share(c.Target),
			Achieved:  share(c.Achieved),
			Message:   c.Summary(),
			Days:      int32(c.Days),
			Plot:      c.Plot(),
		})
	}

	return out
}

// bindScalePoint adds the new targets of the autoscaler that change together with the requests.
func (d *runData) bindScalePoint(out decision, target workload.Ref, changes []resource.TargetChange) (decision, error) {
	scaler, _ := d.read.constraints.UtilizationAutoscaler(target)
	if len(changes) == 0 || scaler.Owner == "" {
		return out, nil
	}

	text, err := targetsnapshot.EncodeScalePoint(scaler.Owner, changes)
	out.annotations[analysisv1alpha1.AnnotationScalePoint] = text
	return out, err
}

// readVerticalAutoscalers reads the vertical autoscalers of the cluster. There are none where their kind is not served or may not
// be read.
func (d *runData) readVerticalAutoscalers(ctx context.Context) error {
	if d.verticalAutoscalers != nil {
		return nil
	}

	found := map[workloadKey][]*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
	err := listEach(ctx, d, &autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList{}, func(evpa *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		key := workloadKey{evpa.Namespace, evpa.Spec.TargetRef.Kind, evpa.Spec.TargetRef.Name}
		found[key] = append(found[key], evpa)
	})
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}

	d.verticalAutoscalers = found
	return nil
}

// describeDifferences returns which vertical autoscalers have other requests for the same workload, and why; empty for none.
func (d *runData) describeDifferences(target workload.Ref, plan resource.Plan) string {
	recommended := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for _, c := range plan.Containers {
		recommended.Containers[c.Container] = c.Target
	}

	var text strings.Builder
	for _, evpa := range d.verticalAutoscalers[workloadKeyOf(target)] {
		name := "EffectiveVerticalPodAutoscaler " + evpa.Name
		if difference := targetsnapshot.DescribeDifference(name, targetsnapshot.VerticalSize(evpa), recommended, evpa); difference != "" {
			text.WriteString(" " + difference + ".")
		}
	}

	return text.String()
}
