// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchedKind is a kind of workload that craned keeps in its cache, because each evaluation of a rule lists it.
type WatchedKind struct {
	GVK schema.GroupVersionKind
	// Object is a new object of the kind.
	Object client.Object
}

// WatchedKinds returns them with new objects.
func WatchedKinds() []WatchedKind {
	return []WatchedKind{
		{appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{}},
		{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), &appsv1.StatefulSet{}},
		{appsv1.SchemeGroupVersion.WithKind("DaemonSet"), &appsv1.DaemonSet{}},
		{batchv1.SchemeGroupVersion.WithKind("CronJob"), &batchv1.CronJob{}},
	}
}
