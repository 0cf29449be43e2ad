// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DiscoveryKinds resolves kinds by the discovery of the API server.
type DiscoveryKinds struct {
	// Mapper is a resettable mapper (package optionalcrd).
	Mapper meta.RESTMapper
	// Preferred lists the preferred version of each resource; a list with an error is incomplete.
	Preferred func() ([]*metav1.APIResourceList, error)
}

// Resolve implements KindResolver.
func (d DiscoveryKinds) Resolve(apiVersion, kind string) ([]schema.GroupVersionKind, error) {
	if apiVersion == "" {
		if gv, ok := builtinKind(kind); ok {
			return []schema.GroupVersionKind{gv.WithKind(kind)}, nil
		}

		return d.searchKind(kind)
	}

	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion %q: %w", apiVersion, err)
	}

	if builtin, ok := builtinKind(kind); ok && builtin == gv {
		return []schema.GroupVersionKind{gv.WithKind(kind)}, nil
	}

	// The definition may have been deleted, or serve other versions, since the last batch.
	meta.MaybeResetRESTMapper(d.Mapper)

	mapping, err := d.Mapper.RESTMapping(gv.WithKind(kind).GroupKind(), gv.Version)
	if meta.IsNoMatchError(err) {
		// The group may still serve the kind under another version.
		mapping, err = d.Mapper.RESTMapping(gv.WithKind(kind).GroupKind())
	}

	if err != nil {
		return nil, fmt.Errorf("kind %s of %s: %w", kind, apiVersion, err)
	}

	return []schema.GroupVersionKind{mapping.GroupVersionKind}, nil
}

// builtinKind returns the group and version of the usual kinds without discovery, so that custom kinds of the same name are
// not selected.
func builtinKind(kind string) (schema.GroupVersion, bool) {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		return appsv1.SchemeGroupVersion, true
	case "CronJob", "Job":
		return batchv1.SchemeGroupVersion, true
	case "Pod", "ReplicationController", "Node", "Service", "PersistentVolume", "PersistentVolumeClaim":
		return corev1.SchemeGroupVersion, true
	}

	return schema.GroupVersion{}, false
}

func (d DiscoveryKinds) searchKind(kind string) ([]schema.GroupVersionKind, error) {
	lists, err := d.Preferred()
	var found []schema.GroupVersionKind
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}

		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Kind == kind && listable(r) {
				found = append(found, gv.WithKind(kind))
				break
			}
		}
	}

	if len(found) > 0 {
		return found, nil
	}

	// Groups that failed to answer matter only if no other one has the kind.
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", kind, err)
	}

	return nil, fmt.Errorf("kind %s: %w", kind, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}})
}

func listable(r *metav1.APIResource) bool {
	return slices.Contains(r.Verbs, "list")
}
