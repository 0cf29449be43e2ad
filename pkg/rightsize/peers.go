// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"time"

	"crane.io/crane/pkg/histogram"
)

// Peer is the formula of another tool, implemented from its documentation, for comparison in a replay.
type Peer struct {
	// Name is gocrane, vpa, krr-p95 or krr-p99.
	Name string
	// CPU and Memory return the request in cores and bytes at now from the days before it; NaN without usage.
	CPU, Memory func(days []*Day, now time.Time) float64
	// Window is the history before now that the formula uses.
	Window time.Duration
}

// Peers returns the formulas:
//
//	gocrane  p99 of 7 days + 15 %; memory the same, of samples
//	vpa      p90 with a half-life of 24 hours + 15 %; memory the same of the daily peaks of 8 days
//	krr-p95  p95 of 14 days; memory the largest usage of 14 days + 15 %
//	krr-p99  p99 of 14 days; memory as krr-p95
//
// On sketches VPA's half-life acts by whole days, taken at noon. Buckets and floors of all tools are left out, since the
// formulas are compared.
func Peers() []Peer {
	krrMemory := func(days []*Day, _ time.Time) float64 { return 1.15 * quantileOf(days, memoryCounts, 1) }
	return []Peer{
		{
			Name: GocranePolicyName, Window: 7 * day,
			CPU:    func(days []*Day, _ time.Time) float64 { return 1.15 * quantileOf(days, cpuCounts, 0.99) },
			Memory: func(days []*Day, _ time.Time) float64 { return 1.15 * quantileOf(days, memoryCounts, 0.99) },
		},
		{Name: "vpa", Window: 14 * day, CPU: vpaCPU, Memory: vpaMemory},
		{
			Name: "krr-p95", Window: 14 * day, Memory: krrMemory,
			CPU: func(days []*Day, _ time.Time) float64 { return quantileOf(days, cpuCounts, 0.95) },
		},
		{
			Name: "krr-p99", Window: 14 * day, Memory: krrMemory,
			CPU: func(days []*Day, _ time.Time) float64 { return quantileOf(days, cpuCounts, 0.99) },
		},
	}
}

func cpuCounts(d *Day) *histogram.Counts    { return &d.CPU }
func memoryCounts(d *Day) *histogram.Counts { return &d.Memory }

// quantileOf returns the quantile of all samples of the days.
func quantileOf(days []*Day, countsOf func(*Day) *histogram.Counts, q float64) float64 {
	h := histogram.Histogram{}
	for _, d := range days {
		h.Add(countsOf(d), 1)
	}

	return h.Quantile(q)
}

const vpaHalfLife = 24 * time.Hour

func vpaCPU(days []*Day, now time.Time) float64 {
	h := histogram.Histogram{}
	for _, d := range days {
		age := now.Sub(d.Day.Start().Add(12 * time.Hour))
		h.Add(&d.CPU, math.Exp2(-float64(age)/float64(vpaHalfLife)))
	}

	return 1.15 * h.Quantile(0.90)
}

func vpaMemory(days []*Day, now time.Time) float64 {
	peaks := make([]dayValue, 0, 16)
	for _, d := range days[max(0, len(days)-8):] {
		if d.Memory.Total() > 0 {
			peaks = append(peaks, dayValue{d.maxPeak(), dayWeight(now, d, vpaHalfLife)})
		}
	}

	return 1.15 * weightedQuantile(peaks, 0.90)
}
