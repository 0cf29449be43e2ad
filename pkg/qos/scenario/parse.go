// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// maxLength bounds a run: a week of seconds.
const maxLength = 7 * 24 * time.Hour

// parser reads one file.
type parser struct {
	s       *Scenario
	actions map[string]qos.Action
	line    int
}

// Parse reads a scenario. The error names the line.
func Parse(text string) (*Scenario, error) {
	p := &parser{s: &Scenario{every: time.Second}, actions: map[string]qos.Action{}}
	p.s.policy.Limits = qos.DefaultLimits()
	for line := range strings.Lines(text) {
		p.line++
		content, comment, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "#")
		if p.s.Title == "" && strings.TrimSpace(content) == "" {
			p.s.Title = strings.TrimSpace(comment)
		}
		words := strings.Fields(content)
		if len(words) == 0 {
			continue
		}
		if err := p.statement(words); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	if p.s.node.CPUs <= 0 || p.s.node.Memory <= 0 || p.s.length <= 0 {
		return nil, errors.New("wants a node with cpus and memory, and a run")
	}
	for _, e := range p.s.events {
		if e.at > p.s.length {
			return nil, fmt.Errorf("line %d: %s is after the end", e.line, e.at)
		}
	}
	for _, e := range p.s.expect {
		if e.at > p.s.length {
			return nil, fmt.Errorf("line %d: %s is after the end", e.line, e.at)
		}
	}
	return p.s, nil
}

func (p *parser) statement(words []string) error {
	verb, rest := words[0], words[1:]
	if len(rest) == 0 {
		return fmt.Errorf("%s wants more", verb)
	}
	switch verb {
	case "node":
		return p.node(rest)
	case "system":
		return each(rest, func(k, v string) error { return setDemand(&p.s.system, k, v) })
	case "mark":
		return p.mark(rest)
	case "action":
		return p.action(rest)
	case "rule":
		return p.rule(rest)
	case "pod":
		return p.pod(rest)
	case "metric":
		do, err := metricEvent(rest)
		if err == nil {
			p.s.events = append(p.s.events, event{line: p.line, do: do})
		}
		return err
	case "at":
		return p.at(rest)
	case "expect":
		return p.expectation(rest)
	case "run":
		d, err := time.ParseDuration(rest[0])
		if err != nil || d <= 0 || d > maxLength {
			return fmt.Errorf("run %s: want a duration up to %s", rest[0], maxLength)
		}
		p.s.length = d
		return nil
	}
	return fmt.Errorf("unknown statement %q", verb)
}

// each calls set for each key=value; a word without = has the value "".
func each(words []string, set func(key, value string) error) error {
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if err := set(k, v); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

var errKey = errors.New("unknown key")

func (p *parser) node(words []string) error {
	return each(words, func(k, v string) error {
		var err error
		switch k {
		case "cpus":
			p.s.node.CPUs, err = milliCPU(v)
		case "memory":
			p.s.node.Memory, err = bytes(v)
		case "disks":
			p.s.disks, err = diskWork(v)
		case "uncounted":
			p.s.node.DisksUncounted = "the kernel does not count"
		case "interval":
			p.s.every, err = time.ParseDuration(v)
			if err == nil && p.s.every < 100*time.Millisecond {
				err = errors.New("want 100ms or more")
			}
		case "evictions":
			n, per, _ := strings.Cut(v, "/")
			if p.s.policy.Limits.Evictions, err = strconv.Atoi(n); err == nil {
				p.s.policy.Limits.Window, err = time.ParseDuration(per)
			}
		default:
			err = errKey
		}
		return err
	})
}

func (p *parser) mark(words []string) error {
	r := qos.Resource(words[0])
	if len(words) != 2 || r != qos.CPU && r != qos.Memory {
		return errors.New("want cpu or memory, and a ratio")
	}
	v, err := strconv.ParseFloat(words[1], 64)
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf("mark %s: want a ratio above 0, up to 1", words[1])
	}
	if p.s.policy.Marks == nil {
		p.s.policy.Marks = map[qos.Resource]series.Ratio{}
	}
	p.s.policy.Marks[r] = series.Ratio(v)
	return nil
}

func (p *parser) action(words []string) error {
	a := qos.Action{Name: words[0], CoolDown: 5 * time.Minute}
	err := each(words[1:], func(k, v string) error {
		var err error
		switch k {
		case "cooldown":
			a.CoolDown, err = time.ParseDuration(v)
		case "step", "floor":
			if a.Throttle == nil {
				a.Throttle = &qos.Throttling{}
			}
			into := &a.Throttle.Step
			if k == "floor" {
				into = &a.Throttle.Floor
			}
			*into, err = percentage(v)
		case "memory":
			a.ThrottleMemory = &qos.MemoryThrottling{}
		case "evict":
			a.Evict = &qos.Evicting{}
		case "grace":
			var d time.Duration
			if d, err = time.ParseDuration(v); err == nil && a.Evict == nil {
				err = errors.New("wants evict before it")
			} else if err == nil {
				a.Evict.Grace = &d
			}
		default:
			err = errKey
		}
		return err
	})
	p.actions[a.Name] = a
	return err
}

func (p *parser) rule(words []string) error {
	r := qos.Rule{Name: words[0], Trigger: 1, Restore: 1, MaxAge: time.Minute}
	err := p.setRule(&r, words[1:])
	if err == nil && (r.Metric == "" || r.Action.Name == "") {
		err = errors.New("wants a metric and an action")
	}
	p.s.policy.Rules = append(p.s.policy.Rules, r)
	return err
}

// setRule sets what is said of a rule.
func (p *parser) setRule(r *qos.Rule, words []string) error {
	return each(words, func(k, v string) error {
		var err error
		switch k {
		case "metric":
			r.Metric = v
		case "above":
			r.Above, err = number(v)
		case "action":
			a, ok := p.actions[v]
			if !ok {
				err = errors.New("there is no such action above")
			}
			r.Action = a
		case "trigger":
			r.Trigger, err = count(v)
		case "restore":
			r.Restore, err = count(v)
		case "maxage":
			r.MaxAge, err = time.ParseDuration(v)
		case "preview":
			r.Preview = v != "no"
		default:
			err = errKey
		}
		return err
	})
}

func (p *parser) pod(words []string) error {
	made, err := newPod(words[0], words[1:])
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.s.pods, func(o *pod) bool { return o.name() == made.name() }) {
		return fmt.Errorf("there are two pods %s", made.name())
	}
	p.s.pods = append(p.s.pods, made)
	return nil
}

func count(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("want 1 or more")
	}
	return n, err
}

// number reads a quantity as a float.
func number(text string) (float64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", text, err)
	}
	v := q.AsApproximateFloat64()
	if math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s: too large", text)
	}
	return v, nil
}

// The largest amounts of a scenario keep all sums far from overflow.
const (
	maxCores = 1e6
	maxBytes = 1 << 52
)

func milliCPU(text string) (series.MilliCPU, error) {
	v, err := number(text)
	if err == nil && !(v >= 0 && v <= maxCores) {
		err = fmt.Errorf("%s: want cores from 0 to %g", text, float64(maxCores))
	}
	return series.MilliCPU(math.Round(v * 1000)), err
}

func bytes(text string) (series.Bytes, error) {
	v, err := number(text)
	if err == nil && !(v >= 0 && v <= maxBytes) {
		err = fmt.Errorf("%s: want bytes from 0 to %d", text, maxBytes)
	}
	return series.Bytes(v), err
}

// diskWork reads operations by second.
func diskWork(text string) (qos.DiskWork, error) {
	const most = 1e9
	v, err := number(text)
	if err == nil && !(v >= 0 && v <= most) {
		err = fmt.Errorf("%s: want operations by second from 0 to %g", text, most)
	}
	return qos.DiskWork(v), err
}

func percentage(text string) (series.Ratio, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%s: want a percentage", text)
	}
	return series.Ratio(v / 100), nil
}

func setDemand(d *demand, key, value string) error {
	var err error
	switch key {
	case "cpu":
		d.cpu, err = milliCPU(value)
	case "memory":
		d.memory, err = bytes(value)
	case "disks":
		d.disks, err = diskWork(value)
	case "read":
		d.read, err = bytes(value)
	case "written":
		d.written, err = bytes(value)
	default:
		err = errKey
	}
	return err
}
