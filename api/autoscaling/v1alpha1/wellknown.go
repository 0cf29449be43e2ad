// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Finalizer is the finalizer that gocrane set on EffectiveVerticalPodAutoscalers. Crane removes it.
const Finalizer = "autoscaling.crane.io/finalizer"

// Annotations of an EffectiveHorizontalPodAutoscaler.
const (
	// AnnotationCurrentMetrics is the YAML of status.currentMetrics of the HPA that Crane made.
	AnnotationCurrentMetrics = "autoscaling.crane.io/effective-hpa-current-metrics"
	// AnnotationMetricQueryPrefix, followed by a metric's resourceIdentifier, holds the PromQL of the metric's history
	// instead of the built-in query. An identifier that is no name of an annotation is encoded; the condition PredictionReady
	// lists the keys where one is unknown.
	AnnotationMetricQueryPrefix = "metric-query.autoscaling.crane.io/"
	// AnnotationAdoptHPA names an HPA of the same target that Crane takes over under its name. Without the annotation Crane
	// changes no HPA that it has not created.
	AnnotationAdoptHPA = "autoscaling.crane.io/adopt-hpa"
	// AnnotationAdoptedSpec, on an HPA that was taken over, is the JSON of its original spec, which Crane restores when the
	// annotation AnnotationAdoptHPA is removed.
	AnnotationAdoptedSpec = "autoscaling.crane.io/adopted-spec"
	// AnnotationPodStartup is the time from the creation of a pod of the target until it is ready, as a duration of at most 1h such as
	// 90s. Replicas are requested that much earlier. Absent means 60s.
	AnnotationPodStartup = "autoscaling.crane.io/pod-startup"
)

// Labels of the objects that are created for an EffectiveHorizontalPodAutoscaler.
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
	// ManagedObjectPrefix is the prefix of the name of each object that is created for an EffectiveHorizontalPodAutoscaler;
	// the name of the autoscaler follows.
	ManagedObjectPrefix = "ehpa-"
)

// The external metrics that Crane serves to the HPA, and the labels that select one value of them.
const (
	// MetricPrediction is the largest value of a forecast in the coming window, in the unit of the metric.
	MetricPrediction = "crane_autoscaling_prediction"
	// MetricCron is the number of replicas that the cron schedules request now.
	MetricCron = "crane_autoscaling_cron"

	// MetricLabelTargetKind is the kind of the workload that is scaled.
	MetricLabelTargetKind = "targetKind"
	// MetricLabelTargetName is the name of that workload.
	MetricLabelTargetName = "targetName"
	// MetricLabelTargetNamespace is the namespace of that workload.
	MetricLabelTargetNamespace = "targetNamespace"
	// MetricLabelResourceIdentifier names the metric: resource.<name>, container-resource.<name>, pods.<metric>,
	// external.<metric>, or cron for MetricCron.
	MetricLabelResourceIdentifier = "resourceIdentifier"
)

// Condition types and reasons.
const (
	// ConditionReady is True when the autoscaler works.
	ConditionReady = "Ready"
	// ConditionPredictionReady is True when the forecasts of an EffectiveHorizontalPodAutoscaler are ready.
	ConditionPredictionReady = "PredictionReady"

	// ConditionCronReady is True when every cron schedule is valid. Absent without schedules.
	ConditionCronReady = "CronReady"
	// ConditionMetricRulesReady reports whether every rule of prometheus-adapter's configuration is in force. It exists while forecasts are
	// requested and a configuration is set.
	ConditionMetricRulesReady = "MetricRulesReady"

	// ReasonEffectiveHPAReady is the reason of an EffectiveHorizontalPodAutoscaler that works.
	ReasonEffectiveHPAReady = "EffectiveHorizontalPodAutoscalerReady"
	// ReasonFailedGetScale is the reason where the scale of the target cannot be read.
	ReasonFailedGetScale = "FailedGetScale"
	// ReasonScalingDisabled is the reason where the target has 0 replicas and minReplicas is not 0.
	ReasonScalingDisabled = "ScalingDisabled"
	// ReasonFailedReconcileSubstitute is the reason where the Substitute could not be created or updated.
	ReasonFailedReconcileSubstitute = "FailedReconcileSubstitute"
	// ReasonFailedReconcilePrediction is the reason where the TimeSeriesPrediction could not be created or updated.
	ReasonFailedReconcilePrediction = "FailedReconcilePrediction"
	// ReasonFailedReconcileHPA is the reason where the HPA could not be created or updated.
	ReasonFailedReconcileHPA = "FailedReconcileHPA"
	// ReasonFailedScale is the reason where the target could not be scaled.
	ReasonFailedScale = "FailedScale"
	// ReasonNoScale is the reason where the target has no scale subresource.
	ReasonNoScale = "NoScaleSubresource"
	// ReasonOptedOut is the reason where the target or its namespace has the label crane.io/opt-out.
	ReasonOptedOut = "OptedOut"
	// ReasonForeignAutoscaler is the reason where an HPA or a ScaledObject that Crane does not own scales the same pods.
	ReasonForeignAutoscaler = "ForeignAutoscaler"
	// ReasonTargetTaken is the reason where an older EffectiveHorizontalPodAutoscaler has the same target.
	ReasonTargetTaken = "TargetTaken"
	// ReasonPreviewComputed is the reason of a preview that Crane computes itself, because an autoscaler that Crane does not
	// own scales the same pods.
	ReasonPreviewComputed = "PreviewComputed"
	// ReasonInvalidSpec is the reason where the spec contradicts itself.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonCronsValid is the reason where every cron schedule is valid, ReasonInvalidCron where one is not.
	ReasonCronsValid  = "CronsValid"
	ReasonInvalidCron = "InvalidCron"

	// ReasonPredicting is the reason where every requested forecast is used.
	ReasonPredicting = "Predicting"
	// ReasonNothingToPredict is the reason where no metric can be forecast.
	ReasonNothingToPredict = "NothingToPredict"
	// ReasonPredictionIgnored is the reason where a forecast is not used: it is not ready, has no skill, is out of date or
	// has several series.
	ReasonPredictionIgnored = "PredictionIgnored"
	// ReasonMetricsAPIMissing is the reason where no server provides the forecasts to the HPA.
	ReasonMetricsAPIMissing = "MetricsAPIMissing"
	// ReasonUnknownMetricQuery is the reason where an annotation with a query names no metric, so that it has no effect.
	ReasonUnknownMetricQuery = "UnknownMetricQuery"
	// ReasonRulesInForce is the reason where all rules are in force, ReasonRulesRefused where the message names some that are not.
	ReasonRulesInForce = "RulesInForce"
	ReasonRulesRefused = "RulesRefused"
)
