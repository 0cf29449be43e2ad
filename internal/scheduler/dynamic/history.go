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

// Workload identifies the workload of a pod.
type Workload struct {
	Namespace, Kind, Name string
}

// hashLabel is the label that a Deployment sets on its pods and appends to the names of its ReplicaSets.
const hashLabel = "pod-template-hash"

// WorkloadOf returns the workload of a pod from the pod alone. A ReplicaSet whose name ends in the pod's template
// hash belongs to a Deployment, a Job whose name ends in a number of eight digits to a CronJob. A pod without a
// controller has no workload.
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
			w.Kind = "Deployment"
			w.Name = name
		}

	case "Job":
		if i := strings.LastIndexByte(owner.Name, '-'); i > 0 && len(owner.Name)-i > 8 && digits(owner.Name[i+1:]) {
			w.Kind = "CronJob"
			w.Name = owner.Name[:i]
		}
	}

	return w
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// History holds the usage of workloads per pod. It is safe for concurrent use; the zero History is empty.
type History struct {
	mu   sync.RWMutex
	uses map[Workload]nodeload.Amount // guarded by mu
}

// Learn sets the usage of a workload's pod. The workload is removed if both amounts are 0.
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

// Use returns the usage of a workload's pod; 0 if unknown.
func (h *History) Use(w Workload) nodeload.Amount {
	if w.Name == "" {
		return nodeload.Amount{}
	}

	h.mu.RLock()
	defer h.mu.RUnlock()

	return h.uses[w]
}

// Len returns the number of workloads.
func (h *History) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()

	return len(h.uses)
}
