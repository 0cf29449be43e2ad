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

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// failRule is a condition of --fail-on: the run fails if a request deviates from the recommendation by more than
// share.
type failRule struct {
	// finding is onlyOver, onlyUnder or onlyMissing; share is 0.3 for 30%.
	finding string
	share   float64
	// text is the flag value.
	text string
}

const failOnSyntax = "want over=PERCENT, under=PERCENT or missing, for example over=30%,under=10%"

// parseFailRules parses the values of --fail-on.
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
		return failRule{}, errors.New(failOnSyntax)
	}

	digits, isPercent := strings.CutSuffix(strings.TrimSpace(value), "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || !isPercent || math.IsNaN(percent) || math.IsInf(percent, 0) {
		return failRule{}, fmt.Errorf("%q is not a percentage: %s", value, failOnSyntax)
	}
	if percent < 0 || finding == onlyUnder && percent >= 100 {
		return failRule{}, fmt.Errorf("%s is out of range: over takes 0%% or more, under 0%% to below 100%%", value)
	}

	return failRule{finding: finding, share: percent / 100, text: text}, nil
}

// violation describes how a request violates the rule, or returns "" if it does not. A container without a
// recommendation violates no rule.
func (f failRule) violation(s resourceSize) string {
	if s.status != rightsize.Ready {
		return ""
	}

	const noise = 1e-9 // 1.3/1 - 1 is a little more than 0.3.
	change := 0.0
	isComparable := s.current > 0 && s.target > 0
	if isComparable {
		change = s.current/s.target - 1
	}

	switch {
	case f.finding == onlyMissing && s.current <= 0:
		return fmt.Sprintf("%s has no request, %s is recommended", s.resource, s.format(s.target))
	case f.finding == onlyOver && isComparable && change > f.share+noise:
		return fmt.Sprintf("%s request %s is %.0f%% above the recommendation %s", s.resource, s.format(s.current), change*100, s.format(s.target))
	case f.finding == onlyUnder && isComparable && -change > f.share+noise:
		return fmt.Sprintf("%s request %s is %.0f%% below the recommendation %s", s.resource, s.format(s.current), -change*100, s.format(s.target))
	}

	return ""
}

// failOn prints the violations and returns an error if there is one.
func (r *report) failOn(w io.Writer, rules []failRule) error {
	const maxListed = 50 // Keep the log of a pipeline readable.
	violations := 0
	for _, it := range r.Items {
		for _, c := range it.Plan.Containers {
			for _, s := range r.resourceSizes(c) {
				for _, rule := range rules {
					text := rule.violation(s)
					if text == "" {
						continue
					}

					violations++

					if violations <= maxListed {
						termtext.Fprintf(w, "%s, container %s: %s (--fail-on %s)\n", it.Workload.Ref, c.Container, text, rule.text)
					}
				}
			}
		}
	}

	if violations == 0 {
		return nil
	}

	if violations > maxListed {
		termtext.Fprintf(w, "... and %d more\n", violations-maxListed)
	}

	return &exitError{code: exitFailOn, err: fmt.Errorf("%s outside the limits of --fail-on", units.FormatCount(violations, "request"))}
}
