// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
)

// TestRecorderEnds checks that queued events are written before the end.
func TestRecorderEnds(t *testing.T) {
	client := fake.NewClientset()
	// The first write takes until all are queued.
	hold := make(chan struct{})
	client.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) {
		<-hold
		return false, nil, nil
	})

	recorder, end := NewRecorder(t.Context(), client, "node-1")
	const events = 20
	for i := range events {
		recorder.Event(&corev1.ObjectReference{Kind: "Pod", Namespace: "batch", Name: fmt.Sprintf("sort-%d", i)}, corev1.EventTypeNormal, reasonCPURestored, "all back")
	}

	close(hold)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	end(ctx)
	list, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != events || ctx.Err() != nil {
		t.Errorf("%d events are written, %v, %v; want %d before the end", len(list.Items), err, ctx.Err(), events)
	}

	for i := range list.Items {
		if list.Items[i].Reason != reasonCPURestored {
			t.Errorf("the event is %+v, want reason %s", list.Items[i], reasonCPURestored)
		}
	}

	recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: "node-1"}, corev1.EventTypeNormal, reasonChangesUndone, "too late") // no panic
}

// TestRecorderEndsAlone checks that a hanging API server does not delay the end.
func TestRecorderEndsAlone(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	recorder, end := NewRecorder(t.Context(), client, "node-1")
	recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: "node-1"}, corev1.EventTypeNormal, reasonChangesUndone, "lost")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	end(ctx)
}

// TestEventTriedAgain checks that temporary errors are retried and errors about the event are not.
func TestEventTriedAgain(t *testing.T) {
	what := schema.GroupResource{Resource: "events"}
	for name, test := range map[string]struct {
		err   error
		again bool
	}{
		"written":             {nil, false},
		"busy":                {apierrors.NewTooManyRequests("busy", 1), true},
		"fails":               {apierrors.NewInternalError(errors.New("etcd")), true},
		"unavailable":         {apierrors.NewServiceUnavailable("gone"), true},
		"overtaken":           {apierrors.NewConflict(what, "e", errors.New("modified")), true},
		"there already":       {apierrors.NewAlreadyExists(what, "e"), false},
		"invalid":             {apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "e", nil), false},
		"nothing to be found": {apierrors.NewNotFound(what, "e"), false},
	} {
		// The recorder checks only the type and drops events with this one.
		_, answered := asRetryable(test.err).(*apierrors.StatusError)
		if again := test.err != nil && !answered; again != test.again {
			t.Errorf("%s: asRetryable: tried again %t, want %t", name, again, test.again)
		}
	}
}
