// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/qos"
)

func newPod(name string, words []string) (*pod, error) {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || short == "" {
		return nil, fmt.Errorf("pod %q: want namespace/name", name)
	}

	p := &pod{endsAfter: 5 * time.Second}
	p.UID = "uid-of-" + name
	p.Namespace = namespace
	p.Name = short
	p.Class = qos.Burstable

	p.Grace = 30 * time.Second
	p.Started = startTime().Add(-time.Hour)
	if err := forEachSetting(words, p.set); err != nil {
		return nil, err
	}

	p.resetLimits()
	return p, nil
}

// resetLimits sets the limits that the kubelet sets.
func (p *pod) resetLimits() {
	p.quota = qos.Unlimited
	p.high = qos.NoMemoryHigh
	if p.limit > 0 {
		p.quota = qos.Quota(p.limit)
	}
}

func (p *pod) set(key, value string) error {
	var err error
	switch key {
	case "cpu", "memory", "disks", "read", "written":
		err = setDemand(&p.demand, key, value)
	case "request":
		p.request, err = parseMilliCPU(value)
	case "limit":
		p.limit, err = parseMilliCPU(value)

	case "class":
		p.Class = qos.Class(value)
		if p.Class != qos.Guaranteed && p.Class != qos.Burstable && p.Class != qos.BestEffort {
			err = errors.New("no such class")
		}

	case "priority":
		var n int64
		n, err = strconv.ParseInt(value, 10, 32)
		p.Priority = int32(n)

	case "age":
		// Pods that exist at the start have an age; later ones start with their event.
		var d time.Duration
		d, err = time.ParseDuration(value)
		p.Started = startTime().Add(-d)

	case "ends":
		p.endsAfter, err = time.ParseDuration(value)
	case "allow":
		p.Allowed = strings.Split(value, ",")

	case "elastic":
		p.Elastic = true
		p.HoldsCPU = true
		p.HoldsMemory = true

	case "unmeasured":
		p.unmeasured = value != "no"
	case "protected":
		p.protected = value != "no"
	case "keep":
		p.ExemptReason = value
	default:
		err = p.setWaiting(key, value)
	}

	return err
}

// setWaiting sets the waits and the page cache of a pod.
func (p *pod) setWaiting(key, value string) error {
	var err error
	switch key {
	case "sensitive":
		p.SensitiveReason = "cpuPriority 0"
	case "stall":
		p.stall, err = parsePercentage(value)
	case "noise":
		p.noise, err = parsePercentage(value)
	case "cache":
		p.cache, err = parseBytes(value)
	default:
		err = errUnknownKey
	}

	return err
}

// parseEvent parses an at statement.
func (p *parser) parseEvent(words []string) error {
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 || len(words) < 2 {
		return errors.New("want a time and what happens")
	}

	verb := words[1]
	rest := words[2:]

	happens := parseHappening
	if verb == "rule" {
		happens = p.parseRuleEdit
	}

	do, err := happens(verb, rest)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}

	p.scenario.events = append(p.scenario.events, event{line: p.line, at: at, do: do})
	return nil
}

// parseRuleEdit parses a change of a rule.
func (p *parser) parseRuleEdit(_ string, words []string) (func(*run) error, error) {
	if len(words) == 0 {
		return nil, errMissingArgument
	}

	if err := p.setRule(&qos.Rule{}, words[1:]); err != nil {
		return nil, err
	}

	return func(r *run) error {
		i := slices.IndexFunc(r.policy.Rules, func(q qos.Rule) bool { return q.Name == words[0] })
		if i < 0 {
			return fmt.Errorf("there is no rule %s", words[0])
		}

		return p.setRule(&r.policy.Rules[i], words[1:])
	}, nil
}

var errMissingArgument = errors.New("wants more")

func parseHappening(verb string, rest []string) (func(*run) error, error) {
	switch verb {
	case "freeze", "thaw":
		return func(r *run) error { r.frozen = verb == "freeze"; return nil }, nil
	case "restart":
		return func(r *run) error { r.restart(); return nil }, nil
	}

	if len(rest) == 0 {
		return nil, errMissingArgument
	}

	name := rest[0]
	switch verb {
	case "pod":
		// Parsed now for its errors; the event creates or changes the pod.
		if _, err := newPod(name, rest[1:]); err != nil {
			return nil, err
		}

		return func(r *run) error { return r.changePod(name, rest[1:]) }, nil

	case "metric":
		return parseMetricEvent(rest)
	case "delete":
		return func(r *run) error { return r.deletePod(name) }, nil
	case "drop":
		return func(r *run) error { return r.deleteRule(name) }, nil
	case "lose", "find":
		return func(r *run) error { r.lostMetrics[name] = verb == "lose"; return nil }, nil

	case "clock":
		d, err := time.ParseDuration(name)
		return func(r *run) error { r.clockOffset += d; return nil }, err
	case "quota":
		if len(rest) != 2 {
			return nil, errMissingArgument
		}

		v, err := parseMilliCPU(rest[1])
		return func(r *run) error { return r.resizeQuota(name, qos.Quota(v)) }, err
	}

	return nil, errors.New("nothing like that happens")
}

func parseMetricEvent(words []string) (func(*run) error, error) {
	if len(words) != 2 {
		return nil, errMissingArgument
	}

	v, err := strconv.ParseFloat(words[1], 64)
	return func(r *run) error { r.metrics[words[0]] = v; return nil }, err
}
