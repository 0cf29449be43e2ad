// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/service"
)

// serviceEvaluator finds Services that cost money and serve nothing.
type serviceEvaluator struct {
	settings service.Settings

	services map[client.ObjectKey]*corev1.Service
	// endpoints is the current number of endpoints, addresses their number in each hour.
	endpoints map[client.ObjectKey]int
	addresses map[client.ObjectKey]observation.Hours
	// pods are by namespace.
	pods           map[string][]pod
	received, sent map[workloadKey]podTotals
}

func (e *serviceEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	e.services = map[client.ObjectKey]*corev1.Service{}
	e.endpoints = map[client.ObjectKey]int{}

	e.pods = map[string][]pod{}
	err := listEach(ctx, d, &corev1.ServiceList{}, func(s *corev1.Service) {
		s.Annotations = nil
		s.ManagedFields = nil
		e.services[client.ObjectKeyFromObject(s)] = s
	})
	if err != nil {
		return err
	}

	err = listEach(ctx, d, &discoveryv1.EndpointSliceList{}, func(s *discoveryv1.EndpointSlice) {
		e.endpoints[client.ObjectKey{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}] += len(s.Endpoints)
	})
	if err != nil {
		return err
	}

	all, err := d.pods(ctx)
	if err != nil {
		return err
	}

	for _, p := range all {
		e.pods[p.namespace] = append(e.pods[p.namespace], p)
	}

	if err := d.readTemplates(ctx); err != nil {
		return err
	}

	e.addresses, err = readHours(ctx, d, metrics.ServiceAddresses, targets, e.settings.Hours, func(h metrics.HourlySeries) client.ObjectKey {
		return client.ObjectKey{Namespace: h.Key.Workload.Namespace, Name: h.Key.Workload.Name}
	})
	if err != nil {
		return err
	}

	return d.readPodFigures(ctx, targets, e.settings.Hours,
		thresholdFigure{e.settings.Receive, metrics.PodReceived, &e.received}, thresholdFigure{e.settings.Transmit, metrics.PodSent, &e.sent})
}

func (e *serviceEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	key := client.ObjectKey{Namespace: target.Namespace, Name: target.Name}
	s, exists := e.services[key]
	if !exists {
		return decision{plan: recommend.ClearPlan("It is gone.")}, nil
	}

	in := service.Input{
		Type:      string(s.Spec.Type),
		Selects:   len(s.Spec.Selector) > 0,
		Age:       d.now.Sub(s.CreationTimestamp.Time).Truncate(time.Hour),
		Endpoints: e.endpoints[key],
		Addresses: e.addresses[key],
		Receive:   observation.Unknown(e.settings.Hours),
		Transmit:  observation.Unknown(e.settings.Hours),
	}

	// Without a selector there are no pods from which traffic could be read.
	if !in.Selects {
		return decision{plan: service.Decide(in, e.settings)}, nil
	}

	selector := labels.SelectorFromSet(s.Spec.Selector)
	in.MatchingWorkloads = d.objects.templates.selectedBy(s.Namespace, selector)
	selected := map[workloadKey]bool{}
	for _, p := range e.pods[s.Namespace] {
		if !selector.Matches(labels.Set(p.labels)) {
			continue
		}

		in.Pods++
		selected[workloadKeyOf(p.Owner)] = true

		if p.status.ready {
			in.Ready++
		}
		if p.status.hostNetwork {
			in.HostPods++
		}
	}

	for owner := range selected {
		in.Receive.Add(e.received[owner].sum)
		in.Transmit.Add(e.sent[owner].sum)
	}

	return decision{plan: service.Decide(in, e.settings)}, nil
}
