// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"regexp"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func replicas(n *int32) float64 {
	if n == nil {
		return 1
	}
	return float64(*n)
}
