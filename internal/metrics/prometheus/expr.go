// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
)

// Usage metrics of cAdvisor.
const (
	cpuMetric    = "container_cpu_usage_seconds_total"
	memoryMetric = "container_memory_working_set_bytes"
	// cacheMetric is active_file, the page cache that is part of the working set. Recent kubelets export it; Kubernetes 1.36 (cAdvisor
	// 0.56) is one of them.
	cacheMetric = "container_memory_total_active_file_bytes"
	rssMetric   = "container_memory_rss"
)

// minRateScrapes is the number of scrape intervals in the window of a rate: with four, one scrape can be missed and another be late, and
// two samples are left.
const minRateScrapes = 4

// byContainerLabels aggregates series that describe the same container.
const byContainerLabels = "max by (namespace, pod, container)"

// usageMetric returns the metric that measures a resource.
func usageMetric(r metrics.UsageKind) (string, error) {
	switch r {
	case metrics.CPU:
		return cpuMetric, nil
	case metrics.Memory:
		return memoryMetric, nil
	case metrics.UnreclaimableMemory:
		return cacheMetric, nil
	case metrics.AnonymousMemory:
		return rssMetric, nil
	}

	return "", fmt.Errorf("resource %q: must be %s, %s, %s or %s", r, metrics.CPU, metrics.Memory, metrics.UnreclaimableMemory, metrics.AnonymousMemory)
}

// expressions builds PromQL expressions.
type expressions struct {
	// extra matchers are added to each selector.
	extra []Matcher
}

// selector returns a selector with the given matchers and the extra ones. Series whose identifying labels the scrape renamed are left
// out: their labels of these names describe the exporter.
func (x expressions) selector(metric string, matchers ...Matcher) string {
	all := append(slices.Clip(matchers), x.extra...)
	for _, name := range identifyingLabels(metric) {
		all = append(all, Matcher{Label: renamedPrefix + name, Op: "=", Value: ""})
	}

	return selector(metric, all...)
}

// renamedPrefix is the prefix that Prometheus adds to a label of a sample that the target has as well, unless the scrape honors labels.
const renamedPrefix = "exported_"

// identifyingLabels returns the labels of a metric that its exporter sets to the object that it describes, which is another than the
// exporter. The pods of applications describe themselves.
func identifyingLabels(metric string) []string {
	switch {
	case metric == podInfoMetric:
		return []string{"namespace", "pod", "node"}
	case strings.HasPrefix(metric, "kube_node_"):
		return []string{"node"}
	case strings.HasPrefix(metric, "kube_endpoint_"):
		return []string{"namespace", "endpoint"}
	case strings.HasPrefix(metric, "kube_"), strings.HasPrefix(metric, "container_"):
		return []string{"namespace", "pod", "container"}
	}

	return nil
}

// containers returns a selector of real containers, without the cgroups of pods and nodes and without pause containers.
func (x expressions) containers(metric string, more ...Matcher) string {
	return x.selector(metric, append([]Matcher{
		{Label: "container", Op: "!=", Value: ""},
		{Label: "container", Op: "!=", Value: "POD"},
	}, more...)...)
}

// anyUsage returns a selector of the CPU and memory of real containers.
func (x expressions) anyUsage(more ...Matcher) string {
	matchers := append([]Matcher{OneOf("__name__", []string{cpuMetric, memoryMetric})}, more...)
	for _, name := range identifyingLabels(cpuMetric) {
		matchers = append(matchers, Matcher{Label: renamedPrefix + name, Op: "=", Value: ""})
	}

	return x.containers("", matchers...)
}

// latest returns the largest value of a metric within the inventory window, by some labels.
func (x expressions) latest(metric, groupLabels string, matchers ...Matcher) string {
	return fmt.Sprintf("max by (%s) (last_over_time(%s[%s]))", groupLabels, x.selector(metric, matchers...), promDuration(inventoryWindow))
}

// usage returns the expression whose value at t is the usage in (t-step, t]. The package comment gives the reasons.
func (x expressions) usage(metric string, g gridPlan, more ...Matcher) string {
	sel := x.containers(metric, more...)
	if metric == cacheMetric {
		// Both series are of one scrape and are compared at each: a cache that fills or is dropped between two scrapes takes the working set
		// with it. They are matched by all labels, so that a restarted container, which has a new id, is not compared with the earlier one.
		return fmt.Sprintf("clamp_min(%s (max_over_time((%s - %s)[%s:%s])), 0)",
			byContainerLabels, x.containers(memoryMetric, more...), sel, openRange(g.window), promDuration(g.pairing))
	}

	over := func(window time.Duration) string {
		if metric == cpuMetric {
			return fmt.Sprintf("%s (sum without (cpu) (rate(%s[%s])))", byContainerLabels, sel, openRange(window))
		}

		return fmt.Sprintf("%s (max_over_time(%s[%s]))", byContainerLabels, sel, openRange(window))
	}
	if g.slowWindow == 0 {
		return over(g.window)
	}

	// Containers that are scraped less often have a longer window of their own, as long as there are samples.
	return fmt.Sprintf("(%s or (%s and %s (last_over_time(%s[%s]))))", over(g.window), over(g.slowWindow), byContainerLabels, sel, promDuration(g.slowAge))
}

// openRange returns a range of d that excludes its start. Before version 3, Prometheus included samples at both ends, so that a sample on
// the border between two steps belonged to both; a range shorter by a millisecond gives the same result in all versions.
func openRange(d time.Duration) string {
	return strconv.FormatInt((d-time.Millisecond).Milliseconds(), 10) + "ms"
}

// promDuration formats d for a range selector.
func promDuration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds()/1000, 10) + "s" }

// gridPlan is the grid of a request: one value per step, each computed from the samples of the window before its end.
type gridPlan struct {
	step, window time.Duration
	// slowWindow is the window of containers without a value in the other one, which need a sample within slowAge; 0 for none.
	slowWindow, slowAge time.Duration
	// pairing is the interval at which samples of two metrics are compared. It is set for UnreclaimableMemory only.
	pairing time.Duration
}

// minPairing bounds the number of comparisons of a server that is scraped more often.
const minPairing = 15 * time.Second

// hourlyGrid returns the grid of a resource with one value per hour.
func hourlyGrid(metric string, scrape time.Duration) gridPlan {
	g := gridPlan{step: time.Hour, window: time.Hour}
	if metric == cacheMetric {
		g.pairing = max(minPairing, scrape)
	}

	return g
}

// planGrid chooses step and window. A requested step is kept; the window then covers at least minRateScrapes scrapes for CPU, and two for
// memory, so that a late scrape leaves no gap.
func planGrid(metric string, scrape scrapeIntervals, requested time.Duration) gridPlan {
	step := requested
	if step == 0 {
		step = defaultStep(scrape.usual)
	}

	scrapes := time.Duration(2)
	if metric == cpuMetric {
		scrapes = minRateScrapes
	}

	g := gridPlan{step: step, window: max(step, scrapes*scrape.usual)}
	if slow := scrapes * scrape.slow; slow > g.window {
		g.slowWindow = slow
		g.slowAge = 2 * scrape.slow
	}

	return g
}

// defaultStep returns at least a minute and minRateScrapes scrapes, rounded up to a round part of an hour, so that a day has a whole number
// of steps and each sample counts once. A scrape interval of 15s gives 1m, 30s gives 2m, 60s gives 5m.
func defaultStep(scrape time.Duration) time.Duration {
	return partOfHour(max(time.Minute, minRateScrapes*scrape))
}

// partOfHour rounds a duration up to a round part of an hour; an hour is the maximum.
func partOfHour(minimum time.Duration) time.Duration {
	for _, minutes := range []time.Duration{1, 2, 5, 10, 15, 20, 30, 60} {
		if step := minutes * time.Minute; step >= minimum {
			return step
		}
	}

	return time.Hour
}

const day = 24 * time.Hour

// checkStep accepts 0 and whole seconds that divide a day.
func checkStep(step time.Duration) error {
	if step < 0 || step%time.Second != 0 || step > 0 && day%step != 0 {
		return fmt.Errorf("step %v: must be whole seconds that divide a day, such as 1m, 5m or 1h", step)
	}

	return nil
}

// Matcher is one label matcher of a selector.
type Matcher struct {
	Label string
	// Op is one of =, !=, =~ and !~.
	Op    string
	Value string
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Validate checks the name, the operator and, for =~ and !~, the regular expression.
func (m Matcher) Validate() error {
	if !labelName.MatchString(m.Label) {
		return fmt.Errorf("label %q: a label name has letters, digits and underscores only", m.Label)
	}

	switch m.Op {
	case "=", "!=":
	case "=~", "!~":
		if _, err := regexp.Compile(m.Value); err != nil {
			return fmt.Errorf("label %s: %w", m.Label, err)
		}
	default:
		return fmt.Errorf("label %s: operator %q: must be =, !=, =~ or !~", m.Label, m.Op)
	}

	return nil
}

// String returns the matcher in PromQL. The value is quoted, so that quotes, braces and backslashes in it have no effect.
func (m Matcher) String() string { return m.Label + m.Op + strconv.Quote(m.Value) }

// ParseMatchers parses "k=v,k2=v2", the format of gocrane's --extension-labels. It also accepts the other operators, and values in double
// quotes, which may contain commas. A value without quotes extends to the next comma and may contain "=".
func ParseMatchers(text string) ([]Matcher, error) {
	var out []Matcher
	for rest := strings.TrimSpace(text); rest != ""; {
		i := strings.IndexAny(rest, "=!")
		if i < 0 {
			return nil, fmt.Errorf("label condition %q: must be name=value", rest)
		}

		m := Matcher{Label: strings.TrimSpace(rest[:i])}
		m.Op, rest = cutOperator(rest[i:])
		rest = strings.TrimLeft(rest, " ")
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("label %s: value %s: a quote without its end", m.Label, rest)
			}

			if m.Value, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("label %s: value %s: %w", m.Label, quoted, err)
			}

			// A quoted value ends at its quote, so that it may contain commas.
			rest = strings.TrimLeft(rest[len(quoted):], " ")
			if rest != "" && rest[0] != ',' {
				return nil, fmt.Errorf("label %s: %q after the value: expected a comma", m.Label, rest)
			}

			rest = strings.TrimPrefix(rest, ",")
		} else {
			m.Value, rest, _ = strings.Cut(rest, ",")
			m.Value = strings.TrimSpace(m.Value)
		}

		if err := m.Validate(); err != nil {
			return nil, err
		}

		out = append(out, m)
		rest = strings.TrimSpace(rest)
	}

	return out, nil
}

// cutOperator splits text after its operator.
func cutOperator(text string) (op, rest string) {
	for _, op := range []string{"=~", "!~", "!=", "="} {
		if after, ok := strings.CutPrefix(text, op); ok {
			return op, after
		}
	}

	return text[:1], text[1:]
}

// selector returns metric{matchers...}; an empty metric gives the braces alone.
func selector(metric string, matchers ...Matcher) string {
	var b strings.Builder
	b.WriteString(metric)
	b.WriteByte('{')

	for i, m := range matchers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.String())
	}

	b.WriteByte('}')
	return b.String()
}

// OneOf returns a matcher of a label for a list of literal values.
func OneOf(label string, values []string) Matcher {
	if len(values) == 1 {
		return Matcher{Label: label, Op: "=", Value: values[0]}
	}

	return Matcher{Label: label, Op: "=~", Value: anyOf(values)}
}

// metricName is the syntax of metric names that need no quotes.
var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
