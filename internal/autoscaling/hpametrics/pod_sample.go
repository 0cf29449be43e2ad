// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpametrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"crane.io/crane/pkg/scaling"
)

// The defaults of kube-controller-manager's --horizontal-pod-autoscaler-cpu-initialization-period and
// --horizontal-pod-autoscaler-initial-readiness-delay.
const (
	cpuInitializationPeriod = 5 * time.Minute
	initialReadinessDelay   = 30 * time.Second
)

// podSampler selects the resource and container that are read from a pod and its sample.
type podSampler struct {
	resource  corev1.ResourceName
	container string // empty for all
	now       time.Time
}

// sample returns the pod as input of the replica calculator, and false where the pod is not counted. A request that is unknown is 0; see
// Value.RequestErr.
func (s podSampler) sample(pod *corev1.Pod, sample *metricsv1beta1.PodMetrics) (scaling.Pod, bool) {
	if !Counted(pod) {
		return scaling.Pod{}, false
	}

	request, err := Request(pod, s.resource, s.container)
	if err != nil {
		request = resource.Quantity{}
	}

	out := scaling.Pod{Request: request.MilliValue()}
	use, found := s.usage(sample)
	switch {
	case pod.Status.Phase == corev1.PodPending:
		out.State = scaling.Unready
	case !found:
		out.State = scaling.Missing
	case s.resource == corev1.ResourceCPU && isInitializing(pod, sample, s.now):
		out.State = scaling.Unready
	}

	out.Usage = use
	return out, true
}

// Counted reports whether a pod is neither failed nor being deleted.
func Counted(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed
}

// isInitializing reports whether the CPU usage of a pod still includes its start-up.
func isInitializing(pod *corev1.Pod, sample *metricsv1beta1.PodMetrics, now time.Time) bool {
	ready := readyCondition(pod)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}

	since := ready.LastTransitionTime.Time
	if pod.Status.StartTime.Add(cpuInitializationPeriod).After(now) {
		return ready.Status == corev1.ConditionFalse || sample.Timestamp.Time.Before(since.Add(sample.Window.Duration))
	}

	return ready.Status == corev1.ConditionFalse && pod.Status.StartTime.Add(initialReadinessDelay).After(since)
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}

	return nil
}

// usage returns the sum over the selected containers in thousandths, and false where one of them has no value.
func (s podSampler) usage(sample *metricsv1beta1.PodMetrics) (int64, bool) {
	if sample == nil {
		return 0, false
	}

	total := int64(0)
	found := false
	for i := range sample.Containers {
		c := &sample.Containers[i]
		if s.container != "" && c.Name != s.container {
			continue
		}

		q, ok := c.Usage[s.resource]
		if !ok {
			return 0, false
		}

		total += q.MilliValue()
		found = true
	}

	return total, found
}
