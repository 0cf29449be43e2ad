// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// The pause between two tries at a kind that cannot be watched. A node that looks again soon loses little of what holds for it, and all
// nodes together do not look at once.
const (
	minRetry   = 500 * time.Millisecond
	maxRetry   = 10 * time.Second
	retrySteps = 6

	// minMissingPause and maxMissingPause are those for a kind that the API server does not serve, doubled each time: a definition may be replaced,
	// and a cluster without it would be asked for ever.
	minMissingPause = 2 * time.Second
	maxMissingPause = time.Minute
	// missingHold is how long what was known of a kind holds after its definition was seen to be gone. Objects go before it, so that nothing is left
	// to be held, unless nobody has heard of that; an API server that starts knows of no definitions at first.
	missingHold = 5 * time.Minute
)

// kindCache is the objects of one kind, as a reflector keeps them. Its fields belong to the Watcher's lock.
type kindCache struct {
	w *Watcher
	// name is for people, in the plural.
	name string
	// selects says which objects are of any use; nil for all.
	selects func(any) bool
	items   map[string]any
	// synced tells that there was a whole list once.
	synced bool
	// answered tells that there was a list or an error.
	answered bool
	// lastError is the last error since which nothing was heard; told is what was logged of it.
	lastError     error
	loggedProblem string
	// missingSince is since when the API server says that it does not serve the kind; zero where it does not say so. pause is the last one.
	missingSince time.Time
	missingWait  time.Duration
}

// lister and watcher are how a client asks for a kind.
type (
	lister  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

// reflector keeps the feed current. client is who asks: some of those for tests know only the older way of beginning a watch.
func (f *kindCache) reflector(kind any, fields string, list lister, follow watcher, client any) *cache.Reflector {
	begin := func(ctx context.Context, o *metav1.ListOptions) {
		o.FieldSelector = fields
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
		Backoff: &wait.Backoff{Duration: minRetry, Cap: maxRetry, Steps: retrySteps, Factor: 2, Jitter: 1},
	})
}

// waitWhileMissing lets time pass where the API server has said that it does not serve the kind.
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

// recordAnswer notes whether the API server answers.
func (f *kindCache) recordAnswer(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err)) {
		return // It ends, or begins anew with a list.
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

// recordMissing notes since when a kind is not served, and forgets what was known of it when that has lasted.
func (f *kindCache) recordMissing(err error) {
	now := f.w.config.Clock.Now()
	switch {
	case err == nil:
		f.missingSince, f.missingWait = time.Time{}, 0
	case !apierrors.IsNotFound(err): // Nobody has said anything of the kind.
	case f.missingSince.IsZero():
		f.missingSince = now
	case f != f.w.caches.nodes && f != f.w.caches.pods && len(f.items) > 0 && now.Sub(f.missingSince) >= missingHold:
		// Nodes and pods there always are: whoever says otherwise is no API server.
		clear(f.items)
		f.w.changed()
	}
}

// complete tells that all objects are known, or that there can be none.
func (f *kindCache) complete() bool { return f.synced || apierrors.IsNotFound(f.lastError) }

// withoutRequest is an error without the request that it is of, which is another one each time.
func withoutRequest(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// problem says what is wrong with the feed; empty for nothing.
func (f *kindCache) problem() string {
	if f.lastError == nil {
		return ""
	}
	rest := "nothing of them is known"
	switch {
	case len(f.items) > 0:
		rest = "what was known of them holds"
	case f.synced:
		rest = "there are none"
	}
	if apierrors.IsNotFound(f.lastError) {
		return fmt.Sprintf("%s: the API server has no such kind, its CustomResourceDefinition is not installed; %s", f.name, rest)
	}
	return fmt.Sprintf("%s: the API server does not tell: %v; %s", f.name, f.lastError, rest)
}

// put takes an object in, without what nobody here reads.
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
		default: // Nobody has heard the last word yet.
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
	f.synced, f.answered, f.lastError = true, true, nil
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
