// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
)

// targetSet implements the target API for targets that are not scraped: their samples arrive by Append.
type targetSet struct {
	config *config.Config
	active map[string][]*scrape.Target
}

func newTargetSet(o *Options) (*targetSet, error) {
	cfg, err := config.Load(configYAML(o), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("promserver: loading the configuration: %w", err)
	}

	t := &targetSet{config: cfg, active: map[string][]*scrape.Target{}}
	interval := model.Duration(o.ScrapeInterval).String()
	for _, target := range o.Targets {
		// The labels are those that Prometheus itself sets before a scrape.
		b := labels.NewBuilder(labels.EmptyLabels())
		b.Set(model.AddressLabel, target.Instance).Set(model.InstanceLabel, target.Instance).Set(model.JobLabel, target.Job)
		b.Set(model.SchemeLabel, "http").Set(model.MetricsPathLabel, "/metrics")
		b.Set(model.ScrapeIntervalLabel, interval).Set(model.ScrapeTimeoutLabel, interval)

		pool, err := t.ScrapePoolConfig(target.Job)
		if err != nil {
			return nil, fmt.Errorf("promserver: reading the job of target %s: %w", target.Instance, err)
		}

		st := scrape.NewTarget(b.Labels(), pool, model.LabelSet{model.AddressLabel: model.LabelValue(target.Instance)}, nil)
		st.SetMetadataStore(families(target.Metadata))
		st.Report(o.Now(), 0, nil)
		t.active[target.Job] = append(t.active[target.Job], st)
	}

	return t, nil
}

// configYAML returns the configuration of a server that scrapes the targets.
func configYAML(o *Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global:\n  scrape_interval: %s\n  evaluation_interval: %[1]s\n", model.Duration(o.ScrapeInterval))

	jobs := map[string][]string{}
	for _, t := range o.Targets {
		jobs[t.Job] = append(jobs[t.Job], t.Instance)
	}

	if len(jobs) == 0 {
		return b.String()
	}

	b.WriteString("scrape_configs:\n")
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		fmt.Fprintf(&b, "- job_name: %q\n  static_configs:\n  - targets:\n", job)
		for _, instance := range jobs[job] {
			fmt.Fprintf(&b, "    - %q\n", instance)
		}
	}

	return b.String()
}

func (t *targetSet) report(ts time.Time) {
	for _, job := range t.active {
		for _, target := range job {
			target.Report(ts, time.Millisecond, nil)
		}
	}
}

// TargetsActive implements v1.TargetRetriever.
func (t *targetSet) TargetsActive() map[string][]*scrape.Target { return t.active }

// TargetsDropped implements v1.TargetRetriever.
func (t *targetSet) TargetsDropped() map[string][]*scrape.Target {
	return map[string][]*scrape.Target{}
}

// TargetsDroppedCounts implements v1.TargetRetriever.
func (t *targetSet) TargetsDroppedCounts() map[string]int { return map[string]int{} }

// ScrapePoolConfig implements v1.TargetRetriever.
func (t *targetSet) ScrapePoolConfig(name string) (*config.ScrapeConfig, error) {
	for _, c := range t.config.ScrapeConfigs {
		if c.JobName == name {
			return c, nil
		}
	}

	return nil, fmt.Errorf("no scrape pool %q", name)
}

// ScrapePools implements v1.ScrapePoolsRetriever.
func (t *targetSet) ScrapePools() []string { return slices.Sorted(maps.Keys(t.active)) }

// families implements scrape.MetricMetadataStore.
type families []Metadata

func (f families) metadata(m Metadata) scrape.MetricMetadata {
	return scrape.MetricMetadata{MetricFamily: m.Name, Type: model.MetricType(m.Type), Help: m.Help}
}

// ListMetadata implements scrape.MetricMetadataStore.
func (f families) ListMetadata() []scrape.MetricMetadata {
	out := make([]scrape.MetricMetadata, 0, len(f))
	for _, m := range f {
		out = append(out, f.metadata(m))
	}

	return out
}

// GetMetadata implements scrape.MetricMetadataStore.
func (f families) GetMetadata(name string) (scrape.MetricMetadata, bool) {
	for _, m := range f {
		if m.Name == name {
			return f.metadata(m), true
		}
	}

	return scrape.MetricMetadata{}, false
}

// SizeMetadata implements scrape.MetricMetadataStore.
func (f families) SizeMetadata() int {
	n := 0
	for _, m := range f {
		n += len(m.Name) + len(m.Type) + len(m.Help)
	}

	return n
}

// LengthMetadata implements scrape.MetricMetadataStore.
func (f families) LengthMetadata() int { return len(f) }
