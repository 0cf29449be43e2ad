// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"crane.io/crane/internal/kube/effectiveresources"
)

// defaults are the LimitRanges of the namespaces of one list, and the pods of those where many workloads have no requests, read when they are
// first needed.
type defaults struct {
	lister *Lister
	// scope is the namespace of the list; empty for all.
	scope  string
	read   bool
	ranges map[string][]corev1.LimitRange
	pods   map[string]*namespacePods
}

func (l *Lister) newDefaults(scope string) *defaults {
	return &defaults{lister: l, scope: scope, pods: map[string]*namespacePods{}}
}

// of returns the LimitRanges of a namespace; none for a cluster-scoped object.
func (d *defaults) of(ctx context.Context, namespace string) ([]corev1.LimitRange, error) {
	if namespace == "" {
		return nil, nil
	}

	if d.read {
		return d.ranges[namespace], nil
	}

	list, err := effectiveresources.LimitRanges(ctx, d.lister.Sources(corev1.SchemeGroupVersion.WithKind("LimitRange")).Reader, d.scope)
	if apierrors.IsForbidden(err) && d.lister.WithoutDefaults != nil {
		d.lister.WithoutDefaults(err)
		err = nil
	}
	if err != nil {
		return nil, err
	}

	d.read = true
	d.ranges = map[string][]corev1.LimitRange{}
	for i := range list {
		d.ranges[list[i].Namespace] = append(d.ranges[list[i].Namespace], list[i])
	}

	return d.ranges[namespace], nil
}
