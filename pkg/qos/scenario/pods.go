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
	p := &pod{ends: 5 * time.Second}
	p.UID, p.Namespace, p.Name = "uid-of-"+name, namespace, short
	p.Class, p.Grace, p.Started = qos.Burstable, 30*time.Second, start().Add(-time.Hour)
	if err := each(words, p.set); err != nil {
		return nil, err
	}
	p.unlimit()
	return p, nil
}

// unlimit gives a pod the limits that the kubelet has set.
func (p *pod) unlimit() {
	p.quota, p.high = qos.Unlimited, qos.NoHigh
	if p.limit > 0 {
		p.quota = qos.Quota(p.limit)
	}
}

func (p *pod) set(key, value string) error {
	var err error
	switch key {
	case "cpu", "memory", "disks", "read", "written":
		err = setDemand(&p.wants, key, value)
	case "request":
		p.request, err = milliCPU(value)
	case "limit":
		p.limit, err = milliCPU(value)
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
		var d time.Duration
		d, err = time.ParseDuration(value)
		p.Started = start().Add(-d)
	case "ends":
		p.ends, err = time.ParseDuration(value)
	case "allow":
		p.Allowed = strings.Split(value, ",")
	case "elastic":
		p.Elastic, p.HoldsCPU, p.HoldsMemory = true, true, true
	case "unmeasured":
		p.unmeasured = value != "no"
	case "protected":
		p.protected = value != "no"
	case "keep":
		p.Keep = value
	default:
		err = p.setWaits(key, value)
	}
	return err
}

// setWaits sets what has to do with waiting, and with memory that can be had back.
func (p *pod) setWaits(key, value string) error {
	var err error
	switch key {
	case "sensitive":
		p.Sensitive = "cpuPriority 0"
	case "stall":
		p.stall, err = percentage(value)
	case "noise":
		p.noise, err = percentage(value)
	case "cache":
		p.cache, err = bytes(value)
	default:
		err = errKey
	}
	return err
}

// at reads an event.
func (p *parser) at(words []string) error {
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 || len(words) < 2 {
		return errors.New("want a time and what happens")
	}
	verb, rest := words[1], words[2:]
	happens := happening
	if verb == "rule" {
		happens = p.edit
	}
	do, err := happens(verb, rest)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	p.s.events = append(p.s.events, event{line: p.line, at: at, do: do})
	return nil
}

// edit is somebody who changes a rule.
func (p *parser) edit(_ string, words []string) (func(*run) error, error) {
	if len(words) == 0 {
		return nil, errMore
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

var errMore = errors.New("wants more")

func happening(verb string, rest []string) (func(*run) error, error) {
	switch verb {
	case "freeze", "thaw":
		return func(r *run) error { r.frozen = verb == "freeze"; return nil }, nil
	case "restart":
		return func(r *run) error { r.restart(); return nil }, nil
	}
	if len(rest) == 0 {
		return nil, errMore
	}
	name := rest[0]
	switch verb {
	case "pod":
		if _, err := newPod(name, rest[1:]); err != nil {
			return nil, err
		}
		return func(r *run) error { return r.change(name, rest[1:]) }, nil
	case "metric":
		return metricEvent(rest)
	case "delete":
		return func(r *run) error { return r.remove(name) }, nil
	case "drop":
		return func(r *run) error { return r.drop(name) }, nil
	case "lose", "find":
		return func(r *run) error { r.lost[name] = verb == "lose"; return nil }, nil
	case "clock":
		d, err := time.ParseDuration(name)
		return func(r *run) error { r.shift += d; return nil }, err
	case "quota":
		if len(rest) != 2 {
			return nil, errMore
		}
		v, err := milliCPU(rest[1])
		return func(r *run) error { return r.resize(name, qos.Quota(v)) }, err
	}
	return nil, errors.New("nothing like that happens")
}

func metricEvent(words []string) (func(*run) error, error) {
	if len(words) != 2 {
		return nil, errMore
	}
	v, err := strconv.ParseFloat(words[1], 64)
	return func(r *run) error { r.given[words[0]] = v; return nil }, err
}
