// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// plan is the desired state for one autoscaler.
type plan struct {
	// keepObjects leaves all objects unchanged, because too little is known to change any.
	keepObjects bool
	crons       cronPlan
	forecasts   forecastPlan
	scalePlan
}

// scalePlan is the part of a plan that scales the target or its Substitute.
type scalePlan struct {
	// hpa and substitute are the desired objects; nil for none.
	hpa        *autoscalingv2.HorizontalPodAutoscaler
	substitute *autoscalingv1alpha1.Substitute
	// replicas is set on the target; nil leaves the target unchanged.
	replicas *int32
	// computePreview runs the HPA algorithm in craned.
	computePreview bool
	ready          *condition.State
}

// cronPlan is the result of all cron schedules.
type cronPlan struct {
	statuses []autoscalingv1alpha1.CronStatus
	floor    scaling.Floor
	// nextChange is the next time at which a window opens or closes; zero for never.
	nextChange time.Time
	ready      *condition.State
}

func notReady(reason, message string) *condition.State {
	return &condition.State{Type: autoscalingv1alpha1.ConditionReady, Reason: reason, Message: message}
}

func isReady(reason, message string) *condition.State {
	return &condition.State{
		Type:    autoscalingv1alpha1.ConditionReady,
		OK:      true,
		Reason:  reason,
		Message: message,
	}
}

// decide returns the plan for one autoscaler. It has no side effects.
func decide(o observation, queries *QueryBuilder, settings Settings) plan {
	p := plan{crons: planCrons(o, settings.Zones)}
	if o.optedOut {
		p.ready = notReady(autoscalingv1alpha1.ReasonOptedOut, optedOutMessage(o))
		p.keepObjects = keepsObjects(o)
		return p
	}

	problem := checkTarget(o)
	if problem != nil && (problem.Reason == autoscalingv1alpha1.ReasonFailedGetScale || problem.Reason == autoscalingv1alpha1.ReasonInvalidSpec) {
		p.ready = problem
		p.keepObjects = keepsObjects(o)
		return p
	}

	p.forecasts = planForecasts(o, queries)
	switch {
	case problem != nil && problem.Reason == autoscalingv1alpha1.ReasonNoScale:
		p.ready = problem
		p.forecasts.prediction = nil
	case isPreview(o.ehpa):
		p.scalePlan = planPreview(o, problem, p.crons.floor.Replicas, p.forecasts.active, settings.Propagation)
	default:
		p.scalePlan = planAuto(o, problem, p.crons.floor.Replicas, p.forecasts.active, settings.Propagation)
	}

	// Without an HPA the forecast serves previews alone.
	if p.hpa == nil && p.forecasts.prediction != nil {
		removeAdapterLabels(p.forecasts.prediction)
	}

	return p
}

// optedOutMessage describes what stays for a target with the label crane.io/opt-out.
func optedOutMessage(o observation) string {
	out := fmt.Sprintf("%s %s or its namespace has the label %s=true: nothing is changed", o.ehpa.Spec.ScaleTargetRef.Kind, o.ehpa.Spec.ScaleTargetRef.Name, analysisv1alpha1.LabelOptOut)
	if o.hpa != nil {
		out += fmt.Sprintf("; HorizontalPodAutoscaler %s stays as it is, delete it to stop scaling", o.hpa.Name)
	}

	return out
}

// checkTarget returns the Ready condition of a target that cannot be scaled, nil for one that can.
func checkTarget(o observation) *condition.State {
	bounds := scaling.Bounds{Min: minReplicas(o.ehpa), Max: o.ehpa.Spec.MaxReplicas}
	switch err := o.targetErr; {
	case bounds.Validate() != nil:
		return notReady(autoscalingv1alpha1.ReasonInvalidSpec, bounds.Validate().Error())
	case errors.Is(err, workload.ErrNoScale):
		return notReady(autoscalingv1alpha1.ReasonNoScale, err.Error())
	case err != nil:
		return notReady(autoscalingv1alpha1.ReasonFailedGetScale, err.Error())
	case o.target.Replicas == 0 && bounds.Min != 0:
		return notReady(autoscalingv1alpha1.ReasonScalingDisabled, "the target has 0 replicas, which disables autoscaling; scale it up to enable it again")
	}

	return nil
}

// keepsObjects reports whether the existing objects stay while the target is unknown. An HPA of another target than that of the spec
// does not stay.
func keepsObjects(o observation) bool {
	if o.hpa == nil {
		return true
	}

	key := targetKey(o.ehpa.Spec.ScaleTargetRef)
	ref := o.hpa.Spec.ScaleTargetRef
	return targetKey(ref) == key || ref.Kind == substituteKind && o.substitute != nil && targetKey(o.substitute.Spec.SubstituteTargetRef) == key
}

// planCrons evaluates the cron windows.
func planCrons(o observation, zones *scalingmetric.Zones) cronPlan {
	if len(o.ehpa.Spec.Crons) == 0 {
		return cronPlan{}
	}

	windows, failed := scalingmetric.CronWindows(o.ehpa, zones)
	out := cronPlan{
		floor: scaling.FloorAt(windows, o.now),
		ready: &condition.State{Type: autoscalingv1alpha1.ConditionCronReady, OK: true, Reason: autoscalingv1alpha1.ReasonCronsValid},
	}

	// windows holds the valid crons alone, in their order.
	for i := range o.ehpa.Spec.Crons {
		status := autoscalingv1alpha1.CronStatus{Name: o.ehpa.Spec.Crons[i].CronName}

		if err := failed[i]; err != nil {
			status.Message = condition.Message(err.Error())
			if out.ready.OK {
				out.ready = &condition.State{
					Type: autoscalingv1alpha1.ConditionCronReady, Reason: autoscalingv1alpha1.ReasonInvalidCron,
					Message: fmt.Sprintf("crons[%d] %s: %s", i, status.Name, status.Message),
				}
			}
		} else {
			opens, closes := windows[0].Next(o.now)
			status.Active = windows[0].IsOpen(o.now)
			status.NextStart = metaTime(opens)
			status.NextEnd = metaTime(closes)
			out.nextChange = earliest(out.nextChange, opens, closes)
			windows = windows[1:]
		}

		out.statuses = append(out.statuses, status)
	}

	return out
}

func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}

	return &metav1.Time{Time: t}
}

// earliest returns the earliest time that is not zero, and zero where all are.
func earliest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if !t.IsZero() && (out.IsZero() || t.Before(out)) {
			out = t
		}
	}

	return out
}

// planAuto plans an HPA on the target, unless another autoscaler scales it.
func planAuto(o observation, problem *condition.State, floor int32, forecasts []predictedMetric, propagation Propagation) scalePlan {
	switch {
	case o.olderSibling != "":
		return scalePlan{ready: notReady(autoscalingv1alpha1.ReasonTargetTaken,
			fmt.Sprintf("EffectiveHorizontalPodAutoscaler %s, which is older, scales the same target", o.olderSibling))}
	case o.foreignScaler != "":
		return scalePlan{ready: notReady(autoscalingv1alpha1.ReasonForeignAutoscaler,
			fmt.Sprintf("%s scales the same target; delete one of the two, or name an HPA to adopt in the annotation %s",
				o.foreignScaler, autoscalingv1alpha1.AnnotationAdoptHPA))}
	}

	if problem == nil {
		problem = isReady(autoscalingv1alpha1.ReasonEffectiveHPAReady, "")
	}

	spec := newHPASpec(o.ehpa, qualifiedRef(o.ehpa.Spec.ScaleTargetRef), floor, forecasts)
	existing := o.hpa
	if o.adoptable != nil {
		existing = o.adoptable
	}

	return scalePlan{hpa: desiredHPA(o.ehpa, existing, spec, propagation), ready: problem}
}

// planPreview plans an HPA on a Substitute of the target, or a computed preview where another autoscaler scales the target.
func planPreview(o observation, problem *condition.State, floor int32, forecasts []predictedMetric, propagation Propagation) scalePlan {
	if other := otherScaler(o); other != "" {
		if problem != nil {
			return scalePlan{ready: problem}
		}

		ready := isReady(autoscalingv1alpha1.ReasonPreviewComputed, other+" scales the target; Crane computes what this autoscaler would do")
		if o.ehpa.Spec.SpecificReplicas != nil { // The two would overwrite each other.
			ready = notReady(autoscalingv1alpha1.ReasonForeignAutoscaler, fmt.Sprintf("specificReplicas is not set: %s scales the target", other))
		}

		return scalePlan{computePreview: true, ready: ready}
	}

	substitute := desiredSubstitute(o)
	ref := autoscalingv2.CrossVersionObjectReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: substituteKind, Name: substitute.Name,
	}
	out := scalePlan{
		substitute: substitute, hpa: desiredHPA(o.ehpa, o.hpa, newHPASpec(o.ehpa, ref, floor, forecasts), propagation), ready: problem,
	}

	if problem == nil {
		out.ready = isReady(autoscalingv1alpha1.ReasonEffectiveHPAReady, "")
		if n := o.ehpa.Spec.SpecificReplicas; n != nil && *n != o.target.Replicas {
			out.replicas = n
		}
	}

	return out
}

// otherScaler names another autoscaler of the target, empty for none.
func otherScaler(o observation) string {
	switch {
	case o.olderSibling != "":
		return "EffectiveHorizontalPodAutoscaler " + o.olderSibling
	case o.foreignScaler == "" && o.adoptable != nil:
		return "HorizontalPodAutoscaler " + o.adoptable.Name
	}

	return o.foreignScaler
}

const (
	ehpaKind       = "EffectiveHorizontalPodAutoscaler"
	substituteKind = "Substitute"
)

// desiredSubstitute returns the Substitute of the target, a new one with the current replicas of the target.
func desiredSubstitute(o observation) *autoscalingv1alpha1.Substitute {
	ehpa := o.ehpa
	out := &autoscalingv1alpha1.Substitute{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	if o.substitute != nil {
		out = o.substitute.DeepCopy()
	} else {
		out.Spec.Replicas = new(o.target.Replicas)
	}

	out.Labels = mergedMetadata(out.Labels, nil, nil, nil, managedLabels(ehpa, out.Name))
	out.Spec.SubstituteTargetRef = qualifiedRef(ehpa.Spec.ScaleTargetRef)
	setController(out, ehpa)

	return out
}

// requeueAfter returns the time until the next reconcile that no watched object causes, 0 for none.
func requeueAfter(o observation, p plan, applied applied) time.Duration {
	next := earliest(p.crons.nextChange, p.forecasts.expiresAt, applied.retryAt)
	if !next.IsZero() {
		next = o.now.Add(max(time.Second, next.Sub(o.now)))
	}

	if o.targetErr != nil || o.optedOut || o.foreignUnwatched {
		next = earliest(next, o.now.Add(missingTargetRetry))
	}

	if p.computePreview {
		next = earliest(next, o.now.Add(previewInterval))
	}

	if len(o.requests) > 0 { // A resize of pods causes no reconcile.
		next = earliest(next, o.now.Add(podRequestsMaxAge))
	}

	if next.IsZero() {
		return 0
	}

	return next.Sub(o.now)
}
