// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/heap"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/scheduler/simulate/simcluster"
)

const (
	namespace     = "simulated"
	schedulerName = "default-scheduler"
	podsPerNode   = 250
)

func nodeObject(n simcluster.Node) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(n.CPU), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(n.Memory), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID(n.Name), Labels: map[string]string{corev1.LabelHostname: n.Name}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}

// podObject returns a pod as created by a ReplicaSet. Its UID is its index.
func podObject(w *simcluster.World, pod int, created metav1.Time) *corev1.Pod {
	p := &w.Pods[pod]
	object := podOf(p.Workload)
	object.Name += "-" + strconv.Itoa(pod)
	object.UID = types.UID(strconv.Itoa(pod))
	object.CreationTimestamp = created

	object.Spec = corev1.PodSpec{
		SchedulerName: schedulerName,
		Containers: []corev1.Container{{
			Name: "main", Image: "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(p.CPU), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(int64(p.Memory), resource.BinarySI),
			}},
		}},
	}

	object.Status.Phase = corev1.PodPending
	return object
}

// podOf returns the common fields of all pods of a workload.
func podOf(workload int) *corev1.Pod {
	owner := "workload-" + strconv.Itoa(workload)
	controller := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      owner,
		Labels:    map[string]string{"app": owner},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: &controller,
		}},
	}}
}

// podIndex returns the index that podObject set. The part after a dot counts placements.
func podIndex(pod *corev1.Pod) int {
	index, _, _ := strings.Cut(string(pod.UID), ".")
	i, err := strconv.Atoi(index)
	if err != nil {
		return -1
	}

	return i
}

// event is an action at a time; events of one time run in the order in which they were added.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// events is a queue in virtual time.
type events struct {
	heap eventHeap
	seq  uint64
}

func (e *events) add(at time.Duration, do func()) {
	e.seq++
	heap.Push(&e.heap, event{at: at, seq: e.seq, do: do})
}

// next removes and returns the first event, if it is not after limit.
func (e *events) next(limit time.Duration) (event, bool) {
	if len(e.heap) == 0 || e.heap[0].at > limit {
		return event{}, false
	}

	first, ok := heap.Pop(&e.heap).(event)
	return first, ok
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) {
	if e, ok := x.(event); ok {
		*h = append(*h, e)
	}
}

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n] = event{}
	*h = (*h)[:n]

	return last
}
