// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func formatf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// probe is a pod of a workload as the API server would create it now, without Crane and with it. A refused pod is nil.
type probe struct {
	without, with *corev1.Pod
	refusal       string
}

// newPod returns a pod as the controller of a workload creates it, or nil if that creates none now.
func (r *run) newPod(ctx context.Context, w *workload) (*corev1.Pod, error) {
	o := emptyWorkload(w.Kind)
	if err := r.batch.world.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: w.Name}, o); err != nil {
		return nil, err
	}

	creator := o
	t, err := template(o)
	if err != nil {
		return nil, err
	}

	if d, ok := o.(*appsv1.Deployment); ok {
		set, err := r.newestReplicaSet(ctx, d)
		if set == nil || err != nil {
			return nil, err
		}

		creator = set
		t = &set.Spec.Template
	}

	gvk, err := admin.GroupVersionKindFor(creator)
	if err != nil {
		return nil, err
	}

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, GenerateName: creator.GetName() + "-", Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(creator, gvk)},
		},
		Spec: *t.Spec.DeepCopy(),
	}, nil
}

// newestReplicaSet returns the ReplicaSet of the last revision of a Deployment, or nil.
func (r *run) newestReplicaSet(ctx context.Context, d *appsv1.Deployment) (newest *appsv1.ReplicaSet, err error) {
	const annotation = "deployment.kubernetes.io/revision"
	var list appsv1.ReplicaSetList
	if err := r.batch.world.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of %s: %w", r.namespace, err)
	}

	last := 0
	for i := range list.Items {
		set := &list.Items[i]
		revision, _ := strconv.Atoi(set.Annotations[annotation])
		if metav1.IsControlledBy(set, d) && revision > last {
			last = revision
			newest = set
		}
	}

	return newest, nil
}

// tryPod tries the creation of a pod of a workload with Crane and without it. It is nil where the controller creates none.
func (r *run) tryPod(ctx context.Context, w *workload) (*probe, error) {
	pod, err := r.newPod(ctx, w)
	if pod == nil || err != nil {
		return nil, client.IgnoreNotFound(err)
	}

	out := &probe{without: pod.DeepCopy(), with: pod.DeepCopy()}
	if err := r.batch.without.Create(ctx, out.without, client.DryRunAll); err != nil {
		out.without = nil
		if !isRefusal(err) {
			return nil, err
		}
	}

	if err := admin.Create(ctx, out.with, client.DryRunAll); err != nil {
		out.with = nil
		out.refusal = err.Error()
		if !isRefusal(err) {
			return nil, err
		}
	}

	return out, nil
}

// isRefusal reports whether the API server refused an object. Anything else is an error of the test.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// confirm repeats a probe in which Crane does harm until it does none, because caches lag.
func (r *run) confirm(ctx context.Context, w *workload, p *probe) (*probe, error) {
	for range 4 {
		if p == nil || p.without == nil || p.with != nil {
			return p, nil
		}

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(700 * time.Millisecond):
		}

		var err error
		if p, err = r.tryPod(ctx, w); err != nil {
			return nil, err
		}
	}

	return p, nil
}
