// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/units"
)

// outputLevels returns the printed quantiles.
func outputLevels() []float64 { return []float64{0.5, 0.9, 0.95, 0.99} }

func (o *forecastOptions) render(s Streams, all []seriesForecast) error {
	switch o.output {
	case outputJSON:
		return renderForecastsJSON(s.Out, all)
	case outputSVG:
		return renderSVG(s.Out, all)
	}

	width := o.width
	if width == 0 {
		if width = progressline.TerminalWidth(s.Out); width == 0 {
			width = defaultChartWidth
		}
	}

	for i, f := range all {
		text := f.headline() + forecastRows(f)
		if o.output == outputChart {
			text = f.headline() + formatChart(f, width)
		}
		if i > 0 {
			text = "\n" + text
		}

		if _, err := io.WriteString(s.Out, text); err != nil {
			return err
		}
	}

	return nil
}

// headline returns the model, the season and the skill of the forecast.
func (f seriesForecast) headline() string {
	parts := []string{"model " + f.forecast.Model}
	if f.forecast.Period > 0 {
		parts = append(parts, fmt.Sprintf("season %s, %d in the history", units.FormatDuration(f.forecast.Period), f.forecast.Periods))
	} else {
		parts = append(parts, "no season, "+units.FormatCount(f.forecast.Periods, "day")+" of history")
	}

	if math.IsNaN(f.forecast.Skill) {
		parts = append(parts, "skill unknown")
	} else {
		parts = append(parts, fmt.Sprintf("skill %.2f over %s", f.forecast.Skill, units.FormatCount(f.forecast.Origins, "origin")))
	}

	text := termtext.Line(f.name) + "\n" + strings.Join(parts, "; ") + "\n"
	if f.forecast.Reason != "" {
		text += "reason: " + f.forecast.Reason + "\n"
	}

	return text
}

// forecastRows returns a table of at most 24 rows with the maximum of each quantile.
func forecastRows(f seriesForecast) string {
	const maxRows = 24
	t := newFigureTable("FROM", "P50", "P90", "P95", "P99")
	step := f.forecast.Step * time.Duration((len(f.forecast.Values)+maxRows-1)/maxRows)
	for from := f.forecast.Start; from.Before(f.forecast.End()); from = from.Add(step) {
		row := table.Row{from.UTC().Format("2006-01-02 15:04")}
		for _, level := range outputLevels() {
			cell := emptyCell
			if v, ok := f.forecast.Max(level, from, from.Add(step)); ok {
				cell = fmt.Sprintf("%.4g", v)
			}

			row = append(row, cell)
		}

		t.AppendRow(row)
	}

	return t.Render() + "\n"
}

// jsonForecast is a forecast in JSON: evenly spaced values, null if unknown.
type jsonForecast struct {
	Name      string               `json:"name"`
	Algorithm string               `json:"algorithm"`
	Model     string               `json:"model"`
	Period    string               `json:"period,omitempty"`
	Periods   int                  `json:"periods"`
	Skill     *float64             `json:"skill"`
	Origins   int                  `json:"origins"`
	Reason    string               `json:"reason,omitempty"`
	Start     time.Time            `json:"start"`
	Step      float64              `json:"stepSeconds"`
	Quantiles map[string][]float64 `json:"quantiles"`
	History   jsonHistory          `json:"history"`
}

type jsonHistory struct {
	Start  time.Time  `json:"start"`
	Step   float64    `json:"stepSeconds"`
	Values []*float64 `json:"values"`
}

func renderForecastsJSON(w io.Writer, all []seriesForecast) error {
	out := struct {
		Series []jsonForecast `json:"series"`
	}{Series: []jsonForecast{}}
	for _, f := range all {
		out.Series = append(out.Series, f.json())
	}

	return documents.WriteJSON(w, out)
}

func (f seriesForecast) json() jsonForecast {
	j := jsonForecast{
		Name:      f.name,
		Algorithm: f.algorithm,
		Model:     f.forecast.Model,
		Periods:   f.forecast.Periods,
		Origins:   f.forecast.Origins,
		Reason:    f.forecast.Reason,
		Start:     f.forecast.Start.UTC(),
		Step:      f.forecast.Step.Seconds(),
		Quantiles: map[string][]float64{},
		History:   jsonHistory{Start: f.history.Start.UTC(), Step: f.history.Step.Seconds(), Values: make([]*float64, len(f.history.Values))},
	}

	if f.forecast.Period > 0 {
		j.Period = units.FormatDuration(f.forecast.Period)
	}
	if !math.IsNaN(f.forecast.Skill) && !math.IsInf(f.forecast.Skill, 0) {
		j.Skill = &f.forecast.Skill
	}

	for _, level := range outputLevels() {
		j.Quantiles[strconv.FormatFloat(level, 'g', -1, 64)] = f.forecast.Quantile(level).Values
	}

	// JSON has no NaN: missing samples are null.
	for i, v := range f.history.Values {
		if forecast.Usable(v) {
			j.History.Values[i] = &f.history.Values[i]
		}
	}

	return j
}
