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
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
	pauses     = 6

	// firstMissing and missingPause are those for a kind that the API server does not serve, doubled each time: a definition may be replaced,
	// and a cluster without it would be asked for ever.
	firstMissing = 2 * time.Second
	missingPause = time.Minute
	// held is how long what was known of a kind holds after its definition was seen to be gone. Objects go before it, so that nothing is left
	// to be held, unless nobody has heard of that; an API server that starts knows of no definitions at first.
	held = 5 * time.Minute
)

// feed is the objects of one kind, as a reflector keeps them. Its fields belong to the Watcher's lock.
type feed struct {
	w *Watcher
	// name is for people, in the plural.
	name string
	// keep says which objects are of any use; nil for all.
	keep  func(any) bool
	items map[string]any
	// had tells that there was a whole list once.
	had bool
	// answered tells that there was a list or an error.
	answered bool
	// failing is the last error since which nothing was heard; told is what was logged of it.
	failing error
	told    string
	// missing is since when the API server says that it does not serve the kind; zero where it does not say so. pause is the last one.
	missing time.Time
	pause   time.Duration
}

// lister and watcher are how a client asks for a kind.
type (
	lister  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

// reflector keeps the feed current. client is who asks: some of those for tests know only the older way of beginning a watch.
func (f *feed) reflector(kind any, fields string, list lister, follow watcher, client any) *cache.Reflector {
	begin := func(ctx context.Context, o *metav1.ListOptions) {
		o.FieldSelector = fields
		f.wait(ctx)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			begin(ctx, &o)
			out, err := list(ctx, o)
			f.hear(ctx, err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			begin(ctx, &o)
			out, err := follow(ctx, o)
			f.hear(ctx, err)
			return out, err
		},
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, f, cache.ReflectorOptions{
		Name: f.name, TypeDescription: f.name,
		Backoff: &wait.Backoff{Duration: firstPause, Cap: lastPause, Steps: pauses, Factor: 2, Jitter: 1},
	})
}

// wait lets time pass where the API server has said that it does not serve the kind.
func (f *feed) wait(ctx context.Context) {
	f.w.mu.Lock()
	missing := !f.missing.IsZero()
	if missing {
		f.pause = min(max(2*f.pause, firstMissing), missingPause)
	}
	pause := f.pause
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

// hear notes whether the API server answers.
func (f *feed) hear(ctx context.Context, err error) {
	if err != nil && (ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err)) {
		return // It ends, or begins anew with a list.
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.miss(err)
	err = bare(err)
	if err == nil && f.failing == nil || err != nil && f.failing != nil && err.Error() == f.failing.Error() {
		return
	}
	f.failing = err
	f.answered = f.answered || err != nil
	f.w.changed()
}

// miss notes since when a kind is not served, and forgets what was known of it when that has lasted.
func (f *feed) miss(err error) {
	now := f.w.config.Clock.Now()
	switch {
	case err == nil:
		f.missing, f.pause = time.Time{}, 0
	case !apierrors.IsNotFound(err): // Nobody has said anything of the kind.
	case f.missing.IsZero():
		f.missing = now
	case f != f.w.feeds.nodes && f != f.w.feeds.pods && len(f.items) > 0 && now.Sub(f.missing) >= held:
		// Nodes and pods there always are: whoever says otherwise is no API server.
		clear(f.items)
		f.w.changed()
	}
}

// known tells that all objects are known, or that there can be none.
func (f *feed) known() bool { return f.had || apierrors.IsNotFound(f.failing) }

// bare is an error without the request that it is of, which is another one each time.
func bare(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// problem says what is wrong with the feed; empty for nothing.
func (f *feed) problem() string {
	if f.failing == nil {
		return ""
	}
	rest := "nothing of them is known"
	switch {
	case len(f.items) > 0:
		rest = "what was known of them holds"
	case f.had:
		rest = "there are none"
	}
	if apierrors.IsNotFound(f.failing) {
		return fmt.Sprintf("%s: the API server has no such kind, its CustomResourceDefinition is not installed; %s", f.name, rest)
	}
	return fmt.Sprintf("%s: the API server does not tell: %v; %s", f.name, f.failing, rest)
}

// put takes an object in, without what nobody here reads.
func (f *feed) put(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	key := o.GetNamespace() + "/" + o.GetName()
	if f.keep != nil && !f.keep(obj) {
		delete(f.items, key)
		return nil
	}
	o.SetManagedFields(nil)
	f.items[key] = obj
	if f == f.w.feeds.nodes {
		select {
		case f.w.nodeChanged <- struct{}{}:
		default: // Nobody has heard the last word yet.
		}
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	defer f.w.changed()
	return f.put(obj)
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(obj any) error {
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
func (f *feed) Replace(list []any, _ string) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	defer f.w.changed()
	f.had, f.answered, f.failing = true, true, nil
	clear(f.items)
	for _, obj := range list {
		if err := f.put(obj); err != nil {
			return err
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }
