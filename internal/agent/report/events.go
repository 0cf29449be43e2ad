// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	component = "crane-agent"
	// burst and perSecond bound the events about one object, should the teller's own bound not: client-go drops what is more.
	burst     = 30
	perSecond = 1.0 / 60
)

// NewRecorder returns a recorder that writes events beside whoever calls it; 1000 of them wait at most. end ends it, when those that wait
// are written or ctx ends.
func NewRecorder(ctx context.Context, client kubernetes.Interface, node string) (events record.EventRecorder, end func(ctx context.Context)) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: burst, QPS: perSecond}))
	to := &eventSink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, last: make(chan struct{})}
	broadcaster.StartRecordingToSink(to)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	return recorder, func(ctx context.Context) {
		recorder.Event(&corev1.ObjectReference{Kind: endMarker, Name: node}, corev1.EventTypeNormal, endMarker, "")
		select {
		case <-to.last:
		case <-ctx.Done():
		}
		broadcaster.Shutdown()
	}
}

// endMarker is that of what no event is about: it is told when all events before it are written, and is not written itself.
const endMarker = "end of events"

// eventSink writes events, and knows the last one.
type eventSink struct {
	typedcorev1.EventSinkImpl

	last chan struct{} // closed by it
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

// asRetryable makes of what an API server answers, and may not answer a moment later, an error that is no answer: the recorder drops an event
// for any answer, and tries again where it has none.
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
