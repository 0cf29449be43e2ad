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

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/service"
)

// serviceRecommender finds Services that cost something and serve nobody.
func serviceRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeService),
		supports: supportsKinds("Service"),
		configure: func(config map[string]string) (evaluator, error) {
			s, err := service.ParseSettings(config)
			return &serviceEvaluator{settings: s}, err
		},
	}
}

type serviceEvaluator struct {
	settings service.Settings

	services map[client.ObjectKey]*corev1.Service
	// endpoints counts those that EndpointSlices have now, addresses those of each hour.
	endpoints      map[client.ObjectKey]int
	addresses      map[client.ObjectKey]observation.Hours
	pods           map[string][]pod
	received, sent map[workloadKey]podTotals
}

func (j *serviceEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	j.services, j.endpoints, j.pods = map[client.ObjectKey]*corev1.Service{}, map[client.ObjectKey]int{}, map[string][]pod{}
	err := w.listEach(ctx, func() client.ObjectList { return &corev1.ServiceList{} }, func(o client.Object) {
		if s, ok := o.(*corev1.Service); ok {
			s.Annotations, s.ManagedFields = nil, nil
			j.services[client.ObjectKeyFromObject(s)] = s
		}
	})
	if err != nil {
		return err
	}
	err = w.listEach(ctx, func() client.ObjectList { return &discoveryv1.EndpointSliceList{} }, func(o client.Object) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			j.endpoints[client.ObjectKey{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}] += len(s.Endpoints)
		}
	})
	if err != nil {
		return err
	}
	all, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		j.pods[p.namespace] = append(j.pods[p.namespace], p)
	}
	if err := w.readTemplates(ctx); err != nil {
		return err
	}
	list, err := w.hourlyFigures(ctx, metrics.ServiceAddresses, targets, j.settings.Hours)
	if err != nil {
		return err
	}
	j.addresses = hoursByKey(list, func(h metrics.HourlySeries) client.ObjectKey {
		return client.ObjectKey{Namespace: h.Key.Workload.Namespace, Name: h.Key.Workload.Name}
	})
	return w.readPodFigures(ctx, targets, j.settings.Hours,
		thresholdFigure{j.settings.Receive, metrics.PodReceived, &j.received}, thresholdFigure{j.settings.Transmit, metrics.PodSent, &j.sent})
}

func (j *serviceEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	key := client.ObjectKey{Namespace: target.Namespace, Name: target.Name}
	s, known := j.services[key]
	if !known {
		return decision{plan: recommend.Plan{State: recommend.Clear, Description: "It is gone."}}, nil
	}
	in := service.Input{
		Type: string(s.Spec.Type), Selects: len(s.Spec.Selector) > 0, Age: w.now.Sub(s.CreationTimestamp.Time).Truncate(time.Hour),
		Endpoints: j.endpoints[key], Addresses: j.addresses[key],
		Receive: observation.Unknown(j.settings.Hours), Transmit: observation.Unknown(j.settings.Hours),
	}
	if !in.Selects {
		return decision{plan: service.Decide(in, j.settings)}, nil
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	in.MatchingWorkloads = w.objects.templates.selectedBy(s.Namespace, selector)
	behind := map[workloadKey]bool{}
	for _, p := range j.pods[s.Namespace] {
		if !selector.Matches(labels.Set(p.labels)) {
			continue
		}
		in.Pods++
		behind[workloadKeyOf(p.Owner)] = true
		if p.status.ready {
			in.Ready++
		}
		if p.status.hostNetwork {
			in.HostPods++
		}
	}
	for of := range behind {
		in.Receive.Add(j.received[of].sum)
		in.Transmit.Add(j.sent[of].sum)
	}
	return decision{plan: service.Decide(in, j.settings)}, nil
}
