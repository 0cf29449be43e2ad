// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"crane.io/crane/internal/kube/slimclient"
)

const (
	component = "crane-agent"
	// burst and perSecond bound the events per object in client-go, beyond the reporter's own limits.
	burst     = 30
	perSecond = 1.0 / 60
)

// NewRecorder returns a recorder that writes events in the background; up to 1000 may wait. end stops it after the waiting events are
// written or ctx ends.
func NewRecorder(ctx context.Context, client slimclient.Interface, node string) (events record.EventRecorder, end func(ctx context.Context)) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: burst, QPS: perSecond}))
	sink := &eventSink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, last: make(chan struct{})}
	broadcaster.StartRecordingToSink(sink)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})

	return recorder, func(ctx context.Context) {
		recorder.Event(&corev1.ObjectReference{Kind: endMarker, Name: node}, corev1.EventTypeNormal, endMarker, "")
		select {
		case <-sink.last:
		case <-ctx.Done():
		}

		broadcaster.Shutdown()
	}
}

// endMarker is the kind of an event that is never written and marks the end of all events before it.
const endMarker = "end of events"

// eventSink writes events and detects the end marker.
type eventSink struct {
	typedcorev1.EventSinkImpl

	last chan struct{} // closed by the end marker
	once sync.Once
}

// Create implements record.EventSink.
func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == endMarker {
		s.once.Do(func() { close(s.last) })
		return event, nil
	}

	out, err := s.EventSinkImpl.Create(event)
	return out, asRetryable(err)
}

// Patch implements record.EventSink.
func (s *eventSink) Patch(old *corev1.Event, data []byte) (*corev1.Event, error) {
	out, err := s.EventSinkImpl.Patch(old, data)
	return out, asRetryable(err)
}

// asRetryable hides the API status of temporary errors, because the recorder retries only errors without a status.
func asRetryable(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}

	if code := status.Status().Code; code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("the event is not written yet: %w", err)
	}

	return err
}

const (
	// minEventInterval is the least time between two events of the same kind and object.
	minEventInterval = time.Minute
	// maxTracked bounds the tracked keys; beyond it events are dropped.
	maxTracked = 2048
)

// eventLimiter limits the rate of events by key.
type eventLimiter struct{ last map[string]lastEvent }

type lastEvent struct {
	at time.Time
	// suppressed is the number of events dropped since.
	suppressed int
}

// allow reports whether an event may be written, and how many of its key were dropped since the last one.
func (l *eventLimiter) allow(key string, now time.Time) (ok bool, suppressed int) {
	if l.last == nil {
		l.last = map[string]lastEvent{}
	}

	last, isKnown := l.last[key]
	if since := now.Sub(last.at); isKnown && since >= 0 && since < minEventInterval {
		last.suppressed++
		l.last[key] = last
		return false, 0
	}

	if !isKnown && len(l.last) >= maxTracked {
		l.forget(now)
		if len(l.last) >= maxTracked {
			return false, 0
		}
	}

	l.last[key] = lastEvent{at: now}
	return true, last.suppressed
}

// forget drops expired keys.
func (l *eventLimiter) forget(now time.Time) {
	for key, m := range l.last {
		if since := now.Sub(m.at); since < 0 || since >= minEventInterval {
			delete(l.last, key)
		}
	}
}
