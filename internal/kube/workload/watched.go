// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchedKind is a kind of workload that craned keeps in its cache: it is listed in each round of a rule anyway.
type WatchedKind struct {
	GVK schema.GroupVersionKind
	// Object is a new object of the kind.
	Object client.Object
}

// WatchedKinds lists them, with objects that belong to the caller.
func WatchedKinds() []WatchedKind {
	return []WatchedKind{
		{appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{}},
		{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), &appsv1.StatefulSet{}},
		{appsv1.SchemeGroupVersion.WithKind("DaemonSet"), &appsv1.DaemonSet{}},
		{batchv1.SchemeGroupVersion.WithKind("CronJob"), &batchv1.CronJob{}},
	}
}
