// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"slices"

	"crane.io/crane/pkg/scaling"
)

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
	// Reason is that of the last choice. ExtraReplicas and SparedTime are what the ledger accounted for the choices of the past days, as
	// fractions; see scaling.Choice. Set for "ehpa" only.
	Reason        string   `json:"why,omitempty"`
	ExtraReplicas *float64 `json:"actualExtraReplicas,omitempty"`
	SparedTime    *float64 `json:"actualSparedTime,omitempty"`
}

// Total is the sum of a scaler's scores over series, numbers of pods and start-up times.
type Total struct {
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
	for _, r := range results {
		row := Row{
			Name:                 r.Series,
			Scaler:               r.Scaler,
			Pods:                 r.Pods,
			StartupSeconds:       r.Startup.Seconds(),
			UnderCapacityMinutes: r.UnderCapacity.Minutes(),
			ReplicaHours:         r.ReplicaHours,
			Scalings:             r.Scalings,
			ScoredHours:          r.Scored.Hours(),
			Reason:               r.Choice.Reason,
		}

		if r.Choice != (scaling.Choice{}) {
			row.ExtraReplicas = &r.Choice.Actual.ExtraCost
			row.SparedTime = &r.Choice.Actual.SparedShortage
		}

		report.Series = append(report.Series, row)
	}

	report.Total = totals(report.Series)
	return report
}

// totals sums the rows by scaler, in order of appearance.
func totals(rows []Row) []Total {
	var out []Total
	names := map[string]bool{}
	for _, r := range rows {
		names[r.Name] = true
		i := slices.IndexFunc(out, func(t Total) bool { return t.Scaler == r.Scaler })
		if i < 0 {
			i = len(out)
			out = append(out, Total{Scaler: r.Scaler})
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
