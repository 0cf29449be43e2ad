// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metricadapter/refreshloop"
	"crane.io/crane/internal/metricadapter/status"
)

// Resources lists the resources of the cluster at an interval, so that a request for a metric needs no discovery.
type Resources struct {
	Discovery discovery.DiscoveryInterface
	// Interval is the time between two discoveries.
	Interval time.Duration
	Clock    clock.WithTicker

	mapper atomic.Pointer[meta.RESTMapper]
}

// resourceInfo describes a resource of the cluster.
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

// Run repeats the discovery until ctx ends. After a failure the previous resources stay.
func (r *Resources) Run(ctx context.Context) error {
	return refreshloop.Run(ctx, "resources", r.Clock, r.Interval, nil, func(context.Context) error {
		groups, err := restmapper.GetAPIGroupResources(r.Discovery)
		if err == nil {
			mapper := restmapper.NewDiscoveryRESTMapper(groups)
			r.mapper.Store(&mapper)
		}
		return err
	})
}

// lookup returns a resource by its plural or singular name, with or without a group.
func (r *Resources) lookup(name schema.GroupResource) (resourceInfo, error) {
	mapper := r.mapper.Load()
	if mapper == nil {
		return resourceInfo{}, status.Unavailable("%s: the resources of the cluster are not known yet", name.String())
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

// lookupName returns a resource by its singular name.
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
