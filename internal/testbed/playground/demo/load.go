// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Load is a synthetic external load: a metric with a complete history in Prometheus and live samples. It is low, rises,
// stays high and falls, periodically.
type Load struct {
	// Metric is the name of the series. Its only label is namespace.
	Metric string `json:"metric"`
	// Namespace is the value of that label, which craned's isolation of tenants requires in forecasts of the namespace.
	Namespace string `json:"namespace"`
	// Low and High are the bounds of its value, before noise.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Period is the time between two rises. It must divide a day, which it compresses.
	Period metav1.Duration `json:"period"`
	// Busy is the time at High, Ramp the duration of a rise and of a fall.
	Busy metav1.Duration `json:"busy"`
	Ramp metav1.Duration `json:"ramp"`
	// RiseAfter is the minimum time between the end of the history and the first rise.
	RiseAfter metav1.Duration `json:"riseAfter"`
}

const day = 24 * time.Hour

func (l *Load) validate() error {
	switch {
	case l.Metric == "":
		return errors.New("load: metric is required")
	case l.Namespace == "":
		return errors.New("load: namespace is required")
	case !(l.Low >= 0) || !(l.High > l.Low) || math.IsInf(l.High, 0):
		return fmt.Errorf("load: low %v and high %v: must be numbers of 0 or more, high above low", l.Low, l.High)

	case l.Period.Duration <= 0 || day%l.Period.Duration != 0:
		return fmt.Errorf("load: period %s: must divide a day", l.Period.Duration)
	case l.Ramp.Duration <= 0 || l.Busy.Duration <= 0 || l.Busy.Duration+2*l.Ramp.Duration >= l.Period.Duration:
		return errors.New("load: busy and ramp must be positive and, with a rise and a fall, shorter than the period")
	case l.RiseAfter.Duration < 0 || l.RiseAfter.Duration >= l.Period.Duration:
		return fmt.Errorf("load: riseAfter %s: must be less than the period", l.RiseAfter.Duration)
	}

	return nil
}

// RiseTime returns the time of the first rise after the end of the history.
func (l *Load) RiseTime(end time.Time) time.Time { return end.Add(l.RiseAfter.Duration) }

// At returns the load at time t, where the history ended at end.
func (l *Load) At(t, end time.Time) float64 {
	ramp := l.Ramp.Seconds()
	busy := l.Busy.Seconds()

	since := math.Mod(t.Sub(l.RiseTime(end)).Seconds(), l.Period.Seconds())
	if since < 0 {
		since += l.Period.Seconds()
	}

	rise := math.Min(1, since/ramp)
	if since > ramp+busy {
		rise = math.Max(0, 1-(since-ramp-busy)/ramp)
	}

	// The noise is a function of time: history and live samples agree.
	const (
		share = 0.02
		fast  = 61
		slow  = 977
	)

	noise := share * (math.Sin(float64(t.Unix())/fast) + math.Sin(float64(t.Unix())/slow))

	return (l.Low + (l.High-l.Low)*rise) * (1 + noise)
}

// IsHigh reports whether a load value is above the low level by at least a quarter of the range.
func (l *Load) IsHigh(value float64) bool { return value > l.Low+(l.High-l.Low)/4 }

// Chart is a step that watches and draws the load, the pods and their capacity.
type Chart struct {
	// Namespace and Deployment identify the scaled Deployment.
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	// PodCapacity is the load that a pod can serve.
	PodCapacity float64 `json:"podCapacity"`
	// For bounds the duration of the chart, After is its duration after the rise of the load, Every the sample
	// interval.
	For   metav1.Duration `json:"for"`
	After metav1.Duration `json:"after"`
	Every metav1.Duration `json:"every"`
}

func (c *Chart) validate() error {
	switch {
	case c.Namespace == "" || c.Deployment == "":
		return errors.New("chart: namespace and deployment are required")
	case !(c.PodCapacity > 0):
		return fmt.Errorf("chart: podCapacity %v: must be positive", c.PodCapacity)
	case c.After.Duration <= 0:
		return errors.New("chart: after must be positive")
	case c.Every.Duration <= 0 || c.For.Duration < c.Every.Duration:
		return errors.New("chart: every must be positive and not longer than for")
	}

	return nil
}
