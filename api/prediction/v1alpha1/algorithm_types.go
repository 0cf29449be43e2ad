// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Duration is a length of time in a string: a Go duration such as 60s or 24h, or days such as 7d or 1d12h; more than zero.
// The empty string means unset.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^([0-9]{1,5}d|[+])?(([0-9]{1,6}([.][0-9]*)?|[.][0-9]+)[hm]|([0-9]{1,9}([.][0-9]*)?|[.][0-9]+)s|([0-9]{1,12}([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms))*$')",message="must be a Go duration such as 60s or 24h, or days such as 7d"
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('[1-9]')",message="must be more than zero"
type Duration string

// Number is a decimal number in a string, such as 0.99 or 1e-10; 0 or more, never NaN or infinite. The empty string
// means unset. Strings keep the number as it was written; JSON schema has no exact decimals.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,3})?$')",message="must be a decimal number of 0 or more, such as 0.15"
type Number string

// AlgorithmType names a forecaster.
//
// +kubebuilder:validation:Enum=dsp;percentile;auto
type AlgorithmType string

// The forecasters.
const (
	// AlgorithmTypeDSP finds daily and weekly cycles and forecasts a time series.
	AlgorithmTypeDSP AlgorithmType = "dsp"
	// AlgorithmTypePercentile forecasts one value, a percentile of the recent past.
	AlgorithmTypePercentile AlgorithmType = "percentile"
	// AlgorithmTypeAuto selects the forecaster by its error on the history of the series.
	AlgorithmTypeAuto AlgorithmType = "auto"
)

// Algorithm selects a forecaster and its settings.
type Algorithm struct {
	// AlgorithmType is dsp (cycles), percentile (one value from a histogram), or auto (the one with the smallest
	// error on the history of the series). Absent means auto.
	// +optional
	AlgorithmType AlgorithmType `json:"algorithmType,omitempty"`

	// DSP holds the settings of dsp. Ignored for other algorithms.
	// +optional
	DSP *DSP `json:"dsp,omitempty"`

	// Percentile holds the settings of percentile. Ignored for other algorithms.
	// +optional
	Percentile *Percentile `json:"percentile,omitempty"`
}

// DSP holds the settings of the forecaster for periodic series.
type DSP struct {
	// SampleInterval is the interval between two samples, such as 60s. gocrane wanted at most 1h and used 1m where it is
	// absent.
	// +optional
	SampleInterval Duration `json:"sampleInterval,omitempty"`

	// HistoryLength is how much of the past is used, such as 15d. gocrane wanted at least 48h and used 15d where it is
	// absent. A weekly cycle needs at least two weeks.
	// +optional
	HistoryLength Duration `json:"historyLength,omitempty"`

	// Estimators are the candidates. Absent or empty means a built-in list.
	// +optional
	Estimators *Estimators `json:"estimators,omitempty"`
}

// Estimators are candidate ways to forecast a periodic series. The one with the least error on the last period is used.
type Estimators struct {
	// MaxValueEstimators take for each time of the period the largest value of all periods.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	MaxValueEstimators []MaxValueEstimator `json:"maxValue,omitempty"`

	// FFTEstimators keep the strongest frequencies of the series.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	FFTEstimators []FFTEstimator `json:"fft,omitempty"`
}

// MaxValueEstimator takes for each time of the period the largest value of all periods.
type MaxValueEstimator struct {
	// MarginFraction is added on top as a fraction of the forecast: "0.1" adds 10 %. Defaults to "0".
	// +optional
	MarginFraction Number `json:"marginFraction,omitempty"`
}

// FFTEstimator keeps the strongest frequencies of a series.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minNumOfSpectrumItems) || !has(self.maxNumOfSpectrumItems) || self.minNumOfSpectrumItems <= self.maxNumOfSpectrumItems",fieldPath=".minNumOfSpectrumItems",message="must be at most maxNumOfSpectrumItems"
type FFTEstimator struct {
	// MarginFraction is added on top as a fraction of the forecast: "0.1" adds 10 %. Defaults to "0".
	// +optional
	MarginFraction Number `json:"marginFraction,omitempty"`

	// LowAmplitudeThreshold drops frequencies whose amplitude is below it, in the unit of the metric. Defaults to "1".
	// +optional
	LowAmplitudeThreshold Number `json:"lowAmplitudeThreshold,omitempty"`

	// HighFrequencyThreshold is the frequency in Hz above which weak frequencies are dropped. Defaults to 1/3600, one
	// cycle an hour.
	// +optional
	HighFrequencyThreshold Number `json:"highFrequencyThreshold,omitempty"`

	// MinNumOfSpectrumItems is the least number of frequencies that are kept, from 0 up. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinNumOfSpectrumItems *int32 `json:"minNumOfSpectrumItems,omitempty"`

	// MaxNumOfSpectrumItems is the largest number of frequencies that are kept, from 0 up. Defaults to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxNumOfSpectrumItems *int32 `json:"maxNumOfSpectrumItems,omitempty"`
}

// Percentile holds the settings of the forecaster that takes a percentile of a histogram of the past. The forecast is
// percentile × (1 + marginFraction) / targetUtilization.
type Percentile struct {
	// Aggregated puts all series that the query returns into one histogram. Defaults to false: one for each series.
	// +optional
	Aggregated bool `json:"aggregated,omitempty"`

	// HistoryLength is how much of the past is used, such as 7d. Absent means 7d.
	// +optional
	HistoryLength Duration `json:"historyLength,omitempty"`

	// SampleInterval is the interval between two samples, such as 60s. Absent means 1m.
	// +optional
	SampleInterval Duration `json:"sampleInterval,omitempty"`

	// Histogram configures the buckets of values. Absent means a histogram that fits the data.
	// +optional
	Histogram *HistogramConfig `json:"histogram,omitempty"`

	// MinSampleWeight is checked, 0 or more, and has no effect: samples are weighted by age alone, as in gocrane's documentation.
	// +optional
	MinSampleWeight Number `json:"minSampleWeight,omitempty"`

	// MarginFraction is added on top as a fraction of the percentile: "0.15" adds 15 %. Defaults to "0".
	// +optional
	MarginFraction Number `json:"marginFraction,omitempty"`

	// Percentile is the percentile as a fraction, more than 0 and at most 1: "0.99" is the 99th. Defaults to "0.99".
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[+]?[0-9.]+([eE][+-]?[0-9]{1,3})?$') || (double(self) > 0.0 && double(self) <= 1.0)",message="must be more than 0 and at most 1"
	Percentile Number `json:"percentile,omitempty"`

	// TargetUtilization is the share of the forecast that use should take, more than 0 and at most 1. Defaults to "1".
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[+]?[0-9.]+([eE][+-]?[0-9]{1,3})?$') || (double(self) > 0.0 && double(self) <= 1.0)",message="must be more than 0 and at most 1"
	TargetUtilization Number `json:"targetUtilization,omitempty"`
}

// HistogramConfig configures buckets. With bucketSize all buckets have one width; with
// firstBucketSize and bucketSizeGrowthRatio they grow. maxValue is needed for either.
type HistogramConfig struct {
	// MaxValue is the start of the last bucket, in the unit of the metric. Larger values fall into that bucket.
	// +optional
	MaxValue Number `json:"maxValue,omitempty"`

	// Epsilon is the weight below which a bucket counts as empty. Defaults to "1e-10".
	// +optional
	Epsilon Number `json:"epsilon,omitempty"`

	// HalfLife is the age at which a sample counts half, such as 24h. gocrane required it and ignored it.
	// +optional
	HalfLife Duration `json:"halfLife,omitempty"`

	// BucketSize is the width of each bucket, in the unit of the metric.
	// +optional
	BucketSize Number `json:"bucketSize,omitempty"`

	// FirstBucketSize is the width of the first of the growing buckets, in the unit of the metric.
	// +optional
	FirstBucketSize Number `json:"firstBucketSize,omitempty"`

	// BucketSizeGrowthRatio is by how much each bucket is wider than the one before: "0.05" means 5 %.
	// +optional
	BucketSizeGrowthRatio Number `json:"bucketSizeGrowthRatio,omitempty"`
}
