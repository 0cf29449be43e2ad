// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpametrics

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"crane.io/crane/pkg/scaling"
)

// TestPodSamples compares samples with the rules of the replica calculator of kube-controller-manager.
func TestPodSamples(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	always := corev1.ContainerRestartPolicyAlways
	pod := func(started, ready time.Duration, status corev1.ConditionStatus) *corev1.Pod {
		start := metav1.NewTime(now.Add(-started))
		return &corev1.Pod{
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{Name: "setup"},
					{Name: "proxy", RestartPolicy: &always, Resources: requests("100m")},
				},
				Containers: []corev1.Container{{Name: "main", Resources: requests("400m")}},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, StartTime: &start,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ready))}},
			},
		}
	}

	sample := &metricsv1beta1.PodMetrics{
		Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: 30 * time.Second},
		Containers: []metricsv1beta1.ContainerMetrics{containerUsage("main", "200m"), containerUsage("proxy", "50m")},
	}
	pending := pod(0, 0, corev1.ConditionFalse)
	pending.Status.Phase = corev1.PodPending
	over := pod(time.Hour, time.Hour, corev1.ConditionTrue)

	over.Status.Phase = corev1.PodFailed
	bare := pod(time.Hour, time.Hour, corev1.ConditionTrue)
	bare.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		sample  *metricsv1beta1.PodMetrics
		in      string
		of      corev1.ResourceName
		state   scaling.PodState
		use     int64
		request int64
		skip    bool
	}{
		"ready for long":                      {pod(time.Hour, time.Hour, corev1.ConditionTrue), sample, "", "cpu", scaling.Ready, 250, 500, false},
		"one container":                       {pod(time.Hour, time.Hour, corev1.ConditionTrue), sample, "main", "cpu", scaling.Ready, 200, 400, false},
		"no sample":                           {pod(time.Hour, time.Hour, corev1.ConditionTrue), nil, "", "cpu", scaling.Missing, 0, 500, false},
		"a sample without the resource":       {pod(time.Hour, time.Hour, corev1.ConditionTrue), sample, "", "memory", scaling.Missing, 0, 0, false},
		"a container without a sample":        {pod(time.Hour, time.Hour, corev1.ConditionTrue), sample, "other", "cpu", scaling.Missing, 0, 0, false},
		"young and not ready":                 {pod(time.Minute, time.Minute, corev1.ConditionFalse), sample, "", "cpu", scaling.Unready, 250, 500, false},
		"ready a moment ago":                  {pod(time.Minute, 10*time.Second, corev1.ConditionTrue), sample, "", "cpu", scaling.Unready, 250, 500, false},
		"ready for a window":                  {pod(time.Minute, 30*time.Second, corev1.ConditionTrue), sample, "", "cpu", scaling.Ready, 250, 500, false},
		"old, and never was ready":            {pod(time.Hour, time.Hour-time.Second, corev1.ConditionFalse), sample, "", "cpu", scaling.Unready, 250, 500, false},
		"old, and was ready":                  {pod(time.Hour, time.Minute, corev1.ConditionFalse), sample, "", "cpu", scaling.Ready, 250, 500, false},
		"not ready does not matter to memory": {pod(time.Minute, time.Minute, corev1.ConditionFalse), sample, "", "memory", scaling.Missing, 0, 0, false},
		"pending":                             {pending, nil, "", "cpu", scaling.Unready, 0, 500, false},
		"without a request":                   {bare, sample, "", "cpu", scaling.Ready, 250, 0, false},
		"failed":                              {over, sample, "", "cpu", 0, 0, 0, true},
	} {
		got, ok := podSampler{resource: c.of, container: c.in, now: now}.sample(c.pod, c.sample)
		if ok == c.skip || ok && (got.State != c.state || got.Usage != c.use || got.Request != c.request) {
			t.Errorf("%s: %+v, %v; want state %v, use %v of %v", name, got, ok, c.state, c.use, c.request)
		}
	}
}

func requests(cpu string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
}

func containerUsage(container, cpu string) metricsv1beta1.ContainerMetrics {
	return metricsv1beta1.ContainerMetrics{Name: container, Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
}
