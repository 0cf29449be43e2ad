// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/pkg/nodeload"
)

// podServer serves one page per pod, and one watch after the other.
type podServer struct {
	corev1client.PodInterface

	mu      sync.Mutex
	pods    []corev1.Pod
	lists   int
	fail    error
	watches []string // resource versions of watches
	current *watch.FakeWatcher
}

func (s *podServer) Pods(string) corev1client.PodInterface { return s }

func (s *podServer) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.fail != nil {
		return nil, s.fail
	}

	at, _ := strconv.Atoi(o.Continue)
	if at == 0 {
		s.lists++
	}

	page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
	if at < len(s.pods) {
		page.Items = s.pods[at : at+1]
	}
	if at+1 < len(s.pods) {
		page.Continue = strconv.Itoa(at + 1)
	}

	return page, nil
}

func (s *podServer) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.watches = append(s.watches, o.ResourceVersion)
	s.current = watch.NewFakeWithChanSize(10, false)
	return s.current, nil
}

// placedPod returns a pod that was scheduled some time ago.
func placedPod(name, node, version string, ago time.Duration) corev1.Pod {
	at := metav1.NewTime(time.Now().Add(-ago))
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version, CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at},
		}},
	}
}

func TestBindsFollowPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &podServer{pods: []corev1.Pod{
			placedPod("a", "n", "1", time.Minute), placedPod("b", "n", "2", 4*time.Minute), placedPod("old", "n", "3", time.Hour), placedPod("c", "m", "4", 0),
		}}
		b := NewBinds(s, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())

		done := make(chan struct{})
		go func() {
			defer close(done)

			_ = b.Start(ctx)
		}()

		synctest.Wait()

		if _, ok := b.Count("n", time.Now()); ok || s.lists != 0 {
			t.Errorf("before Ranges: counting %t after %d lists, want neither", ok, s.lists)
		}

		b.Ranges([]nodeload.HotRange{{Range: 5 * time.Minute, Count: 1}, {Range: 2 * time.Minute, Count: 1}})
		synctest.Wait()
		want := func(what string, counts ...int64) {
			t.Helper()

			synctest.Wait()
			if got, ok := b.Count("n", time.Now()); !ok || !slices.Equal(got, counts) {
				t.Errorf("%s: Count = %v, %v, want %v", what, got, ok, counts)
			}
		}

		want("listed, page by page", 2, 1)

		added := placedPod("d", "n", "101", 0)
		s.current.Add(&added)
		s.current.Modify(&added)
		want("a pod counts once", 3, 2)
		s.current.Delete(&s.pods[0])
		want("a pod that is gone", 2, 1)

		<-time.After(10 * time.Second)
		s.current.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "150"}})
		synctest.Wait()
		s.current.Stop()
		synctest.Wait()

		if !slices.Equal(s.watches, []string{"100", "150"}) || s.lists != 1 {
			t.Errorf("after the end of a watch: watched from %v, listed %d times, want a watch from 150 and one list", s.watches, s.lists)
		}

		// The resource version is too old: the client lists again, which may fail for a while.
		s.mu.Lock()
		s.fail = errors.New("away")
		s.mu.Unlock()
		s.current.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		<-time.After(5 * time.Second)
		s.mu.Lock()

		s.fail = nil
		s.pods = []corev1.Pod{placedPod("e", "n", "5", 0)}
		s.mu.Unlock()
		<-time.After(time.Minute)
		want("listed anew", 1, 1)
		cancel()
		<-done
	})
}
