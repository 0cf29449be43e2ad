// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// none is kube-state-metrics' label value for a missing owner.
const none = "<none>"

// ownerOf returns the controller of an object, or the first owner, or none.
func ownerOf(m *metav1.ObjectMeta) (kind, name, controller string) {
	if c := metav1.GetControllerOfNoCopy(m); c != nil {
		return c.Kind, c.Name, "true"
	}
	if len(m.OwnerReferences) > 0 {
		return m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name, "false"
	}
	return none, none, none
}

// phases returns the phases of a pod; kube-state-metrics exposes a series for each.
func phases() []corev1.PodPhase {
	return []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}
}

// emitPod emits kube-state-metrics' series of a pod.
func (c *collector) emitPod(pod *corev1.Pod) {
	emit := c.state.with("namespace", pod.Namespace, "pod", pod.Name, "uid", string(pod.UID))
	kind, owner, controller := ownerOf(&pod.ObjectMeta)
	created := func(v string) string {
		if v == none {
			return ""
		}
		return v
	}
	emit("kube_pod_info", 1, "host_ip", pod.Status.HostIP, "pod_ip", pod.Status.PodIP, "node", pod.Spec.NodeName,
		"created_by_kind", created(kind), "created_by_name", created(owner), "host_network", strconv.FormatBool(pod.Spec.HostNetwork))
	emit("kube_pod_owner", 1, "owner_kind", kind, "owner_name", owner, "owner_is_controller", controller)
	emit("kube_pod_labels", 1, objectLabels(pod.Labels, c.invalid)...)
	emit("kube_pod_created", float64(pod.CreationTimestamp.Unix()))
	if pod.Status.StartTime != nil {
		emit("kube_pod_start_time", float64(pod.Status.StartTime.Unix()))
	}
	for _, p := range phases() {
		emit("kube_pod_status_phase", boolValue(p == pod.Status.Phase), "phase", string(p))
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			emit("kube_pod_status_ready", boolValue(cond.Status == corev1.ConditionTrue), "condition", "true")
		}
	}
	for i := range pod.Spec.Containers {
		emitContainerSpec(emit, "kube_pod_container", pod, &pod.Spec.Containers[i], "")
	}
	for i := range pod.Spec.InitContainers {
		restart := ""
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil {
			restart = string(*p)
		}
		emitContainerSpec(emit, "kube_pod_init_container", pod, &pod.Spec.InitContainers[i], restart)
	}
	for _, st := range pod.Status.ContainerStatuses {
		emitContainerStatus(emit, "kube_pod_container", st)
	}
	for _, st := range pod.Status.InitContainerStatuses {
		emitContainerStatus(emit, "kube_pod_init_container", st)
	}
}

// emitContainerSpec emits the image, requests and limits of a container.
func emitContainerSpec(emit sink, prefix string, pod *corev1.Pod, c *corev1.Container, restart string) {
	emit(prefix+"_info", 1, "container", c.Name, "image", c.Image, "image_spec", c.Image, "restart_policy", restart)
	for _, r := range []struct {
		suffix string
		list   corev1.ResourceList
	}{{"_resource_requests", c.Resources.Requests}, {"_resource_limits", c.Resources.Limits}} {
		for name, q := range r.list {
			unit := "byte"
			if name == corev1.ResourceCPU {
				unit = "core"
			}
			emit(prefix+r.suffix, q.AsApproximateFloat64(), "container", c.Name, "node", pod.Spec.NodeName,
				"resource", string(name), "unit", unit)
		}
	}
}

// emitContainerStatus emits the status of a container.
func emitContainerStatus(emit sink, prefix string, st corev1.ContainerStatus) {
	emit(prefix+"_status_restarts_total", float64(st.RestartCount), "container", st.Name)
	emit(prefix+"_status_ready", boolValue(st.Ready), "container", st.Name)
	emit(prefix+"_status_running", boolValue(st.State.Running != nil), "container", st.Name)
	if t := st.LastTerminationState.Terminated; t != nil {
		emit(prefix+"_status_last_terminated_reason", 1, "container", st.Name, "reason", t.Reason)
		emit(prefix+"_status_last_terminated_timestamp", float64(t.FinishedAt.Unix()), "container", st.Name)
	}
	if w := st.State.Waiting; w != nil && w.Reason != "" {
		emit(prefix+"_status_waiting_reason", 1, "container", st.Name, "reason", w.Reason)
	}
}
