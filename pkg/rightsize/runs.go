// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"

	"crane.io/crane/pkg/units"
)

const (
	// minRuns is the number of runs from which there is a number, fullRuns the number from which confidence is full.
	minRuns, fullRuns = 3, 10
)

// sampledRunWeight is the weight of the largest peak of a day with more runs than are kept: it decides only if all runs must be
// covered.
const sampledRunWeight = 1e-6

// runPeaks returns the peak of each run (one pod is one run), in the order of their first sample, and the largest of each day whose
// runs are a sample. Runs without a sample do not count.
func runPeaks(days []*Day, peakOf func(podLife) float32, dayPeak func(*Day) float64) []dayValue {
	var peaks []dayValue
	for _, d := range days {
		if d.isSampled() {
			peaks = append(peaks, dayValue{value: dayPeak(d), weight: sampledRunWeight})
		}
	}

	for _, life := range podLives(days) {
		if peak := peakOf(life); peak > 0 {
			peaks = append(peaks, dayValue{value: float64(peak), weight: 1})
		}
	}

	return peaks
}

// runs is history for a container that is counted in runs.
func (s *sizer) runs(observed int) bool {
	s.Confidence = units.Ratio(min(1, float64(observed)/fullRuns))
	switch {
	case observed == 0:
		s.Status = NoData
		s.Message = "no use of a run was measured"
		return false
	case observed < minRuns:
		s.Status = Learning
		s.Message = fmt.Sprintf("learning, %d of %d runs", observed, minRuns)
		return false
	}

	s.Status = Ready
	return true
}

// estimateOfRuns returns the estimate from the peaks of runs: the share of the runs that the envelope of the policy covers
// of days, or its percentile. It sorts peaks.
func (p CPUPolicy) estimateOfRuns(peaks []dayValue) cpuEstimate {
	cover := p.Percentile
	margin := p.Margin
	relativeSpread := spread(peaks)
	if p.Method != Percentile {
		cover = p.Envelope.Cover
		margin = min(p.Margin+p.Envelope.SpreadMargin*units.Ratio(relativeSpread), p.Envelope.MaxMargin)
	}

	return cpuEstimate{
		value:        weightedQuantile(peaks, float64(cover)),
		margin:       margin,
		points:       peaks,
		detail:       fmt.Sprintf("holds the peak of %s of %d runs", percent(cover), len(peaks)),
		marginDetail: fmt.Sprintf("%s on top: the runs differ by %s", percent(margin), percent(units.Ratio(relativeSpread))),
	}
}

// shortLife is the number of days on which a short-lived pod is seen at most: it may run over midnight.
const shortLife = 2

// ShortLives returns the number of pods that were seen on a day or two only, as those of runs are. Pods of the last day do not count: they may
// have just begun a long life.
func (p *Profile) ShortLives() int {
	days := p.Days()
	n := 0
	for _, life := range podLives(days) {
		if seen := len(life.maxima); seen > 0 && seen <= shortLife && life.last < days[len(days)-1].Day {
			n++
		}
	}

	return n
}
