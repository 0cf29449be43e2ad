// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"crane.io/crane/internal/metricadapter/status"
)

const (
	// maxWatched bounds the resources whose objects are watched.
	maxWatched = 16
	// syncTimeout is how long a request waits for the first list of a resource. It is shorter than the timeout of the API server.
	syncTimeout = 5 * time.Second
)

// Objects caches the names and labels of objects. The first request for a resource starts its watch, so that a cluster without such
// rules has no watches.
type Objects struct {
	client metadata.Interface

	mu        sync.Mutex
	stop      chan struct{} // closed at the end
	stopped   bool
	informers map[schema.GroupVersionResource]*objectInformer
	running   sync.WaitGroup
}

// objectInformer is the informer of a resource.
type objectInformer struct {
	cache.SharedIndexInformer

	mu     sync.Mutex
	failed string // error of the last list or watch
}

// NewObjects returns Objects without watches.
func NewObjects(client metadata.Interface) *Objects {
	return &Objects{client: client, stop: make(chan struct{}), informers: map[schema.GroupVersionResource]*objectInformer{}}
}

// Run stops all watches when ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	<-ctx.Done()
	o.mu.Lock()
	o.stopped = true
	close(o.stop)
	o.mu.Unlock()
	o.running.Wait()

	return nil
}

// listNames returns the sorted names of the objects that match.
func (o *Objects) listNames(ctx context.Context, r resourceInfo, namespace string, selector labels.Selector) ([]string, error) {
	w, err := o.informerFor(r)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	if !w.HasSynced() && !cache.WaitForCacheSync(ctx.Done(), w.HasSynced) {
		if why := w.failure(); why != "" {
			return nil, status.Unavailable("names of %s cannot be read: %s", r.groupResource.String(), why)
		}

		return nil, status.Unavailable("names of %s have not been read yet", r.groupResource.String())
	}

	var names []string
	err = cache.ListAllByNamespace(w.GetIndexer(), namespace, selector, func(object any) {
		if m, ok := object.(*metav1.PartialObjectMetadata); ok {
			names = append(names, m.Name)
		}
	})
	if err != nil {
		return nil, status.Unavailable("names of %s: %v", r.groupResource.String(), err)
	}

	slices.Sort(names)
	return names, nil
}

// informerFor returns the informer of a resource and starts it if need be.
func (o *Objects) informerFor(r resourceInfo) (*objectInformer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if w := o.informers[r.gvr()]; w != nil {
		return w, nil
	}

	// Informers are kept, so their number bounds memory and watches, whatever resources clients name.
	switch {
	case o.stopped:
		return nil, status.Unavailable("the adapter is stopping")
	case len(o.informers) == maxWatched:
		return nil, status.Unprocessable("%s: objects of %d resources are watched already, and no more are", r.groupResource.String(), maxWatched)
	}

	informer := metadatainformer.NewFilteredMetadataInformer(o.client, r.gvr(), metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	w := &objectInformer{SharedIndexInformer: informer}

	if err := informer.SetTransform(trimMetadata); err != nil {
		return nil, status.Unavailable("watching %s: %v", r.groupResource.String(), err)
	}

	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { w.setFailure(err) }); err != nil {
		return nil, status.Unavailable("watching %s: %v", r.groupResource.String(), err)
	}

	o.informers[r.gvr()] = w
	o.running.Go(func() { informer.Run(o.stop) })
	return w, nil
}

// trimMetadata keeps names and labels only.
func trimMetadata(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{
			TypeMeta: m.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{
				Name:            m.Name,
				Namespace:       m.Namespace,
				Labels:          m.Labels,
				ResourceVersion: m.ResourceVersion,
			},
		}, nil
	}

	return object, nil
}

func (w *objectInformer) setFailure(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.failed = err.Error()
}

func (w *objectInformer) failure() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.failed
}
