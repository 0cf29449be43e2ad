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
)

// renderCSV writes a line for each container, or for each group, with a header. Amounts are plain numbers: cores,
// bytes, shares and money a month; what is not known is empty. Names of columns do not change and none goes away.
func renderCSV(w io.Writer, r *report) error {
	out := csv.NewWriter(w)
	lines := r.csvContainers
	if r.groupBy != "" {
		lines = r.csvGroups
	}
	for _, line := range lines() {
		if err := out.Write(line); err != nil {
			return fmt.Errorf("writing CSV: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

func (r *report) csvContainers() [][]string {
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
				cellText(w.Namespace), w.APIVersion, w.Kind, cellText(w.Name), strconv.Itoa(int(w.Replicas)), cellText(container.Name), container.Role,
			}
			line = append(line, csvResource(container.CPU)...)
			line = append(line, csvResource(container.Memory)...)
			line = append(line, r.csvSaving(container.Saving)...)
			lines = append(lines, append(line, cellText(r.note(r.items[i], c))))
		}
	}
	return lines
}

// csvResource are the cells of one resource, empty where it is not measured.
func csvResource(r *jsonResource) []string {
	cells := make([]string, 8)
	if r == nil {
		return cells
	}
	recommended := jsonAmounts{}
	if r.Recommended != nil {
		recommended = *r.Recommended
	}
	cells[0] = r.Status
	for i, a := range []*jsonAmount{r.Current.Request, r.Current.Limit, recommended.Request, recommended.Limit} {
		if a != nil {
			cells[i+1] = number(a.Value)
		}
	}
	if r.Change != nil {
		cells[5] = number(*r.Change)
	}
	cells[6], cells[7] = number(r.Evidence.Days), number(r.Evidence.Confidence)
	return cells
}

func (r *report) csvSaving(s *jsonSaving) []string {
	if s == nil || r.prices == nil {
		return make([]string, 4)
	}
	return []string{number(s.CPU), strconv.FormatInt(s.Memory, 10), number(s.Monthly), cellText(r.prices.book.Currency)}
}

func (r *report) csvGroups() [][]string {
	lines := [][]string{{
		r.groupBy, "workloads", "containers", "without_number", "cpu_request_cores", "cpu_recommended_request_cores",
		"memory_request_bytes", "memory_recommended_request_bytes", "saved_cpu_cores", "saved_memory_bytes", "saved_per_month", "currency",
	}}
	for _, g := range r.json().Groups {
		line := []string{
			cellText(g.Name), strconv.Itoa(g.Workloads), strconv.Itoa(g.Containers), strconv.Itoa(g.WithoutNumber),
			number(g.CPU.Current), number(g.CPU.Recommended), number(g.Memory.Current), number(g.Memory.Recommended),
		}
		lines = append(lines, append(line, r.csvSaving(g.Saving)...))
	}
	return lines
}

// number leaves out what is left of binary fractions.
func number(v float64) string {
	const digits = 1e9
	if r := math.Round(v*digits) / digits; math.Abs(v) < digits {
		v = r
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// cellText keeps a spreadsheet from taking text for a formula: a file or a container may be named by anybody.
func cellText(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
