// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/pkg/nodeload"
)

const (
	// bindPage is how many pods are listed at once.
	bindPage = 500
	// placed selects pods that are on a node.
	placed = "spec.nodeName!="
	// firstPause and lastPause bound the pause after a watch that failed.
	firstPause, lastPause = time.Second, time.Minute
	// longWatch is how long one watch is asked to last; the server may end it before.
	longWatch = 10 * time.Minute
)

// Binds counts placements from a watch on pods, whoever placed them. It keeps those of the last minutes, as far as a
// policy counts back, and no pod: so the memory does not grow with the cluster. It is a manager.Runnable that only the
// leader runs, and safe for concurrent use.
type Binds struct {
	pods  corev1client.PodsGetter
	clock clock.WithTicker

	mu     sync.Mutex
	binds  *nodeload.Binds
	ranges []nodeload.HotRange
	synced bool
	relist chan struct{}
}

// NewBinds counts nothing before Start.
func NewBinds(pods corev1client.PodsGetter, clk clock.WithTicker) *Binds {
	return &Binds{pods: pods, clock: clk, binds: nodeload.NewBinds(nil), relist: make(chan struct{}, 1)}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b *Binds) NeedLeaderElection() bool { return true }

// Ranges implements BindCounter. New ranges are counted from a new list of pods.
func (b *Binds) Ranges(ranges []nodeload.HotRange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ranges, b.synced = ranges, false
	select {
	case b.relist <- struct{}{}:
	default:
	}
}

// Count implements BindCounter.
func (b *Binds) Count(node string, now time.Time) ([]int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		return nil, false
	}
	return b.binds.Count(node, now), true
}

// Start implements manager.Runnable: it lists and watches until ctx ends.
func (b *Binds) Start(ctx context.Context) error {
	pause := firstPause
	for ctx.Err() == nil {
		b.mu.Lock()
		wanted := len(b.ranges) > 0
		b.mu.Unlock()
		if !wanted {
			select {
			case <-ctx.Done():
			case <-b.relist:
			}
			continue
		}
		began := b.clock.Now()
		err := b.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // It was told to stop, and what broke off for that is no error.
		}
		if err == nil {
			continue // New ranges: begin again.
		}
		if b.clock.Since(began) > lastPause {
			pause = firstPause
		}
		ctrl.LoggerFrom(ctx).WithName("nodeload").V(1).Info("The watch on pods ended", "reason", err.Error(), "again in", pause.String())
		timer := b.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
		pause = min(2*pause, lastPause)
	}
	return nil
}

// follow lists pods and watches them until the watch is lost or the ranges change, which is no error.
func (b *Binds) follow(ctx context.Context) error {
	select {
	case <-b.relist: // What follows is the new list.
	default:
	}
	version, err := b.list(ctx)
	if err != nil {
		return err
	}
	for {
		changed, err := b.watch(ctx, &version)
		if err != nil || changed {
			return err
		}
	}
}

// list counts the pods that are there, a page at a time, and returns the version to watch from.
func (b *Binds) list(ctx context.Context) (string, error) {
	b.mu.Lock()
	ranges := b.ranges
	b.mu.Unlock()
	next := nodeload.NewBinds(ranges)
	opts := metav1.ListOptions{FieldSelector: placed, Limit: bindPage}
	for {
		page, err := b.pods.Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("listing pods: %w", err)
		}
		now := b.clock.Now()
		for i := range page.Items {
			add(next, &page.Items[i], now)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			b.mu.Lock()
			b.binds, b.synced = next, true
			b.mu.Unlock()
			return page.ResourceVersion, nil
		}
	}
}

// errShort ends a watch that a server or a proxy cuts at once, again and again.
var errShort = errors.New("the watch ended at once")

// watch takes events over until the watch ends by itself, which leaves the version to go on from.
func (b *Binds) watch(ctx context.Context, version *string) (changed bool, err error) {
	seconds := int64(longWatch.Seconds())
	w, err := b.pods.Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
		FieldSelector: placed, ResourceVersion: *version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return false, fmt.Errorf("watching pods: %w", err)
	}
	defer w.Stop()
	began := b.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err() //nolint:wrapcheck // The end of the process.
		case <-b.relist:
			return true, nil
		case event, open := <-w.ResultChan():
			if !open && b.clock.Since(began) < firstPause {
				return false, errShort
			}
			if !open {
				return false, nil
			}
			if event.Type == watch.Error {
				return false, fmt.Errorf("watching pods: %w", apierrors.FromObject(event.Object))
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			*version = pod.ResourceVersion
			b.take(event.Type, pod)
		}
	}
}

func (b *Binds) take(event watch.EventType, pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event {
	case watch.Added, watch.Modified:
		add(b.binds, pod, b.clock.Now())
	case watch.Deleted:
		b.binds.Remove(string(pod.UID))
	default: // A bookmark: it has carried the version.
	}
}

// add counts a pod from the time at which it was placed.
func add(to *nodeload.Binds, pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName != "" {
		to.Add(string(pod.UID), pod.Spec.NodeName, scheduledAt(pod), now)
	}
}

// scheduledAt is when the condition PodScheduled became true, and for pods that no scheduler placed their creation.
func scheduledAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
