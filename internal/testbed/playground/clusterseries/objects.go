// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadObjects reads the objects of a cluster that kube-state-metrics watches. Objects of a cache are not copied.
func ReadObjects(ctx context.Context, objects client.Reader) (Objects, error) {
	var o Objects
	var err error

	// read lists one kind and then calls store; after the first error it does nothing.
	read := func(list client.ObjectList, store func()) {
		if err == nil {
			err = objects.List(ctx, list, client.UnsafeDisableDeepCopy)
			store()
		}
	}

	var pods corev1.PodList
	read(&pods, func() { o.Pods = pointers(pods.Items) })

	var nodes corev1.NodeList
	read(&nodes, func() { o.Nodes = pointers(nodes.Items) })

	var deployments appsv1.DeploymentList
	read(&deployments, func() { o.Deployments = pointers(deployments.Items) })

	var replicaSets appsv1.ReplicaSetList
	read(&replicaSets, func() { o.ReplicaSets = pointers(replicaSets.Items) })

	var statefulSets appsv1.StatefulSetList
	read(&statefulSets, func() { o.StatefulSets = pointers(statefulSets.Items) })

	var daemonSets appsv1.DaemonSetList
	read(&daemonSets, func() { o.DaemonSets = pointers(daemonSets.Items) })

	var jobs batchv1.JobList
	read(&jobs, func() { o.Jobs = pointers(jobs.Items) })

	var cronJobs batchv1.CronJobList
	read(&cronJobs, func() { o.CronJobs = pointers(cronJobs.Items) })

	var autoscalers autoscalingv2.HorizontalPodAutoscalerList
	read(&autoscalers, func() { o.Autoscalers = pointers(autoscalers.Items) })

	return o, err
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}

	return out
}
