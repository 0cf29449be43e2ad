// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// parseExpectation parses an expect statement.
func (p *parser) parseExpectation(words []string) error {
	e := expectation{line: p.line, text: strings.Join(words, " "), end: true}
	if at, err := time.ParseDuration(words[0]); err == nil {
		e.at = at
		e.end = false
		words = words[1:]
	}

	if len(words) == 0 {
		return errMissingArgument
	}

	var err error
	if e.end {
		e.check, err = parseFinalExpectation(words[0], words[1:])
	} else {
		e.check, err = parseTimedExpectation(words[0], words[1:])
	}

	p.scenario.expectations = append(p.scenario.expectations, e)
	return err
}

func parseTimedExpectation(verb string, rest []string) (func(*run) string, error) {
	switch {
	case verb == "avoided" || verb == "free":
		return func(r *run) string {
			if r.avoided != (verb == "avoided") {
				return fmt.Sprintf("new pods are kept away: %t", r.avoided)
			}

			return ""
		}, nil

	case verb == "quota" && len(rest) == 2:
		return expectLimit(rest[0], rest[1], qos.Unlimited, parseQuota, func(p *pod) qos.Quota { return p.quota }, "quota")
	case verb == "used" && len(rest) == 2:
		return expectUsed(rest[0], rest[1])
	case verb == "waits" && len(rest) == 2:
		return expectWait(rest[0], rest[1])
	case verb == "high" && len(rest) == 2:
		return expectLimit(rest[0], rest[1], qos.NoMemoryHigh, parseMemoryHigh, func(p *pod) qos.MemoryHigh { return p.high }, "limit of memory")
	}

	return nil, errors.New("want avoided, free, quota POD V, high POD V, used RESOURCE V or waits POD V")
}

// expectLimit expects a limit of a pod: none, limited, or the amount that parse reads.
func expectLimit[T comparable](name, want string, none T, parse func(string) (T, error), limitOf func(*pod) T, what string) (func(*run) string, error) {
	exact := none
	if want != "none" && want != "limited" {
		var err error
		exact, err = parse(want)
		if err != nil {
			return nil, err
		}
	}

	return func(r *run) string {
		p := r.findPod(name)
		switch {
		case p == nil:
			return "the pod does not exist"
		case want == "limited" && limitOf(p) == none, want != "limited" && limitOf(p) != exact:
			return fmt.Sprintf("its %s is %v", what, limitOf(p))
		}

		return ""
	}, nil
}

func parseQuota(text string) (qos.Quota, error) {
	v, err := parseMilliCPU(text)
	return qos.Quota(v), err
}

func parseMemoryHigh(text string) (qos.MemoryHigh, error) {
	v, err := parseBytes(text)
	return qos.MemoryHigh(v), err
}

func expectWait(name, want string) (func(*run) string, error) {
	if want[0] != '<' && want[0] != '>' {
		return nil, errors.New("want < or >")
	}

	bound, err := parsePercentage(want[1:])
	return func(r *run) string {
		p := r.findPod(name)
		if p == nil {
			return "the pod does not exist"
		}

		got := r.measured[p.UID].stalledCPU
		if want[0] == '<' && got < bound || want[0] == '>' && got > bound {
			return ""
		}

		return fmt.Sprintf("it waits %.1f %% of the time", 100*got)
	}, err
}

func expectUsed(resource, want string) (func(*run) string, error) {
	if want[0] != '<' && want[0] != '>' {
		return nil, errors.New("want < or >")
	}

	bound, err := parseNumber(want[1:])
	if err != nil {
		return nil, err
	}

	if resource != string(units.CPU) && resource != string(units.Memory) {
		return nil, errors.New("want cpu or memory")
	}

	// The bound of CPU is in cores, that of memory in bytes.
	return func(r *run) string {
		used := float64(r.used.memory)
		if resource == string(units.CPU) {
			used = float64(r.used.cpu) / 1000
		}

		if want[0] == '<' && used < bound || want[0] == '>' && used > bound {
			return ""
		}

		return fmt.Sprintf("%g are used", used)
	}, nil
}

func parseFinalExpectation(verb string, rest []string) (func(*run) string, error) {
	switch {
	case verb == "evicted" && len(rest) > 0:
		want := strings.Join(rest, " ")
		return func(r *run) string {
			got := "none"
			if len(r.evicted) > 0 {
				got = strings.Join(r.evicted, " ")
			}

			if got != want {
				return "evicted were " + got
			}

			return ""
		}, nil

	// The last eviction of the pod counts.
	case verb == "grace" && len(rest) == 2:
		d, err := time.ParseDuration(rest[1])
		return func(r *run) string {
			if got, ok := r.graces[rest[0]]; !ok || got != d {
				return fmt.Sprintf("evicted: %t, with %s", ok, got)
			}

			return ""
		}, err

	case verb == "why" && len(rest) > 0:
		text := strings.Join(rest, " ")
		return func(r *run) string {
			for why := range r.reasons {
				if strings.Contains(why, text) {
					return ""
				}
			}

			return "no such reason was given"
		}, nil
	}

	return nil, errors.New("want evicted PODS, grace POD D or why TEXT")
}
