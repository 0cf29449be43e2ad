// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// takePoint says how to choose another point of the curve.
const takePoint = "To take one of them: --policy with a file of cpu.method: percentile, cpu.percentile and cpu.margin."

// minutesPerDay turns a share of the time into minutes.
const minutesPerDay = 24 * 60

// explainer writes a page about workloads, for people.
type explainer struct {
	strings.Builder

	report *report
	paint  painter
	width  int
}

// renderExplain writes all that is behind the numbers of a workload.
func renderExplain(s Streams, r *report) error {
	e := &explainer{report: r, paint: paintFor(s.Out), width: terminalWidth(s.Out)}
	if e.width == 0 {
		const page = 110
		e.width = page
	}
	for _, it := range r.items {
		e.workload(it)
	}
	if _, err := io.WriteString(s.Out, e.String()); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	return nil
}

func (e *explainer) workload(it item) {
	e.title(it.workload.Ref.String())
	r := e.report
	e.line("", fmt.Sprintf("%s; policy %s over %s, decided at %s.", plural(int(it.workload.Replicas), "pod"), r.policy,
		series.FormatDuration(r.window), r.now.UTC().Format("2006-01-02 15:04 MST")))
	if r.prices != nil {
		e.line("", savingSentence(r, it))
		for _, left := range it.saving.NotCounted {
			e.line("  ", "not counted: "+left)
		}
	}
	for _, line := range r.sources.lines() {
		e.line("", line)
	}
	for i, c := range it.plan.Containers {
		if i < len(it.savings) {
			e.WriteString("\n")
			e.title(c.Container)
			e.line("  ", containerSaving(r, it, i))
		}
		for _, s := range r.sizes(c) {
			used := it.use[i].memory
			if s.resource == metrics.CPU {
				used = it.use[i].cpu
			}
			var replay *rightsize.Replay
			if i < len(it.evidence) {
				replay = &it.evidence[i].Memory
				if s.resource == metrics.CPU {
					replay = &it.evidence[i].CPU
				}
			}
			e.resource(c, s, used, replay)
		}
	}
}

// containerSaving is what one container saves, over all pods.
func containerSaving(r *report, it item, i int) string {
	s := it.savings[i]
	if s.Counted == 0 {
		return "its saving is not counted: " + strings.Join(s.NotCounted, "; ")
	}
	money := func(split cost.Nanos) string {
		return formatMoney(math.Abs(split.PerMonth())) + " " + r.prices.book.Currency
	}
	text := fmt.Sprintf("%s over %s: %s (%s) and %s (%s)", moneyText(r, s), plural(int(it.workload.Replicas), "pod"),
		coresText(s), money(s.Hourly.CPU), memoryText(s), money(s.Hourly.Memory))
	if len(s.NotCounted) > 0 {
		text += "; not counted: " + strings.Join(s.NotCounted, "; ")
	}
	return text
}

// savingSentence is what the whole workload saves, over all pods.
func savingSentence(r *report, it item) string {
	text := moneyText(r, it.saving)
	return fmt.Sprintf("%s%s over all pods: %s and %s. %s", strings.ToUpper(text[:1]), text[1:], coresText(it.saving), memoryText(it.saving), r.prices.sentence())
}

// moneyText is "saves 3.20 USD a month", or costs.
func moneyText(r *report, s cost.Saving) string {
	monthly, what := s.Hourly.Total().PerMonth(), "saves"
	if monthly < 0 {
		what, monthly = "costs", -monthly
	}
	return fmt.Sprintf("%s %s %s a month", what, formatMoney(monthly), r.prices.book.Currency)
}

func coresText(s cost.Saving) string {
	return strconv.FormatFloat(math.Abs(float64(s.CPU)/1000), 'f', 2, 64) + " cores " + lessOrMore(s.CPU < 0)
}

func memoryText(s cost.Saving) string {
	return formatGiBFine(math.Abs(float64(s.Memory))) + " of memory " + lessOrMore(s.Memory < 0)
}

func lessOrMore(more bool) string {
	if more {
		return "more"
	}
	return "less"
}

func (e *explainer) resource(c rightsize.Recommendation, s size, u use, replay *rightsize.Replay) {
	e.WriteString("\n")
	e.title(fmt.Sprintf("%s, %s: %s", c.Container, s.resource, changeText(s, s.now, s.target)))
	if limit := limitText(c, s); limit != "" {
		e.line("  ", "limit: "+limit)
	}
	if s.status != rightsize.Ready {
		e.line("  ", "no number yet: "+s.sizing.Message)
	}
	e.line("  ", fmt.Sprintf("%.1f days seen in the window, confidence %.0f%%; %s", s.sizing.Days, float64(s.sizing.Confidence)*100, useText(s, u)))
	e.line("  ", "policy: "+e.report.policyText(s))
	if groups := nodeGroupLines(c, s.resource); len(groups) > 0 {
		e.heading("by group of nodes")
		for _, g := range groups {
			e.line("   -  ", g)
		}
	}
	if len(s.sizing.Steps) > 0 {
		e.heading("from use to number")
		for i, step := range s.sizing.Steps {
			e.line(fmt.Sprintf("  %2d. ", i+1), step.String())
		}
	}
	flags := slices.DeleteFunc(slices.Clone(s.sizing.Flags), func(f rightsize.Flag) bool {
		return e.report.fromFiles() && f.Code == rightsize.FlagNoRequest // A file cannot know.
	})
	if len(flags) > 0 {
		e.heading("findings")
		for _, f := range flags {
			e.line("   -  ", string(f.Code)+": "+f.Detail)
		}
	}
	if replay != nil {
		e.replay(s, *replay)
	}
}

func changeText(s size, now, target float64) string {
	written := func(v float64) string {
		if v <= 0 {
			return "not set"
		}
		return s.format(v)
	}
	if s.status != rightsize.Ready {
		return written(now) + " now"
	}
	text := written(now) + " -> " + written(target)
	if percent := percentText(now, target); percent != nothing {
		text += " (" + percent + ")"
	}
	return text
}

// limitText is empty where there is no limit, neither now nor then.
func limitText(c rightsize.Recommendation, s size) string {
	now, target := plain(c.Current.MemoryLimit, 1), plain(c.Target.MemoryLimit, 1)
	if s.resource == metrics.CPU {
		now, target = plain(c.Current.CPULimit, 1000), plain(c.Target.CPULimit, 1000)
	}
	if now <= 0 && target <= 0 {
		return ""
	}
	return changeText(s, now, target)
}

func useText(s size, u use) string {
	if u.samples == 0 {
		return "no use was measured"
	}
	return fmt.Sprintf("%d samples: mean %s, p50 %s, p95 %s, p99 %s, largest %s", u.samples,
		s.about(u.mean), s.about(u.p50), s.about(u.p95), s.about(u.p99), s.about(u.max))
}

// policyText says window, percentile and margin of the policy for the resource.
func (r *report) policyText(s size) string {
	p := r.policyInFull
	if own, known := r.otherPolicies[s.policy]; known {
		p = own
	}
	percent := func(share series.Ratio) string { return fmt.Sprintf("%.3g%%", float64(share)*100) }
	if s.resource == metrics.Memory {
		m := p.Memory
		text := fmt.Sprintf("%s of the daily maxima of %s, margin %s", quantileText(m.Percentile), series.FormatDuration(m.Window), percent(m.Margin))
		if m.MaxMargin > m.Margin {
			text += " to " + percent(m.MaxMargin) + ", more where the days are unlike"
		}
		return text
	}
	c := p.CPU
	text := fmt.Sprintf("%s of %s", quantileText(c.Percentile), series.FormatDuration(c.Window))
	if c.Method == rightsize.Envelope {
		text = fmt.Sprintf("for each day of %s the cheapest point between %s and its maximum, covering %s of the days",
			series.FormatDuration(c.Window), quantileText(c.Percentile), percent(c.Envelope.Cover))
	}
	text += ", margin " + percent(c.Margin)
	if c.Envelope.MaxMargin > c.Margin {
		text += " to " + percent(c.Envelope.MaxMargin) + ", more where the days are unlike"
	}
	return text
}

func quantileText(q series.Ratio) string {
	if q >= 1 {
		return "the largest"
	}
	return fmt.Sprintf("p%.4g", float64(q)*100)
}

// replay writes what would have come of it.
func (e *explainer) replay(s size, r rightsize.Replay) {
	if r.Days == 0 {
		e.heading("replay: no day yet that could be decided from a week before it")
		return
	}
	e.heading(fmt.Sprintf("replay: each of %s from %s to %s, decided from the days before it", plural(r.Days, "day"), r.From, r.To))
	t := newTable()
	last := "DAYS ABOVE LIMIT"
	if s.resource == metrics.CPU {
		last = "THROTTLED"
	}
	header := table.Row{"  POLICY", "SLACK", "MIN/DAY OVER", last, "CHANGES/DAY", "MEAN REQUEST", ""}
	t.AppendHeader(header)
	for _, o := range r.Outcomes {
		limited := nothing
		switch {
		case o.OOMDays != nil:
			limited = fmt.Sprint(*o.OOMDays)
		case o.Throttled != nil:
			limited = shareText(*o.Throttled)
		}
		t.AppendRow(table.Row{
			"  " + o.Policy, shareText(o.Slack), minutesText(o.Violation), limited, fmt.Sprintf("%.2f", o.Changes), s.about(o.Request), "",
		})
	}
	t.SetColumnConfigs(columnConfigs(header, 1, maxNoteWidth))
	e.WriteString(t.Render() + "\n")
	if len(r.Curve) == 0 {
		return
	}
	e.heading("other points: the plain quantile of the window before each day, without margin")
	t = newTable()
	header = table.Row{"  QUANTILE", "SLACK", "MIN/DAY OVER", "LAST REQUEST", ""}
	t.AppendHeader(header)
	for _, p := range r.Curve {
		t.AppendRow(table.Row{"  " + quantileText(p.Quantile), shareText(p.Slack), minutesText(p.Violation), s.about(p.Request), ""})
	}
	t.SetColumnConfigs(columnConfigs(header, 1, maxNoteWidth))
	e.WriteString(t.Render() + "\n")
	if s.resource == metrics.CPU {
		e.line("  ", takePoint)
	}
}

func shareText(r series.Ratio) string { return fmt.Sprintf("%.1f%%", float64(r)*100) }

func minutesText(share series.Ratio) string { return fmt.Sprintf("%.1f", float64(share)*minutesPerDay) }

// title and heading stand out on a terminal.
func (e *explainer) title(text string) { e.WriteString(e.paint.in(colourBold, text) + "\n") }

func (e *explainer) heading(text string) {
	e.WriteString(e.paint.in(colourBold, strings.TrimSuffix(wrapped("  ", text, e.width), "\n")) + "\n")
}

// line writes a sentence behind a mark, broken to the width, its further lines below the first.
func (e *explainer) line(mark, text string) { e.WriteString(wrapped(mark, text, e.width)) }

// wrapped is a sentence behind a mark, broken to so many columns (0: not at all), its further lines below the first.
func wrapped(mark, text string, columns int) string {
	var b strings.Builder
	column := len(mark)
	b.WriteString(mark)
	for i, word := range strings.Fields(text) {
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
