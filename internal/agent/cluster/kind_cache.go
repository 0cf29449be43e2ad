// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"crane.io/crane/internal/component/backoff"
)

// Pauses between attempts to watch a kind: short, so that a node misses little, and random, so that not all nodes retry together.
const (
	minRetry   = 500 * time.Millisecond
	maxRetry   = 10 * time.Second
	retrySteps = 6

	// minMissingPause and maxMissingPause bound the pause, doubled each time, for a kind that the API server does not serve: its
	// definition may be replaced or never installed.
	minMissingPause = 2 * time.Second
	maxMissingPause = time.Minute
	// missingHold is how long the objects of a kind are kept after its definition disappeared. Objects are normally deleted before it, and
	// a starting API server knows no definitions at first.
	missingHold = 5 * time.Minute
)

// kindCache caches the objects of one kind for a reflector. The Watcher's lock protects its fields.
type kindCache struct {
	w *Watcher
	// name is the plural in messages.
	name string
	// selects filters objects; nil for all.
	selects func(any) bool
	items   map[string]any
	// synced reports that the kind was listed once.
	synced bool
	// answered reports that there was a list or an error.
	answered bool
	// lastError is the last error since the last answer; loggedProblem is what was logged of it.
	lastError     error
	loggedProblem string
	// missingSince is since when the API server does not serve the kind; zero if it does. missingWait is the last pause.
	missingSince time.Time
	missingWait  time.Duration
}

// lister and watcher are a client's calls for a kind.
type (
	lister  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

// reflector returns a reflector that updates the cache with the objects that selector selects. client is needed because some test clients
// support only the older watch protocol.
func (k *kindCache) reflector(kind any, selector metav1.ListOptions, list lister, follow watcher, client any) *cache.Reflector {
	begin := func(ctx context.Context, o *metav1.ListOptions) {
		o.FieldSelector = selector.FieldSelector
		o.LabelSelector = selector.LabelSelector
		k.waitWhileMissing(ctx)
	}

	// Every answer is recorded, so that the state lists what is unavailable and why.
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			begin(ctx, &o)
			out, err := list(ctx, o)
			k.recordAnswer(ctx, err)

			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			begin(ctx, &o)
			out, err := follow(ctx, o)
			k.recordAnswer(ctx, err)

			return out, err
		},
	}

	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, k, cache.ReflectorOptions{
		Name: k.name, TypeDescription: k.name,
		Backoff: &wait.Backoff{
			Duration: minRetry,
			Cap:      maxRetry,
			Steps:    retrySteps,
			Factor:   2,
			Jitter:   1,
		},
	})
}

// waitWhileMissing pauses if the API server does not serve the kind.
func (k *kindCache) waitWhileMissing(ctx context.Context) {
	k.w.mu.Lock()
	missing := !k.missingSince.IsZero()
	if missing {
		k.missingWait = backoff.Exponential{First: minMissingPause, Last: maxMissingPause}.Next(k.missingWait)
	}

	pause := k.missingWait
	k.w.mu.Unlock()

	if !missing {
		return
	}

	timer := k.w.config.Clock.NewTimer(pause)
	defer timer.Stop()

	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// recordAnswer records whether the API server answers.
func (k *kindCache) recordAnswer(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err)) {
		return // The watch ends or starts over with a list.
	}

	k.w.mu.Lock()
	defer k.w.mu.Unlock()

	k.recordMissing(err)
	err = withoutRequest(err)
	if err == nil && k.lastError == nil || err != nil && k.lastError != nil && err.Error() == k.lastError.Error() {
		return
	}

	k.lastError = err
	k.answered = k.answered || err != nil
	k.w.changed()
}

// recordMissing records since when a kind is not served and drops its objects after missingHold.
func (k *kindCache) recordMissing(err error) {
	now := k.w.config.Clock.Now()
	switch {
	case err == nil:
		k.missingSince = time.Time{}
		k.missingWait = 0
	case !apierrors.IsNotFound(err): // No statement about the kind.
	case k.missingSince.IsZero():
		k.missingSince = now
	case !slices.Contains(k.w.builtIn(), k) && len(k.items) > 0 && now.Sub(k.missingSince) >= missingHold:
		// Kinds of Kubernetes itself always exist; only something other than an API server denies them.
		clear(k.items)
		k.w.changed()
	}
}

// complete reports that all objects are known or that none can exist.
func (k *kindCache) complete() bool { return k.synced || apierrors.IsNotFound(k.lastError) }

// withoutRequest strips the request, which differs each time, from an error.
func withoutRequest(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}

	return err
}

// problem describes the error of the cache; empty for none.
func (k *kindCache) problem() string {
	if k.lastError == nil {
		return ""
	}

	rest := "no objects are known"
	switch {
	case len(k.items) > 0:
		rest = "the last known objects are kept"
	case k.synced:
		rest = "there are none"
	}

	if apierrors.IsNotFound(k.lastError) {
		return fmt.Sprintf("%s: the API server does not serve this kind: its CustomResourceDefinition is not installed; %s", k.name, rest)
	}

	return fmt.Sprintf("%s: watch failed: %v; %s", k.name, k.lastError, rest)
}

// put stores an object without its managed fields.
func (k *kindCache) put(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}

	key := o.GetNamespace() + "/" + o.GetName()
	if k.selects != nil && !k.selects(obj) {
		delete(k.items, key)
		return nil
	}

	o.SetManagedFields(nil)
	k.items[key] = obj
	if k == k.w.caches.nodes {
		select {
		case k.w.nodeChanged <- struct{}{}:
		default: // A change is already pending.
		}
	}

	return nil
}

// Add implements cache.ReflectorStore.
func (k *kindCache) Add(obj any) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	defer k.w.changed()

	return k.put(obj)
}

// Update implements cache.ReflectorStore.
func (k *kindCache) Update(obj any) error { return k.Add(obj) }

// Delete implements cache.ReflectorStore.
func (k *kindCache) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}

	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	defer k.w.changed()

	delete(k.items, o.GetNamespace()+"/"+o.GetName())
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kindCache) Replace(list []any, _ string) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	defer k.w.changed()

	k.synced = true
	k.answered = true
	k.lastError = nil
	clear(k.items)

	for _, obj := range list {
		if err := k.put(obj); err != nil {
			return err
		}
	}

	return nil
}

// Resync implements cache.ReflectorStore.
func (k *kindCache) Resync() error { return nil }
