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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/vertical"
)

// sizedContainers are the containers that are sized: those that run for the life of a pod.
func (s *autoscalerState) sizedContainers() []workload.Container {
	return slices.DeleteFunc(slices.Clone(s.target.Containers), func(c workload.Container) bool { return c.Role == workload.Init })
}

// collectEstimates collects the answers of all estimators.
func (r *Reconciler) collectEstimates(ctx context.Context, sc *namespaceSnapshot, s *autoscalerState) {
	s.addPercentileEstimates(sc)
	s.addOOMEstimates(sc)
	if f := s.estimators.forecast; f != nil && s.estimators.invalid[vertical.TypeForecast] == nil {
		r.addForecastEstimates(ctx, sc, s, f)
	}
	if x := s.estimators.external; x != nil && s.estimators.invalid[vertical.TypeExternal] == nil {
		r.addExternalEstimates(ctx, sc, s, x)
	}
	for _, f := range s.estimators.foreign {
		if s.estimators.invalid[f.name] == nil {
			s.addForeignEstimates(sc, f)
		}
	}
	for name, err := range s.estimators.invalid {
		s.addFailure(name, err)
	}
}

// addFailure notes that an estimator has no answer although it should have one.
func (s *autoscalerState) addFailure(estimator string, err error) {
	for _, c := range s.sizedContainers() {
		for _, resource := range vertical.Resources() {
			s.addContainerFailure(estimator, c.Name, resource, err)
		}
	}
}

func (s *autoscalerState) addContainerFailure(estimator, container string, r vertical.Resource, err error) {
	s.estimates.add(container, r, vertical.Estimate{
		Estimator: estimator, Priority: s.estimators.priorities[estimator], Failure: boundedMessage(err.Error()),
	})
}

func (s *autoscalerState) addPercentileEstimates(sc *namespaceSnapshot) {
	err := s.estimators.percentileErr
	if err == nil && sc.usageErr != nil {
		err = sc.usageErr
	}
	if err != nil {
		s.addFailure(vertical.TypePercentile, err)
		return
	}
	p := s.estimators.percentile
	in := sc.usage.ResourceInput(s.target, p.Policy(s.target.Subject()), sc.now)
	found := p.Estimate(in, s.estimators.priorities[vertical.TypePercentile])
	for _, c := range s.sizedContainers() {
		for _, resource := range vertical.Resources() {
			if e, ok := found[c.Name][resource]; ok {
				s.estimates.add(c.Name, resource, e)
			}
		}
	}
}

func (s *autoscalerState) addOOMEstimates(sc *namespaceSnapshot) {
	err := s.estimators.oomErr
	if err == nil && sc.killsErr != nil {
		err = sc.killsErr
	}
	for _, c := range s.sizedContainers() {
		if err != nil {
			s.addContainerFailure(vertical.TypeOOM, c.Name, vertical.Memory, err)
			continue
		}
		kills := sc.containerKills(s, c.Name, nil)
		if sc.usage != nil && s.estimators.percentileErr == nil {
			for _, in := range sc.usage.ResourceInput(s.target, s.estimators.percentile.Policy(s.target.Subject()), sc.now).Containers {
				if in.Name == c.Name {
					kills = append(kills, in.OOMs...)
				}
			}
		}
		if e, counts := s.estimators.oom.Estimate(s.target.Name, kills, sc.now, s.estimators.priorities[vertical.TypeOOM]); counts {
			s.estimates.add(c.Name, vertical.Memory, e)
		}
	}
}

// targetContainer is the container that an estimator of the workload as a whole speaks of.
func (s *autoscalerState) targetContainer(name string) (string, error) {
	all := s.sizedContainers()
	switch {
	case name == "" && len(all) == 1:
		return all[0].Name, nil
	case name == "":
		return "", errors.New("config: needs container, as there are several")
	case slices.ContainsFunc(all, func(c workload.Container) bool { return c.Name == name }):
		return name, nil
	}
	return "", fmt.Errorf("config: there is no container %s", name)
}

// addForecastEstimates takes the highest value of the coming window of a TimeSeriesPrediction, where that may be acted on.
func (r *Reconciler) addForecastEstimates(ctx context.Context, sc *namespaceSnapshot, s *autoscalerState, f *forecastSettings) {
	s.estimators.priorities[vertical.TypeForecast] = f.priority
	container, err := s.targetContainer(f.container)
	if err != nil {
		s.addFailure(vertical.TypeForecast, err)
		return
	}
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.evpa.Namespace, Name: f.prediction}, tsp); err != nil {
		s.addFailure(vertical.TypeForecast, fmt.Errorf("reading the TimeSeriesPrediction: %w", err))
		return
	}
	for _, resource := range vertical.Resources() {
		identifier, asked := f.identifiers[resource]
		if !asked {
			continue
		}
		made, err := scalingmetric.ActionableForecast(tsp, identifier, sc.now)
		value, pods := made.Value, int32(1)
		if err == nil && !f.perPod {
			if pods = s.target.Replicas; pods <= 0 {
				err = errors.New("the forecast is of all pods together, and there is none")
			}
		}
		if err != nil {
			s.addContainerFailure(vertical.TypeForecast, container, resource, fmt.Errorf("%s of %s: %w", identifier, f.prediction, err))
			continue
		}
		s.estimates.add(container, resource, vertical.Estimate{
			Estimator: vertical.TypeForecast, Priority: f.priority, Value: toBaseUnit(resource, value/float64(pods)*(1+f.margin)),
			Reason: fmt.Sprintf("%s of TimeSeriesPrediction %s, shared by %d pods, and %.0f %% on top", identifier, f.prediction, pods, 100*f.margin),
		})
	}
}

// addExternalEstimates takes the value of external metrics.
func (r *Reconciler) addExternalEstimates(ctx context.Context, sc *namespaceSnapshot, s *autoscalerState, x *externalSettings) {
	s.estimators.priorities[vertical.TypeExternal] = x.priority
	container, err := s.targetContainer(x.container)
	if err != nil {
		s.addFailure(vertical.TypeExternal, err)
		return
	}
	for _, resource := range vertical.Resources() {
		name, asked := x.metrics[resource]
		if !asked {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, externalTimeout)
		value, err := r.External.ReadValue(asking, s.evpa.Namespace, name, x.selector, sc.now)
		cancel()
		if err == nil && !(value > 0) {
			err = fmt.Errorf("its value is %v: %w", value, scaling.ErrNoMetric)
		}
		if err != nil {
			s.addContainerFailure(vertical.TypeExternal, container, resource, fmt.Errorf("metric %s: %w", name, err))
			continue
		}
		s.estimates.add(container, resource, vertical.Estimate{
			Estimator: vertical.TypeExternal, Priority: x.priority, Value: toBaseUnit(resource, value*(1+x.margin)),
			Reason: fmt.Sprintf("external metric %s, and %.0f %% on top", name, 100*x.margin),
		})
	}
}

// toBaseUnit turns cores into millicores; bytes are bytes.
func toBaseUnit(r vertical.Resource, v float64) float64 {
	if r == vertical.CPU {
		return v * 1000
	}
	return v
}

// addForeignEstimates takes what somebody else's estimator has written into the status, as gocrane does.
func (s *autoscalerState) addForeignEstimates(sc *namespaceSnapshot, f foreignSettings) {
	s.estimators.priorities[f.name] = f.priority
	var found *autoscalingv1alpha1.ResourceEstimatorStatus
	for i := range s.evpa.Status.ResourceEstimators {
		if e := &s.evpa.Status.ResourceEstimators[i]; e.Type == f.name {
			found = e
		}
	}
	switch {
	case found == nil || found.Recommendation == nil:
		s.addFailure(f.name, errors.New("it has written no answer into status.currentEstimators"))
		return
	case found.LastUpdateTime == nil || sc.now.Sub(found.LastUpdateTime.Time) > f.maxAge:
		s.addFailure(f.name, fmt.Errorf("its answer in status.currentEstimators is older than %s", f.maxAge))
		return
	}
	for _, c := range found.Recommendation.ContainerRecommendations {
		for _, resource := range vertical.Resources() {
			q, says := c.Target[corev1.ResourceName(resource)]
			if !says {
				continue
			}
			value := func(list corev1.ResourceList) float64 {
				v := list[corev1.ResourceName(resource)]
				return math.Max(0, toBaseUnit(resource, v.AsApproximateFloat64()))
			}
			s.estimates.add(c.ContainerName, resource, vertical.Estimate{
				Estimator: f.name, Priority: f.priority, Value: toBaseUnit(resource, q.AsApproximateFloat64()),
				Lower: value(c.LowerBound), Upper: value(c.UpperBound), Reason: "its answer in the status",
			})
		}
	}
}

// maxMessageLength of a message.
const maxMessageLength = 1024

// boundedMessage bounds a text and keeps it in one line.
func boundedMessage(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	if len(text) <= maxMessageLength {
		return text
	}
	const more = " ..."
	return strings.ToValidUTF8(text[:maxMessageLength-len(more)], "") + more
}
