// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optionalcrd lists objects of kinds that many clusters do not have. Such a kind is not watched: a watch would fail
// forever if its definition is not installed.
package optionalcrd

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unknownTTL is how long the answer that a cluster does not know a kind is cached.
const unknownTTL = time.Minute

// Kind is a kind that a cluster may have. It is safe for concurrent use.
type Kind struct {
	kind   schema.GroupKind
	live   client.Reader
	mapper meta.RESTMapper

	mu sync.Mutex
	// unknownSince is the time at which the cluster last did not know the kind. Asking again takes a whole discovery.
	unknownSince time.Time
}

// NewMapper returns a mapper that discovers the served kinds at the first use and after each Reset, so that it does not keep a
// version that a definition no longer serves.
func NewMapper(config *rest.Config, over *http.Client) (meta.ResettableRESTMapper, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(config, over)
	if err != nil {
		return nil, fmt.Errorf("building the discovery client: %w", err)
	}

	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), nil
}

// New returns a Kind that is listed from the API server. The mapper is one of NewMapper.
func New(kind schema.GroupKind, live client.Reader, mapper meta.RESTMapper) *Kind {
	return &Kind{kind: kind, live: live, mapper: mapper}
}

// List returns the objects of a namespace; none if the cluster does not know the kind.
func (k *Kind) List(ctx context.Context, namespace string, now time.Time) ([]unstructured.Unstructured, error) {
	for range 2 {
		mapping, err := k.mapping(now)
		if err != nil || mapping == nil {
			return nil, err
		}

		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(k.kind.Kind + "List"))

		err = k.live.List(ctx, &list, client.InNamespace(namespace))
		if err == nil {
			return list.Items, nil
		}
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("listing %ss: %w", k.kind.Kind, err)
		}

		// Its definition was removed, or serves another version by now; the mapper keeps what it has found once.
		meta.MaybeResetRESTMapper(k.mapper)
	}

	k.markUnknown(now)
	return nil, nil
}

// markUnknown caches that the cluster does not know the kind.
func (k *Kind) markUnknown(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.unknownSince = now
}

// mapping returns the REST mapping of the kind; nil if there is none.
func (k *Kind) mapping(now time.Time) (*meta.RESTMapping, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if !k.unknownSince.IsZero() && now.Sub(k.unknownSince) < unknownTTL {
		return nil, nil
	}

	if !k.unknownSince.IsZero() {
		meta.MaybeResetRESTMapper(k.mapper)
		k.unknownSince = time.Time{}
	}

	mapping, err := k.mapper.RESTMapping(k.kind)
	if meta.IsNoMatchError(err) {
		k.unknownSince = now
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %ss: %w", k.kind.Kind, err)
	}

	return mapping, nil
}
