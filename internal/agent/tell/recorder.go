// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package tell

import (
	"context"

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

// NewRecorder returns a recorder that writes events beside whoever calls it; 1000 of them wait at most. end ends it.
func NewRecorder(ctx context.Context, client kubernetes.Interface, node string) (events record.EventRecorder, end func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: burst, QPS: perSecond}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node}), broadcaster.Shutdown
}
