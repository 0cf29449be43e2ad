// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

const (
	// LabelForeign has the part of Namespace.Foreign.
	LabelForeign = "messy/foreign"
	// LabelForeignLast is set if the webhook of Foreign is called after Crane's.
	LabelForeignLast = "messy/foreign-last"
	// LabelMinCPU has the smallest CPU request of a container in millicores.
	LabelMinCPU = "messy/min-cpu"
	// PriorityClass is the class of workloads with Priority. It must exist.
	PriorityClass = "messy"
	// LabelWorkload has the name of the workload of a pod.
	LabelWorkload = "app"
)

// Labels returns the labels of the namespace.
func (ns Namespace) Labels() map[string]string {
	out := map[string]string{}
	set := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}

	set("pod-security.kubernetes.io/enforce", ns.PodSecurity)
	set(LabelForeign, ns.Foreign)
	if ns.Foreign != "" {
		set(LabelForeignLast, strconv.FormatBool(ns.ForeignLast))
	}
	if ns.MinCPU > 0 {
		set(LabelMinCPU, strconv.FormatInt(ns.MinCPU, 10))
	}

	return out
}

// Objects returns the LimitRanges and ResourceQuotas of a namespace.
func (ns Namespace) Objects(namespace string) []client.Object {
	var out []client.Object
	for i, r := range ns.LimitRanges {
		out = append(out, r.Object(namespace, fmt.Sprintf("limits-%d", i)))
	}

	for i, q := range ns.Quotas {
		out = append(out, q.Object(namespace, fmt.Sprintf("quota-%d", i)))
	}

	return out
}

// list returns the resources that are set.
func (a Amounts) list() corev1.ResourceList { return a.named("") }

// named returns the resources that are set, with a prefix of their names.
func (a Amounts) named(prefix corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	if a.CPU > 0 {
		out[prefix+corev1.ResourceCPU] = *resource.NewMilliQuantity(a.CPU, resource.DecimalSI)
	}
	if a.Memory > 0 {
		out[prefix+corev1.ResourceMemory] = *resource.NewQuantity(a.Memory<<20, resource.BinarySI)
	}

	return out
}

// Object returns the LimitRange.
func (r LimitRange) Object(namespace, name string) client.Object {
	item := corev1.LimitRangeItem{
		Type:           corev1.LimitType(r.Type),
		Min:            r.Min.list(),
		Max:            r.Max.list(),
		Default:        r.Default.list(),
		DefaultRequest: r.DefaultRequest.list(),
	}

	if r.Ratio > 0 {
		item.MaxLimitRequestRatio = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(r.Ratio, resource.DecimalSI)}
	}

	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}
}

// Object returns the ResourceQuota.
func (q Quota) Object(namespace, name string) client.Object {
	out := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	out.Spec.Hard = q.Requests.named("requests.")
	maps.Copy(out.Spec.Hard, q.Limits.named("limits."))

	if q.Pods > 0 {
		out.Spec.Hard[corev1.ResourcePods] = *resource.NewQuantity(q.Pods, resource.DecimalSI)
	}

	switch q.Scope {
	case "":
	case "PriorityClass":
		out.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
			ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{PriorityClass},
		}}}
	default:
		out.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(q.Scope)}
	}

	return out
}

func (c Container) object() corev1.Container {
	out := corev1.Container{
		Name:      c.Name,
		Image:     "example.com/" + c.Name + ":1",
		Resources: corev1.ResourceRequirements{Requests: c.Requests.list(), Limits: c.Limits.list()},
	}

	if c.HugePages > 0 {
		pages := *resource.NewQuantity(c.HugePages<<20, resource.BinarySI)
		out.Resources.Requests["hugepages-2Mi"] = pages
		out.Resources.Limits["hugepages-2Mi"] = pages
	}

	if c.Restarts {
		out.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}

	return out
}

// Template returns the pod template.
func (w Workload) Template() corev1.PodTemplateSpec {
	out := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelWorkload: w.Name}}}
	out.Spec.TerminationGracePeriodSeconds = new(int64(0))
	out.Spec.AutomountServiceAccountToken = new(false) // The names of its volumes are random.
	out.Spec.HostNetwork = w.HostNetwork
	if w.Priority {
		out.Spec.PriorityClassName = PriorityClass
	}

	if w.Init != nil {
		c := w.Init.object()
		c.ResizePolicy = nil // Only containers that run on may have one.
		out.Spec.InitContainers = append(out.Spec.InitContainers, c)
	}
	if w.Sidecar != nil {
		c := w.Sidecar.object()
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		out.Spec.InitContainers = append(out.Spec.InitContainers, c)
	}

	for _, c := range w.Containers {
		out.Spec.Containers = append(out.Spec.Containers, c.object())
	}

	if w.PodLevel != (Amounts{}) {
		out.Spec.Resources = &corev1.ResourceRequirements{Requests: w.PodLevel.list()}
	}

	return out
}

// Object returns the workload.
func (w Workload) Object(namespace string) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: w.Name}
	if w.AdoptTemplate {
		meta.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoptTemplate: "true"}
	}

	selector := &metav1.LabelSelector{MatchLabels: map[string]string{LabelWorkload: w.Name}}
	switch w.Kind {
	case "StatefulSet":
		out := &appsv1.StatefulSet{ObjectMeta: meta}
		out.Spec = appsv1.StatefulSetSpec{Replicas: &w.Replicas, Selector: selector, Template: w.Template(), PodManagementPolicy: appsv1.ParallelPodManagement}
		if w.OnDelete {
			out.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}
		if w.Partition > 0 {
			out.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &w.Partition}
		}

		return out

	case "DaemonSet":
		out := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: w.Template()}}
		if w.OnDelete {
			out.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}

		return out
	}

	out := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: selector, Template: w.Template(), Paused: w.Paused}}
	if w.Recreate {
		out.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	}

	return out
}

// Beside returns the budget and the autoscalers of the workload.
func (w Workload) Beside(namespace string) []client.Object {
	var out []client.Object
	meta := metav1.ObjectMeta{Namespace: namespace, Name: w.Name}
	if w.MinAvailable >= 0 {
		out = append(out, &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(w.MinAvailable)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{LabelWorkload: w.Name}},
		}})
	}

	if w.Autoscaled {
		out = append(out, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: w.Kind, Name: w.Name},
			MaxReplicas:    8,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(60))},
			}}},
		}})
	}

	if w.VPA != "" {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
			"metadata": map[string]any{"namespace": namespace, "name": w.Name},
			"spec": map[string]any{
				"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": w.Kind, "name": w.Name},
				"updatePolicy": map[string]any{"updateMode": w.VPA},
			},
		}})
	}

	return out
}

// Recommendation returns the Recommendation of the workload, without its status.
func (w Workload) Recommendation(namespace string) *analysisv1alpha1.Recommendation {
	out := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.Name},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef:    corev1.ObjectReference{APIVersion: "apps/v1", Kind: w.Kind, Namespace: namespace, Name: w.Name},
			Type:         analysisv1alpha1.AnalysisTypeResource,
			AdoptionType: analysisv1alpha1.AdoptionTypeAuto,
		},
	}

	if w.Reach != "" {
		out.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: analysisv1alpha1.AdoptionReach(w.Reach)}
	}

	return out
}

// RecommendedValue returns the recommended requests of containers as in the status of a Recommendation.
func RecommendedValue(containers []Container) string {
	var b strings.Builder
	b.WriteString("resourceRequest:\n  containers:\n")
	for _, c := range containers {
		fmt.Fprintf(&b, "  - containerName: %s\n    target:\n      cpu: %dm\n", c.Name, c.Wanted.CPU)
		if c.Wanted.Memory > 0 {
			fmt.Fprintf(&b, "      memory: %dMi\n", c.Wanted.Memory)
		}
	}

	return b.String()
}
