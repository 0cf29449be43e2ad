// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package tell

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
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
	to := &sink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, last: make(chan struct{})}
	broadcaster.StartRecordingToSink(to)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	return recorder, func(ctx context.Context) {
		recorder.Event(&corev1.ObjectReference{Kind: lastKind, Name: node}, corev1.EventTypeNormal, lastKind, "")
		select {
		case <-to.last:
		case <-ctx.Done():
		}
		broadcaster.Shutdown()
	}
}

// lastKind is that of what no event is about: it is told when all events before it are written, and is not written itself.
const lastKind = "end of events"

// sink writes events, and knows the last one.
type sink struct {
	typedcorev1.EventSinkImpl

	last chan struct{} // closed by it
	once sync.Once
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == lastKind {
		s.once.Do(func() { close(s.last) })
		return event, nil
	}
	return s.EventSinkImpl.Create(event) //nolint:wrapcheck // The recorder asks what kind of error it is.
}
