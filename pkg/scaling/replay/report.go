// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import "slices"

// Report is the result of a comparison of scalers.
type Report struct {
	Series []Row   `json:"series"`
	Total  []Total `json:"total"`
}

// Row is a Result in reporting units.
type Row struct {
	Name                 string  `json:"name"`
	Scaler               string  `json:"scaler"`
	Pods                 int     `json:"pods"`
	StartupSeconds       float64 `json:"startupSeconds"`
	UnderCapacityMinutes float64 `json:"underCapacityMinutes"`
	ReplicaHours         float64 `json:"replicaHours"`
	Scalings             int     `json:"scalings"`
	ScoredHours          float64 `json:"scoredHours"`
	// Seasonal and Reason are set for "ehpa" only.
	Seasonal bool   `json:"seasonal,omitempty"`
	Reason   string `json:"why,omitempty"`
}

// Kinds of series in a Total.
const (
	KindSeasonal = "seasonal"
	KindOther    = "other"
)

// Total is the sum of a scaler's scores over series, numbers of pods and start-up times.
type Total struct {
	// Kind is whether the forecast of these series follows a season.
	Kind   string `json:"kind"`
	Series int    `json:"series"`
	Scaler string `json:"scaler"`

	UnderCapacityMinutes float64 `json:"underCapacityMinutes"`
	ReplicaHours         float64 `json:"replicaHours"`
	Scalings             int     `json:"scalings"`
	// Ratios are relative to "reactive"; nil where that is zero.
	UnderCapacityRatio *float64 `json:"underCapacityRatio"`
	ReplicaHoursRatio  *float64 `json:"replicaHoursRatio"`
}

// NewReport returns the report of results.
func NewReport(results []Result) Report {
	var report Report
	seasonal := map[string]bool{}
	for _, r := range results {
		seasonal[r.Series] = seasonal[r.Series] || r.Seasonal
		report.Series = append(report.Series, Row{
			Name: r.Series, Scaler: r.Scaler, Pods: r.Pods, StartupSeconds: r.Startup.Seconds(),
			UnderCapacityMinutes: r.UnderCapacity.Minutes(), ReplicaHours: r.ReplicaHours, Scalings: r.Scalings,
			ScoredHours: r.Scored.Hours(), Seasonal: r.Seasonal, Reason: r.Reason,
		})
	}
	for _, kind := range []string{KindSeasonal, KindOther} {
		report.Total = append(report.Total, totals(report.Series, kind, seasonal)...)
	}
	return report
}

// totals sums the rows of one kind by scaler, in order of appearance.
func totals(rows []Row, kind string, seasonal map[string]bool) []Total {
	var out []Total
	names := map[string]bool{}
	for _, r := range rows {
		if seasonal[r.Name] != (kind == KindSeasonal) {
			continue
		}
		names[r.Name] = true
		i := slices.IndexFunc(out, func(t Total) bool { return t.Scaler == r.Scaler })
		if i < 0 {
			i, out = len(out), append(out, Total{Kind: kind, Scaler: r.Scaler})
		}
		out[i].UnderCapacityMinutes += r.UnderCapacityMinutes
		out[i].ReplicaHours += r.ReplicaHours
		out[i].Scalings += r.Scalings
	}
	for i := range out {
		out[i].Series = len(names)
		out[i].UnderCapacityRatio = ratio(out[i].UnderCapacityMinutes, out[0].UnderCapacityMinutes)
		out[i].ReplicaHoursRatio = ratio(out[i].ReplicaHours, out[0].ReplicaHours)
	}
	return out
}

func ratio(a, b float64) *float64 {
	if b <= 0 {
		return nil
	}
	r := a / b
	return &r
}
