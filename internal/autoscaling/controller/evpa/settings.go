// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/vertical"
)

// updateMode is the update mode; one that is not known is an error, and counts as Off.
func updateMode(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) (autoscalingv1alpha1.UpdateMode, error) {
	if e.Spec.UpdatePolicy == nil || e.Spec.UpdatePolicy.UpdateMode == nil {
		return autoscalingv1alpha1.UpdateModeOff, nil
	}
	switch mode := *e.Spec.UpdatePolicy.UpdateMode; mode {
	case autoscalingv1alpha1.UpdateModeOff, autoscalingv1alpha1.UpdateModeInitial, autoscalingv1alpha1.UpdateModeRecreate,
		autoscalingv1alpha1.UpdateModeAuto, autoscalingv1alpha1.UpdateModeInPlace:
		return mode, nil
	default:
		return autoscalingv1alpha1.UpdateModeOff, fmt.Errorf("update mode %q is not known; there are Off, Initial, Recreate, InPlace and Auto", mode)
	}
}

// containerPolicy is the policy of a container: its own, else that of all, else the defaults.
func containerPolicy(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, container string) vertical.Policy {
	var found *autoscalingv1alpha1.ContainerResourcePolicy
	if p := e.Spec.ResourcePolicy; p != nil {
		for i := range p.ContainerPolicies {
			switch c := &p.ContainerPolicies[i]; {
			case c.ContainerName == container:
				found = c
			case c.ContainerName == autoscalingv1alpha1.DefaultContainer && found == nil:
				found = c
			}
		}
	}
	out := vertical.DefaultPolicy()
	if found == nil {
		return out
	}
	applyScalingPolicy(&out.Up, found.ScaleUpPolicy)
	applyScalingPolicy(&out.Down, found.ScaleDownPolicy)
	out.Min, out.Max = boundAmounts(found.MinAllowed), boundAmounts(found.MaxAllowed)
	out.RequestsOnly = found.ControlledValues != nil && *found.ControlledValues == autoscalingv1alpha1.ControlledValuesRequestsOnly
	if found.ControlledResources != nil {
		out.Controlled = nil
		for _, name := range found.ControlledResources {
			out.Controlled = append(out.Controlled, vertical.Resource(name))
		}
	}
	return out
}

// applyScalingPolicy lays what a user has set over the defaults.
func applyScalingPolicy(d *vertical.DirectionPolicy, set *autoscalingv1alpha1.ContainerScalingPolicy) {
	if set == nil {
		return
	}
	d.Off = set.ScaleMode != nil && *set.ScaleMode == autoscalingv1alpha1.ScaleModeOff
	for name, t := range set.MetricThresholds {
		if t.Utilization != nil {
			d.Thresholds[vertical.Resource(name)] = int64(*t.Utilization)
		}
	}
	if set.StabilizationWindowSeconds != nil {
		d.Window = time.Duration(*set.StabilizationWindowSeconds) * time.Second
	}
}

func boundAmounts(list autoscalingv1alpha1.ResourceBounds) vertical.Amounts {
	out := vertical.Amounts{}
	if q, ok := list[corev1.ResourceCPU]; ok {
		out[vertical.CPU] = q.MilliValue()
	}
	if q, ok := list[corev1.ResourceMemory]; ok {
		out[vertical.Memory] = q.Value()
	}
	return out
}

// estimatorSettings are those of an autoscaler with their settings. The error of one that cannot run stands in its place.
type estimatorSettings struct {
	percentile    vertical.PercentileEstimator
	percentileErr error
	oom           vertical.OOMEstimator
	oomErr        error
	// priorities are those of Percentile and OOM, which are always there.
	priorities map[string]int
	forecast   *forecastSettings
	external   *externalSettings
	foreign    []foreignSettings
	// invalid are those whose settings cannot be read, by type.
	invalid map[string]error
}

// foreignSettings are those of an estimator of somebody else.
type foreignSettings struct {
	name     string
	priority int
	maxAge   time.Duration
}

// forecastSettings name a TimeSeriesPrediction of the same namespace and what of it is the need of a container.
type forecastSettings struct {
	priority   int
	prediction string
	// identifiers are the metrics by resource. container gets them; empty for the only one.
	identifiers map[vertical.Resource]string
	container   string
	// perPod tells that the metric is of one pod; otherwise it is of all pods together.
	perPod bool
	margin float64
}

// externalSettings name metrics of external.metrics.k8s.io.
type externalSettings struct {
	priority  int
	metrics   map[vertical.Resource]string
	selector  string
	container string
	margin    float64
}

const (
	defaultMargin = 0.15
	// defaultForeignMaxAge is the age from which the answer of somebody else's estimator no longer counts.
	defaultForeignMaxAge = time.Hour
)

// parseEstimators reads the estimators of an autoscaler.
func parseEstimators(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) estimatorSettings {
	out := estimatorSettings{priorities: map[string]int{}, invalid: map[string]error{}}
	configs := map[string]map[string]string{}
	seen := map[string]bool{}
	for _, r := range e.Spec.ResourceEstimators {
		if seen[r.Type] || r.Type == "" {
			continue // The webhook refuses it; the first one counts.
		}
		seen[r.Type] = true
		var err error
		switch r.Type {
		case vertical.TypePercentile, vertical.TypeOOM:
			out.priorities[r.Type], configs[r.Type] = r.Priority, r.Config
		case vertical.TypeForecast:
			out.forecast, err = parseForecast(r.Config, r.Priority)
		case vertical.TypeExternal:
			out.external, err = parseExternal(r.Config, r.Priority)
		default:
			f := foreignSettings{name: r.Type, priority: r.Priority, maxAge: defaultForeignMaxAge}
			if text, given := r.Config["max-age"]; given {
				f.maxAge, err = series.ParseDuration(text)
			}
			out.foreign = append(out.foreign, f)
		}
		if err != nil {
			out.invalid[r.Type], out.priorities[r.Type] = err, r.Priority
		}
	}
	out.percentile, out.percentileErr = vertical.ParsePercentileEstimator(configs[vertical.TypePercentile])
	out.oom, out.oomErr = vertical.ParseOOMEstimator(configs[vertical.TypeOOM])
	return out
}

func parseForecast(config map[string]string, priority int) (*forecastSettings, error) {
	out := &forecastSettings{priority: priority, margin: defaultMargin, identifiers: map[vertical.Resource]string{}}
	err := parseSettings(config, map[string]func(string) error{
		"prediction":        setString(&out.prediction),
		"cpu-identifier":    setMetricName(out.identifiers, vertical.CPU),
		"memory-identifier": setMetricName(out.identifiers, vertical.Memory),
		"container":         setString(&out.container),
		"per-pod": func(v string) (err error) {
			out.perPod, err = strconv.ParseBool(v)
			return err
		},
		"margin-fraction": setMargin(&out.margin),
	})
	if err == nil && (out.prediction == "" || len(out.identifiers) == 0) {
		err = errors.New("config: needs prediction, the name of a TimeSeriesPrediction, and cpu-identifier or memory-identifier")
	}
	return out, err
}

func parseExternal(config map[string]string, priority int) (*externalSettings, error) {
	out := &externalSettings{priority: priority, margin: defaultMargin, metrics: map[vertical.Resource]string{}}
	err := parseSettings(config, map[string]func(string) error{
		"cpu-metric-name":    setMetricName(out.metrics, vertical.CPU),
		"memory-metric-name": setMetricName(out.metrics, vertical.Memory),
		"metric-selector": func(v string) error {
			selector, err := metav1.ParseToLabelSelector(v)
			if err != nil {
				return fmt.Errorf("no label selector: %w", err)
			}
			parsed, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil {
				return fmt.Errorf("no label selector: %w", err)
			}
			out.selector = parsed.String()
			return nil
		},
		"container":       setString(&out.container),
		"margin-fraction": setMargin(&out.margin),
	})
	if err == nil && len(out.metrics) == 0 {
		err = errors.New("config: needs cpu-metric-name or memory-metric-name")
	}
	for _, name := range out.metrics {
		if err == nil && strings.ContainsAny(name, "/?#% ") {
			err = fmt.Errorf("config: %q is no name of a metric", name)
		}
	}
	return out, err
}

// parseSettings reads settings by their keys. A key that is not known is an error.
func parseSettings(config map[string]string, keys map[string]func(string) error) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(config)) {
		read, known := keys[key]
		if !known {
			errs = append(errs, fmt.Errorf("config: unknown key %q: there are %s", key, strings.Join(slices.Sorted(maps.Keys(keys)), ", ")))
			continue
		}
		if err := read(config[key]); err != nil {
			errs = append(errs, fmt.Errorf("config[%s]: %q: %w", key, config[key], err))
		}
	}
	return errors.Join(errs...)
}

func setString(to *string) func(string) error {
	return func(v string) error {
		*to = v
		return nil
	}
}

func setMetricName(to map[vertical.Resource]string, resource vertical.Resource) func(string) error {
	return func(v string) error {
		to[resource] = v
		return nil
	}
}

func setMargin(to *float64) func(string) error {
	return func(v string) error {
		m, err := strconv.ParseFloat(v, 64)
		if err != nil || !(m >= 0 && m <= 10) {
			return errors.New("must be a number from 0 to 10 (0.15 is 15 %)")
		}
		*to = m
		return nil
	}
}
