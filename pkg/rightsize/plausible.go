// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"slices"

	"crane.io/crane/pkg/series"
)

const (
	// MaxCores is more than any machine has.
	MaxCores = 4096
	// MaxBytes is more memory than any machine has.
	MaxBytes = 1 << 46
	// outlierCores and outlierBytes are the amounts below which no sample of an unknown node is an outlier; outlierFactor is the
	// ratio to almost all samples of the day above which an isolated one is. outlierQuantile defines almost all, outlierSamples
	// the number of samples from which that is known.
	outlierCores    = 16
	outlierBytes    = 64 << 30
	outlierFactor   = 20
	outlierQuantile = 0.95
	outlierSamples  = 12
)

// Implausible counts samples that cannot be measurements.
type Implausible struct {
	// Count is the number of samples, Largest the largest of them, in cores or bytes.
	Count   uint32
	Largest float32
}

// merge adds another count.
func (i *Implausible) merge(other Implausible) {
	i.Count += min(other.Count, math.MaxUint32-i.Count)
	i.Largest = max(i.Largest, other.Largest)
}

// Plausible returns the usage of a pod on one day without the samples that cannot be measurements, and counts those: a counter that
// goes back by a little reads as thousands of cores. capacity is what the node, or the limit at that time, can give; 0 if unknown.
// Then a sample does not count if it is isolated, above 16 cores or 64 GiB, and more than 20 times the 95th percentile of the day.
func Plausible(s series.Series, unit Unit, capacity float64) (series.Series, Implausible) {
	bound := plausibleBound(s.Values, unit, capacity)
	var dropped Implausible
	for i, v := range s.Values {
		if !(v > bound) {
			continue
		}

		if dropped.Count == 0 {
			s.Values = slices.Clone(s.Values)
		}

		s.Values[i] = series.Gap()
		dropped.Count++
		dropped.Largest = max(dropped.Largest, float32(min(v, maxFloat32)))
	}

	return s, dropped
}

// plausibleBound returns the largest value that can be a measurement.
func plausibleBound(values []float64, unit Unit, capacity float64) float64 {
	largest := float64(MaxCores)
	outlier := float64(outlierCores)
	if unit == BytesUnit {
		largest = MaxBytes
		outlier = outlierBytes
	}

	if capacity > 0 {
		return capacity
	}

	if !slices.ContainsFunc(values, func(v float64) bool { return v > outlier }) {
		return largest // The usual case, without sorting.
	}

	known := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v >= 0) })
	if len(known) < outlierSamples {
		return largest
	}

	// Of up to twenty samples, the largest one would be the quantile.
	slices.Sort(known)
	bound := max(outlier, outlierFactor*series.QuantileSorted(known[:len(known)-1], outlierQuantile))

	// Two such samples in a row are a load that was there.
	last := -2
	for i, v := range values {
		if !(v > bound) || v > largest {
			continue
		}

		if i == last+1 {
			return largest
		}

		last = i
	}

	return min(bound, largest)
}

// implausible flags samples that do not count.
func (s *sizer) implausible(days []*Day, countOf func(*Day) Implausible) {
	var all Implausible
	for _, d := range days {
		all.merge(countOf(d))
	}

	if all.Count == 0 {
		return
	}

	s.flag(FlagImplausible, fmt.Sprintf("%d samples of up to %s do not count: more than the node, or 1.1 times the limit at that time, can give; "+
		"where both are unknown, isolated and more than %d times the other samples of the day", all.Count, s.unit.format(float64(all.Largest)), outlierFactor))
}
