// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"crane.io/crane/internal/component/texttable"
)

// renderCSV writes one row per container or group, with a header. Amounts are numbers in cores, bytes, fractions and
// money per month; unknown values are empty. Column names are stable.
func renderCSV(w io.Writer, r *report) error {
	out := csv.NewWriter(w)
	lines := csvReport{r}.containers
	if r.groupBy != "" {
		lines = csvReport{r}.groupLines
	}

	for _, line := range lines() {
		if err := out.Write(texttable.EscapeCells(line)); err != nil {
			return fmt.Errorf("writing CSV: %w", err)
		}
	}

	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}

	return nil
}

// csvReport lays a report out as lines of CSV.
type csvReport struct{ *report }

func (r csvReport) containers() [][]string {
	header := []string{"namespace", "api_version", "kind", "workload", "replicas", "container", "role"}
	for _, resource := range []string{"cpu_cores", "memory_bytes"} {
		name, unit, _ := strings.Cut(resource, "_")
		header = append(header, name+"_status", name+"_request_"+unit, name+"_limit_"+unit,
			name+"_recommended_request_"+unit, name+"_recommended_limit_"+unit, name+"_change", name+"_days", name+"_confidence")
	}

	lines := [][]string{append(header, "saved_cpu_cores", "saved_memory_bytes", "saved_per_month", "currency", "note")}
	for i, w := range r.json().Workloads {
		for c, container := range w.Containers {
			line := []string{
				w.Namespace, w.APIVersion, w.Kind, w.Name, strconv.Itoa(int(w.Replicas)), container.Name, container.Role,
			}
			line = append(line, csvResourceCells(container.CPU)...)
			line = append(line, csvResourceCells(container.Memory)...)
			line = append(line, r.savingCells(container.Saving)...)
			lines = append(lines, append(line, r.note(r.Items[i], c)))
		}
	}

	return lines
}

// csvResourceCells returns the cells of one resource, empty if it is not measured.
func csvResourceCells(r *jsonResource) []string {
	cells := make([]string, 8)
	if r == nil {
		return cells
	}

	recommended := ptr.Deref(r.Recommended, jsonAmounts{})
	cells[0] = r.Status
	for i, a := range []*jsonAmount{r.Current.Request, r.Current.Limit, recommended.Request, recommended.Limit} {
		if a != nil {
			cells[i+1] = formatNumber(a.Value)
		}
	}

	if r.Change != nil {
		cells[5] = formatNumber(*r.Change)
	}

	cells[6] = formatNumber(r.Evidence.Days)
	cells[7] = formatNumber(r.Evidence.Confidence)
	return cells
}

func (r csvReport) savingCells(s *jsonSaving) []string {
	if s == nil || r.Prices == nil {
		return make([]string, 4)
	}

	return []string{formatNumber(s.CPU), strconv.FormatInt(s.Memory, 10), formatNumber(s.Monthly), r.Prices.Book.Currency}
}

func (r csvReport) groupLines() [][]string {
	lines := [][]string{{
		r.groupBy, "workloads", "containers", "without_number", "cpu_request_cores", "cpu_recommended_request_cores",
		"memory_request_bytes", "memory_recommended_request_bytes", "saved_cpu_cores", "saved_memory_bytes", "saved_per_month", "currency",
	}}

	for _, g := range r.json().Groups {
		line := []string{
			g.Name, strconv.Itoa(g.Workloads), strconv.Itoa(g.Containers), strconv.Itoa(g.WithoutNumber),
			formatNumber(g.CPU.Current), formatNumber(g.CPU.Recommended), formatNumber(g.Memory.Current), formatNumber(g.Memory.Recommended),
		}
		lines = append(lines, append(line, r.savingCells(g.Saving)...))
	}

	return lines
}

// formatNumber removes rounding errors of binary fractions.
func formatNumber(v float64) string {
	const digits = 1e9
	if math.Abs(v) < digits {
		v = math.Round(v*digits) / digits
	}

	return strconv.FormatFloat(v, 'f', -1, 64)
}
