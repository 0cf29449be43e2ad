// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// informerSet is a factory whose informers of nodes and pods get events from the simulation, synchronously and in its
// goroutine, instead of from a watch. All other informers are never started and list nothing.
type informerSet struct {
	informers.SharedInformerFactory
	nodes, pods *fakeInformer
}

func newInformers(client kubernetes.Interface) *informerSet {
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	return &informerSet{
		SharedInformerFactory: factory,
		nodes:                 &fakeInformer{SharedIndexInformer: core.Nodes().Informer()},
		pods:                  &fakeInformer{SharedIndexInformer: core.Pods().Informer()},
	}
}

// Core implements informers.SharedInformerFactory.
func (s *informerSet) Core() coreinformers.Interface {
	return coreGroup{Interface: s.SharedInformerFactory.Core(), set: s}
}

type coreGroup struct {
	coreinformers.Interface
	set *informerSet
}

func (c coreGroup) V1() corev1informers.Interface {
	return coreV1{Interface: c.Interface.V1(), set: c.set}
}

type coreV1 struct {
	corev1informers.Interface
	set *informerSet
}

func (c coreV1) Nodes() corev1informers.NodeInformer { return nodeInformer{c.set.nodes} }
func (c coreV1) Pods() corev1informers.PodInformer   { return podInformer{c.set.pods} }

type nodeInformer struct{ events *fakeInformer }

func (n nodeInformer) Informer() cache.SharedIndexInformer { return n.events }
func (n nodeInformer) Lister() corev1listers.NodeLister {
	return corev1listers.NewNodeLister(n.events.GetIndexer())
}

type podInformer struct{ events *fakeInformer }

func (p podInformer) Informer() cache.SharedIndexInformer { return p.events }
func (p podInformer) Lister() corev1listers.PodLister {
	return corev1listers.NewPodLister(p.events.GetIndexer())
}

// fakeInformer gets its events from the simulation. The embedded informer never runs; its store is kept up to date.
type fakeInformer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func (f *fakeInformer) add(object any) {
	// Store keys are namespace and name, which all objects have: the error cannot occur.
	if err := f.GetIndexer().Add(object); err == nil {
		for _, h := range f.handlers {
			h.OnAdd(object, false)
		}
	}
}

func (f *fakeInformer) update(old, object any) {
	if err := f.GetIndexer().Update(object); err == nil {
		for _, h := range f.handlers {
			h.OnUpdate(old, object)
		}
	}
}

func (f *fakeInformer) remove(object any) {
	if err := f.GetIndexer().Delete(object); err == nil {
		for _, h := range f.handlers {
			h.OnDelete(object)
		}
	}
}

// AddEventHandler implements cache.SharedInformer. The handler gets existing objects at once.
func (f *fakeInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handlers = append(f.handlers, h)
	for _, object := range f.GetIndexer().List() {
		h.OnAdd(object, true)
	}

	return synced{}, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer; there is no resync.
func (f *fakeInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return f.AddEventHandler(h)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (f *fakeInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return f.AddEventHandler(h)
}

// HasSynced implements cache.SharedInformer.
func (f *fakeInformer) HasSynced() bool { return true }

// Run implements cache.SharedInformer: nothing has to run.
func (f *fakeInformer) Run(<-chan struct{}) {}

// RunWithContext implements cache.SharedInformer.
func (f *fakeInformer) RunWithContext(context.Context) {}

// synced is the registration of a handler.
type synced struct{}

func (synced) HasSynced() bool { return true }

func (synced) HasSyncedChecker() cache.DoneChecker { return done{} }

type done struct{}

func (done) Name() string { return "delivered" }

func (done) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
