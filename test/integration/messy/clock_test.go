// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jumpClock is the clock of craned: the system's plus an offset that grows. The API server writes times of the system's clock, which Shifted
// converts. Timers run on, as they do when the clock of a system is set.
type jumpClock struct {
	clock.RealClock

	mu    sync.Mutex
	jumps []jump
}

// jump is an offset from a time of the system's clock on.
type jump struct {
	from   time.Time
	offset time.Duration
}

// Now implements clock.PassiveClock.
func (c *jumpClock) Now() time.Time { return c.shifted(time.Now()).Round(0) }

// Since implements clock.PassiveClock.
func (c *jumpClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// shifted returns the time of craned at a time of the system.
func (c *jumpClock) shifted(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, j := range slices.Backward(c.jumps) {
		if !t.Before(j.from) {
			return t.Add(j.offset)
		}
	}

	return t
}

// jump adds to the offset at the next second, because the API server writes times in whole seconds.
func (c *jumpClock) jump(ctx context.Context, d time.Duration) error {
	at := time.Now().Add(time.Second).Truncate(time.Second)
	c.mu.Lock()
	offset := d.Truncate(time.Second)
	if n := len(c.jumps); n > 0 {
		offset += c.jumps[n-1].offset
	}
	c.jumps = append(c.jumps, jump{at, offset})
	c.mu.Unlock()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

// shiftedReader shifts the times of what it reads.
type shiftedReader struct {
	client.Reader
	clock *jumpClock
}

// Get implements client.Reader.
func (r shiftedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, opts...)
	shiftTimes(reflect.ValueOf(o), r.clock)
	return err
}

// List implements client.Reader.
func (r shiftedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, list, opts...)
	shiftTimes(reflect.ValueOf(list), r.clock)
	return err
}

// shiftTimes shifts all times below a value.
func shiftTimes(v reflect.Value, c *jumpClock) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			shiftTimes(v.Elem(), c)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}

		for i := range v.Len() {
			shiftTimes(v.Index(i), c)
		}
	case reflect.Struct:
		shiftStruct(v, c)
	}
}

func shiftStruct(v reflect.Value, c *jumpClock) {
	if !v.CanAddr() {
		return
	}

	switch t := v.Addr().Interface().(type) {
	case *metav1.Time:
		if !t.IsZero() {
			t.Time = c.shifted(t.Time)
		}
	case *metav1.MicroTime:
		if !t.IsZero() {
			t.Time = c.shifted(t.Time)
		}
	default:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				shiftTimes(v.Field(i), c)
			}
		}
	}
}

// TestJumpClock_Shifted checks that a time before a jump is shifted by the offset before it.
func TestJumpClock_Shifted(t *testing.T) {
	c := &jumpClock{}
	before := time.Now().Truncate(time.Second)
	if err := c.jump(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}

	after := before.Add(10 * time.Second)
	pods := &corev1.PodList{Items: []corev1.Pod{{}, {}}}
	pods.Items[0].CreationTimestamp = metav1.NewTime(before)
	pods.Items[1].Status.StartTime = new(metav1.NewTime(after))
	shiftTimes(reflect.ValueOf(pods), c)

	if got := pods.Items[0].CreationTimestamp.Time; !got.Equal(before) {
		t.Errorf("shiftTimes before the jump = %s, want %s", got, before)
	}
	if got := pods.Items[1].Status.StartTime.Time; !got.Equal(after.Add(time.Hour)) {
		t.Errorf("shiftTimes after the jump = %s, want an hour after %s", got, after)
	}
}
