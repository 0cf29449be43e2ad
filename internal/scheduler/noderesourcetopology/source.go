// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// watchTopologies keeps the store up to date with the NodeResourceTopologies of the API server until ctx is done. The
// returned channel is closed once all existing ones are in the store, or once a list failed: without the
// CustomResourceDefinition or the right to read it nothing waits, and the informer retries.
func (c *core) watchTopologies(ctx context.Context, config *rest.Config) (<-chan struct{}, error) {
	client, err := topologyClient(config)
	if err != nil {
		return nil, err
	}

	informer := cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "noderesourcetopologies", "", fields.Everything()),
		&topology.NodeResourceTopology{}, 0, nil)

	if err := informer.SetTransform(withoutManagedFields); err != nil {
		return nil, fmt.Errorf("watching NodeResourceTopologies: setting the transform: %w", err)
	}

	tried := make(chan struct{})
	once := sync.OnceFunc(func() { close(tried) })
	var failing atomic.Bool

	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		c.metrics.available.Set(0)
		// The first failure is logged for the administrator; repetitions at a higher verbosity.
		if failing.CompareAndSwap(false, true) {
			klog.FromContext(ctx).Info("cannot read NodeResourceTopologies, nodes count as unknown", "plugin", Name, "err", err)
		} else {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}

		once()
	})
	if err != nil {
		return nil, fmt.Errorf("watching NodeResourceTopologies: setting the error handler: %w", err)
	}

	log := klog.FromContext(ctx)
	set := func(obj any) {
		if failing.Swap(false) {
			log.Info("can read NodeResourceTopologies again")
		}

		c.metrics.available.Set(1)
		if t, ok := obj.(*topology.NodeResourceTopology); ok {
			c.topologyChanged(log, t)
		}
	}

	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set,
		UpdateFunc: func(before, after any) {
			if !sameTopology(before, after) {
				set(after)
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if t, ok := obj.(*topology.NodeResourceTopology); ok {
				c.topologyDeleted(log, t.Name)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching NodeResourceTopologies: adding the event handler: %w", err)
	}

	// Without existing topologies no event arrives, so that the first complete list counts as well.
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			c.metrics.available.Set(1)
			once()
		}
	}()

	return tried, nil
}

// withoutManagedFields drops the managed fields, which are unused and often half of an object.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}

	return obj, nil
}

// sameTopology reports whether the fields that compile reads are equal.
func sameTopology(before, after any) bool {
	a, aOK := before.(*topology.NodeResourceTopology)
	b, bOK := after.(*topology.NodeResourceTopology)
	return aOK && bOK && a.CraneManagerPolicy == b.CraneManagerPolicy && reflect.DeepEqual(a.Zones, b.Zones)
}

func topologyClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := topology.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the client of NodeResourceTopologies: %w", err)
	}

	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &topology.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()

	// The scheduler's own clients use protobuf, which custom resources do not support.
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON

	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of NodeResourceTopologies: %w", err)
	}

	return client, nil
}
