// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podwatch watches the pods of a cluster without a cache, so that memory does not grow with the cluster. A Handler
// processes the pods.
package podwatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/backoff"
)

const (
	// pageSize is the page size of lists.
	pageSize = 500
	// minBackoff and maxBackoff bound the delay after a failed watch.
	minBackoff, maxBackoff = time.Second, time.Minute
	// watchTimeout is the requested duration of one watch; the server may end it earlier.
	watchTimeout = 10 * time.Minute
)

// Handler processes pods, called by one goroutine. It must not keep or change them.
type Handler interface {
	// ListStarted is called when a full list starts; after an interrupted watch changes may have been missed.
	ListStarted()
	// PodUpdated is called for each pod that exists or has changed.
	PodUpdated(*corev1.Pod)
	// ListCompleted is called when the list is complete; changes follow.
	ListCompleted()
	// PodDeleted is called for a deleted pod, but not for one that was deleted while the watch was interrupted.
	PodDeleted(*corev1.Pod)
}

// Watcher watches pods.
type Watcher struct {
	Pods corev1client.PodsGetter
	// Fields is a field selector; empty for all pods.
	Fields string
	Clock  clock.WithTicker
	// Name identifies the watcher in the log.
	Name string
}

// Run lists and watches until ctx ends. It starts again, after a delay, whenever the watch is lost, and at once when again
// receives a value.
func (w Watcher) Run(ctx context.Context, visitor Handler, again <-chan struct{}) {
	delays := backoff.Exponential{First: minBackoff, Last: maxBackoff}
	pause := delays.First
	for ctx.Err() == nil {
		began := w.Clock.Now()
		err := w.follow(ctx, visitor, again)
		if ctx.Err() != nil || err == nil {
			return
		}

		if w.Clock.Since(began) > maxBackoff {
			pause = delays.First
		}

		ctrl.LoggerFrom(ctx).WithName(w.Name).V(1).Info("watch on pods ended", "reason", err.Error(), "retryAfter", pause.String())
		timer := w.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}

		pause = delays.Next(pause)
	}
}

// follow lists and watches pods until the watch is lost, or until again receives a value, which is no error.
func (w Watcher) follow(ctx context.Context, visitor Handler, again <-chan struct{}) error {
	select {
	case <-again: // The next call lists again.
	default:
	}

	version, err := w.list(ctx, visitor)
	if err != nil {
		return err
	}

	for {
		begin, err := w.watch(ctx, &version, visitor, again)
		if err != nil || begin {
			return err
		}
	}
}

// list visits the existing pods page by page and returns the version to watch from.
func (w Watcher) list(ctx context.Context, visitor Handler) (string, error) {
	visitor.ListStarted()
	opts := metav1.ListOptions{FieldSelector: w.Fields, Limit: pageSize}
	for {
		list, err := w.Pods.Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("listing pods: %w", err)
		}

		for i := range list.Items {
			visitor.PodUpdated(&list.Items[i])
		}

		if opts.Continue = list.Continue; opts.Continue == "" {
			visitor.ListCompleted()
			return list.ResourceVersion, nil
		}
	}
}

// errShortWatch ends a watch that a server or a proxy repeatedly closes at once.
var errShortWatch = errors.New("the watch ended at once")

// watch passes events on until the watch ends by itself, and returns the version to continue from.
func (w Watcher) watch(ctx context.Context, version *string, visitor Handler, again <-chan struct{}) (begin bool, err error) {
	seconds := int64(watchTimeout.Seconds())
	events, err := w.Pods.Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
		FieldSelector:       w.Fields,
		ResourceVersion:     *version,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		return false, fmt.Errorf("watching pods: %w", err)
	}
	defer events.Stop()

	began := w.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()

		case <-again:
			return true, nil

		case event, open := <-events.ResultChan():
			if !open && w.Clock.Since(began) < minBackoff {
				return false, errShortWatch
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
			switch event.Type {
			case watch.Added, watch.Modified:
				visitor.PodUpdated(pod)
			case watch.Deleted:
				visitor.PodDeleted(pod)
			default: // A bookmark, which only has a version.
			}
		}
	}
}
