// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"crane.io/crane/pkg/rightsize"
)

// failRule is a condition of --fail-on: a request further from the recommendation than share makes the run fail.
type failRule struct {
	// finding is onlyOver, onlyUnder or onlyMissing; share is 0.3 for 30 %.
	finding string
	share   float64
	// text is what the user wrote.
	text string
}

const failAllowed = "want over=PERCENT, under=PERCENT or missing, for example over=30%,under=10%"

// parseFailRules reads the values of --fail-on.
func parseFailRules(values []string) ([]failRule, error) {
	var rules []failRule
	var errs []error
	for _, text := range values {
		rule, err := parseFailRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--fail-on %q: %w", text, err))
			continue
		}
		rules = append(rules, rule)
	}
	return rules, errors.Join(errs...)
}

func parseFailRule(text string) (failRule, error) {
	finding, value, valued := strings.Cut(text, "=")
	if finding == onlyMissing && !valued {
		return failRule{finding: finding, text: text}, nil
	}
	if finding != onlyOver && finding != onlyUnder || !valued {
		return failRule{}, errors.New(failAllowed)
	}
	digits, isPercent := strings.CutSuffix(strings.TrimSpace(value), "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !isPercent || math.IsNaN(percent) || math.IsInf(percent, 0) {
		return failRule{}, fmt.Errorf("%q is not a percentage: %s", value, failAllowed)
	}
	if percent < 0 || finding == onlyUnder && percent >= 100 {
		return failRule{}, fmt.Errorf("%s is out of range: over takes 0%% or more, under 0%% to below 100%%", value)
	}
	return failRule{finding: finding, share: percent / 100, text: text}, nil
}

// breaks says how a request breaks the rule; empty where it does not. What has no number yet breaks none.
func (f failRule) breaks(s size) string {
	if s.status != rightsize.Ready {
		return ""
	}
	const noise = 1e-9 // 1.3/1 - 1 is a little more than 0.3.
	change, known := 0.0, s.now > 0 && s.target > 0
	if known {
		change = s.now/s.target - 1
	}
	switch {
	case f.finding == onlyMissing && s.now <= 0:
		return fmt.Sprintf("%s has no request, %s is recommended", s.resource, s.format(s.target))
	case f.finding == onlyOver && known && change > f.share+noise:
		return fmt.Sprintf("%s request %s is %.0f%% above the recommended %s", s.resource, s.format(s.now), change*100, s.format(s.target))
	case f.finding == onlyUnder && known && -change > f.share+noise:
		return fmt.Sprintf("%s request %s is %.0f%% below the recommended %s", s.resource, s.format(s.now), -change*100, s.format(s.target))
	}
	return ""
}

// failOn returns an error where a request breaks a rule, after it has said which.
func (r *report) failOn(w io.Writer, rules []failRule) error {
	const most = 50 // A pipeline's log is read by people.
	broken := 0
	for _, it := range r.items {
		for _, c := range it.plan.Containers {
			for _, s := range r.sizes(c) {
				for _, rule := range rules {
					what := rule.breaks(s)
					if what == "" {
						continue
					}
					if broken++; broken <= most {
						fmt.Fprintf(w, "%s, container %s: %s (--fail-on %s)\n", it.workload.Ref, c.Container, what, rule.text)
					}
				}
			}
		}
	}
	if broken == 0 {
		return nil
	}
	if broken > most {
		fmt.Fprintf(w, "... and %d more\n", broken-most)
	}
	return &exitError{code: exitBroken, err: fmt.Errorf("%s not within what --fail-on allows", areRequests(broken))}
}

func areRequests(n int) string {
	if n == 1 {
		return "1 request is"
	}
	return plural(n, "request") + " are"
}
