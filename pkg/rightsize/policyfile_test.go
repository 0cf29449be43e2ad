// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"strings"
	"testing"

	"crane.io/crane/pkg/settings"
)

// parsePolicy returns the default of a policy file.
func parsePolicy(data []byte) (Policy, error) {
	set, err := ParsePolicySet(data)
	return set.Default, err
}

func TestParsePolicy(t *testing.T) {
	p, err := parsePolicy([]byte(`{"name": "web", "base": "latency-sensitive", "minHistory": "3d",
		"cpu": {"method": "percentile", "percentile": 0.99, "margin": 0.15, "window": "7d", "floor": "50m", "ceiling": "8", "limit": {"mode": "none"}},
		"memory": {"margin": 0.2, "ceiling": "8Gi", "limit": {"headroom": 0.5, "mode": "headroom"}, "oom": {"ratio": 1.3}},
		"specifications": ["0.5c1g", "1c2g"]}`))
	if err != nil {
		t.Fatal(err)
	}

	if p.Name != "web" || p.MinHistory != 3*day || p.CPU.Method != Percentile || p.CPU.Envelope != (EnvelopePolicy{}) || p.CPU.Window != 7*day ||
		p.CPU.Floor != 50 || p.CPU.Ceiling != 8000 || p.CPU.Limit.Mode != LimitNone || p.Memory.Ceiling != 8<<30 ||
		p.Memory.Limit != (LimitPolicy{LimitHeadroom, 0.5}) || p.Memory.OOM.Ratio != 1.3 || p.Memory.OOM.Cap != 2 || len(p.Specifications) != 2 {
		t.Errorf("parsePolicy = %+v, want the fields of the file over those of latency-sensitive", p)
	}
	if p, err := parsePolicy([]byte(`{"name": "like-default"}`)); err != nil || p.CPU != mustPolicy(t, DefaultPolicy).CPU {
		t.Errorf("parsePolicy of a name alone = %+v, %v; want the CPU of the default policy", p, err)
	}
}

func TestParsePolicyRefuses(t *testing.T) {
	for name, c := range map[string]struct{ file, path, want string }{
		"no object":        {`[]`, "", "not a JSON object"},
		"no name":          {`{}`, "name", "must be given"},
		"unknown base":     {`{"name":"a","base":"gold"}`, "base", "default, latency-sensitive, batch"},
		"unknown field":    {`{"name":"a","cpu":{"percentil":0.9}}`, "cpu.percentil", "did you mean percentile?"},
		"text for number":  {`{"name":"a","cpu":{"margin":"15%"}}`, "cpu.margin", "must be a number"},
		"number for text":  {`{"name":"a","memory":{"window":7}}`, "memory.window", "must be a duration"},
		"half a day":       {`{"name":"a","memory":{"window":"36h"}}`, "memory.window", "whole number of days"},
		"percentile of 95": {`{"name":"a","cpu":{"percentile":95}}`, "cpu.percentile", "at most 1"},
		"zero floor":       {`{"name":"a","memory":{"floor":"0"}}`, "memory.floor", "above zero"},
		"below the floor":  {`{"name":"a","cpu":{"floor":"2","ceiling":"1"}}`, "cpu.ceiling", "at least the floor"},
		"negative amount":  {`{"name":"a","cpu":{"floor":"-1"}}`, "cpu.floor", "not below zero"},
		"contradiction":    {`{"name":"a","cpu":{"method":"percentile","envelope":{"cover":0.9}}}`, "cpu.envelope", "contradicts the method"},
		"idle headroom":    {`{"name":"a","cpu":{"limit":{"mode":"none","headroom":0.5}}}`, "cpu.limit.headroom", "contradicts the mode"},
		"unknown mode":     {`{"name":"a","cpu":{"limit":{"mode":"double"}}}`, "cpu.limit.mode", "equal-to-request"},
		"given twice":      {`{"name":"a","cpu":{"margin":0.1,"floor":"1","margin":0.2}}`, "cpu.margin", "more than once"},
		"section twice":    {`{"name":"a","cpu":{"margin":0.1},"cpu":{}}`, "cpu", "more than once"},
		"null section":     {`{"name":"a","cpu":null}`, "cpu", "must be an object"},
		"bad size":         {`{"name":"a","specifications":["1c"]}`, "specifications", `entry "1c"`},
		"cap below ratio":  {`{"name":"a","memory":{"oom":{"ratio":1.5,"cap":1.2}}}`, "memory.oom.cap", "at least memory.oom.ratio"},
	} {
		_, err := parsePolicy([]byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: parsePolicy(%s): error %v, want %q in it", name, c.file, err, c.want)
			continue
		}

		var field *settings.FieldError
		if c.path != "" && (!errors.As(err, &field) || field.Path != c.path) {
			t.Errorf("%s: path %v, want %s (%v)", name, field, c.path, err)
		}
	}
}

func TestParsePolicyReportsAllErrors(t *testing.T) {
	_, err := parsePolicy([]byte(`{"name":"a","cpu":{"marginn":1},"memory":{"window":"x"},"foo":1}`))
	for _, path := range []string{"cpu.marginn", "memory.window", "foo"} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("parsePolicy: error %v, want one of %s too", err, path)
		}
	}
}

func FuzzParseOnePolicy(f *testing.F) {
	f.Add(`{"name":"a","base":"batch","cpu":{"method":"percentile","limit":{"mode":"headroom","headroom":1}}}`)
	f.Add(`{"name":"a","memory":{"floor":"1Ei","oom":{"minBump":"9E"}},"specifications":["1c1g"]}`)
	f.Fuzz(func(t *testing.T, file string) {
		p, err := parsePolicy([]byte(file))
		if err != nil {
			return
		}

		if err := p.Validate(); err != nil {
			t.Fatalf("Validate() of a parsed policy: %v, want no error", err)
		}

		checkRecommendation(t, Recommend(steadyInput(8, 1), p))
	})
}

func FuzzGocranePolicy(f *testing.F) {
	f.Add("cpu-request-percentile", "0.9", "specification-config", "1c1g,2c2g")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if p, err := GocranePolicy(map[string]string{a: b, c: d}); err == nil && p.Validate() != nil {
			t.Fatalf("Validate() of a parsed policy: %v, want no error", p.Validate())
		}
	})
}
