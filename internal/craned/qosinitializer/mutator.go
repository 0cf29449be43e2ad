// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qosinitializer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/podqos"
	"crane.io/crane/internal/kube/podwebhook"
)

// Mutator adds the init container and the volume of a Config.
type Mutator struct {
	// Config returns the current configuration.
	Config func() Config
	// PodQOSs returns all PodQOSs.
	PodQOSs func() ([]*ensurancev1alpha1.PodQOS, error)
}

// Name implements podwebhook.Mutator.
func (Mutator) Name() string { return "qos-initializer" }

// Mutate implements podwebhook.Mutator.
func (m Mutator) Mutate(pod *corev1.Pod) ([]podwebhook.Operation, error) {
	config := m.Config()
	if !config.enabled || !config.selector.Matches(labels.Set(pod.Labels)) {
		return nil, nil
	}

	all, err := m.PodQOSs()
	if err != nil {
		return nil, err
	}

	if !isLowPriority(podqos.NewRules(all).BestMatch(pod)) {
		return nil, nil
	}

	return config.operations(pod), nil
}

// isLowPriority reports whether a PodQOS gives pods a low CPU priority: 0 is the highest.
func isLowPriority(q *ensurancev1alpha1.PodQOS) bool {
	if q == nil || q.Spec.ResourceQOS == nil || q.Spec.ResourceQOS.CPUQOS == nil {
		return false
	}

	priority := q.Spec.ResourceQOS.CPUQOS.CPUPriority
	return priority != nil && *priority > 0
}

// operations returns the additions that the pod does not have by name.
func (c Config) operations(pod *corev1.Pod) []podwebhook.Operation {
	var out []podwebhook.Operation
	if !slices.ContainsFunc(pod.Spec.InitContainers, func(x corev1.Container) bool { return x.Name == c.initContainer.Name }) {
		out = append(out, appendTo("/spec/initContainers", len(pod.Spec.InitContainers), c.initContainer))
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(x corev1.Volume) bool { return x.Name == c.volume.Name }) {
		out = append(out, appendTo("/spec/volumes", len(pod.Spec.Volumes), c.volume))
	}

	return out
}

// appendTo returns the operations that append to a list, which is created if missing.
func appendTo[T any](path string, length int, item T) podwebhook.Operation {
	if length == 0 {
		return podwebhook.Operation{Operation: "add", Path: path, Value: []T{item}}
	}

	return podwebhook.Operation{Operation: "add", Path: path + "/-", Value: item}
}

// PodQOSLister reads PodQOSs from a cache.
type PodQOSLister struct{ Cache cache.Cache }

// readTimeout is the maximum wait for a cache that is starting, while a pod waits.
const readTimeout = 200 * time.Millisecond

// Start starts the cache, on every replica.
func (s PodQOSLister) Start(ctx context.Context) error {
	if _, err := s.Cache.GetInformer(ctx, &ensurancev1alpha1.PodQOS{}, cache.BlockUntilSynced(false)); err != nil {
		// Without the CRD there are no PodQOSs, and pods are not changed.
		log.FromContext(ctx).Error(err, "watching PodQOSs")
	}

	return nil
}

// NeedLeaderElection returns false: a standby answers too.
func (PodQOSLister) NeedLeaderElection() bool { return false }

// List returns all PodQOSs, for Mutator.PodQOSs.
func (s PodQOSLister) List() ([]*ensurancev1alpha1.PodQOS, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()

	var list ensurancev1alpha1.PodQOSList
	if err := s.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodQOSs: %w", err)
	}

	out := make([]*ensurancev1alpha1.PodQOS, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}

	return out, nil
}
