// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// plan is what there should be for an autoscaler, and what is said of it.
type plan struct {
	// hpa, tsp and substitute are the objects that there should be; nil for none.
	hpa        *autoscalingv2.HorizontalPodAutoscaler
	tsp        *predictionv1alpha1.TimeSeriesPrediction
	substitute *autoscalingv1alpha1.Substitute
	// keepObjects leaves all objects as they are: too little is known to change any.
	keepObjects bool
	// replicas is what the target is to be set to; nil leaves it alone.
	replicas *int32
	// scaled tells that it was.
	scaled bool
	// computePreview asks for the algorithm of the HPA to be run here; preview is what came of it.
	computePreview bool
	preview        *preview

	candidates []forecastCandidate
	// forecasts are the forecasts that take part.
	forecasts []predictedMetric
	crons     []autoscalingv1alpha1.CronStatus
	floor     scaling.Floor
	// nextChange is when something changes by the clock alone; zero for never.
	nextChange time.Time

	ready, prediction, cron *conditionState
}

// conditionState is what a condition says.
type conditionState struct {
	ok              bool
	reason, message string
}

// decide makes the plan. It has no side effect.
func decide(o *observation, queries *QueryBuilder, settings Settings) plan {
	var p plan
	p.decideCrons(o, settings.Local)
	p.ready = checkTarget(o)
	if p.ready != nil && p.keepsObjects(o) {
		return p
	}
	p.candidates = forecastCandidates(o, queries)
	p.tsp = desiredPrediction(o, p.candidates)
	p.decidePrediction(o)
	if p.ready != nil && p.ready.reason == autoscalingv1alpha1.ReasonNoScale {
		p.tsp = nil
		return p
	}
	if isPreview(o.ehpa) {
		p.decidePreview(o, settings)
	} else {
		p.decideAuto(o, settings)
	}
	if p.hpa == nil && p.tsp != nil {
		removeAdapterLabels(p.tsp)
	}
	return p
}

// checkTarget says what keeps the target from being scaled; nil for nothing.
func checkTarget(o *observation) *conditionState {
	bounds := scaling.Bounds{Min: minReplicas(o.ehpa), Max: o.ehpa.Spec.MaxReplicas}
	switch err := o.targetErr; {
	case bounds.Validate() != nil:
		return &conditionState{reason: autoscalingv1alpha1.ReasonInvalidSpec, message: bounds.Validate().Error()}
	case errors.Is(err, workload.ErrNoScale):
		return &conditionState{reason: autoscalingv1alpha1.ReasonNoScale, message: err.Error()}
	case err != nil:
		return &conditionState{reason: autoscalingv1alpha1.ReasonFailedGetScale, message: err.Error()}
	case o.target.Replicas == 0 && bounds.Min != 0:
		return &conditionState{
			reason:  autoscalingv1alpha1.ReasonScalingDisabled,
			message: "the target has 0 replicas, which switches its autoscaling off until somebody scales it up",
		}
	}
	return nil
}

// keepsObjects tells whether a fault means that nothing is to be changed. What points elsewhere than the spec goes all the same: it
// would scale what nobody asks for any more.
func (p *plan) keepsObjects(o *observation) bool {
	switch p.ready.reason {
	case autoscalingv1alpha1.ReasonFailedGetScale, autoscalingv1alpha1.ReasonInvalidSpec:
	default:
		return false
	}
	p.keepObjects = o.hpa == nil || targetKey(o.hpa.Spec.ScaleTargetRef) == targetKey(o.ehpa.Spec.ScaleTargetRef) || scalesSubstitute(o.hpa, o)
	return true
}

func scalesSubstitute(hpa *autoscalingv2.HorizontalPodAutoscaler, o *observation) bool {
	return o.substitute != nil && hpa.Spec.ScaleTargetRef.Kind == kindSubstitute &&
		targetKey(o.substitute.Spec.SubstituteTargetRef) == targetKey(o.ehpa.Spec.ScaleTargetRef)
}

// decideCrons finds the floor of the open windows, and when that changes.
func (p *plan) decideCrons(o *observation, local *time.Location) {
	if len(o.ehpa.Spec.Crons) == 0 {
		return
	}
	windows, failed := scalingmetric.CronWindows(o.ehpa, &scalingmetric.Zones{Local: local})
	p.floor = scaling.FloorAt(windows, o.now)
	p.cron = &conditionState{ok: true, reason: autoscalingv1alpha1.ReasonCronsValid}
	for i := range o.ehpa.Spec.Crons {
		one := autoscalingv1alpha1.CronStatus{Name: o.ehpa.Spec.Crons[i].CronName}
		if err := failed[i]; err != nil {
			one.Message = boundedMessage(err.Error())
			if p.cron.ok {
				p.cron = &conditionState{reason: autoscalingv1alpha1.ReasonInvalidCron, message: fmt.Sprintf("crons[%d] %s: %s", i, one.Name, one.Message)}
			}
			p.crons = append(p.crons, one)
			continue
		}
		w := windows[0]
		windows = windows[1:]
		one.Active = w.IsOpen(o.now)
		opens, closes := w.Next(o.now)
		one.NextStart, one.NextEnd = metaTime(opens), metaTime(closes)
		p.checkAt(opens)
		p.checkAt(closes)
		p.crons = append(p.crons, one)
	}
}

func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t)
	return &out
}

// checkAt notes a time at which to look again.
func (p *plan) checkAt(at time.Time) {
	if !at.IsZero() && (p.nextChange.IsZero() || at.Before(p.nextChange)) {
		p.nextChange = at
	}
}

// decidePrediction says which forecasts take part, and why the others do not.
func (p *plan) decidePrediction(o *observation) {
	if !predictionEnabled(o.ehpa) {
		return
	}
	good, until := usableForecasts(p.candidates)
	p.checkAt(until)
	var left []string
	for _, c := range p.candidates {
		if c.err != nil {
			left = append(left, c.identifier+": "+c.err.Error())
		}
	}
	var refused *conditionState
	if len(left) > 0 {
		refused = &conditionState{reason: autoscalingv1alpha1.ReasonPredictionIgnored, message: joinMessages(left)}
	}
	switch {
	case p.tsp == nil:
		p.prediction = &conditionState{reason: autoscalingv1alpha1.ReasonNothingToPredict, message: joinMessages(left)}
	case len(good) == 0:
		p.prediction = refused
	case !o.availability.Served && (o.availability.Expired || !hasForecastMetric(o.hpa)):
		p.prediction = &conditionState{
			reason: autoscalingv1alpha1.ReasonMetricsAPIMissing,
			message: "nobody serves " + autoscalingv1alpha1.MetricPrediction + " (external.metrics.k8s.io/v1beta1): the HPA scales on current metrics alone; " +
				"install the metric-adapter of Crane",
		}
	default:
		p.forecasts, p.prediction = good, refused
		if refused == nil {
			p.prediction = &conditionState{ok: true, reason: autoscalingv1alpha1.ReasonPredicting}
		}
	}
}

// hasForecastMetric tells whether an HPA has forecasts among its metrics.
func hasForecastMetric(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return hpa != nil && slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.External != nil && m.External.Metric.Name == autoscalingv1alpha1.MetricPrediction
	})
}

// decideAuto gives the target an HPA, unless somebody else scales it.
func (p *plan) decideAuto(o *observation, settings Settings) {
	switch {
	case o.olderSibling != "":
		p.ready = &conditionState{
			reason:  autoscalingv1alpha1.ReasonTargetTaken,
			message: fmt.Sprintf("EffectiveHorizontalPodAutoscaler %s, which is older, scales the same target", o.olderSibling),
		}
		return
	case o.foreignScaler != "":
		p.ready = &conditionState{
			reason: autoscalingv1alpha1.ReasonForeignAutoscaler,
			message: fmt.Sprintf("%s scales the same target; delete one of the two, or let the annotation %s name an HPA to be taken over",
				o.foreignScaler, autoscalingv1alpha1.AnnotationAdoptHPA),
		}
		return
	}
	p.hpa = desiredHPA(o, newHPASpec(o.ehpa, qualifiedRef(o.ehpa.Spec.ScaleTargetRef), p.floor.Replicas, p.forecasts), settings.Propagation)
	if p.ready == nil {
		p.ready = &conditionState{ok: true, reason: autoscalingv1alpha1.ReasonEffectiveHPAReady}
	}
}

// decidePreview gives an HPA to a stand-in of the target, or computes what one would do.
func (p *plan) decidePreview(o *observation, settings Settings) {
	other := o.foreignScaler
	if o.adoptable != nil && other == "" {
		other = "HorizontalPodAutoscaler " + o.adoptable.Name
	}
	if o.olderSibling != "" {
		other = "EffectiveHorizontalPodAutoscaler " + o.olderSibling
	}
	switch {
	case other != "":
		p.computePreview = p.ready == nil
		if p.ready == nil {
			p.ready = &conditionState{
				ok: true, reason: autoscalingv1alpha1.ReasonPreviewComputed,
				message: other + " scales the target; what this autoscaler would do is computed by Crane",
			}
			p.rejectSpecificReplicas(o, other)
		}
		return
	case p.ready != nil:
	default:
		p.ready = &conditionState{ok: true, reason: autoscalingv1alpha1.ReasonEffectiveHPAReady}
		if n := o.ehpa.Spec.SpecificReplicas; n != nil && *n != o.target.Replicas {
			p.replicas = n
		}
	}
	p.substitute = desiredSubstitute(o)
	ref := autoscalingv2.CrossVersionObjectReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: kindSubstitute, Name: p.substitute.Name,
	}
	without := *o
	without.adoptable = nil // A preview takes nothing over.
	p.hpa = desiredHPA(&without, newHPASpec(o.ehpa, ref, p.floor.Replicas, p.forecasts), settings.Propagation)
}

// rejectSpecificReplicas says that a fixed number is not set where somebody else scales the target: the two would fight.
func (p *plan) rejectSpecificReplicas(o *observation, other string) {
	if o.ehpa.Spec.SpecificReplicas != nil {
		p.ready = &conditionState{
			reason:  autoscalingv1alpha1.ReasonForeignAutoscaler,
			message: fmt.Sprintf("specificReplicas is not set: %s scales the target", other),
		}
	}
}

const kindSubstitute = "Substitute"

// desiredSubstitute is the stand-in that there should be.
func desiredSubstitute(o *observation) *autoscalingv1alpha1.Substitute {
	ehpa := o.ehpa
	out := &autoscalingv1alpha1.Substitute{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	if o.substitute != nil {
		out = o.substitute.DeepCopy()
	} else {
		replicas := o.target.Replicas
		out.Spec.Replicas = &replicas
	}
	out.Labels = mergedMetadata(out.Labels, nil, nil, nil, managedLabels(ehpa, out.Name))
	out.Spec.SubstituteTargetRef = qualifiedRef(ehpa.Spec.ScaleTargetRef)
	setController(out, ehpa)
	return out
}

// requeueAfter is when to look at an autoscaler the next time, where nothing that is watched changes before.
func (p *plan) requeueAfter(o *observation) time.Duration {
	var out time.Duration
	sooner := func(d time.Duration) {
		if out == 0 || d < out {
			out = d
		}
	}
	if o.targetErr != nil || o.foreignUnwatched {
		sooner(missingTargetRetry)
	}
	if p.computePreview {
		sooner(previewInterval)
	}
	if !p.nextChange.IsZero() {
		sooner(max(time.Second, p.nextChange.Sub(o.now)))
	}
	return out
}
