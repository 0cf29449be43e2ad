// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// GocranePolicyName is the name of the policies that GocranePolicy returns.
const GocranePolicyName = "gocrane"

// gocraneSpecifications is gocrane's default of specification-config.
const gocraneSpecifications = "0.25c0.25g,0.25c0.5g,0.25c1g,0.5c0.5g,0.5c1g,1c1g,1c2g,1c4g,1c8g,2c2g,2c4g,2c8g,2c16g," +
	"4c4g,4c8g,4c16g,4c32g,8c8g,8c16g,8c32g,8c64g,16c32g,16c64g,16c128g,32c64g,32c128g,32c256g,64c128g,64c256g"

// GocranePolicy returns the policy of the settings of gocrane's Resource recommender, as gocrane documents them. The
// defaults are gocrane's:
//
//	cpu-request-percentile 0.99, cpu-request-margin-fraction 0.15, cpu-target-utilization 1.0, cpu-model-history-length 168h
//	mem-request-percentile 0.99, mem-request-margin-fraction 0.15, mem-target-utilization 1.0, mem-model-history-length 168h
//	specification false, specification-config (29 sizes), history-completion-check false
//	oom-protection true, oom-history-length 168h, oom-bump-ratio 1.2
//
// Two settings are Crane's own, cpu-half-life 0s and mem-half-life 0s: the age at which a day counts half. gocrane documents
// a decay, fixed at 24h and 48h, and applies none; a decay that fast would reduce a history of 168h to a day, so it must be
// requested.
//
// Differences from gocrane's code: samples are weighted by time and not by value, and no bucket of 0.1 core or 100 MiB is a
// hidden floor; the percentile of memory is that of daily maxima, because a percentile of samples leaves the peaks to the
// OOM killer; oom-history-length counts; history-completion-check checks the history; history lengths are rounded up to
// whole days. There is no number below one observed day.
//
// cpu-sample-interval, mem-sample-interval and the four histogram keys are validated and otherwise ignored: Crane derives
// the interval from the data, and its histogram has neither a bucket size nor a maximum.
//
// Bad values and unknown keys are errors, each a *settings.FieldError. All errors are returned together.
func GocranePolicy(config map[string]string) (Policy, error) {
	const (
		tiny    = 1e-3
		longest = 366 * day
	)
	r := settings.Read(config)
	p := builtin()
	p.Name = GocranePolicyName
	p.MinHistory = day

	p.CPU = CPUPolicy{
		Method:            Percentile,
		Floor:             p.CPU.Floor,
		Step:              p.CPU.Step,
		Limit:             LimitPolicy{Mode: LimitKeep},
		Percentile:        r.Ratio("cpu-request-percentile", 0.99, tiny, 1),
		Margin:            r.Ratio("cpu-request-margin-fraction", 0.15, 0, 10),
		TargetUtilization: r.Ratio("cpu-target-utilization", 1, tiny, 1),
		Window:            wholeDays(r, "cpu-model-history-length"),
		HalfLife:          r.Duration("cpu-half-life", 0, 0, longest),
	}

	m := &p.Memory
	m.Limit = LimitPolicy{Mode: LimitKeep}
	m.TailMargin = 0
	m.MaxMargin = 0
	m.Percentile = r.Ratio("mem-request-percentile", 0.99, tiny, 1)
	m.Margin = r.Ratio("mem-request-margin-fraction", 0.15, 0, 10)
	m.TargetUtilization = r.Ratio("mem-target-utilization", 1, tiny, 1)

	m.Window = wholeDays(r, "mem-model-history-length")
	m.HalfLife = r.Duration("mem-half-life", 0, 0, longest)
	m.OOM.Enabled = r.Flag("oom-protection", true)
	m.OOM.Window = wholeDays(r, "oom-history-length")
	m.OOM.HalfLife = 0
	m.OOM.Ratio = r.Ratio("oom-bump-ratio", 1.2, 1, 10)
	m.OOM.Cap = max(m.OOM.Cap, m.OOM.Ratio)

	// Keys without an effect are read all the same, so that a wrong value is reported.
	for _, key := range []string{"cpu-histogram-bucket-size", "cpu-histogram-max-value", "mem-histogram-bucket-size", "mem-histogram-max-value"} {
		r.Number(key, 1, 1e-9, math.MaxFloat64)
	}

	for _, key := range []string{"cpu-sample-interval", "mem-sample-interval"} {
		wholeDays(r, key)
	}

	specifications, err := ParseSpecifications(gocraneSpecifications)
	if err != nil {
		return Policy{}, err
	}

	// The text is validated even where it does not apply.
	r.Parse("specification-config", func(text string) error {
		specifications, err = ParseSpecifications(text)
		return err
	})

	if r.Flag("specification", false) {
		p.Specifications = specifications
	}
	if r.Flag("history-completion-check", false) {
		p.MinHistory = max(day, max(p.CPU.Window, m.Window)-day)
	}

	if err := r.Err(); err != nil {
		return Policy{}, err
	}

	return p, p.Validate()
}

// wholeDays reads a duration above zero and rounds it up to whole days; the default is gocrane's of 168h.
func wholeDays(r *settings.Reader, key string) time.Duration {
	return (r.Duration(key, 7*day, time.Millisecond, 366*day) + day - 1) / day * day
}

// ParseSpecifications parses a list such as "0.25c0.5g,1c2g": cores and GiB, separated by commas, at least one entry.
func ParseSpecifications(text string) ([]Specification, error) {
	pattern := regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)c([0-9]+(?:\.[0-9]+)?)g$`)
	var specs []Specification
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		parts := pattern.FindStringSubmatch(entry)
		if parts == nil {
			return nil, fmt.Errorf("entry %q: must be cores and GiB, for example 0.25c0.5g", entry)
		}

		cores, errCPU := strconv.ParseFloat(parts[1], 64)
		gib, errMemory := strconv.ParseFloat(parts[2], 64)

		const maxAmount = 1e6
		if errCPU != nil || errMemory != nil || cores < 0.001 || gib < 0.001 || cores > maxAmount || gib > maxAmount {
			return nil, fmt.Errorf("entry %q: cores and GiB must be 0.001 to %g", entry, maxAmount)
		}

		specs = append(specs, Specification{CPU: milliUp(cores), Memory: units.Bytes(gib * (1 << 30))})
	}

	return specs, nil
}
