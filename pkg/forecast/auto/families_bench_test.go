// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/baseline"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// figures are the sums of the losses of one forecaster over the origins of a series.
type figures struct{ errors, pinball, covered, points float64 }

func (f *figures) add(actual []float64, middle, upper func(i int) float64) {
	for i, y := range actual {
		if !forecast.Usable(y) {
			continue
		}

		f.errors += math.Abs(y - middle(i))
		f.pinball += forecast.Pinball(y, upper(i), 0.95)
		f.points++
		if y <= upper(i) {
			f.covered++
		}
	}
}

// variant is a set of parameters to be compared.
type variant struct {
	name string
	tune tuning
}

// rowsOf returns a model of some history, the model as a forecast uses it and its rows, as ForecastWith makes them.
func rowsOf(past series.Series) (m, whole *Model, rows *dayRows) {
	m = NewModel(past.Step)
	for i, v := range past.Values {
		m.Observe(past.Time(i), v)
	}

	whole = m.closed()
	rows = newDayRows(whole, nil)
	rows.setMidnight(time.Unix(whole.head*m.layout.seconds(), 0), nil)

	return m, whole, rows
}

// scoreSeries returns the figures of plain, then of each variant, at daily origins from a week on, as in crane backtest
// forecast.
func scoreSeries(s series.Series, variants []variant) []figures {
	out := make([]figures, 1+len(variants))
	perDay := int(day / s.Step)
	for at := 7 * perDay; at+perDay <= len(s.Values); at += perDay {
		from := max(0, at-historyDays*perDay)
		past := series.Series{Start: s.Time(from), Step: s.Step, Values: s.Values[from:at]}
		actual := s.Values[at : at+perDay]

		plain, err := baseline.Plain{}.Forecast(past, day)
		if err != nil {
			continue
		}

		out[0].add(actual, func(i int) float64 { return plain.Values[i].At(0.5) }, func(i int) float64 { return plain.Values[i].At(0.95) })
		m, whole, rows := rowsOf(past)
		o := newOutlook(rows, 1)
		origin := whole.head * m.layout.seconds()
		for k, v := range variants {
			f := forecast.Forecast{Start: m.now(), Step: s.Step, Values: make([]forecast.Quantiles, perDay)}
			m.fill(f, newHedge(o, v.tune), origin, wallClock{})
			out[1+k].add(actual, func(i int) float64 { return f.Values[i].At(0.5) }, func(i int) float64 { return f.Values[i].At(0.95) })
		}
	}

	return out
}

// summary is what some series score with a variant, relative to plain.
type summary struct {
	logErrors, logPinball float64 // sums over the compared series
	compared              int     // series on which plain has a loss
	worst                 float64 // the largest ratio of the pinball loss
	above                 int     // series with a ratio above 1.05
	series, calibrated    int     // calibrated are those with a coverage in .92-.98
	covered, points       float64
}

func (s summary) wape() float64    { return math.Exp(s.logErrors / float64(s.compared)) }
func (s summary) pinball() float64 { return math.Exp(s.logPinball / float64(s.compared)) }

// add adds the figures of a series, whose first are those of plain.
func (s *summary) add(f []figures, k int) {
	own := f[1+k]
	plain := f[0]
	s.series++

	s.covered += own.covered
	s.points += own.points
	if c := own.covered / own.points; c >= 0.92 && c <= 0.98 {
		s.calibrated++
	}

	if !(plain.errors > 0 && plain.pinball > 0 && own.errors > 0 && own.pinball > 0) {
		return
	}

	ratio := own.pinball / plain.pinball
	s.logErrors += math.Log(own.errors / plain.errors)
	s.logPinball += math.Log(ratio)

	s.compared++
	s.worst = max(s.worst, ratio)
	if ratio > 1.05 {
		s.above++
	}
}

func summarize(all [][]figures, k int) summary {
	var s summary
	for _, f := range all {
		s.add(f, k)
	}

	return s
}

// loadFamilies scores every series of every family that is long enough with the variants.
func loadFamilies(b *testing.B, variants []variant) map[string][][]figures {
	b.Helper()

	out := families.ScoreEach(b, func(_ string, s families.RecordedSeries) []figures {
		return scoreSeries(s.Series, variants)
	})
	for name, all := range out {
		out[name] = slices.DeleteFunc(all, func(f []figures) bool { return f[0].points == 0 })
	}

	return out
}

// variants returns the grid that the leave-one-family-out table chooses from.
func variants() []variant {
	var out []variant
	for _, median := range []float64{8, 16, 32} {
		for _, upper := range []float64{3, 6, 12} {
			for _, gain := range []float64{0.25, 0.5, 1} {
				for _, conformal := range []float64{0.25, 0.5, 1} {
					t := defaultTuning()
					t.sharpness = [2]float64{median, upper}
					t.maxGain = gain
					t.conformal = conformal
					out = append(out, variant{fmt.Sprintf("%v, %v, %v, %v", median, upper, gain, conformal), t})
				}
			}
		}
	}

	return out
}

// chosen returns the variant with the least loss on the families of other groups.
func chosen(grid []variant, scores map[string][][]figures, group string) int {
	return families.LeastLoss(len(grid), group, func(family string, k int) float64 {
		s := summarize(scores[family], k)
		return math.Log(s.wape()) + math.Log(s.pinball())
	})
}

// BenchmarkLeaveOneFamilyOut prints, for each family, the score of the parameters chosen on the other groups, and of the default ones.
func BenchmarkLeaveOneFamilyOut(b *testing.B) {
	began := time.Now()
	grid := append(variants(), variant{"default", defaultTuning()})
	standard := len(grid) - 1
	scores := loadFamilies(b, grid)

	var text strings.Builder
	line := func(name, parameters string, s summary) {
		fmt.Fprintf(&text, "| %s | %s | %.3f | %.3f | %.2f | %d of %d | %.3f | %d of %d |\n", name, parameters, s.wape(), s.pinball(),
			s.worst, s.above, s.compared, s.covered/s.points, s.calibrated, s.series)
	}
	text.WriteString("| family left out | parameters | WAPE | pinball | worst | above 1.05 | coverage | in .92-.98 |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")

	var fitted, fixed summary
	for _, f := range families.Recorded() {
		k := chosen(grid[:standard], scores, f.Group)
		line(f.Name, grid[k].name, summarize(scores[f.Name], k))
		line(f.Name, grid[standard].name, summarize(scores[f.Name], standard))

		for _, scored := range scores[f.Name] {
			fitted.add(scored, k)
			fixed.add(scored, standard)
		}
	}

	line("all series", "chosen", fitted)
	line("all series", grid[standard].name, fixed)

	// b.Log would cut the table short.
	fmt.Printf("Forecasts, one family left out at a time; %s of wall time\n\n%s\n", time.Since(began).Round(time.Second), &text)
	for b.Loop() {
	}
}
