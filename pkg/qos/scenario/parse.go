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
	"crane.io/crane/pkg/units"
)

// maxLength bounds a run: a week of seconds.
const maxLength = 7 * 24 * time.Hour

// parser parses one file.
type parser struct {
	scenario *Scenario
	actions  map[string]qos.Action
	line     int
}

// Parse parses a scenario. The error names the line.
func Parse(text string) (*Scenario, error) {
	p := &parser{scenario: &Scenario{interval: time.Second}, actions: map[string]qos.Action{}}
	p.scenario.policy.Limits = qos.DefaultLimits()
	for line := range strings.Lines(text) {
		p.line++
		content, comment, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "#")
		// The title is the first comment on a line of its own.
		if p.scenario.Title == "" && strings.TrimSpace(content) == "" {
			p.scenario.Title = strings.TrimSpace(comment)
		}

		words := strings.Fields(content)
		if len(words) == 0 {
			continue
		}

		if err := p.parseStatement(words); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}

	if p.scenario.node.CPUs <= 0 || p.scenario.node.Memory <= 0 || p.scenario.length <= 0 {
		return nil, errors.New("wants a node with cpus and memory, and a run")
	}

	for _, e := range p.scenario.events {
		if e.at > p.scenario.length {
			return nil, fmt.Errorf("line %d: %s is after the end", e.line, e.at)
		}
	}

	for _, e := range p.scenario.expectations {
		if e.at > p.scenario.length {
			return nil, fmt.Errorf("line %d: %s is after the end", e.line, e.at)
		}
	}

	return p.scenario, nil
}

func (p *parser) parseStatement(words []string) error {
	verb := words[0]
	rest := words[1:]
	if len(rest) == 0 {
		return fmt.Errorf("%s wants more", verb)
	}

	switch verb {
	case "node":
		return p.parseNode(rest)
	case "system":
		return forEachSetting(rest, func(k, v string) error { return setDemand(&p.scenario.system, k, v) })
	case "mark":
		return p.parseWaterMark(rest)
	case "action":
		return p.parseAction(rest)

	case "rule":
		return p.parseRule(rest)
	case "pod":
		return p.parsePod(rest)

	case "metric":
		// A metric without a time has its value from the start.
		do, err := parseMetricEvent(rest)
		if err == nil {
			p.scenario.events = append(p.scenario.events, event{line: p.line, do: do})
		}

		return err

	case "at":
		return p.parseEvent(rest)
	case "expect":
		return p.parseExpectation(rest)

	case "run":
		d, err := time.ParseDuration(rest[0])
		if err != nil || d <= 0 || d > maxLength {
			return fmt.Errorf("run %s: want a duration up to %s", rest[0], maxLength)
		}

		p.scenario.length = d
		return nil
	}

	return fmt.Errorf("unknown statement %q", verb)
}

// forEachSetting calls set for each key=value; a word without = has the value "".
func forEachSetting(words []string, set func(key, value string) error) error {
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if err := set(k, v); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}

	return nil
}

var errUnknownKey = errors.New("unknown key")

func (p *parser) parseNode(words []string) error {
	return forEachSetting(words, func(k, v string) error {
		var err error
		switch k {
		case "cpus":
			p.scenario.node.CPUs, err = parseMilliCPU(v)
		case "memory":
			p.scenario.node.Memory, err = parseBytes(v)
		case "disks":
			p.scenario.disks, err = parseDiskWork(v)
		case "uncounted":
			p.scenario.node.DiskUsageUnavailable = "the kernel does not count"

		case "interval":
			p.scenario.interval, err = time.ParseDuration(v)
			if err == nil && p.scenario.interval < 100*time.Millisecond {
				err = errors.New("want 100ms or more")
			}

		case "evictions":
			// A number of pods by time, such as 5/1m.
			n, per, _ := strings.Cut(v, "/")

			p.scenario.policy.Limits.MaxEvictions, err = strconv.Atoi(n)
			if err == nil {
				p.scenario.policy.Limits.EvictionWindow, err = time.ParseDuration(per)
			}

		default:
			err = errUnknownKey
		}

		return err
	})
}

func (p *parser) parseWaterMark(words []string) error {
	r := units.Resource(words[0])
	if len(words) != 2 || r != units.CPU && r != units.Memory {
		return errors.New("want cpu or memory, and a ratio")
	}

	v, err := strconv.ParseFloat(words[1], 64)
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf("mark %s: want a ratio above 0, up to 1", words[1])
	}

	if p.scenario.policy.WaterMarks == nil {
		p.scenario.policy.WaterMarks = map[units.Resource]units.Ratio{}
	}

	p.scenario.policy.WaterMarks[r] = units.Ratio(v)
	return nil
}

func (p *parser) parseAction(words []string) error {
	a := qos.Action{Name: words[0], CoolDown: 5 * time.Minute}
	err := forEachSetting(words[1:], func(k, v string) error {
		var err error
		switch k {
		case "cooldown":
			a.CoolDown, err = time.ParseDuration(v)

		case "step", "floor":
			// Either of the two makes the action throttle CPU.
			if a.Throttle == nil {
				a.Throttle = &qos.CPUThrottling{}
			}

			share := &a.Throttle.Step
			if k == "floor" {
				share = &a.Throttle.Floor
			}

			*share, err = parsePercentage(v)

		case "memory":
			a.ThrottleMemory = &qos.MemoryThrottleSettings{}

		case "evict":
			a.Evict = &qos.EvictionSettings{}

		case "grace":
			var d time.Duration
			d, err = time.ParseDuration(v)
			if err == nil && a.Evict == nil {
				err = errors.New("wants evict before it")
			} else if err == nil {
				a.Evict.GracePeriod = &d
			}

		default:
			err = errUnknownKey
		}

		return err
	})

	p.actions[a.Name] = a
	return err
}

func (p *parser) parseRule(words []string) error {
	r := qos.Rule{
		Name:         words[0],
		TriggerCount: 1,
		RestoreCount: 1,
		MaxAge:       time.Minute,
	}

	err := p.setRule(&r, words[1:])
	if err == nil && (r.Metric == "" || r.Action.Name == "") {
		err = errors.New("wants a metric and an action")
	}

	p.scenario.policy.Rules = append(p.scenario.policy.Rules, r)
	return err
}

// setRule sets fields of a rule.
func (p *parser) setRule(r *qos.Rule, words []string) error {
	return forEachSetting(words, func(k, v string) error {
		var err error
		switch k {
		case "metric":
			r.Metric = v
		case "above":
			r.Threshold, err = parseNumber(v)

		case "action":
			a, ok := p.actions[v]
			if !ok {
				err = errors.New("no action above has this name")
			}

			r.Action = a

		case "trigger":
			r.TriggerCount, err = parseCount(v)
		case "restore":
			r.RestoreCount, err = parseCount(v)
		case "maxage":
			r.MaxAge, err = time.ParseDuration(v)
		case "preview":
			r.Preview = v != "no"
		default:
			err = errUnknownKey
		}

		return err
	})
}

func (p *parser) parsePod(words []string) error {
	added, err := newPod(words[0], words[1:])
	if err != nil {
		return err
	}

	if slices.ContainsFunc(p.scenario.pods, func(o *pod) bool { return o.name() == added.name() }) {
		return fmt.Errorf("there are two pods %s", added.name())
	}

	p.scenario.pods = append(p.scenario.pods, added)
	return nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("want 1 or more")
	}

	return n, err
}

// parseNumber parses a quantity as a float.
func parseNumber(text string) (float64, error) {
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

// Upper bounds of amounts keep all sums far from overflow.
const (
	maxCores = 1e6
	maxBytes = 1 << 52
)

func parseMilliCPU(text string) (units.MilliCPU, error) {
	v, err := parseNumber(text)
	if err == nil && !(v >= 0 && v <= maxCores) {
		err = fmt.Errorf("%s: want cores from 0 to %g", text, float64(maxCores))
	}

	return units.MilliCPU(math.Round(v * 1000)), err
}

func parseBytes(text string) (units.Bytes, error) {
	v, err := parseNumber(text)
	if err == nil && !(v >= 0 && v <= maxBytes) {
		err = fmt.Errorf("%s: want bytes from 0 to %d", text, maxBytes)
	}

	return units.Bytes(v), err
}

// parseDiskWork parses operations per second.
func parseDiskWork(text string) (qos.DiskWork, error) {
	const maxWork = 1e9
	v, err := parseNumber(text)
	if err == nil && !(v >= 0 && v <= maxWork) {
		err = fmt.Errorf("%s: want operations by second from 0 to %g", text, maxWork)
	}

	return qos.DiskWork(v), err
}

func parsePercentage(text string) (units.Ratio, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%s: want a percentage", text)
	}

	return units.Ratio(v / 100), nil
}

func setDemand(d *demand, key, value string) error {
	var err error
	switch key {
	case "cpu":
		d.cpu, err = parseMilliCPU(value)
	case "memory":
		d.memory, err = parseBytes(value)
	case "disks":
		d.disks, err = parseDiskWork(value)

	case "read":
		d.read, err = parseBytes(value)
	case "written":
		d.written, err = parseBytes(value)
	default:
		err = errUnknownKey
	}

	return err
}
