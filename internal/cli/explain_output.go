// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// customPolicyHint explains how to use another point of the curve.
const customPolicyHint = "To use one of them, set cpu.method: percentile, cpu.percentile and cpu.margin in a --policy file."

// minutesPerDay converts a share of time into minutes per day.
const minutesPerDay = 24 * 60

// explainer builds the explanation of workloads as text.
type explainer struct {
	strings.Builder

	report *report
	paint  painter
	width  int
}

// renderExplain writes the data, steps and findings of the recommendations of a workload.
func renderExplain(s Streams, r *report) error {
	e := &explainer{report: r, paint: newPainter(s.Out), width: progressline.TerminalWidth(s.Out)}
	if e.width == 0 {
		const page = 110
		e.width = page
	}

	for _, it := range r.Items {
		e.writeWorkload(it)
	}

	if err := termtext.WriteStyled(s.Out, e.String()); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}

	return nil
}

func (e *explainer) writeWorkload(it sizereport.Item) {
	e.writeTitle(it.Workload.Ref.String())
	r := e.report
	e.writeText("", fmt.Sprintf("%s; policy %s over %s, computed at %s.", units.FormatCount(int(it.Workload.Replicas), "pod"), r.PolicyName,
		units.FormatDuration(r.Window), r.Now.UTC().Format("2006-01-02 15:04 MST")))

	if r.Prices != nil {
		e.writeText("", savingSentence(r, it))
		for _, part := range it.Saving.NotCounted {
			e.writeText("  ", "not counted: "+part)
		}
	}

	for _, line := range r.Sources.Lines() {
		e.writeText("", line)
	}

	// Each container has its saving first, then the reasons of its sizes.
	for i, c := range it.Plan.Containers {
		if i < len(it.Savings) {
			e.WriteString("\n")
			e.writeTitle(c.Container)
			e.writeText("  ", containerSaving(r, it, i))
		}

		for _, s := range r.resourceSizes(c) {
			var replay *rightsize.Replay
			if i < len(it.Evidence) {
				replay = &it.Evidence[i].Memory
				if s.resource == metrics.CPU {
					replay = &it.Evidence[i].CPU
				}
			}

			e.writeResource(it, i, s, it.Usage[i].For(s.resource), replay)
		}
	}
}

// containerSaving returns the saving of one container over all pods.
func containerSaving(r *report, it sizereport.Item, i int) string {
	s := it.Savings[i]
	if s.Counted == 0 {
		return "saving not counted: " + strings.Join(s.NotCounted, "; ")
	}

	money := func(split cost.Nanos) string {
		return formatMoney(math.Abs(split.PerMonth())) + " " + r.Prices.Book.Currency
	}
	text := fmt.Sprintf("%s over %s: %s (%s) and %s (%s)", r.moneyText(s.Hourly.Total()), units.FormatCount(int(it.Workload.Replicas), "pod"),
		coresChangeText(s), money(s.Hourly.CPU), memoryChangeText(s), money(s.Hourly.Memory))

	if len(s.NotCounted) > 0 {
		text += "; not counted: " + strings.Join(s.NotCounted, "; ")
	}

	return text
}

// savingSentence returns the saving of the workload over all pods.
func savingSentence(r *report, it sizereport.Item) string {
	text := r.moneyText(it.Saving.Hourly.Total())
	return fmt.Sprintf("%s%s over all pods: %s and %s. %s", strings.ToUpper(text[:1]), text[1:], coresChangeText(it.Saving), memoryChangeText(it.Saving), r.Prices.Description())
}

// moneyText returns for example "saves 3.20 USD a month", or "costs" for a negative saving.
func (r *report) moneyText(saving cost.Nanos) string {
	monthly := saving.PerMonth()
	verb := "saves"
	if monthly < 0 {
		verb = "costs"
		monthly = -monthly
	}

	return fmt.Sprintf("%s %s %s a month", verb, formatMoney(monthly), r.Prices.Book.Currency)
}

func coresChangeText(s cost.Saving) string {
	return strconv.FormatFloat(math.Abs(float64(s.CPU)/1000), 'f', 2, 64) + " cores " + lessOrMore(s.CPU < 0)
}

func memoryChangeText(s cost.Saving) string {
	return formatGiBFine(math.Abs(float64(s.Memory))) + " of memory " + lessOrMore(s.Memory < 0)
}

func lessOrMore(more bool) string {
	if more {
		return "more"
	}

	return "less"
}

func (e *explainer) writeResource(it sizereport.Item, i int, s resourceSize, u sizereport.UsageSummary, replay *rightsize.Replay) {
	c := it.Plan.Containers[i]
	e.WriteString("\n")
	e.writeTitle(fmt.Sprintf("%s, %s: %s", c.Container, s.resource, changeText(s, s.current, s.target)))

	if limit := limitText(c, s); limit != "" {
		e.writeText("  ", "limit: "+limit)
	}
	if s.status != rightsize.Ready {
		e.writeText("  ", "no recommendation yet: "+s.sizing.Message)
	}

	e.writeText("  ", fmt.Sprintf("%.1f days of history in the window, confidence %.0f%%; %s", s.sizing.Days, float64(s.sizing.Confidence)*100, useText(s, u)))
	e.writeText("  ", "policy: "+e.report.policyText(s))

	if groups := e.report.nodeGroupLines(it, i, s.resource); len(groups) > 0 {
		e.writeHeading("by node group")
		for _, g := range groups {
			e.writeText("   -  ", g)
		}
	}

	if len(s.sizing.Steps) > 0 {
		e.writeHeading("steps from usage to recommendation")
		for i, step := range s.sizing.Steps {
			e.writeText(fmt.Sprintf("  %2d. ", i+1), step.String())
		}
	}

	flags := slices.DeleteFunc(slices.Clone(s.sizing.Flags), func(f rightsize.Flag) bool {
		return e.report.FromFiles() && f.Code == rightsize.FlagNoRequest // Files contain no requests.
	})
	if len(flags) > 0 {
		e.writeHeading("findings")
		for _, f := range flags {
			e.writeText("   -  ", string(f.Code)+": "+f.Detail)
		}
	}

	if s.sizing.Calibration != nil {
		e.writeCalibration(*s.sizing.Calibration)
	}
	if replay != nil {
		e.writeReplay(s, *replay)
	}
}

// writeCalibration writes the results of the factors in the replay of the workload's own days.
func (e *explainer) writeCalibration(c calibrate.Calibration) {
	e.writeHeading("calibration: " + c.Summary())
	e.WriteString(c.Plot())
}

func changeText(s resourceSize, now, target float64) string {
	format := func(v float64) string {
		if v <= 0 {
			return "not set"
		}

		return s.format(v)
	}

	if s.status != rightsize.Ready {
		return format(now) + " now"
	}

	text := format(now) + " -> " + format(target)
	if percent := percentText(now, target); percent != emptyCell {
		text += " (" + percent + ")"
	}

	return text
}

// limitText returns the change of the limit, empty if there is no limit before and after.
func limitText(c rightsize.Recommendation, s resourceSize) string {
	now := floatValue(c.Current.MemoryLimit, 1)
	target := floatValue(c.Target.MemoryLimit, 1)
	if s.resource == metrics.CPU {
		now = floatValue(c.Current.CPULimit, 1000)
		target = floatValue(c.Target.CPULimit, 1000)
	}

	if now <= 0 && target <= 0 {
		return ""
	}

	return changeText(s, now, target)
}

func useText(s resourceSize, u sizereport.UsageSummary) string {
	if u.Samples == 0 {
		return "no usage was measured"
	}

	return fmt.Sprintf("%d samples: mean %s, p50 %s, p95 %s, p99 %s, maximum %s", u.Samples,
		s.formatMeasured(u.Mean), s.formatMeasured(u.P50), s.formatMeasured(u.P95), s.formatMeasured(u.P99), s.formatMeasured(u.Max))
}

// policyText returns the window, percentile and margin of the policy for the resource.
func (r *report) policyText(s resourceSize) string {
	p := r.DefaultPolicy
	if policy, ok := r.OtherPolicies[s.policy]; ok {
		p = policy
	}

	// The text describes the formula of the method, with the numbers of this policy.
	percent := func(share units.Ratio) string { return fmt.Sprintf("%.3g%%", float64(share)*100) }
	if s.resource == metrics.Memory {
		m := p.Memory
		text := fmt.Sprintf("%s of the daily maxima of %s, margin %s", quantileText(m.Percentile), units.FormatDuration(m.Window), percent(m.Margin))
		if m.MaxMargin > m.Margin {
			text += " to " + percent(m.MaxMargin) + ", higher if days differ"
		}

		return text
	}

	c := p.CPU
	text := fmt.Sprintf("%s of %s", quantileText(c.Percentile), units.FormatDuration(c.Window))
	if c.Method == rightsize.Envelope {
		text = fmt.Sprintf("lowest-cost point of each day of %s between %s and its maximum, covering %s of the days",
			units.FormatDuration(c.Window), quantileText(c.Percentile), percent(c.Envelope.Cover))
	}

	if c.Method == rightsize.Calibrated {
		return text + fmt.Sprintf(" times the cheapest factor that left at most %s minutes a day above the request in a replay", minutesText(c.Target))
	}

	text += ", margin " + percent(c.Margin)
	if c.Envelope.MaxMargin > c.Margin {
		text += " to " + percent(c.Envelope.MaxMargin) + ", higher if days differ"
	}

	return text
}

func quantileText(q units.Ratio) string {
	if q >= 1 {
		return "the maximum"
	}

	return fmt.Sprintf("p%.4g", float64(q)*100)
}

// writeReplay writes the results of the replay.
func (e *explainer) writeReplay(s resourceSize, r rightsize.Replay) {
	if r.Days == 0 {
		e.writeHeading("replay: not enough history, a day needs a week of history before it")
		return
	}

	e.writeHeading(fmt.Sprintf("replay: each of %s from %s to %s, computed from the preceding days", units.FormatCount(r.Days, "day"), r.From, r.To))
	t := texttable.New()

	last := "DAYS ABOVE LIMIT"
	if s.resource == metrics.CPU {
		last = "THROTTLED"
	}

	header := table.Row{"  POLICY", "SLACK", "MIN/DAY OVER", last, "CHANGES/DAY", "MEAN REQUEST", ""}
	t.AppendHeader(header)

	for i, o := range r.Outcomes {
		t.AppendRow(replayRow(s.outcomeCells(i, o)))
	}

	t.SetColumnConfigs(columnConfigs(header, 1, maxNoteWidth))
	e.WriteString(t.Render() + "\n")

	// The curve shows what other percentiles would have cost.
	if len(r.Curve) == 0 {
		return
	}

	e.writeHeading("other points: the quantile of the window before each day, without margin")
	t = texttable.New()
	header = table.Row{"  QUANTILE", "SLACK", "MIN/DAY OVER", "LAST REQUEST", ""}
	t.AppendHeader(header)

	for _, p := range r.Curve {
		t.AppendRow(replayRow(s.curveCells(p)))
	}

	t.SetColumnConfigs(columnConfigs(header, 1, maxNoteWidth))
	e.WriteString(t.Render() + "\n")

	if s.resource == metrics.CPU {
		e.writeText("  ", customPolicyHint)
	}
}

// replayRow indents the first cell and adds an empty note.
func replayRow(cells []string) table.Row {
	row := table.Row{"  " + cells[0]}
	for _, cell := range cells[1:] {
		row = append(row, cell)
	}

	return append(row, "")
}

// outcomeCells returns the policy of the i-th outcome and its figures. The first is that of the recommendation, and says so if an
// autoscaler keeps the current request instead.
func (s resourceSize) outcomeCells(i int, o rightsize.Outcome) []string {
	policy := o.Policy
	if i == 0 && slices.ContainsFunc(s.sizing.Flags, func(f rightsize.Flag) bool { return f.Code == rightsize.FlagAutoscaled }) {
		policy += ": not applied, an autoscaler holds the request at " + s.format(s.current)
	}

	limited := emptyCell
	switch {
	case o.OOMDays != nil:
		limited = fmt.Sprint(*o.OOMDays)
	case o.Throttled != nil:
		limited = units.FormatPercent(*o.Throttled)
	}

	return []string{policy, units.FormatPercent(o.Slack), minutesText(o.Violation), limited, fmt.Sprintf("%.2f", o.Changes), s.formatMeasured(o.Request)}
}

// curveCells returns the quantile of a point of the curve and its figures.
func (s resourceSize) curveCells(p rightsize.CurvePoint) []string {
	return []string{quantileText(p.Quantile), units.FormatPercent(p.Slack), minutesText(p.Violation), s.formatMeasured(p.Request)}
}

func minutesText(share units.Ratio) string { return fmt.Sprintf("%.1f", float64(share)*minutesPerDay) }

// writeTitle and writeHeading write bold lines.
func (e *explainer) writeTitle(text string) {
	e.WriteString(e.paint.paint(colorBold, termtext.Line(text)) + "\n")
}

func (e *explainer) writeHeading(text string) {
	e.WriteString(e.paint.paint(colorBold, strings.TrimSuffix(wrapText("  ", text, e.width), "\n")) + "\n")
}

// writeText writes text after a mark, wrapped to the width, with further lines indented.
func (e *explainer) writeText(mark, text string) { e.WriteString(wrapText(mark, text, e.width)) }

// wrapText returns text without control characters after a mark, wrapped to columns (0: not wrapped), with further lines indented.
func wrapText(mark, text string, columns int) string {
	var b strings.Builder
	column := len(mark)
	b.WriteString(mark)

	for i, word := range strings.Fields(text) {
		word = termtext.Line(word)
		if i > 0 {
			if columns > 0 && column+1+len(word) > columns {
				b.WriteString("\n" + strings.Repeat(" ", len(mark)))
				column = len(mark)
			} else {
				b.WriteString(" ")
				column++
			}
		}

		b.WriteString(word)
		column += len(word)
	}

	b.WriteString("\n")
	return b.String()
}
