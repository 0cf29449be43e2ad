// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/nodeload"
)

// Workload names what a pod belongs to.
type Workload struct {
	Namespace, Kind, Name string
}

// hashLabel is what a Deployment writes on its pods and ends the names of its ReplicaSets with.
const hashLabel = "pod-template-hash"

// WorkloadOf is the workload of a pod, by what stands in the pod: no other object is read. A ReplicaSet whose name ends in
// the pod's template hash is that of a Deployment, a Job whose name ends in a number of eight digits is that of a CronJob.
// A pod without a controller belongs to nothing.
func WorkloadOf(pod *corev1.Pod) Workload {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return Workload{}
	}
	w := Workload{Namespace: pod.Namespace, Kind: owner.Kind, Name: owner.Name}
	switch owner.Kind {
	case "ReplicaSet":
		hash := pod.Labels[hashLabel]
		if name, ours := strings.CutSuffix(owner.Name, "-"+hash); ours && hash != "" && name != "" {
			w.Kind, w.Name = "Deployment", name
		}
	case "Job":
		if i := strings.LastIndexByte(owner.Name, '-'); i > 0 && len(owner.Name)-i > 8 && digits(owner.Name[i+1:]) {
			w.Kind, w.Name = "CronJob", owner.Name[:i]
		}
	}
	return w
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// History is what workloads were found to use, for each of their pods. It is safe for concurrent use; the zero History
// knows nothing.
type History struct {
	mu   sync.RWMutex
	uses map[Workload]nodeload.Amount // guarded by mu
}

// Learn says what a pod of the workload uses. Where both amounts are 0 the workload is forgotten.
func (h *History) Learn(w Workload, use nodeload.Amount) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if use.CPU <= 0 && use.Memory <= 0 {
		delete(h.uses, w)
		return
	}
	if h.uses == nil {
		h.uses = map[Workload]nodeload.Amount{}
	}
	h.uses[w] = use
}

// Use is what a pod of the workload uses; 0 where that is not known.
func (h *History) Use(w Workload) nodeload.Amount {
	if w.Name == "" {
		return nodeload.Amount{}
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.uses[w]
}

// Len is the number of workloads that something is known of.
func (h *History) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.uses)
}
