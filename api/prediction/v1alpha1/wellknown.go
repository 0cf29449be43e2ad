// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// DefaultPredictionWindowSeconds is how far ahead is forecast where nothing is said, in seconds: an hour, the
	// default of gocrane's EffectiveHorizontalPodAutoscaler.
	DefaultPredictionWindowSeconds = 3600
	// MinPredictionWindowSeconds is the shortest window that is accepted, in seconds. gocrane's webhook had the same.
	MinPredictionWindowSeconds = 600

	// NodeResourcePrefix begins the name of the TimeSeriesPrediction that the agent makes for its node; the node's name
	// follows.
	NodeResourcePrefix = "noderesource-"
	// NodeResourceTemplateConfigMap is the ConfigMap, in Crane's namespace, that the agent makes it from.
	NodeResourceTemplateConfigMap = "noderesource-tsp-template"
	// NodeResourceTemplateKey is the key in that ConfigMap of the template of the spec.
	NodeResourceTemplateKey = "spec"

	// ConditionReady is True when every metric is forecast to the end of the window.
	ConditionReady = "Ready"
	// ConditionStale is True while new samples do not come, so that the forecasts are older than they should be. They are
	// served all the same.
	ConditionStale = "Stale"
	// ReasonSourceFailed is the reason of forecasts that are stale because the source of history fails.
	ReasonSourceFailed = "SourceFailed"
	// ReasonNoNewSamples is the reason of forecasts that are stale because the source has no new samples.
	ReasonNoNewSamples = "NoNewSamples"
	// ReasonUpToDate is the reason of forecasts that are not stale.
	ReasonUpToDate = "UpToDate"
	// ReasonAllCreated is the reason of a ClusterNodePrediction whose nodes all have their TimeSeriesPrediction.
	ReasonAllCreated = "AllCreated"
	// ReasonNoTemplate is the reason of a ClusterNodePrediction without a template.
	ReasonNoTemplate = "NoTemplate"
	// ReasonNotCreated is the reason where the TimeSeriesPrediction of some node could not be brought in line.
	ReasonNotCreated = "NotCreated"
	// ReasonPredictSucceed is the reason of a TimeSeriesPrediction that is ready.
	ReasonPredictSucceed = "PredictSucceed"
	// ReasonPredictPartial is the reason where some metrics are not forecast to the end of the window.
	ReasonPredictPartial = "PredictPartial"
	// ReasonPredictFailed is the reason where no metric is forecast.
	ReasonPredictFailed = "PredictFailed"
)
