// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations that Crane writes on a target workload. Each value is a YAML document of type ProposedRecommendation.
const (
	// AnnotationHPARecommendation holds the recommended horizontal autoscaler of the workload.
	AnnotationHPARecommendation = "analysis.crane.io/hpa-recommendation"
	// AnnotationReplicasRecommendation holds the recommended number of replicas of the workload.
	AnnotationReplicasRecommendation = "analysis.crane.io/replicas-recommendation"
	// AnnotationResourceRecommendation holds the recommended resource requests of the workload's containers.
	AnnotationResourceRecommendation = "analysis.crane.io/resource-recommendation"
)

// Adoption, on a target workload.
const (
	// AnnotationAdoption and AnnotationReplicasAdoption hold the progress of adoption and the original values, as JSON. Adoption
	// continues from them after a restart, and restarts without them.
	AnnotationAdoption         = "analysis.crane.io/adoption"
	AnnotationReplicasAdoption = "analysis.crane.io/replicas-adoption"
	// AnnotationAdoptTemplate, with the value "true", also applies the adopted requests to the pod template, by a rollout.
	AnnotationAdoptTemplate = "analysis.crane.io/adopt-template"
	// LabelOptOut, with the value "true", on a namespace or a workload, prevents every change by Crane.
	LabelOptOut = "crane.io/opt-out"
	// LabelAdoption, with the value LabelAdoptionOff, on a workload or its namespace, disables adoption.
	LabelAdoption    = "analysis.crane.io/adoption"
	LabelAdoptionOff = "disabled"
)

// Annotations of Crane's own objects.
const (
	// AnnotationRunNumber, on a Recommendation, is the number of the rule's round that last evaluated it, in decimal.
	// Lowering it requests another evaluation at once.
	AnnotationRunNumber = "analysis.crane.io/run-number"
	// AnnotationLastStartTime, on a Recommendation, is the start time of its last evaluation, in LastStartTimeLayout, UTC.
	AnnotationLastStartTime = "analysis.crane.io/last-start-time"
	// AnnotationMessage, on a Recommendation, is MessageSuccess or the error of the last evaluation.
	AnnotationMessage = "analysis.crane.io/message"
	// AnnotationEvaluatedRound, on a Recommendation, is the round in which it was last written: the generation of the rule, a
	// point, and the number. A lower run number requests another evaluation.
	AnnotationEvaluatedRound = "analysis.crane.io/evaluated-round"
	// AnnotationScalePoint, on a Recommendation of type Resource, lists as JSON the targets of the workload's autoscaler that
	// must change together with the requests. It exists only where Crane owns the autoscaler.
	AnnotationScalePoint = "analysis.crane.io/scale-point"
	// AnnotationAnalyticsConversion, on a RecommendationRule, is the UID of the Analytics that it was made from.
	AnnotationAnalyticsConversion = "analysis.crane.io/analytics-conversion"

	// LastStartTimeLayout is the layout, in the sense of package time, of AnnotationLastStartTime.
	LastStartTimeLayout = "2006-01-02 15:04:05"
	// MessageSuccess is the value of AnnotationMessage after an evaluation that succeeded.
	MessageSuccess = "Success"
)

// Labels of a Recommendation.
const (
	// LabelRuleName is the name of the RecommendationRule that a Recommendation belongs to.
	LabelRuleName = "analysis.crane.io/recommendation-rule-name"
	// LabelRuleUID is the UID of that rule.
	LabelRuleUID = "analysis.crane.io/recommendation-rule-uid"
	// LabelRuleRecommender is the name of the recommender that made it.
	LabelRuleRecommender = "analysis.crane.io/recommendation-rule-recommender"
	// LabelTargetKind is the kind of the target.
	LabelTargetKind = "analysis.crane.io/recommendation-target-kind"
	// LabelTargetVersion is the API version of the target without its group: v1 for apps/v1.
	LabelTargetVersion = "analysis.crane.io/recommendation-target-version"
	// LabelTargetName is the name of the target. A name that is too long for a label value is cut and ends in a hash.
	LabelTargetName = "analysis.crane.io/recommendation-target-name"
	// LabelTargetNamespace is the namespace of the target, empty for a cluster-scoped one.
	LabelTargetNamespace = "analysis.crane.io/recommendation-target-namespace"

	// LabelAnalyticsName is the name of the Analytics that a Recommendation belongs to.
	LabelAnalyticsName = "analysis.crane.io/analytics-name"
	// LabelAnalyticsUID is the UID of that Analytics.
	LabelAnalyticsUID = "analysis.crane.io/analytics-uid"
	// LabelAnalyticsType is the type of that Analytics.
	LabelAnalyticsType = "analysis.crane.io/analytics-type"
)

// Condition types and reasons.
const (
	// ConditionReady, on a Recommendation or a RecommendationRule, is True when its last evaluation succeeded.
	ConditionReady = "Ready"
	// ConditionLearning, on a Recommendation, is True while a container has too little history for a number.
	ConditionLearning = "Learning"
	// ConditionFailed, on a Recommendation, is True when the last evaluation failed; the value is then that of the last
	// successful one.
	ConditionFailed = "Failed"
	// ConditionAdopted, on a Recommendation, is False when the value could not be applied to the target as adoptionType
	// requires. It is absent otherwise.
	ConditionAdopted = "Adopted"
	// ConditionApplicable, on a Recommendation, is False when it is ready but must not be applied unchanged, because an object
	// that Crane does not own would have to change with it. It is absent otherwise.
	ConditionApplicable = "Applicable"
	// ReasonRecommendationReady is the reason of a Recommendation that is ready.
	ReasonRecommendationReady = "RecommendationReady"
	// ReasonFailedUpdateRecommendationValue is the reason when the value could not be written on the target.
	ReasonFailedUpdateRecommendationValue = "FailedUpdateRecommendationValue"
)
