// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"regexp"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// collector writes kube-state-metrics' series to a sink.
type collector struct {
	state   sink
	invalid *regexp.Regexp
}

func newCollector(to sink) *collector {
	return &collector{state: to.with("job", JobState, "instance", stateInstance), invalid: invalidInLabel()}
}

// emitObjects emits kube-state-metrics' series of all objects except pods.
func (c *collector) emitObjects(o *Objects) {
	// Pods are emitted one by one, because a history replaces some of their values.
	for _, d := range o.Deployments {
		emit := c.state.with("namespace", d.Namespace, "deployment", d.Name)
		emit("kube_deployment_spec_replicas", replicas(d.Spec.Replicas))
		emit("kube_deployment_status_replicas", float64(d.Status.Replicas))
		emit("kube_deployment_status_replicas_available", float64(d.Status.AvailableReplicas))
		emit("kube_deployment_created", created(&d.ObjectMeta))
	}

	for _, r := range o.ReplicaSets {
		c.emitOwner("kube_replicaset_owner", "replicaset", &r.ObjectMeta)
		c.state("kube_replicaset_spec_replicas", replicas(r.Spec.Replicas), "namespace", r.Namespace, "replicaset", r.Name)
	}

	for _, s := range o.StatefulSets {
		emit := c.state.with("namespace", s.Namespace, "statefulset", s.Name)
		emit("kube_statefulset_replicas", replicas(s.Spec.Replicas))
		emit("kube_statefulset_status_replicas", float64(s.Status.Replicas))
		emit("kube_statefulset_created", created(&s.ObjectMeta))
	}

	for _, d := range o.DaemonSets {
		emit := c.state.with("namespace", d.Namespace, "daemonset", d.Name)
		emit("kube_daemonset_status_desired_number_scheduled", float64(d.Status.DesiredNumberScheduled))
		emit("kube_daemonset_status_current_number_scheduled", float64(d.Status.CurrentNumberScheduled))
		emit("kube_daemonset_created", created(&d.ObjectMeta))
	}

	for _, j := range o.Jobs {
		c.emitJob(j)
	}

	for _, j := range o.CronJobs {
		emit := c.state.with("namespace", j.Namespace, "cronjob", j.Name)
		emit("kube_cronjob_info", 1, "schedule", j.Spec.Schedule, "concurrency_policy", string(j.Spec.ConcurrencyPolicy))
		emit("kube_cronjob_created", created(&j.ObjectMeta))
	}

	for _, h := range o.Autoscalers {
		c.emitAutoscaler(h)
	}

	for _, n := range o.Nodes {
		c.emitNode(n)
	}
}

func (c *collector) emitOwner(metric, object string, m *metav1.ObjectMeta) {
	kind, name, controller := ownerOf(m)
	c.state(metric, 1, "namespace", m.Namespace, object, m.Name, "owner_kind", kind, "owner_name", name, "owner_is_controller", controller)
}

func (c *collector) emitJob(j *batchv1.Job) {
	c.emitOwner("kube_job_owner", "job_name", &j.ObjectMeta)
	c.state("kube_job_info", 1, "namespace", j.Namespace, "job_name", j.Name)
	c.state("kube_job_created", created(&j.ObjectMeta), "namespace", j.Namespace, "job_name", j.Name)
}

func (c *collector) emitAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	emit := c.state.with("namespace", h.Namespace, "horizontalpodautoscaler", h.Name)
	target := h.Spec.ScaleTargetRef
	emit("kube_horizontalpodautoscaler_info", 1, "scaletargetref_kind", target.Kind, "scaletargetref_name", target.Name,
		"scaletargetref_api_version", target.APIVersion)
	emit("kube_horizontalpodautoscaler_spec_min_replicas", replicas(h.Spec.MinReplicas))
	emit("kube_horizontalpodautoscaler_spec_max_replicas", float64(h.Spec.MaxReplicas))
	emit("kube_horizontalpodautoscaler_status_current_replicas", float64(h.Status.CurrentReplicas))
	emit("kube_horizontalpodautoscaler_status_desired_replicas", float64(h.Status.DesiredReplicas))

	for _, m := range h.Spec.Metrics {
		if m.Resource != nil && m.Resource.Target.AverageUtilization != nil {
			emit("kube_horizontalpodautoscaler_spec_target_metric", float64(*m.Resource.Target.AverageUtilization),
				"metric_name", string(m.Resource.Name), "metric_target_type", "utilization")
		}
	}
}

func (c *collector) emitNode(n *corev1.Node) {
	emit := c.state.with("node", n.Name)
	info := n.Status.NodeInfo
	emit("kube_node_info", 1, "kernel_version", info.KernelVersion, "os_image", info.OSImage, "kubelet_version", info.KubeletVersion,
		"container_runtime_version", info.ContainerRuntimeVersion, "provider_id", n.Spec.ProviderID, "internal_ip", address(n))
	emit("kube_node_labels", 1, objectLabels(n.Labels, c.invalid)...)
	emit("kube_node_created", created(&n.ObjectMeta))
	emit("kube_node_spec_unschedulable", boolValue(n.Spec.Unschedulable))

	// kube-state-metrics names the unit of each resource in a label.
	for _, l := range []struct {
		metric string
		list   corev1.ResourceList
	}{{"kube_node_status_allocatable", n.Status.Allocatable}, {"kube_node_status_capacity", n.Status.Capacity}} {
		for name, q := range l.list {
			unit := "byte"
			switch name {
			case corev1.ResourceCPU:
				unit = "core"
			case corev1.ResourcePods:
				unit = "integer"
			}

			emit(l.metric, q.AsApproximateFloat64(), "resource", c.invalid.ReplaceAllString(string(name), "_"), "unit", unit)
		}
	}

	for _, cond := range n.Status.Conditions {
		emit("kube_node_status_condition", boolValue(cond.Status == corev1.ConditionTrue), "condition", string(cond.Type), "status", "true")
	}
}

func address(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}

	return ""
}

func created(m *metav1.ObjectMeta) float64 { return float64(m.CreationTimestamp.Unix()) }

// replicas returns a replica count; nil means one.
func replicas(n *int32) float64 { return float64(ptr.Deref(n, 1)) }

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

	// kube_pod_info has an empty owner where kube_pod_owner has none.
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

	// Each phase has a series; only that of the current phase is 1.
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
