// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// DefaultPredictionWindowSeconds is the default horizon of forecasts in seconds: an hour, the default of
	// gocrane's EffectiveHorizontalPodAutoscaler.
	DefaultPredictionWindowSeconds = 3600
	// MinPredictionWindowSeconds is the shortest window, in seconds; a shorter one counts as this. A forecast has a sample a
	// minute and is renewed once a window, so that shorter windows would cost more writes and hold next to no samples.
	MinPredictionWindowSeconds = 600

	// NodeResourcePrefix is the prefix of the name of the TimeSeriesPrediction that the agent creates for its node; the name
	// of the node follows.
	NodeResourcePrefix = "noderesource-"
	// NodeResourceTemplateConfigMap is the ConfigMap in Crane's namespace with the template of that object.
	NodeResourceTemplateConfigMap = "noderesource-tsp-template"
	// NodeResourceTemplateKey is the key in that ConfigMap of the template of the spec.
	NodeResourceTemplateKey = "spec"

	// ConditionReady is True when every metric is forecast to the end of the window.
	ConditionReady = "Ready"
	// ConditionStale is True while new samples are missing, so that the forecasts are older than intended. They are still
	// served.
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
	// ReasonNoNodeSelector is the reason of a ClusterNodePrediction with an empty nodeSelector outside Crane's own namespace.
	ReasonNoNodeSelector = "NoNodeSelector"
	// ReasonTooManyNodes is the reason of a ClusterNodePrediction outside Crane's own namespace whose nodeSelector matches more nodes than it may
	// forecast.
	ReasonTooManyNodes = "TooManyNodes"
	// ReasonNotCreated is the reason where the TimeSeriesPrediction of a node could not be created or updated.
	ReasonNotCreated = "NotCreated"
	// ReasonPredictSucceed is the reason of a TimeSeriesPrediction that is ready.
	ReasonPredictSucceed = "PredictSucceed"
	// ReasonPredictPartial is the reason where some metrics are not forecast to the end of the window.
	ReasonPredictPartial = "PredictPartial"
	// ReasonPredictFailed is the reason where no metric is forecast.
	ReasonPredictFailed = "PredictFailed"
)
