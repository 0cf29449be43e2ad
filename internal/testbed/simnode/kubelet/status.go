// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stamp converts a time to the API's resolution of seconds.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// render computes the pod status from the record.
func render(r *record, hostIP string, now time.Time) {
	start := stamp(r.arrival)
	s := &corev1.PodStatus{
		Phase:              r.phase(),
		StartTime:          &start,
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		ObservedGeneration: r.pod.Generation,
	}

	if r.ip != "" {
		s.PodIP = r.ip
		s.PodIPs = []corev1.PodIP{{IP: r.ip}}
	}

	if r.failed != nil {
		s.Reason = r.failed.reason
		s.Message = r.failed.message
	}

	initialized := r.initialized()
	for _, c := range r.list {
		cs := r.containerStatus(c, initialized)
		if c.kind == appContainer {
			s.ContainerStatuses = append(s.ContainerStatuses, cs)
		} else {
			s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
		}
	}

	s.Conditions = r.conditions(s, initialized, now)

	// An unchanged status keeps its object, so that no write follows.
	if r.status == nil || !equality.Semantic.DeepEqual(r.status, s) {
		r.status = s
		r.view = nil
	}
}

// phase returns the pod's phase. It never moves back: a pod that has run stays Running until it has terminated.
func (r *record) phase() corev1.PodPhase {
	if p := r.pod.Status.Phase; p == corev1.PodSucceeded || p == corev1.PodFailed {
		return p
	}

	if r.failed != nil {
		return corev1.PodFailed
	}

	// A pod succeeds if all of its containers except sidecars exited with 0.
	if r.finished {
		for _, c := range r.list {
			if c.kind != sidecar && (c.ended == nil || c.ended.ExitCode != 0) {
				return corev1.PodFailed
			}
		}

		return corev1.PodSucceeded
	}

	if r.status != nil && r.status.Phase == corev1.PodRunning {
		return corev1.PodRunning
	}

	if r.appStarted() {
		return corev1.PodRunning
	}

	return corev1.PodPending
}

// initialized reports whether every init container has completed.
func (r *record) initialized() bool {
	for _, c := range r.list {
		switch c.kind {
		case initContainer:
			if !c.completed() {
				return false
			}
		case sidecar:
			if c.phase == waiting {
				return false
			}
		}
	}

	return r.sandbox
}

// containerStatus renders one container.
func (r *record) containerStatus(c *container, initialized bool) corev1.ContainerStatus {
	spec := r.spec(c)
	isRunning := c.phase == running
	started := isRunning && (c.kind != appContainer || spec.StartupProbe == nil || c.ready)
	s := corev1.ContainerStatus{
		Name:         c.name,
		Image:        spec.Image,
		RestartCount: c.restarts,
		Started:      &started,
		Ready:        c.ready && isRunning,
	}

	if c.kind == initContainer {
		s.Ready = c.completed()
	}

	if c.id != "" {
		s.ContainerID = c.id
		s.ImageID = imageID(spec.Image)
	}

	s.State, s.LastTerminationState.Terminated = r.containerState(c, initialized)

	// The API shows resources only for containers that have started.
	if c.id != "" && c.resizable() {
		s.AllocatedResources = c.allocated.Requests
		actual := c.actual
		s.Resources = &actual
	}

	return s
}

// containerState renders the current and the previous state of a container.
func (r *record) containerState(c *container, initialized bool) (s corev1.ContainerState, last *corev1.ContainerStateTerminated) {
	switch {
	case c.phase == running:
		s.Running = &corev1.ContainerStateRunning{StartedAt: stamp(c.startedAt)}
	case c.phase == exited && c.looping:
		s.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off restarting failed container " + c.name,
		}

		return s, c.ended

	case c.phase == exited:
		s.Terminated = c.ended
	case c.kind != appContainer, !initialized && len(r.pod.Spec.InitContainers) > 0:
		s.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	default:
		s.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}

	return s, c.last
}

// conditions renders the pod's conditions that the node owns.
func (r *record) conditions(s *corev1.PodStatus, initialized bool, now time.Time) []corev1.PodCondition {
	done := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	incomplete, unready := r.lagging()
	var list []corev1.PodCondition

	add := func(kind corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: r.pod.Generation}
		if !ok {
			c.Status = corev1.ConditionFalse
			c.Reason = reason
			c.Message = message
		}

		c.LastTransitionTime = r.transition(c, now)
		list = append(list, c)
	}

	add(corev1.PodReadyToStartContainers, r.sandbox && !done, "", "")
	if s.Phase == corev1.PodSucceeded {
		initialized = true
	}

	add(corev1.PodInitialized, initialized, "ContainersNotInitialized", "containers with incomplete status: ["+strings.Join(incomplete, " ")+"]")
	reason := "ContainersNotReady"
	message := "containers with unready status: [" + strings.Join(unready, " ") + "]"
	switch s.Phase {
	case corev1.PodSucceeded:
		reason = "PodCompleted"
		message = ""
	case corev1.PodFailed:
		reason = "PodFailed"
		message = ""
	}

	ready := !done && initialized && len(unready) == 0
	add(corev1.ContainersReady, ready, reason, message)

	if gate := closedGate(r.pod); ready && gate != "" {
		ready = false
		reason = "ReadinessGatesNotReady"
		message = fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist or is not True.", gate)
	}

	add(corev1.PodReady, ready, reason, message)

	// Controllers distinguish evictions from failures of the application by this condition.
	if r.failed != nil && r.failed.disruption {
		c := corev1.PodCondition{
			Type:               corev1.DisruptionTarget,
			Status:             corev1.ConditionTrue,
			ObservedGeneration: r.pod.Generation,
			Reason:             corev1.PodReasonTerminationByKubelet,
			Message:            r.failed.message,
		}

		c.LastTransitionTime = r.transition(c, now)
		list = append(list, c)
	}

	if !done {
		list = append(list, r.resizeConditions()...)
	}

	return list
}

// resizeConditions renders the progress of an in-place resize.
func (r *record) resizeConditions() []corev1.PodCondition {
	var list []corev1.PodCondition
	add := func(kind corev1.PodConditionType, state *resizeState) {
		if state != nil {
			list = append(list, corev1.PodCondition{
				Type:               kind,
				Status:             corev1.ConditionTrue,
				Reason:             state.reason,
				Message:            state.message,
				ObservedGeneration: state.generation,
				LastTransitionTime: stamp(state.since),
			})
		}
	}

	add(corev1.PodResizePending, r.pending)
	add(corev1.PodResizeInProgress, r.progress)
	return list
}

// lagging returns the names of incomplete init containers and of containers that are not ready.
func (r *record) lagging() (incomplete, unready []string) {
	for _, c := range r.list {
		switch c.kind {
		case initContainer:
			if !c.completed() {
				incomplete = append(incomplete, c.name)
			}
		default:
			if c.kind == sidecar && c.phase == waiting {
				incomplete = append(incomplete, c.name)
			}
			if c.phase != running || !c.ready {
				unready = append(unready, c.name)
			}
		}
	}

	return incomplete, unready
}

// transition keeps the time of the last change of a condition's status.
func (r *record) transition(c corev1.PodCondition, now time.Time) metav1.Time {
	if r.status != nil {
		if old := findCondition(r.status.Conditions, c.Type); old != nil && old.Status == c.Status {
			return old.LastTransitionTime
		}
	}

	return stamp(now)
}

func findCondition(list []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}

	return nil
}

// closedGate returns the first readiness gate of the pod that is not True.
func closedGate(pod *corev1.Pod) corev1.PodConditionType {
	for _, g := range pod.Spec.ReadinessGates {
		if c := findCondition(pod.Status.Conditions, g.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return g.ConditionType
		}
	}

	return ""
}

// owned reports whether the node manages a condition type; the others belong to the scheduler and to users.
func owned(kind corev1.PodConditionType) bool {
	switch kind {
	case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
		corev1.PodResizePending, corev1.PodResizeInProgress:
		return true
	}

	return false
}

// keepOwned returns the part of a status that render writes.
func keepOwned(s *corev1.PodStatus) *corev1.PodStatus {
	out := s.DeepCopy()
	out.Conditions = nil
	for _, c := range s.Conditions {
		if owned(c.Type) {
			out.Conditions = append(out.Conditions, c)
		}
	}

	return out
}

// mergeStatus overlays the node's status on that of the API server and keeps fields of other owners.
func mergeStatus(base, node *corev1.PodStatus) *corev1.PodStatus {
	out := *base
	out.Phase = node.Phase
	out.Reason = node.Reason
	out.Message = node.Message
	out.StartTime = node.StartTime
	out.ObservedGeneration = node.ObservedGeneration

	out.HostIP = node.HostIP
	out.HostIPs = node.HostIPs
	out.PodIP = node.PodIP
	out.PodIPs = node.PodIPs
	out.InitContainerStatuses = node.InitContainerStatuses
	out.ContainerStatuses = node.ContainerStatuses

	out.Conditions = append([]corev1.PodCondition(nil), node.Conditions...)
	scheduled := false
	for _, c := range base.Conditions {
		scheduled = scheduled || c.Type == corev1.PodScheduled
		if !owned(c.Type) && findCondition(node.Conditions, c.Type) == nil {
			out.Conditions = append(out.Conditions, c)
		}
	}

	// A pod that was bound directly, without a scheduler, lacks this condition.
	if !scheduled {
		out.Conditions = append(out.Conditions, corev1.PodCondition{
			Type:               corev1.PodScheduled,
			Status:             corev1.ConditionTrue,
			ObservedGeneration: node.ObservedGeneration,
			LastTransitionTime: *node.StartTime,
		})
	}

	return &out
}

// containerID returns an ID in the form of a real runtime's that is the same for the same run of the same container.
func containerID(uid types.UID, name string, run int32) string {
	sum := sha256.Sum256([]byte(string(uid) + "/" + name + "/" + strconv.Itoa(int(run))))
	return "containerd://" + hex.EncodeToString(sum[:])
}

func imageID(image string) string {
	sum := sha256.Sum256([]byte(image))
	return image + "@sha256:" + hex.EncodeToString(sum[:])
}
