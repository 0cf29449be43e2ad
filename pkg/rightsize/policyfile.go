// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/series"
)

// setter reads one field of a policy file into the policy under construction. What is wrong is recorded in the parser.
type setter func(p *parser, path string, raw json.RawMessage)

// parser collects the errors of a policy file.
type parser struct {
	policy Policy
	errs   []error
}

// ParsePolicy reads a policy from JSON (YAML is turned into JSON by the caller). It is strict: an unknown field, a
// duplicate of a section, a text where a number belongs or two fields that contradict each other are errors, each a
// *FieldError with the path of the field; all are returned together. What is left out comes from the built-in policy
// named in "base", or from the default. Example:
//
//	{"name": "web", "base": "latency-sensitive", "minHistory": "3d",
//	 "cpu":    {"method": "percentile", "percentile": 0.99, "margin": 0.15, "window": "7d", "floor": "50m",
//	            "limit": {"mode": "none"}},
//	 "memory": {"margin": 0.2, "ceiling": "8Gi", "oom": {"ratio": 1.3}},
//	 "specifications": ["0.5c1g", "1c2g"]}
//
// Durations are read by series.ParseDuration, amounts are Kubernetes quantities.
func ParsePolicy(data []byte) (Policy, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return Policy{}, fmt.Errorf("policy: not a JSON object: %w", err)
	}
	base := DefaultPolicy
	if raw, given := fields["base"]; given {
		if err := json.Unmarshal(raw, &base); err != nil {
			return Policy{}, &FieldError{Path: "base", Value: string(raw), Allowed: "must be one of " + strings.Join(PolicyNames(), ", ")}
		}
		delete(fields, "base")
	}
	policy, err := PolicyByName(base)
	if err != nil {
		return Policy{}, &FieldError{Path: "base", Value: base, Allowed: "must be one of " + strings.Join(PolicyNames(), ", ")}
	}
	policy.Name = ""
	p := &parser{policy: policy}
	p.object("", data, fields, policyFields())
	if p.policy.Name == "" {
		p.fail("name", "", "must be given: it is shown with each recommendation")
	}
	if err := errors.Join(p.errs...); err != nil {
		return Policy{}, err
	}
	return p.policy, p.policy.Validate()
}

func policyFields() map[string]setter {
	return map[string]setter{
		"name":       text(func(p *Policy, v string) { p.Name = v }),
		"minHistory": duration(func(p *Policy, v time.Duration) { p.MinHistory = v }),
		"cpu":        section(cpuFields()),
		"memory":     section(memoryFields()),
		"specifications": func(p *parser, path string, raw json.RawMessage) {
			var entries []string
			if json.Unmarshal(raw, &entries) != nil || len(entries) == 0 {
				p.fail(path, string(raw), `must be a list such as ["0.5c1g", "1c2g"]`)
				return
			}
			specs, err := ParseSpecifications(strings.Join(entries, ","))
			if err != nil {
				p.fail(path, string(raw), err.Error())
				return
			}
			p.policy.Specifications = specs
		},
	}
}

func cpuFields() map[string]setter {
	amount := func(set func(*CPUPolicy, series.MilliCPU)) setter {
		return quantity(func(p *Policy, q resource.Quantity) { set(&p.CPU, series.MilliCPU(q.MilliValue())) })
	}
	return map[string]setter{
		"method": text(func(p *Policy, v string) {
			if p.CPU.Method = Method(v); p.CPU.Method != Envelope {
				p.CPU.Envelope = EnvelopePolicy{}
			}
		}),
		"percentile":        ratio(func(p *Policy, v series.Ratio) { p.CPU.Percentile = v }),
		"window":            duration(func(p *Policy, v time.Duration) { p.CPU.Window = v }),
		"halfLife":          duration(func(p *Policy, v time.Duration) { p.CPU.HalfLife = v }),
		"margin":            ratio(func(p *Policy, v series.Ratio) { p.CPU.Margin = v }),
		"targetUtilization": ratio(func(p *Policy, v series.Ratio) { p.CPU.TargetUtilization = v }),
		"floor":             amount(func(c *CPUPolicy, v series.MilliCPU) { c.Floor = v }),
		"ceiling":           amount(func(c *CPUPolicy, v series.MilliCPU) { c.Ceiling = v }),
		"step":              amount(func(c *CPUPolicy, v series.MilliCPU) { c.Step = v }),
		"limit":             section(limitFields(func(p *Policy) *LimitPolicy { return &p.CPU.Limit })),
		"envelope": section(map[string]setter{
			"violationPrice": ratio(func(p *Policy, v series.Ratio) { p.CPU.Envelope.ViolationPrice = float64(v) }),
			"cover":          ratio(func(p *Policy, v series.Ratio) { p.CPU.Envelope.Cover = v }),
			"spreadMargin":   ratio(func(p *Policy, v series.Ratio) { p.CPU.Envelope.SpreadMargin = v }),
			"maxMargin":      ratio(func(p *Policy, v series.Ratio) { p.CPU.Envelope.MaxMargin = v }),
			"holdMean":       flag(func(p *Policy, v bool) { p.CPU.Envelope.HoldMean = v }),
			"recent":         ratio(func(p *Policy, v series.Ratio) { p.CPU.Envelope.Recent = v }),
		}),
	}
}

func memoryFields() map[string]setter {
	amount := func(set func(*MemoryPolicy, series.Bytes)) setter {
		return quantity(func(p *Policy, q resource.Quantity) { set(&p.Memory, series.Bytes(q.Value())) })
	}
	return map[string]setter{
		"percentile":        ratio(func(p *Policy, v series.Ratio) { p.Memory.Percentile = v }),
		"window":            duration(func(p *Policy, v time.Duration) { p.Memory.Window = v }),
		"halfLife":          duration(func(p *Policy, v time.Duration) { p.Memory.HalfLife = v }),
		"margin":            ratio(func(p *Policy, v series.Ratio) { p.Memory.Margin = v }),
		"tailMargin":        ratio(func(p *Policy, v series.Ratio) { p.Memory.TailMargin = v }),
		"maxMargin":         ratio(func(p *Policy, v series.Ratio) { p.Memory.MaxMargin = v }),
		"targetUtilization": ratio(func(p *Policy, v series.Ratio) { p.Memory.TargetUtilization = v }),
		"floor":             amount(func(m *MemoryPolicy, v series.Bytes) { m.Floor = v }),
		"ceiling":           amount(func(m *MemoryPolicy, v series.Bytes) { m.Ceiling = v }),
		"step":              amount(func(m *MemoryPolicy, v series.Bytes) { m.Step = v }),
		"limit":             section(limitFields(func(p *Policy) *LimitPolicy { return &p.Memory.Limit })),
		"pageCache": section(map[string]setter{
			"leaveOut": ratio(func(p *Policy, v series.Ratio) { p.Memory.PageCache.LeaveOut = v }),
			"trustRSS": flag(func(p *Policy, v bool) { p.Memory.PageCache.TrustRSS = v }),
		}),
		"oom": section(map[string]setter{
			"enabled":  flag(func(p *Policy, v bool) { p.Memory.OOM.Enabled = v }),
			"ratio":    ratio(func(p *Policy, v series.Ratio) { p.Memory.OOM.Ratio = v }),
			"minBump":  amount(func(m *MemoryPolicy, v series.Bytes) { m.OOM.MinBump = v }),
			"cap":      ratio(func(p *Policy, v series.Ratio) { p.Memory.OOM.Cap = v }),
			"window":   duration(func(p *Policy, v time.Duration) { p.Memory.OOM.Window = v }),
			"halfLife": duration(func(p *Policy, v time.Duration) { p.Memory.OOM.HalfLife = v }),
		}),
	}
}

func limitFields(of func(*Policy) *LimitPolicy) map[string]setter {
	return map[string]setter{
		"mode": text(func(p *Policy, v string) {
			if limit := of(p); v != string(LimitHeadroom) {
				*limit = LimitPolicy{Mode: LimitMode(v)}
			} else {
				limit.Mode = LimitHeadroom
			}
		}),
		"headroom": ratio(func(p *Policy, v series.Ratio) { of(p).Headroom = v }),
	}
}

func (p *parser) fail(path, value, allowed string) {
	p.errs = append(p.errs, &FieldError{Path: path, Value: value, Allowed: allowed})
}

// first are the fields that decide what others mean, so they are read before them.
func first(name string) bool { return name == "method" || name == "mode" }

// object sets each field of an object, in a fixed order.
func (p *parser) object(path string, raw []byte, fields map[string]json.RawMessage, known map[string]setter) {
	if repeated := repeatedKey(raw); repeated != "" {
		p.fail(join(path, repeated), "", "is given more than once")
	}
	names := slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
		if first(a) != first(b) {
			if first(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		set, ok := known[name]
		if !ok {
			p.fail(join(path, name), short(fields[name]), "unknown field; "+nearest(name, slices.Collect(maps.Keys(known))))
			continue
		}
		set(p, join(path, name), fields[name])
	}
}

// repeatedKey returns a key that an object has twice, empty where there is none. encoding/json keeps the last one
// without a word.
func repeatedKey(raw []byte) string {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	seen := map[string]bool{}
	for depth, key := 0, true; ; {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			key = true
		case string:
			if depth == 1 && key {
				if seen[t] {
					return t
				}
				seen[t] = true
				key = false
				continue
			}
			key = depth != 1 || !key
		default:
			key = true
		}
	}
}

func section(known map[string]setter) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || fields == nil {
			p.fail(path, short(raw), "must be an object")
			return
		}
		p.object(path, raw, fields, known)
	}
}

func text(set func(*Policy, string)) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var v string
		if json.Unmarshal(raw, &v) != nil || v == "" {
			p.fail(path, short(raw), "must be a text")
			return
		}
		set(&p.policy, v)
	}
}

func flag(set func(*Policy, bool)) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var v *bool
		if json.Unmarshal(raw, &v) != nil || v == nil {
			p.fail(path, short(raw), "must be true or false")
			return
		}
		set(&p.policy, *v)
	}
}

func ratio(set func(*Policy, series.Ratio)) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var v *float64
		if json.Unmarshal(raw, &v) != nil || v == nil {
			p.fail(path, short(raw), "must be a number, for example 0.15 for 15 %")
			return
		}
		set(&p.policy, series.Ratio(*v))
	}
}

func duration(set func(*Policy, time.Duration)) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			p.fail(path, short(raw), "must be a duration such as \"7d\"")
			return
		}
		d, err := series.ParseDuration(v)
		if err != nil {
			p.fail(path, v, "must be a duration such as 7d, 36h or 90s")
			return
		}
		set(&p.policy, d)
	}
}

func quantity(set func(*Policy, resource.Quantity)) setter {
	return func(p *parser, path string, raw json.RawMessage) {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			v = string(raw)
		}
		q, err := resource.ParseQuantity(v)
		// Beyond 2^53 a milli-value could overflow; nothing is that large.
		if err != nil || q.Sign() < 0 || q.CmpInt64(1<<53) > 0 {
			p.fail(path, short(raw), "must be a quantity such as 250m, 2 or 512Mi, not below zero")
			return
		}
		set(&p.policy, q)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// short is a value for a message, cut where it is long.
func short(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}
