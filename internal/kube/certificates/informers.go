// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// informers watches the Secret and the targets, each by its name, so that rights to that name are enough.
type informers struct {
	key     string
	secrets cache.SharedIndexInformer
	targets map[Target]cache.SharedIndexInformer
	// changed has an element after a change that was not processed yet.
	changed chan struct{}
	stop    func()

	// staleVersion is the version of the Secret that the watch reported when this replica overwrote it; until the watch reports
	// another one it is outdated.
	staleVersion string
	staleUntil   time.Time
}

// maxLag is the maximum time for the watch to report a write of this replica.
const maxLag = 10 * time.Second

// watch starts the watches and returns when the Secret is known to exist or not to exist.
func (r *Rotator) watch(ctx context.Context) (*informers, error) {
	ctx, cancel := context.WithCancel(ctx)
	v := &informers{
		key:     r.config.Namespace + "/" + r.config.Secret,
		changed: make(chan struct{}, 1),
		targets: map[Target]cache.SharedIndexInformer{},
		stop:    cancel, // Nothing waits for the informers: client-go sleeps up to 30 s between two attempts of a watch.
	}

	v.secrets = r.newSecretInformer()
	informers := []cache.SharedIndexInformer{v.secrets}
	for _, t := range r.config.Targets {
		i := dynamicinformer.NewFilteredDynamicInformer(r.config.Dynamic, t.resource, "", 0, cache.Indexers{}, byName(t.name)).Informer()
		v.targets[t] = i
		informers = append(informers, i)
	}

	for _, i := range informers {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { v.signalChange() }, UpdateFunc: func(_, _ any) { v.signalChange() }, DeleteFunc: func(any) { v.signalChange() },
		}); err != nil {
			cancel()
			return nil, fmt.Errorf("watching certificates: %w", err)
		}

		go i.RunWithContext(ctx)
	}

	// A target that cannot be watched delays renewals; without a watch of the Secret no certificate can be served.
	if !cache.WaitForCacheSync(ctx.Done(), v.secrets.HasSynced) {
		v.stop()
		return nil, nil
	}

	go func() {
		for _, i := range v.targets {
			cache.WaitForCacheSync(ctx.Done(), i.HasSynced)
		}
		v.signalChange()
	}()

	return v, nil
}

// newSecretInformer returns an informer of the Secret. That of client-go links the informers of all kinds.
func (r *Rotator) newSecretInformer() cache.SharedIndexInformer {
	secrets := r.config.Clients.CoreV1().Secrets(r.config.Namespace)
	limit := byName(r.config.Secret)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			limit(&o)
			return secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			limit(&o)
			return secrets.Watch(ctx, o)
		},
	}, r.config.Clients), &corev1.Secret{}, 0, cache.Indexers{})
}

func byName(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func (v *informers) signalChange() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// markStale records that the watch will report a newer version than the given one.
func (v *informers) markStale(seen *corev1.Secret, now time.Time) {
	v.staleVersion = version(seen)
	v.staleUntil = now.Add(maxLag)
}

// version identifies the observed version.
func version(s *corev1.Secret) string {
	if s == nil {
		return "none"
	}

	return string(s.UID) + "/" + s.ResourceVersion
}

// secret returns nil if there is none. The error is errStale while the watch has not reported this replica's last write.
func (v *informers) secret(now time.Time) (*corev1.Secret, error) {
	s, err := v.storedSecret()
	if err == nil && v.staleVersion == version(s) && now.Before(v.staleUntil) {
		return nil, errStale
	}

	v.staleVersion = ""
	return s, err
}

func (v *informers) storedSecret() (*corev1.Secret, error) {
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

// target returns nil if there is none; known is false before the first event of the watch.
func (v *informers) target(t Target) (o *unstructured.Unstructured, synced bool, err error) {
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
