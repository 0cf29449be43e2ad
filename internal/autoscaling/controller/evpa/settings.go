// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
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
	out.Min = boundAmounts(found.MinAllowed)

	out.Max = boundAmounts(found.MaxAllowed)
	out.RequestsOnly = found.ControlledValues != nil && *found.ControlledValues == autoscalingv1alpha1.ControlledValuesRequestsOnly
	if found.ControlledResources != nil {
		out.Controlled = nil
		for _, name := range found.ControlledResources {
			out.Controlled = append(out.Controlled, units.Resource(name))
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
			d.Thresholds[units.Resource(name)] = int64(*t.Utilization)
		}
	}

	if set.StabilizationWindowSeconds != nil {
		d.Window = time.Duration(*set.StabilizationWindowSeconds) * time.Second
	}
}

func boundAmounts(list autoscalingv1alpha1.ResourceBounds) vertical.Amounts {
	out := vertical.Amounts{}
	if q, ok := list[corev1.ResourceCPU]; ok {
		out[units.CPU] = q.MilliValue()
	}
	if q, ok := list[corev1.ResourceMemory]; ok {
		out[units.Memory] = q.Value()
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
	identifiers map[units.Resource]string
	container   string
	// perPod marks metrics of one pod; otherwise they are of all pods together.
	perPod bool
	// margin is added to the forecast, as a fraction.
	margin float64
}

// externalSettings select metrics of external.metrics.k8s.io.
type externalSettings struct {
	metrics   map[units.Resource]string
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
	return configured[T]{
		name:     name,
		priority: spec.Priority,
		settings: settings,
		err:      err,
	}
}

func parseMaxAge(config map[string]string) (time.Duration, error) {
	if text, set := config["max-age"]; set {
		return units.ParseDuration(text)
	}

	return defaultForeignMaxAge, nil
}

func parseForecast(config map[string]string) (forecastSettings, error) {
	r := settings.Read(config)
	out := forecastSettings{
		prediction:  r.Text("prediction", ""),
		container:   r.Text("container", ""),
		perPod:      r.Flag("per-pod", false),
		margin:      readMargin(r),
		identifiers: readNames(r, "cpu-identifier", "memory-identifier"),
	}

	if err := r.Err(); err != nil {
		return out, fmt.Errorf("config: %w", err)
	}

	if out.prediction == "" || len(out.identifiers) == 0 {
		return out, errors.New("config: needs prediction, the name of a TimeSeriesPrediction, and cpu-identifier or memory-identifier")
	}

	return out, nil
}

func parseExternal(config map[string]string) (externalSettings, error) {
	r := settings.Read(config)
	out := externalSettings{
		container: r.Text("container", ""), margin: readMargin(r), metrics: readNames(r, "cpu-metric-name", "memory-metric-name"),
	}

	r.Parse("metric-selector", func(text string) error {
		selector, err := metav1.ParseToLabelSelector(text)
		if err != nil {
			return fmt.Errorf("must be a label selector: %w", err)
		}

		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return fmt.Errorf("must be a label selector: %w", err)
		}

		out.selector = parsed.String()
		return nil
	})

	for _, name := range out.metrics {
		if strings.ContainsAny(name, "/?#% ") {
			r.Fail("", name, "must be the name of a metric")
		}
	}

	if err := r.Err(); err != nil {
		return out, fmt.Errorf("config: %w", err)
	}

	if len(out.metrics) == 0 {
		return out, errors.New("config: needs cpu-metric-name or memory-metric-name")
	}

	return out, nil
}

// readNames reads the name of a metric for each resource, by the key of the resource.
func readNames(r *settings.Reader, cpuKey, memoryKey string) map[units.Resource]string {
	out := map[units.Resource]string{}
	for resource, key := range map[units.Resource]string{units.CPU: cpuKey, units.Memory: memoryKey} {
		if name := r.Text(key, ""); name != "" {
			out[resource] = name
		}
	}

	return out
}

// readMargin reads the fraction that is added to a value.
func readMargin(r *settings.Reader) float64 {
	const maxMargin = 10
	return r.Number("margin-fraction", defaultMargin, 0, maxMargin)
}
