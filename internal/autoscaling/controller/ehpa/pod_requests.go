// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/internal/kube/workload"
)

// podRequestsMaxAge is the age up to which the requests of pods are reused. craned keeps no pods in memory, so a reading is a request to
// the API server, while an HPA changes its status every 15 seconds.
const podRequestsMaxAge = time.Minute

// requestKey identifies the request that a utilization refers to. An empty container stands for the whole pod.
type requestKey struct {
	resource  corev1.ResourceName
	container string
}

// podRequest is the mean request of the pods of a target, in cores or bytes. err is the reason why it is unknown.
type podRequest struct {
	mean float64
	err  error
}

type podRequests map[requestKey]podRequest

// PodRequestReader reads what the pods of targets request. In-place resizes change pods without changing the template of their workload,
// and the HPA controller compares usage with the requests of pods.
type PodRequestReader struct {
	Pods client.Reader

	mu       sync.Mutex
	readings map[types.NamespacedName]podRequestReading
}

// podRequestReading is one reading for one generation of an autoscaler and one selector.
type podRequestReading struct {
	generation int64
	selector   string
	readAt     time.Time
	requests   podRequests
}

// Forget drops the reading of an autoscaler.
func (r *PodRequestReader) Forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.readings, name)
}

// Read returns the requests that the utilization targets of an autoscaler refer to, nil without a forecast that needs any. Without pods it
// uses the template of the target.
func (r *PodRequestReader) Read(
	ctx context.Context, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, target workload.Scale, now time.Time,
) (podRequests, error) {
	name := client.ObjectKeyFromObject(ehpa)
	keys := requestKeys(ehpa)
	if len(keys) == 0 {
		r.Forget(name)
		return nil, nil
	}

	r.mu.Lock()
	last, found := r.readings[name]
	r.mu.Unlock()

	// Requests change rarely and listing pods is expensive, so a reading is used for a while.
	if found && last.generation == ehpa.Generation && last.selector == target.Selector && now.Sub(last.readAt) < podRequestsMaxAge {
		return last.requests, nil
	}

	pods, err := r.list(ctx, ehpa.Namespace, target)
	if err != nil {
		return nil, err
	}

	out := make(podRequests, len(keys))
	for _, key := range keys {
		out[key] = meanRequest(pods, key)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.readings == nil {
		r.readings = map[types.NamespacedName]podRequestReading{}
	}

	r.readings[name] = podRequestReading{
		generation: ehpa.Generation,
		selector:   target.Selector,
		readAt:     now,
		requests:   out,
	}

	return out, nil
}

// requestKeys returns the requests that the targets of the metrics refer to.
func requestKeys(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []requestKey {
	if !predictionEnabled(ehpa) {
		return nil
	}

	var out []requestKey
	for _, m := range scalingmetric.MetricSpecs(ehpa) {
		switch {
		case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource.Target.AverageUtilization != nil:
			out = append(out, requestKey{m.Resource.Name, ""})
		case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource.Target.AverageUtilization != nil:
			out = append(out, requestKey{m.ContainerResource.Name, m.ContainerResource.Container})
		}
	}

	return out
}

// list returns the pods that the HPA controller counts, or a pod of the template where there are none.
func (r *PodRequestReader) list(ctx context.Context, namespace string, target workload.Scale) ([]corev1.Pod, error) {
	selector, err := labels.Parse(target.Selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of the target: %w", err)
	}

	var out []corev1.Pod
	if !selector.Empty() {
		var list corev1.PodList
		// Version 0 is served from the watch cache of the API server.
		options := &client.ListOptions{Namespace: namespace, LabelSelector: selector, Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		if err := r.Pods.List(ctx, &list, options); err != nil {
			return nil, fmt.Errorf("listing the pods of the target: %w", err)
		}

		for i := range list.Items {
			if pod := &list.Items[i]; hpametrics.Counted(pod) && pod.Status.Phase != corev1.PodSucceeded {
				out = append(out, *pod)
			}
		}
	}

	if len(out) > 0 || target.Template == nil {
		return out, nil
	}

	ranges, err := effectiveresources.LimitRanges(ctx, r.Pods, namespace)
	if err != nil {
		return nil, fmt.Errorf("reading the defaults of the pods of the target: %w", err)
	}

	return []corev1.Pod{{Spec: *effectiveresources.NewPod(target.Template, ranges)}}, nil
}

func meanRequest(pods []corev1.Pod, key requestKey) podRequest {
	if len(pods) == 0 {
		return podRequest{err: errors.New("what a pod requests is unknown: the target has no pods")}
	}

	total := 0.0
	for i := range pods {
		request, err := hpametrics.Request(&pods[i], key.resource, key.container)
		if err != nil {
			return podRequest{err: err}
		}

		total += request.AsApproximateFloat64()
	}

	if total <= 0 {
		return podRequest{err: fmt.Errorf("the pods request no %s, which averageUtilization refers to", key.resource)}
	}

	return podRequest{mean: total / float64(len(pods))}
}
