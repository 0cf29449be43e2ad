// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Figure is a measured number; NaN stands for "could not be measured" and is null in JSON.
type Figure float64

// MarshalJSON implements json.Marshaler.
func (f Figure) MarshalJSON() ([]byte, error) {
	if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(v)
	}

	return []byte("null"), nil
}

// Result is the score of an algorithm on one series.
type Result struct {
	// Name is the series, Algorithm the method.
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	// Origins is the number of requested forecasts, Issued the number of those not declined.
	Origins int `json:"origins"`
	Issued  int `json:"issued"`
	// WAPE is the sum of absolute errors of the median over the sum of the samples.
	WAPE Figure `json:"wape"`
	// Pinball is the mean loss at the quantile over the mean of the samples.
	Pinball Figure `json:"pinball"`
	// Coverage is the share of points at or below the quantile.
	Coverage Figure `json:"coverage"`
	// Skill is 1 - pinball / pinball of a constant, the quantile of the samples before each origin, both over the origins
	// at which the algorithm issued a forecast; as forecast.Forecast.Skill.
	Skill Figure `json:"skill"`
	// WAPERatio and PinballRatio are the figures over those of the reference, both over the origins at which the algorithm
	// issued a forecast.
	WAPERatio    Figure `json:"wapeRatio"`
	PinballRatio Figure `json:"pinballRatio"`
	// FitMillis is the median time of one forecast in milliseconds, from raw samples to quantiles.
	FitMillis Figure `json:"fitMillis"`
	// Points is the number of scored points, for pooling coverage over series.
	Points int `json:"points"`
}

// Mean is an algorithm's figures over all series, each series weighing the same.
type Mean struct {
	Algorithm string `json:"algorithm"`
	Series    int    `json:"series"`
	Origins   int    `json:"origins"`
	Issued    int    `json:"issued"`
	// WAPE, Pinball, Skill and FitMillis are arithmetic means over the series that have the figure.
	WAPE    Figure `json:"wape"`
	Pinball Figure `json:"pinball"`
	// Coverage is pooled: the share of all points of all series.
	Coverage  Figure `json:"coverage"`
	Skill     Figure `json:"skill"`
	FitMillis Figure `json:"fitMillis"`
	// WAPERatio and PinballRatio are geometric means over series of the figure over that of the reference algorithm, at
	// the origins at which the algorithm issued a forecast.
	WAPERatio    Figure `json:"wapeRatio"`
	PinballRatio Figure `json:"pinballRatio"`
}

// Report is the result of a backtest over many series.
type Report struct {
	Series []Result `json:"series"`
	Mean   []Mean   `json:"mean"`
}

// NewReport collects the results of many series and averages them by algorithm, in order of first appearance.
func NewReport(results []Result) Report {
	report := Report{Series: results, Mean: []Mean{}}
	if results == nil {
		report.Series = []Result{}
	}

	var names []string
	for _, r := range results {
		if !slices.Contains(names, r.Algorithm) {
			names = append(names, r.Algorithm)
		}
	}

	for _, name := range names {
		report.Mean = append(report.Mean, mean(name, results))
	}

	return report
}

func mean(algorithm string, results []Result) Mean {
	out := Mean{Algorithm: algorithm}
	var wape, pinball, skill, fit, wapeRatio, pinballRatio average
	covered := 0.0

	points := 0
	for _, r := range results {
		if r.Algorithm != algorithm {
			continue
		}

		out.Series++
		out.Origins += r.Origins
		out.Issued += r.Issued
		wape.add(r.WAPE)
		pinball.add(r.Pinball)
		skill.add(r.Skill)
		fit.add(r.FitMillis)

		// Coverage is pooled: it is a share of all points.
		if r.Points > 0 {
			covered += float64(r.Coverage) * float64(r.Points)
			points += r.Points
		}

		wapeRatio.addLog(r.WAPERatio)
		pinballRatio.addLog(r.PinballRatio)
	}

	out.WAPE = wape.mean()
	out.Pinball = pinball.mean()
	out.Skill = skill.mean()
	out.FitMillis = fit.mean()
	out.Coverage = ratio(covered, float64(points))
	out.WAPERatio = wapeRatio.geometric()
	out.PinballRatio = pinballRatio.geometric()

	return out
}

// average averages the available figures.
type average struct {
	sum float64
	n   int
}

func (a *average) add(f Figure) {
	if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
		a.sum += v
		a.n++
	}
}

func (a *average) addLog(f Figure) {
	if f > 0 {
		a.add(Figure(math.Log(float64(f))))
	}
}

func (a *average) mean() Figure { return ratio(a.sum, float64(a.n)) }

func (a *average) geometric() Figure { return Figure(math.Exp(float64(a.mean()))) }

// ratio returns a/b, or NaN where b is not positive.
func ratio(a, b float64) Figure {
	if !(b > 0) {
		return Figure(math.NaN())
	}

	return Figure(a / b)
}

func summarize(name, algorithm string, scored, reference []origin, constants []float64) Result {
	out := Result{Name: name, Algorithm: algorithm, Origins: len(scored)}
	var sum origin
	var referencePinball, referenceErrors, constant float64

	var durations []time.Duration
	for i, o := range scored {
		durations = append(durations, o.duration)
		if !o.issued {
			continue
		}

		// The reference counts at the same origins only.
		out.Issued++
		sum.errors += o.errors
		sum.pinball += o.pinball
		sum.actual += o.actual
		sum.covered += o.covered
		sum.points += o.points
		constant += constants[i]
		referencePinball += reference[i].pinball
		referenceErrors += reference[i].errors
	}

	out.Points = sum.points
	out.WAPE = ratio(sum.errors, sum.actual)
	out.Pinball = ratio(sum.pinball, sum.actual)
	out.Coverage = ratio(float64(sum.covered), float64(sum.points))
	out.WAPERatio = ratio(sum.errors, referenceErrors)
	out.PinballRatio = ratio(sum.pinball, referencePinball)

	out.Skill = 1 - ratio(sum.pinball, constant)
	out.FitMillis = Figure(math.NaN())
	if len(durations) > 0 {
		slices.Sort(durations)
		out.FitMillis = Figure(durations[len(durations)/2].Seconds() * 1000)
	}

	return out
}
