// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// estimateSet holds estimates by container and resource.
type estimateSet map[string]map[units.Resource][]vertical.Estimate

// estimateSink adds the estimates of one estimator to a set.
type estimateSink struct {
	set        estimateSet
	name       string
	priority   int
	containers []workload.Container
	// resources are those that the estimator covers.
	resources []units.Resource
}

func (s estimateSink) add(container string, r units.Resource, e vertical.Estimate) {
	if s.set[container] == nil {
		s.set[container] = map[units.Resource][]vertical.Estimate{}
	}

	e.Estimator, e.Priority = s.name, s.priority
	s.set[container][r] = append(s.set[container][r], e.Validated(r))
}

// fail records that the estimator has no estimate of one resource although it should have one.
func (s estimateSink) fail(container string, r units.Resource, err error) {
	s.add(container, r, vertical.Estimate{Failure: condition.Message(metrics.PublicMessage(err))})
}

// failAll records that the estimator has no estimate at all although it should have some.
func (s estimateSink) failAll(err error) {
	for _, c := range s.containers {
		for _, r := range s.resources {
			s.fail(c.Name, r, err)
		}
	}
}

// container returns the container that the estimates are for: the named one, or the only one.
func (s estimateSink) container(name string) (string, error) {
	switch {
	case name == "" && len(s.containers) == 1:
		return s.containers[0].Name, nil
	case name == "":
		return "", errors.New("config: needs container, because the pods have several")
	case slices.ContainsFunc(s.containers, func(c workload.Container) bool { return c.Name == name }):
		return name, nil
	}

	return "", fmt.Errorf("config: there is no container %s", name)
}

// failures returns the distinct failures of the estimators for the containers, sorted; empty for none.
func (a estimateSet) failures(containers []workload.Container) string {
	var out []string
	for _, c := range containers {
		for _, estimates := range a[c.Name] {
			for _, e := range estimates {
				if e.Failure != "" {
					out = append(out, e.Estimator+": "+e.Failure)
				}
			}
		}
	}

	slices.Sort(out)
	return strings.Join(slices.Compact(out), "; ")
}

// sizedContainers returns the containers that run for the life of a pod.
func (s autoscalerState) sizedContainers() []workload.Container {
	return slices.DeleteFunc(slices.Clone(s.target.Containers), func(c workload.Container) bool { return c.Role == workload.Init })
}

// collectEstimates returns the estimates of all estimators of an autoscaler.
func (r *Reconciler) collectEstimates(ctx context.Context, ns namespaceSnapshot, s autoscalerState) estimateSet {
	out := estimateSet{}
	containers := s.sizedContainers()
	both := vertical.Resources()
	runEstimator(out, containers, both, s.estimators.percentile, func(p vertical.PercentileEstimator, sink estimateSink) {
		addPercentileEstimates(ns, s.target, p, sink)
	})
	runEstimator(out, containers, []units.Resource{units.Memory}, s.estimators.oom, func(o vertical.OOMEstimator, sink estimateSink) {
		addOOMEstimates(ns, s, o, sink)
	})

	if s.estimators.forecast != nil {
		runEstimator(out, containers, both, *s.estimators.forecast, func(f forecastSettings, sink estimateSink) {
			r.addForecastEstimates(ctx, ns.now, s, f, sink)
		})
	}

	if s.estimators.external != nil {
		runEstimator(out, containers, both, *s.estimators.external, func(x externalSettings, sink estimateSink) {
			r.addExternalEstimates(ctx, ns.now, s.evpa.Namespace, x, sink)
		})
	}

	// Estimators of others write their answers into the status of the autoscaler.
	for _, foreign := range s.estimators.foreign {
		runEstimator(out, containers, both, foreign, func(maxAge time.Duration, sink estimateSink) {
			addForeignEstimates(ns.now, s.evpa, maxAge, sink)
		})
	}

	return out
}

// runEstimator runs an estimator with valid settings, and records the failure of one with invalid settings.
func runEstimator[T any](
	set estimateSet, containers []workload.Container, resources []units.Resource, c configured[T], run func(settings T, sink estimateSink),
) {
	sink := estimateSink{
		set:        set,
		name:       c.name,
		priority:   c.priority,
		containers: containers,
		resources:  resources,
	}

	if c.err != nil {
		sink.failAll(c.err)
		return
	}

	run(c.settings, sink)
}

func addPercentileEstimates(ns namespaceSnapshot, target workload.Workload, p vertical.PercentileEstimator, sink estimateSink) {
	if ns.usageErr != nil {
		sink.failAll(ns.usageErr)
		return
	}

	found := p.Estimate(ns.usage.ResourceInput(target, p.Policy(target.Subject()), ns.now), sink.priority)
	for _, c := range sink.containers {
		for _, resource := range sink.resources {
			if e, ok := found[c.Name][resource]; ok {
				sink.add(c.Name, resource, e)
			}
		}
	}
}

// addOOMEstimates adds estimates from recorded kills and from those that the source of history contains.
func addOOMEstimates(ns namespaceSnapshot, s autoscalerState, o vertical.OOMEstimator, sink estimateSink) {
	if ns.killsErr != nil {
		sink.failAll(ns.killsErr)
		return
	}

	in, err := killInput(ns, s)
	if err != nil {
		sink.failAll(err)
		return
	}

	for i := range in.Containers {
		c := &in.Containers[i]
		c.OOMs = append(ns.containerKills(s.target, c.Name), c.OOMs...)
	}

	found := o.Estimate(s.target.Name, in, sink.priority)
	for _, c := range sink.containers {
		if e, ok := found[c.Name]; ok {
			sink.add(c.Name, units.Memory, e)
		}
	}
}

// killInput returns the input of a decision after kills: with the usage, or without any where it is unknown, and with the default policy
// where the settings of the percentile estimator are invalid.
func killInput(ns namespaceSnapshot, s autoscalerState) (resource.Input, error) {
	usage := ns.usage
	if usage == nil || ns.usageErr != nil {
		usage = &profile.Usage{}
	}

	percentile := s.estimators.percentile.settings
	if s.estimators.percentile.err != nil {
		var err error
		percentile, err = vertical.ParsePercentileEstimator(nil)
		if err != nil {
			return resource.Input{}, err
		}
	}

	return usage.ResourceInput(s.target, percentile.Policy(s.target.Subject()), ns.now), nil
}

// addForecastEstimates adds the highest values of the coming window of a TimeSeriesPrediction, where they are actionable.
func (r *Reconciler) addForecastEstimates(ctx context.Context, now time.Time, s autoscalerState, f forecastSettings, sink estimateSink) {
	container, err := sink.container(f.container)
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err == nil {
		if err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.evpa.Namespace, Name: f.prediction}, tsp); err != nil {
			err = fmt.Errorf("reading the TimeSeriesPrediction: %w", err)
		}
	}

	if err != nil {
		sink.failAll(err)
		return
	}

	for _, resource := range sink.resources {
		identifier, ok := f.identifiers[resource]
		if !ok {
			continue
		}

		forecast, err := scalingmetric.ActionableForecast(tsp, identifier, now)
		// A forecast of the whole workload is divided among its pods.
		pods := int32(1)
		if err == nil && !f.perPod {
			if pods = s.target.Replicas; pods <= 0 {
				err = errors.New("the forecast is of all pods together, and there is none")
			}
		}

		if err != nil {
			sink.fail(container, resource, fmt.Errorf("%s of %s: %w", identifier, f.prediction, err))
			continue
		}

		sink.add(container, resource, vertical.Estimate{
			Value:  toBaseUnit(resource, forecast.Value/float64(pods)*(1+f.margin)),
			Reason: fmt.Sprintf("%s of TimeSeriesPrediction %s, shared by %s, plus %.0f %%", identifier, f.prediction, units.FormatCount(int(pods), "pod"), 100*f.margin),
		})
	}
}

// addExternalEstimates adds the values of external metrics.
func (r *Reconciler) addExternalEstimates(ctx context.Context, now time.Time, namespace string, x externalSettings, sink estimateSink) {
	container, err := sink.container(x.container)
	if err != nil {
		sink.failAll(err)
		return
	}

	for _, resource := range sink.resources {
		name, ok := x.metrics[resource]
		if !ok {
			continue
		}

		readCtx, cancel := context.WithTimeout(ctx, externalTimeout)
		value, err := r.External.ReadValue(readCtx, namespace, name, x.selector, now)
		cancel()

		if err == nil && !(value > 0) {
			err = fmt.Errorf("its value is %v: %w", value, scaling.ErrNoMetric)
		}

		if err != nil {
			sink.fail(container, resource, fmt.Errorf("metric %s: %w", name, err))
			continue
		}

		sink.add(container, resource, vertical.Estimate{
			Value:  toBaseUnit(resource, value*(1+x.margin)),
			Reason: fmt.Sprintf("external metric %s, plus %.0f %%", name, 100*x.margin),
		})
	}
}

// toBaseUnit converts cores to millicores. Bytes stay bytes.
func toBaseUnit(r units.Resource, v float64) float64 {
	if r == units.CPU {
		return v * 1000
	}

	return v
}

// addForeignEstimates adds the estimates that an estimator outside of Crane writes into the status, as in gocrane.
func addForeignEstimates(now time.Time, evpa *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, maxAge time.Duration, sink estimateSink) {
	var found autoscalingv1alpha1.ResourceEstimatorStatus
	for _, e := range evpa.Status.ResourceEstimators {
		if e.Type == sink.name {
			found = e
		}
	}

	switch {
	case found.Recommendation == nil:
		sink.failAll(errors.New("it has written no answer into status.currentEstimators"))
		return
	case found.LastUpdateTime == nil || now.Sub(found.LastUpdateTime.Time) > maxAge:
		sink.failAll(fmt.Errorf("its answer in status.currentEstimators is older than %s", maxAge))
		return
	}

	for _, c := range found.Recommendation.ContainerRecommendations {
		for _, resource := range sink.resources {
			amount := func(list corev1.ResourceList) float64 {
				v := list[corev1.ResourceName(resource)]
				return toBaseUnit(resource, v.AsApproximateFloat64())
			}

			if _, ok := c.Target[corev1.ResourceName(resource)]; ok {
				sink.add(c.ContainerName, resource, vertical.Estimate{
					Value:  amount(c.Target),
					Lower:  math.Max(0, amount(c.LowerBound)),
					Upper:  math.Max(0, amount(c.UpperBound)),
					Reason: "its answer in the status",
				})
			}
		}
	}
}
