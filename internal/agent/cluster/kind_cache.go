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

// reflector returns a reflector that updates the cache with the objects that selector selects. client is needed because some test clients support only the older watch protocol.
func (f *kindCache) reflector(kind any, selector metav1.ListOptions, list lister, follow watcher, client any) *cache.Reflector {
	begin := func(ctx context.Context, o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = selector.FieldSelector, selector.LabelSelector
		f.waitWhileMissing(ctx)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			begin(ctx, &o)
			out, err := list(ctx, o)
			f.recordAnswer(ctx, err)

			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			begin(ctx, &o)
			out, err := follow(ctx, o)
			f.recordAnswer(ctx, err)

			return out, err
		},
	}

	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, f, cache.ReflectorOptions{
		Name: f.name, TypeDescription: f.name,
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
func (f *kindCache) waitWhileMissing(ctx context.Context) {
	f.w.mu.Lock()
	missing := !f.missingSince.IsZero()
	if missing {
		f.missingWait = min(max(2*f.missingWait, minMissingPause), maxMissingPause)
	}

	pause := f.missingWait
	f.w.mu.Unlock()

	if !missing {
		return
	}

	timer := f.w.config.Clock.NewTimer(pause)
	defer timer.Stop()

	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// recordAnswer records whether the API server answers.
func (f *kindCache) recordAnswer(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err)) {
		return // The watch ends or starts over with a list.
	}

	f.w.mu.Lock()
	defer f.w.mu.Unlock()

	f.recordMissing(err)
	err = withoutRequest(err)
	if err == nil && f.lastError == nil || err != nil && f.lastError != nil && err.Error() == f.lastError.Error() {
		return
	}

	f.lastError = err
	f.answered = f.answered || err != nil
	f.w.changed()
}

// recordMissing records since when a kind is not served and drops its objects after missingHold.
func (f *kindCache) recordMissing(err error) {
	now := f.w.config.Clock.Now()
	switch {
	case err == nil:
		f.missingSince = time.Time{}
		f.missingWait = 0
	case !apierrors.IsNotFound(err): // No statement about the kind.
	case f.missingSince.IsZero():
		f.missingSince = now
	case !slices.Contains(f.w.builtIn(), f) && len(f.items) > 0 && now.Sub(f.missingSince) >= missingHold:
		// Kinds of Kubernetes itself always exist; only something other than an API server denies them.
		clear(f.items)
		f.w.changed()
	}
}

// complete reports that all objects are known or that none can exist.
func (f *kindCache) complete() bool { return f.synced || apierrors.IsNotFound(f.lastError) }

// withoutRequest strips the request, which differs each time, from an error.
func withoutRequest(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}

	return err
}

// problem describes the error of the cache; empty for none.
func (f *kindCache) problem() string {
	if f.lastError == nil {
		return ""
	}

	rest := "no objects are known"
	switch {
	case len(f.items) > 0:
		rest = "the last known objects are kept"
	case f.synced:
		rest = "there are none"
	}

	if apierrors.IsNotFound(f.lastError) {
		return fmt.Sprintf("%s: the API server does not serve this kind: its CustomResourceDefinition is not installed; %s", f.name, rest)
	}

	return fmt.Sprintf("%s: watch failed: %v; %s", f.name, f.lastError, rest)
}

// put stores an object without its managed fields.
func (f *kindCache) put(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}

	key := o.GetNamespace() + "/" + o.GetName()
	if f.selects != nil && !f.selects(obj) {
		delete(f.items, key)
		return nil
	}

	o.SetManagedFields(nil)
	f.items[key] = obj
	if f == f.w.caches.nodes {
		select {
		case f.w.nodeChanged <- struct{}{}:
		default: // A change is already pending.
		}
	}

	return nil
}

// Add implements cache.ReflectorStore.
func (f *kindCache) Add(obj any) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	defer f.w.changed()

	return f.put(obj)
}

// Update implements cache.ReflectorStore.
func (f *kindCache) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *kindCache) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}

	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	defer f.w.changed()

	delete(f.items, o.GetNamespace()+"/"+o.GetName())
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *kindCache) Replace(list []any, _ string) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	defer f.w.changed()

	f.synced = true
	f.answered = true
	f.lastError = nil
	clear(f.items)

	for _, obj := range list {
		if err := f.put(obj); err != nil {
			return err
		}
	}

	return nil
}

// Resync implements cache.ReflectorStore.
func (f *kindCache) Resync() error { return nil }
