// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"crane.io/crane/test/hostrecording"
)

// TestLatest checks that a loaded snapshot never changes.
func TestLatest(t *testing.T) {
	var latest Latest
	if s := latest.Load(); s != nil {
		t.Fatalf("Load() before the first Publish = %+v, want nil", s)
	}

	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	dir := rec.Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	latest.Publish(o.Collect(now))
	first := latest.Load()
	rec.To(1)

	for i := range 5 {
		latest.Publish(o.Collect(now.Add(rec.Moments[1].At + time.Duration(i)*time.Second)))
		if i == 0 && findPod(latest.Load(), guaranteed).UsedCPU.Value != 500 {
			t.Errorf("Load() has pod %+v, want the published 500m", findPod(latest.Load(), guaranteed))
		}
	}

	if !first.At.Equal(now) || first.Node.UsedCPU.OK || len(first.Pods) != 4 || findPod(first, guaranteed).UsedCPU.OK || len(findPod(first, guaranteed).Containers) != 2 {
		t.Errorf("a loaded snapshot became %+v, want it unchanged", first)
	}

	// The copy is complete; this fails for a new field that copyFrom misses.
	s := o.Collect(now.Add(time.Minute))
	s.Problems["x"] = "y"
	latest.Publish(s)

	if got := latest.Load(); !reflect.DeepEqual(got, s) {
		t.Errorf("Load() = %+v, want a copy of %+v", got, s)
	}
	if got := latest.Load(); &got.Pods[0] == &s.Pods[0] || &got.Disks[0] == &s.Disks[0] || &got.Pods[0].Containers[0] == &s.Pods[0].Containers[0] {
		t.Error("the copy shares memory with the snapshot, want its own")
	}
}

// TestLatestMakesNoGarbage checks that publishing without readers does not allocate.
func TestLatestMakesNoGarbage(t *testing.T) {
	o := newObserver(t, recordManyPods(t, 20))
	s := o.Collect(time.Now())
	var latest Latest
	latest.Publish(s)
	latest.Publish(s)

	if allocations := testing.AllocsPerRun(20, func() { latest.Publish(s) }); allocations > 0 {
		t.Errorf("Publish allocates %g times, want 0", allocations)
	}
}

// TestLatestConcurrently runs readers beside a publisher for the race detector.
func TestLatestConcurrently(t *testing.T) {
	o := newObserver(t, recordManyPods(t, 3))
	var latest Latest
	var readers sync.WaitGroup

	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}

				if s := latest.Load(); s != nil && findPod(s, guaranteed) == nil {
					t.Error("Load() lacks a pod, want a complete snapshot")
				}
			}
		})
	}

	now := time.Now()
	for range 50 {
		now = now.Add(time.Second)
		latest.Publish(o.Collect(now))
	}

	close(stop)
	readers.Wait()
}
