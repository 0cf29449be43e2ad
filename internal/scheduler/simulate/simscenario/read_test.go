// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simscenario_test

import (
	"errors"
	"strings"
	"testing"

	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

func TestBuiltinScenarios(t *testing.T) {
	names := simscenario.Names()
	if len(names) < 4 {
		t.Fatalf("Names() = %v, want four or more", names)
	}

	for _, name := range names {
		s, err := simscenario.Named(name)
		if err != nil {
			t.Errorf("Named(%q): %v, want no error", name, err)
		} else if s.Name != name || s.Description == "" {
			t.Errorf("Named(%q) is called %q with description %q, want its own name and a description", name, s.Name, s.Description)
		}
	}

	if _, err := simscenario.Named("nothing"); !errors.Is(err, simscenario.ErrUnknown) {
		t.Errorf("Named(nothing): %v, want ErrUnknown", err)
	}
}

const good = `
name: small
description: For tests.
nodes: {count: 4, shapes: [{cpu: "4", memory: 8Gi, weight: 1}]}
load: {requested: 0.5, used: 0.3}
workloads:
  count: 2
  requests: [{cpu: 500m, memory: 512Mi, weight: 1}]
  usePerRequest: {sigma: 0.5, max: 3}
  podSpread: 0.2
  memoryPerRequest: 0.5
  noise: {share: 0.1, period: 5m}
  diurnal: {share: 0, amplitude: 0, peak: 0s, jitter: 0s}
  lifetime: {mean: 30m, sigma: 0.5}
  batch: 2
  startup: 10s
time: {start: 8h, warmUp: 10m, measure: 20m}
metrics: {scrape: 30s, delay: 30s}
`

// TestBadScenarios checks that an error has the path of the field.
func TestBadScenarios(t *testing.T) {
	if _, err := simscenario.Parse([]byte(good)); err != nil {
		t.Fatalf("Parse of the valid scenario: %v, want no error", err)
	}

	for name, test := range map[string]struct{ from, to, want string }{
		"unknown field":    {"count: 4", "cout: 4", `"nodes.cout"`},
		"unknown below":    {"share: 0.1", "shar: 0.1", `"workloads.noise.shar"`},
		"twice":            {"name: small", "name: small\nname: other", `"name" already set`},
		"no nodes":         {"count: 4", "count: 1", "nodes.count"},
		"no shape":         {"shapes: [{cpu: \"4\", memory: 8Gi, weight: 1}]", "shapes: []", "nodes.shapes: Required"},
		"list as mapping":  {"shapes: [{cpu: \"4\", memory: 8Gi, weight: 1}]", "shapes: {a: 1}", "nodes.shapes"},
		"weight 0":         {"memory: 8Gi, weight: 1", "memory: 8Gi, weight: 0", "nodes.shapes[0].weight"},
		"negative CPU":     {`cpu: "4"`, `cpu: "-4"`, "nodes.shapes[0].cpu"},
		"no quantity":      {`cpu: "4"`, `cpu: "four"`, "nodes.shapes[0].cpu"},
		"over full":        {"requested: 0.5", "requested: 1.5", "load.requested"},
		"no number":        {"used: 0.3", "used: .nan", "NaN"},
		"text as number":   {"used: 0.3", "used: much", "load.used"},
		"lifetime 0":       {"mean: 30m", "mean: 0s", "workloads.lifetime.mean"},
		"no duration":      {"mean: 30m", "mean: long", "workloads.lifetime.mean"},
		"batch 0":          {"batch: 2", "batch: 0", "workloads.batch"},
		"loss 2":           {"delay: 30s}", "delay: 30s, loss: 2}", "metrics.loss"},
		"dead 2":           {"delay: 30s}", "delay: 30s, dead: 2}", "metrics.dead"},
		"negative delay":   {"delay: 30s}", "delay: -30s}", "metrics.delay"},
		"outage of 0":      {"delay: 30s}", "delay: 30s, outages: [{from: 0s, for: 0s}]}", "metrics.outages[0].for"},
		"too long":         {"measure: 20m", "measure: 1000h", "time.measure"},
		"path of a trace":  {"name: small", "name: small\ntrace: {nodes: ../x, pods: b.csv, from: 0s, compress: 1}", "trace.nodes"},
		"nodes and traces": {"name: small", "name: small\ntrace: {nodes: a.csv, pods: b.csv, from: 0s, compress: 1}", "nodes: Invalid"},
		"no name":          {"name: small", "name: ''", "name: Required"},
	} {
		text := strings.Replace(good, test.from, test.to, 1)
		if text == good {
			t.Fatalf("%s: replacing %q changes nothing, want another text", name, test.from)
		}

		if _, err := simscenario.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Parse: %v, want an error with %q", name, err, test.want)
		}
	}

	for _, text := range []string{"", "  \n", "[]", "a: b: c"} {
		if _, err := simscenario.Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%q) returned no error, want one", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := simscenario.Parse([]byte(text))
		if err == nil && s.Validate().ToAggregate() != nil {
			t.Fatalf("Parse(%q) returned an invalid scenario, want an error", text)
		}
	})
}
