// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package optoutlist

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/workload"
)

// podTimeout bounds the wait of a new pod for a cache that is not synced.
const podTimeout = 500 * time.Millisecond

// ExcludesPod reports whether a new pod, its namespace or its workload has the label. Unlike Read, it reads the objects of one pod only. It
// returns an error while the cache does not have them.
func ExcludesPod(ctx context.Context, from client.Reader, pod *corev1.Pod) (bool, error) {
	if optout.Labeled(pod.Labels) {
		return true, nil
	}

	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()

	for _, candidate := range optout.Candidates(pod) {
		object := newObject(pod, candidate.Kind)
		if object == nil {
			continue
		}

		key := client.ObjectKey{Namespace: candidate.Namespace, Name: candidate.Name}
		if candidate.Kind == optout.KindNamespace {
			key = client.ObjectKey{Name: candidate.Namespace}
		}

		err := from.Get(ctx, key, object)
		if candidate.Kind == "CronJob" && apierrors.IsNotFound(err) {
			continue // The Job only has a name like those of CronJobs.
		}
		if err != nil {
			return false, fmt.Errorf("reading the labels of %s %s: %w", candidate.Kind, key, err)
		}

		if optout.Labeled(object.GetLabels()) {
			return true, nil
		}
	}

	return false, nil
}

// newObject returns an object of a kind of candidates of a pod; nil if it is not watched, such as a kind of this name in another API group.
func newObject(pod *corev1.Pod, kind string) client.Object {
	if kind == optout.KindNamespace {
		return &corev1.Namespace{}
	}

	owner := metav1.GetControllerOfNoCopy(pod)
	group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group

	kinds := workload.WatchedKinds()
	i := slices.IndexFunc(kinds, func(k workload.WatchedKind) bool { return k.GVK.Group == group && k.GVK.Kind == kind })
	if i < 0 {
		return nil
	}

	return kinds[i].Object
}
