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

// updateMode returns the update mode. An unknown one is an error and counts as Off.
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

// containerPolicy returns the policy of a container: its own, else that for all containers, else the defaults.
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

// applyScalingPolicy overrides the defaults of a direction with the settings of the user.
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

// configured is an estimator with its settings.
type configured[T any] struct {
	name     string
	priority int
	settings T
	// err is the reason why the settings are invalid.
	err error
}

// estimatorSettings are the estimators of an autoscaler. Percentile and OOM always run.
type estimatorSettings struct {
	percentile configured[vertical.PercentileEstimator]
	oom        configured[vertical.OOMEstimator]
	forecast   *configured[forecastSettings]
	external   *configured[externalSettings]
	// foreign are estimators outside of Crane; their setting is the maximum age of an estimate.
	foreign []configured[time.Duration]
}

// ownEstimators returns the types of the estimators that Crane runs, in the order of the status.
func ownEstimators() []string {
	return []string{vertical.TypePercentile, vertical.TypeOOM, vertical.TypeForecast, vertical.TypeExternal}
}

// forecastSettings select metrics of a TimeSeriesPrediction in the same namespace.
type forecastSettings struct {
	prediction string
	// identifiers are the metrics by resource, for the container; an empty container is the only one.
	identifiers map[vertical.Resource]string
	container   string
	// perPod marks metrics of one pod; otherwise they are of all pods together.
	perPod bool
	// margin is added to the forecast, as a fraction.
	margin float64
}

// externalSettings select metrics of external.metrics.k8s.io.
type externalSettings struct {
	metrics   map[vertical.Resource]string
	selector  string
	container string
	margin    float64
}

const (
	defaultMargin = 0.15
	// defaultForeignMaxAge is the maximum age of the estimates of an estimator outside of Crane.
	defaultForeignMaxAge = time.Hour
)

// parseEstimators parses the estimators of an autoscaler. Of two with one type the first counts; the webhook rejects the second.
func parseEstimators(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) estimatorSettings {
	specs := map[string]autoscalingv1alpha1.ResourceEstimator{}
	var out estimatorSettings
	for _, spec := range e.Spec.ResourceEstimators {
		if _, seen := specs[spec.Type]; seen || spec.Type == "" {
			continue
		}
		specs[spec.Type] = spec
		switch spec.Type {
		case vertical.TypePercentile, vertical.TypeOOM:
		case vertical.TypeForecast:
			out.forecast = new(parseEstimator(spec.Type, spec, parseForecast))
		case vertical.TypeExternal:
			out.external = new(parseEstimator(spec.Type, spec, parseExternal))
		default:
			out.foreign = append(out.foreign, parseEstimator(spec.Type, spec, parseMaxAge))
		}
	}
	out.percentile = parseEstimator(vertical.TypePercentile, specs[vertical.TypePercentile], vertical.ParsePercentileEstimator)
	out.oom = parseEstimator(vertical.TypeOOM, specs[vertical.TypeOOM], vertical.ParseOOMEstimator)
	return out
}

func parseEstimator[T any](name string, spec autoscalingv1alpha1.ResourceEstimator, parse func(map[string]string) (T, error)) configured[T] {
	settings, err := parse(spec.Config)
	return configured[T]{name: name, priority: spec.Priority, settings: settings, err: err}
}

func parseMaxAge(config map[string]string) (time.Duration, error) {
	if text, set := config["max-age"]; set {
		return series.ParseDuration(text)
	}
	return defaultForeignMaxAge, nil
}

func parseForecast(config map[string]string) (forecastSettings, error) {
	out := forecastSettings{margin: defaultMargin, identifiers: map[vertical.Resource]string{}}
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

func parseExternal(config map[string]string) (externalSettings, error) {
	out := externalSettings{margin: defaultMargin, metrics: map[vertical.Resource]string{}}
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

// parseSettings calls the parser of each key. An unknown key is an error.
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
