// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Finalizer is the finalizer of an EffectiveVerticalPodAutoscaler.
const Finalizer = "autoscaling.crane.io/finalizer"

// Annotations of an EffectiveHorizontalPodAutoscaler.
const (
	// AnnotationCurrentMetrics is the YAML of status.currentMetrics of the HPA that Crane made.
	AnnotationCurrentMetrics = "autoscaling.crane.io/effective-hpa-current-metrics"
	// AnnotationMetricQueryPrefix, followed by a metric's resourceIdentifier, holds the PromQL to forecast that metric
	// from in place of the built-in one.
	AnnotationMetricQueryPrefix = "metric-query.autoscaling.crane.io/"
	// AnnotationAdoptHPA names an HPA of the same target that Crane is to take over, under its name. Without the
	// annotation, or without what it names, nobody's HPA is touched.
	AnnotationAdoptHPA = "autoscaling.crane.io/adopt-hpa"
	// AnnotationAdoptedSpec, on an HPA that was taken over, is the JSON of its spec from before. When the annotation
	// AnnotationAdoptHPA goes the HPA gets it back.
	AnnotationAdoptedSpec = "autoscaling.crane.io/adopted-spec"
	// AnnotationPodStartup is how long a pod of the target takes from being asked for to being ready, as a duration of at most 1h such
	// as 90s. Load is looked for that much earlier. Absent means 60s.
	AnnotationPodStartup = "autoscaling.crane.io/pod-startup"
)

// Labels of the objects that an EffectiveHorizontalPodAutoscaler makes.
const (
	// LabelEffectiveHPAUID is the UID of the EffectiveHorizontalPodAutoscaler.
	LabelEffectiveHPAUID = "autoscaling.crane.io/effective-hpa-uid"
	// LabelName is the name of the object itself, ManagedObjectPrefix included.
	LabelName = "app.kubernetes.io/name"
	// LabelPartOf is the name of the EffectiveHorizontalPodAutoscaler.
	LabelPartOf = "app.kubernetes.io/part-of"
	// LabelManagedBy has the value ManagedByEffectiveHPA.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelTargetKind is the kind of the workload that is scaled.
	LabelTargetKind = "app.kubernetes.io/target-kind"
	// LabelTargetNamespace is the namespace of that workload.
	LabelTargetNamespace = "app.kubernetes.io/target-namespace"
	// LabelTargetName is the name of that workload.
	LabelTargetName = "app.kubernetes.io/target-name"

	// ManagedByEffectiveHPA is the value of LabelManagedBy.
	ManagedByEffectiveHPA = "effective-hpa-controller"
	// ManagedObjectPrefix begins the name of each object that an EffectiveHorizontalPodAutoscaler makes; its own name
	// follows.
	ManagedObjectPrefix = "ehpa-"
)

// The external metrics that Crane serves to the HPA, and the labels that select one value of them.
const (
	// MetricPrediction is the largest value of a forecast in the coming window, in the unit of the metric.
	MetricPrediction = "crane_autoscaling_prediction"
	// MetricCron is the number of replicas that the cron schedules ask for now.
	MetricCron = "crane_autoscaling_cron"

	// MetricLabelTargetKind is the kind of the workload that is scaled.
	MetricLabelTargetKind = "targetKind"
	// MetricLabelTargetName is the name of that workload.
	MetricLabelTargetName = "targetName"
	// MetricLabelTargetNamespace is the namespace of that workload.
	MetricLabelTargetNamespace = "targetNamespace"
	// MetricLabelResourceIdentifier names the metric: resource.<name>, container-resource.<name>, pods.<metric>,
	// external.<metric>, or CronResourceIdentifier.
	MetricLabelResourceIdentifier = "resourceIdentifier"
	// CronResourceIdentifier is the resourceIdentifier of MetricCron.
	CronResourceIdentifier = "cron"
)

// Condition types and reasons.
const (
	// ConditionReady is True when the autoscaler works.
	ConditionReady = "Ready"
	// ConditionPredictionReady is True when the forecasts of an EffectiveHorizontalPodAutoscaler are ready.
	ConditionPredictionReady = "PredictionReady"

	// ConditionCronReady is True when every cron schedule can be followed. Absent without schedules.
	ConditionCronReady = "CronReady"

	// ReasonEffectiveHPAReady is the reason of an EffectiveHorizontalPodAutoscaler that works.
	ReasonEffectiveHPAReady = "EffectiveHorizontalPodAutoscalerReady"
	// ReasonFailedGetScale is the reason where the scale of the target cannot be read.
	ReasonFailedGetScale = "FailedGetScale"
	// ReasonScalingDisabled is the reason where the target has 0 replicas and minReplicas is not 0.
	ReasonScalingDisabled = "ScalingDisabled"
	// ReasonFailedReconcileSubstitute is the reason where the Substitute could not be made.
	ReasonFailedReconcileSubstitute = "FailedReconcileSubstitute"
	// ReasonFailedReconcilePrediction is the reason where the TimeSeriesPrediction could not be made.
	ReasonFailedReconcilePrediction = "FailedReconcilePrediction"
	// ReasonFailedReconcileHPA is the reason where the HPA could not be made.
	ReasonFailedReconcileHPA = "FailedReconcileHPA"
	// ReasonFailedScale is the reason where the target could not be scaled.
	ReasonFailedScale = "FailedScale"
	// ReasonNoScale is the reason where the target has no scale subresource.
	ReasonNoScale = "NoScaleSubresource"
	// ReasonForeignAutoscaler is the reason where an HPA or a ScaledObject of somebody else scales the same pods.
	ReasonForeignAutoscaler = "ForeignAutoscaler"
	// ReasonTargetTaken is the reason where an older EffectiveHorizontalPodAutoscaler has the same target.
	ReasonTargetTaken = "TargetTaken"
	// ReasonPreviewComputed is the reason of a preview that Crane computes by itself, because an autoscaler of somebody
	// else scales the same pods.
	ReasonPreviewComputed = "PreviewComputed"
	// ReasonInvalidSpec is the reason where the spec contradicts itself.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonCronsValid is the reason where every cron schedule can be followed, ReasonInvalidCron where one cannot.
	ReasonCronsValid  = "CronsValid"
	ReasonInvalidCron = "InvalidCron"

	// ReasonPredicting is the reason where every forecast that was asked for takes part in the decision.
	ReasonPredicting = "Predicting"
	// ReasonNothingToPredict is the reason where no metric can be forecast.
	ReasonNothingToPredict = "NothingToPredict"
	// ReasonPredictionIgnored is the reason where a forecast takes no part: it is not ready, has no skill, is out of date
	// or has several series.
	ReasonPredictionIgnored = "PredictionIgnored"
	// ReasonMetricsAPIMissing is the reason where nobody serves the forecasts to the HPA.
	ReasonMetricsAPIMissing = "MetricsAPIMissing"
	// ReasonFailedValidation is the reason of an EffectiveVerticalPodAutoscaler whose spec cannot be used.
	ReasonFailedValidation = "FailedValidation"
)
