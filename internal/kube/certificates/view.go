// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// view is what the API server tells of the Secret and of the targets: one watch for each, on the one object by its name, so that
// rights to that name are enough.
type view struct {
	key     string
	secrets cache.SharedIndexInformer
	targets map[Target]cache.SharedIndexInformer
	// changed holds a token after a change that was not looked at yet.
	changed chan struct{}
	stop    func()

	// behind is the Secret that the watch told of when this replica wrote over it; until then it is not news.
	behind    string
	behindEnd time.Time
}

// maxLag is how long a watch is given to tell of what this replica wrote.
const maxLag = 10 * time.Second

// watch starts the watches and returns when the Secret is known, or known not to be.
func (k *Keeper) watch(ctx context.Context) (*view, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	v := &view{
		key: k.config.Namespace + "/" + k.config.Secret, changed: make(chan struct{}, 1),
		targets: map[Target]cache.SharedIndexInformer{},
		stop:    func() { cancel(); running.Wait() },
	}
	v.secrets = coreinformers.NewFilteredSecretInformer(k.config.Clients, k.config.Namespace, 0, cache.Indexers{}, named(k.config.Secret))
	informers := []cache.SharedIndexInformer{v.secrets}
	for _, t := range k.config.Targets {
		i := dynamicinformer.NewFilteredDynamicInformer(k.config.Dynamic, t.resource, "", 0, cache.Indexers{}, named(t.name)).Informer()
		v.targets[t] = i
		informers = append(informers, i)
	}
	for _, i := range informers {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { v.wake() }, UpdateFunc: func(_, _ any) { v.wake() }, DeleteFunc: func(any) { v.wake() },
		}); err != nil {
			cancel()
			return nil, fmt.Errorf("watching certificates: %w", err)
		}
		running.Go(func() { i.RunWithContext(ctx) })
	}
	// A target that cannot be watched delays renewals; a Secret that cannot be watched leaves nothing to serve.
	if !cache.WaitForCacheSync(ctx.Done(), v.secrets.HasSynced) {
		v.stop()
		return nil, nil
	}
	running.Go(func() {
		for _, i := range v.targets {
			cache.WaitForCacheSync(ctx.Done(), i.HasSynced)
		}
		v.wake()
	})
	return v, nil
}

func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func (v *view) wake() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// lags notes that the watch will tell of something newer than seen.
func (v *view) lags(seen *corev1.Secret, now time.Time) {
	v.behind, v.behindEnd = version(seen), now.Add(maxLag)
}

// version is a mark of what was seen.
func version(s *corev1.Secret) string {
	if s == nil {
		return "none"
	}
	return string(s.UID) + "/" + s.ResourceVersion
}

// secret is nil where there is none. It is errChanged while the watch lags behind the own writes.
func (v *view) secret(now time.Time) (*corev1.Secret, error) {
	s, err := v.stored()
	if err == nil && v.behind == version(s) && now.Before(v.behindEnd) {
		return nil, errChanged
	}
	v.behind = ""
	return s, err
}

func (v *view) stored() (*corev1.Secret, error) {
	o, exists, err := v.secrets.GetStore().GetByKey(v.key)
	if err != nil || !exists {
		return nil, err
	}
	s, ok := o.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("the watch of Secret %s holds a %T", v.key, o)
	}
	return s, nil
}

// target is nil where there is none; known is false before the watch has said so.
func (v *view) target(t Target) (o *unstructured.Unstructured, known bool, err error) {
	i := v.targets[t]
	if !i.HasSynced() {
		return nil, false, nil
	}
	stored, exists, err := i.GetStore().GetByKey(t.name)
	if err != nil || !exists {
		return nil, true, err
	}
	u, ok := stored.(*unstructured.Unstructured)
	if !ok {
		return nil, true, fmt.Errorf("the watch of %s holds a %T", t, stored)
	}
	return u, true, nil
}
