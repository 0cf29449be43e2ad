// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// GocranePolicyName is the name of the policies that GocranePolicy returns.
const GocranePolicyName = "gocrane"

// gocraneSpecifications is the default of specification-config.
const gocraneSpecifications = "0.25c0.25g,0.25c0.5g,0.25c1g,0.5c0.5g,0.5c1g,1c1g,1c2g,1c4g,1c8g,2c2g,2c4g,2c8g,2c16g," +
	"4c4g,4c8g,4c16g,4c32g,8c8g,8c16g,8c32g,8c64g,16c32g,16c64g,16c128g,32c64g,32c128g,32c256g,64c128g,64c256g"

// gocraneSetting reads one key of gocrane's Resource recommender into a policy.
type gocraneSetting func(value string, p *gocraneConfig) (allowed string)

// gocraneConfig is a policy under construction.
type gocraneConfig struct {
	Policy
	specification, completionCheck bool
	specifications                 []Specification
}

// GocranePolicy gives the settings of gocrane's Resource recommender the meaning that gocrane documents. Absent keys
// have gocrane's defaults:
//
//	cpu-request-percentile 0.99, cpu-request-margin-fraction 0.15, cpu-target-utilization 1.0, cpu-model-history-length 168h
//	mem-request-percentile 0.99, mem-request-margin-fraction 0.15, mem-target-utilization 1.0, mem-model-history-length 168h
//	specification false, specification-config (29 sizes), history-completion-check false
//	oom-protection true, oom-history-length 168h, oom-bump-ratio 1.2
//
// and two of Crane's own, cpu-half-life 0s and mem-half-life 0s: the age at which a day counts half. gocrane describes a
// decay, fixed at 24h and 48h, and applies none; a decay that fast would leave nothing of a history of 168h, so it must be
// asked for.
//
// Where this differs from what gocrane's code does, and why: every sample counts by its time and not by its value, and
// no bucket of 0.1 core or 100 MiB is a hidden floor; the percentile of memory is taken over daily maxima, because one
// over samples leaves the peaks to the OOM killer; oom-history-length counts; history-completion-check looks at the
// history; a history length is rounded up to whole days. Below one observed day there is no number.
//
// cpu-sample-interval, mem-sample-interval and the four histogram keys are checked to be well-formed and have no other
// effect: Crane derives the interval from the data, and its histogram has neither a bucket size nor a maximum.
//
// A bad value is a *FieldError that names key, value and what is allowed; an unknown key is one that names the nearest
// keys. All errors are returned together.
func GocranePolicy(config map[string]string) (Policy, error) {
	c := gocraneConfig{Policy: builtin()}
	c.Name, c.MinHistory = GocranePolicyName, day
	c.CPU = CPUPolicy{Method: Percentile, Floor: c.CPU.Floor, Step: c.CPU.Step, Limit: LimitPolicy{Mode: LimitKeep}}
	c.Memory.Limit = LimitPolicy{Mode: LimitKeep}
	c.Memory.TailMargin, c.Memory.MaxMargin, c.Memory.OOM.HalfLife = 0, 0, 0
	settings := gocraneSettings()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if _, known := settings[key]; !known {
			errs = append(errs, &FieldError{Path: key, Value: config[key], Allowed: "unknown key; " + nearest(key, slices.Collect(maps.Keys(settings)))})
		}
	}
	defaults := gocraneDefaults()
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value, given := config[key]
		if !given {
			value = defaults[key]
		}
		if allowed := settings[key](strings.TrimSpace(value), &c); allowed != "" {
			errs = append(errs, &FieldError{Path: key, Value: value, Allowed: allowed})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Policy{}, err
	}
	if c.specification {
		c.Specifications = c.specifications
	}
	if c.completionCheck {
		c.MinHistory = max(day, max(c.CPU.Window, c.Memory.Window)-day)
	}
	c.Memory.OOM.Cap = max(c.Memory.OOM.Cap, c.Memory.OOM.Ratio)
	return c.Policy, c.Validate()
}

func gocraneDefaults() map[string]string {
	return map[string]string{
		"cpu-sample-interval": "1m", "cpu-request-percentile": "0.99", "cpu-request-margin-fraction": "0.15",
		"cpu-target-utilization": "1.0", "cpu-model-history-length": "168h",
		"mem-sample-interval": "1m", "mem-request-percentile": "0.99", "mem-request-margin-fraction": "0.15",
		"mem-target-utilization": "1.0", "mem-model-history-length": "168h",
		"specification": "false", "specification-config": gocraneSpecifications,
		"oom-protection": "true", "oom-history-length": "168h", "oom-bump-ratio": "1.2",
		"cpu-histogram-bucket-size": "0.1", "cpu-histogram-max-value": "100",
		"mem-histogram-bucket-size": "104857600", "mem-histogram-max-value": "104857600000",
		"history-completion-check": "false", "cpu-half-life": "0s", "mem-half-life": "0s",
	}
}

func gocraneSettings() map[string]gocraneSetting {
	ratio := func(low, high float64, set func(*gocraneConfig, series.Ratio)) gocraneSetting {
		return func(value string, c *gocraneConfig) string {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= low && v <= high) {
				return fmt.Sprintf("must be a number from %g to %g", low, high)
			}
			set(c, series.Ratio(v))
			return ""
		}
	}
	length := func(set func(*gocraneConfig, time.Duration)) gocraneSetting {
		return func(value string, c *gocraneConfig) string {
			d, err := series.ParseDuration(value)
			if err != nil || d <= 0 || d > 366*day {
				return "must be a duration above zero and up to 366d, for example 7d or 168h"
			}
			set(c, (d+day-1)/day*day)
			return ""
		}
	}
	halfLife := func(set func(*gocraneConfig, time.Duration)) gocraneSetting {
		return func(value string, c *gocraneConfig) string {
			d, err := series.ParseDuration(value)
			if err != nil || d > 366*day {
				return "must be a duration up to 366d, for example 24h; 0s is no decay"
			}
			set(c, d)
			return ""
		}
	}
	flag := func(set func(*gocraneConfig, bool)) gocraneSetting {
		return func(value string, c *gocraneConfig) string {
			v, err := strconv.ParseBool(value)
			if err != nil {
				return "must be true or false"
			}
			set(c, v)
			return ""
		}
	}
	unused := func(*gocraneConfig, series.Ratio) {}
	interval := length(func(*gocraneConfig, time.Duration) {})
	const tiny = 1e-3
	return map[string]gocraneSetting{
		"cpu-sample-interval":         interval,
		"mem-sample-interval":         interval,
		"cpu-histogram-bucket-size":   ratio(1e-9, math.MaxFloat64, unused),
		"cpu-histogram-max-value":     ratio(1e-9, math.MaxFloat64, unused),
		"mem-histogram-bucket-size":   ratio(1e-9, math.MaxFloat64, unused),
		"mem-histogram-max-value":     ratio(1e-9, math.MaxFloat64, unused),
		"cpu-request-percentile":      ratio(tiny, 1, func(c *gocraneConfig, v series.Ratio) { c.CPU.Percentile = v }),
		"mem-request-percentile":      ratio(tiny, 1, func(c *gocraneConfig, v series.Ratio) { c.Memory.Percentile = v }),
		"cpu-request-margin-fraction": ratio(0, 10, func(c *gocraneConfig, v series.Ratio) { c.CPU.Margin = v }),
		"mem-request-margin-fraction": ratio(0, 10, func(c *gocraneConfig, v series.Ratio) { c.Memory.Margin = v }),
		"cpu-target-utilization":      ratio(tiny, 1, func(c *gocraneConfig, v series.Ratio) { c.CPU.TargetUtilization = v }),
		"mem-target-utilization":      ratio(tiny, 1, func(c *gocraneConfig, v series.Ratio) { c.Memory.TargetUtilization = v }),
		"cpu-model-history-length":    length(func(c *gocraneConfig, d time.Duration) { c.CPU.Window = d }),
		"mem-model-history-length":    length(func(c *gocraneConfig, d time.Duration) { c.Memory.Window = d }),
		"oom-protection":              flag(func(c *gocraneConfig, v bool) { c.Memory.OOM.Enabled = v }),
		"oom-history-length":          length(func(c *gocraneConfig, d time.Duration) { c.Memory.OOM.Window = d }),
		"oom-bump-ratio":              ratio(1, 10, func(c *gocraneConfig, v series.Ratio) { c.Memory.OOM.Ratio = v }),
		"specification":               flag(func(c *gocraneConfig, v bool) { c.specification = v }),
		"history-completion-check":    flag(func(c *gocraneConfig, v bool) { c.completionCheck = v }),
		"cpu-half-life":               halfLife(func(c *gocraneConfig, d time.Duration) { c.CPU.HalfLife = d }),
		"mem-half-life":               halfLife(func(c *gocraneConfig, d time.Duration) { c.Memory.HalfLife = d }),
		"specification-config": func(value string, c *gocraneConfig) string {
			specs, err := ParseSpecifications(value)
			if err != nil {
				return err.Error()
			}
			c.specifications = specs
			return ""
		},
	}
}

// ParseSpecifications reads a list such as "0.25c0.5g,1c2g": cores and GiB, separated by commas. The whole text must
// match; at least one entry is needed.
func ParseSpecifications(text string) ([]Specification, error) {
	form := regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)c([0-9]+(?:\.[0-9]+)?)g$`)
	var specs []Specification
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		parts := form.FindStringSubmatch(entry)
		if parts == nil {
			return nil, fmt.Errorf("entry %q: must be cores and GiB, for example 0.25c0.5g", entry)
		}
		cores, errCPU := strconv.ParseFloat(parts[1], 64)
		gib, errMemory := strconv.ParseFloat(parts[2], 64)
		const most = 1e6
		if errCPU != nil || errMemory != nil || cores < 0.001 || gib < 0.001 || cores > most || gib > most {
			return nil, fmt.Errorf("entry %q: cores and GiB must be 0.001 to %g", entry, most)
		}
		specs = append(specs, Specification{CPU: milliUp(cores), Memory: series.Bytes(gib * (1 << 30))})
	}
	return specs, nil
}
