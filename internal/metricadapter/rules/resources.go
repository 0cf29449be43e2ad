// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metricadapter/status"
)

// Resources knows which resources the cluster serves. It is asked of the API server now and then, and not for a request.
type Resources struct {
	Discovery discovery.DiscoveryInterface
	// Interval is the time between two questions.
	Interval time.Duration
	Clock    clock.WithTicker

	mapper atomic.Pointer[meta.RESTMapper]
}

// resourceInfo is one of them.
type resourceInfo struct {
	groupResource schema.GroupResource
	version       string
	singular      string
	kind          schema.GroupVersionKind
	namespaced    bool
}

func (r resourceInfo) gvr() schema.GroupVersionResource {
	return r.groupResource.WithVersion(r.version)
}

// Run keeps them up to date until ctx ends. Where the API server does not answer, what was known stays.
func (r *Resources) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("resources")
	for {
		wait := r.Interval
		if groups, err := restmapper.GetAPIGroupResources(r.Discovery); err == nil {
			mapper := restmapper.NewDiscoveryRESTMapper(groups)
			r.mapper.Store(&mapper)
		} else {
			wait = min(retryInterval, r.Interval)
			log.Info("Asking which resources there are failed; trying again", "reason", err.Error())
		}
		timer := r.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// lookup returns a resource by its plural or singular name, with a group or without.
func (r *Resources) lookup(name schema.GroupResource) (resourceInfo, error) {
	mapper := r.mapper.Load()
	if mapper == nil {
		return resourceInfo{}, status.Unavailable("%s: which resources there are is not known yet", name.String())
	}
	found, err := describeResource(*mapper, name)
	if meta.IsNoMatchError(err) {
		return resourceInfo{}, status.NotFound("%s: the cluster has no such resource", name.String())
	}
	if err != nil {
		return resourceInfo{}, status.BadRequest("%s: %v", name.String(), err)
	}
	return found, nil
}

// lookupName returns a resource by its singular name alone.
func (r *Resources) lookupName(name string) (resourceInfo, error) {
	return r.lookup(schema.GroupResource{Resource: name})
}

func describeResource(mapper meta.RESTMapper, name schema.GroupResource) (resourceInfo, error) {
	gvr, err := mapper.ResourceFor(name.WithVersion(""))
	if err != nil {
		return resourceInfo{}, err
	}
	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return resourceInfo{}, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resourceInfo{}, err
	}
	singular, err := mapper.ResourceSingularizer(gvr.Resource)
	if err != nil {
		return resourceInfo{}, fmt.Errorf("singular of %s: %w", gvr.Resource, err)
	}
	return resourceInfo{
		groupResource: gvr.GroupResource(), version: gvr.Version, singular: singular, kind: kind,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}
