// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/pluginconfig"
)

// maxWaiting is the maximum number of remembered pods. Others are retried by the scheduler's own timeout of five
// minutes.
const maxWaiting = 10_000

// waiting holds the pods without zones, so that a changed NodeResourceTopology wakes those that it helps. The
// scheduler's own mechanism, an event of the custom resource, would prevent the scheduler from starting without the
// CustomResourceDefinition, and would store every object twice.
type waiting struct {
	mu   sync.Mutex
	pods map[types.UID]waiter
}

type waiter struct {
	pod     *corev1.Pod
	request *request
	missing pluginconfig.MissingTopology
	queue   fwk.PodActivator
}

func newWaiting() *waiting { return &waiting{pods: map[types.UID]waiter{}} }

func (w *waiting) add(p waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, ok := w.pods[p.pod.UID]; ok || len(w.pods) < maxWaiting {
		w.pods[p.pod.UID] = p
	}
}

func (w *waiting) remove(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.pods, uid)
}

// during runs change and returns, by queue, the pods that it helped: helps returned false before and true after. They
// stay in the list until they are placed.
func (w *waiting) during(change func(), helps func(waiter) bool) map[fwk.PodActivator]map[string]*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()

	var before []waiter
	for _, p := range w.pods {
		if !helps(p) {
			before = append(before, p)
		}
	}

	// helps is evaluated twice, because a pod that fitted before is being placed already and needs no wake-up.
	change()

	var woken map[fwk.PodActivator]map[string]*corev1.Pod
	for _, p := range before {
		if !helps(p) {
			continue
		}

		if woken == nil {
			woken = map[fwk.PodActivator]map[string]*corev1.Pod{}
		}
		if woken[p.queue] == nil {
			woken[p.queue] = map[string]*corev1.Pod{}
		}

		woken[p.queue][p.pod.Namespace+"/"+p.pod.Name] = p.pod
	}

	return woken
}
