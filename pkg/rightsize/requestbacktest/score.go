// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Score is the result of one rule on one series, or the mean over several.
type Score struct {
	// Name of the series; empty in a mean.
	Name   string `json:"name,omitempty"`
	Policy string `json:"policy"`
	// Cost is the sum of the requests over the sum of the need, which is the largest sample of each scored day.
	Cost float64 `json:"cost"`
	// MinutesAbove is the time above the request, in minutes a day.
	MinutesAbove float64 `json:"minutesAbove"`
	// LongestAbove is the longest uninterrupted time above the request, in minutes.
	LongestAbove float64 `json:"longestAbove"`
	// Slack is 1 - sum(use)/sum(request).
	Slack float64 `json:"slack"`
	// Violation is the share of samples above the request.
	Violation float64 `json:"violation"`
	// Overrun is the use above the request as a share of the use.
	Overrun float64 `json:"overrun"`
	// OOMDays is the number of days with a sample above the limit (their mean number, in a mean); nil for CPU.
	OOMDays *float64 `json:"oomDays"`
	// Changes is the mean number of times a day that the request moved: by more than 10 % for a rule with one request a
	// day, at all for a course.
	Changes float64 `json:"changes"`
	// need is the mean of the largest samples of the scored days.
	need float64
}

const minutesPerDay = 24 * 60

// isIdle reports whether nothing was requested or needed.
func (s Score) isIdle() bool { return !(s.Cost > 0) || math.IsInf(s.Cost, 1) }

// rawStats sums the days of one rule on one series.
type rawStats struct {
	step                         time.Duration
	use, requested, excess, need float64
	samples, above               int
	current, longest             int // samples above the request in a row: now, and at most
	days, oomDays, changes       int
	last                         float64
}

func (t *rawStats) addDay(s series.Series, decision Sizes) {
	if !(decision.Request >= 0) || math.IsInf(decision.Request, 0) {
		return
	}

	oom := false
	for _, v := range s.Values {
		t.addSample(v, decision.Request)
		oom = oom || v > decision.Limit
	}

	t.addNeed(s)
	if oom {
		t.oomDays++
	}
	if t.days > 1 && math.Abs(decision.Request-t.last) > materialChange*t.last {
		t.changes++
	}

	t.last = decision.Request
}

// addSample scores a sample; a gap ends a stretch above the request.
func (t *rawStats) addSample(use, request float64) {
	if series.IsGap(use) {
		t.current = 0
		return
	}

	t.samples++
	t.use += use
	t.requested += request
	if !(use > request) {
		t.current = 0
		return
	}

	t.above++
	t.excess += use - request
	t.current++
	t.longest = max(t.longest, t.current)
}

// addNeed counts a scored day and its need.
func (t *rawStats) addNeed(s series.Series) {
	t.days++
	if sum := s.Summarize(); sum.Count > 0 {
		t.need += float64(sum.Count) * sum.Max
	}
}

// course scores a day sample by sample. Every change counts, however small: each one is a resize.
func (t *rawStats) course(s series.Series, c Course) {
	seen := 0
	for i, v := range s.Values {
		at := s.Time(i)
		for ; seen < i && !s.Time(seen).Add(ObserveDelay).After(at); seen++ {
			c.Observe(s.Time(seen), s.Values[seen])
		}

		request := c.Request(at)
		if (t.days > 0 || i > 0) && request != t.last {
			t.changes++
		}

		t.last = request
		t.addSample(v, request)
	}

	// The rest of the day is observed for the next one, whose past includes it anyway.
	for ; seen < len(s.Values); seen++ {
		c.Observe(s.Time(seen), s.Values[seen])
	}
	t.addNeed(s)
}

func (t *rawStats) score(resource units.Resource) Score {
	s := Score{LongestAbove: (time.Duration(t.longest) * t.step).Minutes()}

	// A figure without its denominator stays 0.
	if t.requested > 0 {
		s.Slack = 1 - t.use/t.requested
	}

	if t.samples > 0 {
		s.Violation = float64(t.above) / float64(t.samples)
		s.MinutesAbove = minutesPerDay * s.Violation
		s.need = t.need / float64(t.samples)
	}

	if t.need > 0 {
		s.Cost = t.requested / t.need
	}
	if t.use > 0 {
		s.Overrun = t.excess / t.use
	}
	if t.days > 0 {
		s.Changes = float64(t.changes) / float64(t.days)
	}

	if resource == units.Memory {
		ooms := float64(t.oomDays)
		s.OOMDays = &ooms
	}

	return s
}

// meanScore collects the scores of one rule.
type meanScore struct{ scores []Score }

func (m *meanScore) add(s Score) { m.scores = append(m.scores, s) }

// unweighted returns the mean in which each series counts the same.
func (m *meanScore) unweighted(policy string) Score {
	out := m.mean(policy, func(Score) float64 { return 1 })
	logs := 0.0
	for _, s := range m.scores {
		logs += math.Log(s.Cost)
	}

	out.Cost = math.Exp(logs / float64(len(m.scores)))
	return out
}

// weighted returns the mean in which each series counts by its need.
func (m *meanScore) weighted(policy string) Score {
	return m.mean(policy, func(s Score) float64 { return s.need })
}

// mean returns the weighted arithmetic mean of all figures but LongestAbove, which is the median.
func (m *meanScore) mean(policy string, weight func(Score) float64) Score {
	out := Score{Policy: policy}
	total := 0.0
	longest := []float64{}
	for _, s := range m.scores {
		total += weight(s)
		longest = append(longest, s.LongestAbove)
	}

	for _, s := range m.scores {
		w := weight(s) / total
		out.Cost += w * s.Cost
		out.MinutesAbove += w * s.MinutesAbove
		out.Slack += w * s.Slack
		out.Violation += w * s.Violation

		out.Overrun += w * s.Overrun
		out.Changes += w * s.Changes

		// CPU has no OOM days.
		if s.OOMDays != nil {
			if out.OOMDays == nil {
				out.OOMDays = new(float64)
			}
			*out.OOMDays += w * *s.OOMDays
		}
	}

	slices.Sort(longest)
	out.LongestAbove = series.QuantileSorted(longest, 0.5)
	return out
}
