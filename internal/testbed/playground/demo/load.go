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

// Load is a made-up load that comes from outside of the cluster: a metric that Prometheus has all of the past of, and goes on to get. It is
// low, rises, stays high and falls, again and again.
type Load struct {
	// Metric is the name of the series, without labels.
	Metric string `json:"metric"`
	// Low and High are its values, before some noise.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Period is the time from one rise to the next. One that divides a day is a daily pattern that is compressed.
	Period metav1.Duration `json:"period"`
	// Busy is how long it stays high, Ramp how long it takes to rise and to fall.
	Busy metav1.Duration `json:"busy"`
	Ramp metav1.Duration `json:"ramp"`
	// RiseAfter is when it rises for the first time after the end of the past, at the earliest.
	RiseAfter metav1.Duration `json:"riseAfter"`
	// Align puts the rise on a multiple of it by the clock; a forecast of Crane tells times of the day apart by five minutes.
	Align metav1.Duration `json:"align,omitzero"`
}

const day = 24 * time.Hour

func (l *Load) validate() error {
	switch {
	case l.Metric == "":
		return errors.New("load: metric is required")
	case !(l.Low >= 0) || !(l.High > l.Low) || math.IsInf(l.High, 0):
		return fmt.Errorf("load: low %v and high %v: must be numbers of 0 or more, high above low", l.Low, l.High)
	case l.Period.Duration <= 0 || day%l.Period.Duration != 0:
		return fmt.Errorf("load: period %s: must divide a day", l.Period.Duration)
	case l.Ramp.Duration <= 0 || l.Busy.Duration <= 0 || l.Busy.Duration+2*l.Ramp.Duration >= l.Period.Duration:
		return errors.New("load: busy and ramp must be positive and, with a rise and a fall, shorter than the period")
	case l.Align.Duration < 0 || l.Align.Duration > 0 && l.Period.Duration%l.Align.Duration != 0:
		return fmt.Errorf("load: align %s: must divide the period", l.Align.Duration)
	case l.RiseAfter.Duration < 0 || l.RiseAfter.Duration >= l.Period.Duration:
		return fmt.Errorf("load: riseAfter %s: must be less than the period", l.RiseAfter.Duration)
	}
	return nil
}

// Rises is when the load rises for the first time after the end of the past.
func (l *Load) Rises(end time.Time) time.Time {
	at := end.Add(l.RiseAfter.Duration)
	if l.Align.Duration <= 0 {
		return at
	}
	if aligned := at.Truncate(l.Align.Duration); aligned.Before(at) {
		return aligned.Add(l.Align.Duration)
	}
	return at
}

// At is the load at a time, where the past ended at end.
func (l *Load) At(t, end time.Time) float64 {
	ramp, busy := l.Ramp.Seconds(), l.Busy.Seconds()
	since := math.Mod(t.Sub(l.Rises(end)).Seconds(), l.Period.Seconds())
	if since < 0 {
		since += l.Period.Seconds()
	}
	up := math.Min(1, since/ramp)
	if since > ramp+busy {
		up = math.Max(0, 1-(since-ramp-busy)/ramp)
	}
	// A little noise, the same at the same time.
	const share, fast, slow = 0.02, 61, 977
	noise := share * (math.Sin(float64(t.Unix())/fast) + math.Sin(float64(t.Unix())/slow))
	return (l.Low + (l.High-l.Low)*up) * (1 + noise)
}

// Risen tells whether the load of a time is on its way up, or up.
func (l *Load) Risen(value float64) bool { return value > l.Low+(l.High-l.Low)/4 }

// Chart asks for load, pods and what they carry to be watched and drawn.
type Chart struct {
	// Namespace and Deployment name what is scaled.
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	// PodCapacity is the load that a pod carries.
	PodCapacity float64 `json:"podCapacity"`
	// For is how long to watch at most, After for how long once the load has risen, Every the time between two looks.
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
