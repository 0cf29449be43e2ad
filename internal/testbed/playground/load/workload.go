// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels that every pod of the catalog carries. LabelName with the namespace identifies its workload.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelComponent = "app.kubernetes.io/component"
)

// annotationDuration is the annotation with the run time of a Job's containers on a simulated node.
const annotationDuration = "sim.crane.io/duration"

// Container is one container of a workload: its requests, limits and actual use.
type Container struct {
	Name string
	// Init marks an init container, which uses almost nothing.
	Init    bool
	Request corev1.ResourceList
	Limit   corev1.ResourceList
	Profile Profile
}

// Workload is one entry of the catalog.
type Workload struct {
	// Namespace and Name are unique together. Kind is Deployment, StatefulSet, DaemonSet or CronJob.
	Namespace, Name string
	Kind            string
	// Replicas is the number of pods; a DaemonSet has one on each node regardless.
	Replicas   int
	Containers []Container
	// Schedule, in cron format, and RunTime, the duration of a run, are set for a CronJob.
	Schedule string
	RunTime  time.Duration
	// MaxReplicas is positive if a HorizontalPodAutoscaler scales the workload between Replicas and MaxReplicas.
	MaxReplicas int
	// Rollout is the time in the history, as a share of it, at which the current generation of pods replaced an earlier
	// one; 0 for none.
	Rollout float64
}

// Objects returns the objects of the workload: its controller and, if scaled, its autoscaler.
func (w *Workload) Objects() []client.Object {
	objects := []client.Object{w.controller()}
	if w.MaxReplicas > 0 {
		objects = append(objects, w.autoscaler())
	}

	return objects
}

func (w *Workload) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: w.labels()}
}

func (w *Workload) labels() map[string]string {
	return map[string]string{LabelName: w.Name, LabelPartOf: w.Namespace, LabelComponent: string(w.Containers[0].Profile.Kind)}
}

func (w *Workload) controller() client.Object {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: w.Name}}
	replicas := int32(w.Replicas)
	switch w.Kind {
	// Parallel, or the pods would start one after the other.
	case "StatefulSet":
		return &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: w.Kind},
			ObjectMeta: w.meta(),
			Spec: appsv1.StatefulSetSpec{
				Replicas:            &replicas,
				Selector:            selector,
				ServiceName:         w.Name,
				Template:            w.template(),
				PodManagementPolicy: appsv1.ParallelPodManagement,
			},
		}

	case "DaemonSet":
		return &appsv1.DaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: w.Kind},
			ObjectMeta: w.meta(), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: w.template()},
		}

	case "CronJob":
		return w.cronJob()

	default:
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: w.meta(),
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: w.template()},
		}
	}
}

func (w *Workload) cronJob() *batchv1.CronJob {
	template := w.template()
	template.Annotations = map[string]string{annotationDuration: w.RunTime.String()}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever

	return &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: w.Kind},
		ObjectMeta: w.meta(),
		Spec: batchv1.CronJobSpec{
			Schedule: w.Schedule, ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: w.labels()},
				Spec:       batchv1.JobSpec{Template: template},
			},
		},
	}
}

// template returns the pod template.
func (w *Workload) template() corev1.PodTemplateSpec {
	grace := int64(5)
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: &grace}
	for _, c := range w.Containers {
		container := corev1.Container{
			Name: c.Name, Image: "example.com/" + w.Namespace + "/" + c.Name + ":1",
			Resources: corev1.ResourceRequirements{Requests: c.Request, Limits: c.Limit},
		}

		if c.Init {
			spec.InitContainers = append(spec.InitContainers, container)
		} else {
			spec.Containers = append(spec.Containers, container)
		}
	}

	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.labels()}, Spec: spec}
}

// autoscaler returns an autoscaler with a target of 70 % of the CPU request, a common setting.
func (w *Workload) autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	minReplicas := int32(w.Replicas)
	target := int32(70)
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: w.meta(),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: w.Kind, Name: w.Name},
			MinReplicas:    &minReplicas,
			MaxReplicas:    int32(w.MaxReplicas),
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target},
				},
			}},
		},
	}
}

// Demand is the capacity that a set of workloads needs.
type Demand struct {
	// Pods is the maximum number of pods without those of DaemonSets, PodsPerNode the number of DaemonSet pods on each
	// node.
	Pods, PodsPerNode int
	// CPU and Memory are the sums of the larger of request and peak use, in cores and bytes, without DaemonSets.
	CPU, Memory float64
	// NodeCPU and NodeMemory are the same for the DaemonSets of one node.
	NodeCPU, NodeMemory float64
	// PodCPU and PodMemory are those of the largest pod, the minimum size of a node.
	PodCPU, PodMemory float64
}

// Sum returns the capacity that the workloads need.
func Sum(workloads []*Workload) Demand {
	var d Demand
	for _, w := range workloads {
		cpu, memory := w.podDemand()
		if w.Kind == "DaemonSet" {
			d.PodsPerNode++
			d.NodeCPU += cpu
			d.NodeMemory += memory
		} else {
			n := max(w.Replicas, w.MaxReplicas)
			d.Pods += n
			d.CPU += float64(n) * cpu
			d.Memory += float64(n) * memory
		}

		d.PodCPU = max(d.PodCPU, cpu)
		d.PodMemory = max(d.PodMemory, memory)
	}

	return d
}

func (w *Workload) podDemand() (cpu, memory float64) {
	for _, c := range w.Containers {
		if c.Init {
			continue
		}

		peakCPU, peakMemory := c.Profile.peak()
		cpu += max(peakCPU, cores(c.Request))
		memory += max(peakMemory, bytes(c.Request))
	}

	return cpu, memory
}

func cores(l corev1.ResourceList) float64 { return amount(l, corev1.ResourceCPU) }

func bytes(l corev1.ResourceList) float64 { return amount(l, corev1.ResourceMemory) }

// amount returns a quantity in its base unit, 0 if absent.
func amount(l corev1.ResourceList, name corev1.ResourceName) float64 {
	q, ok := l[name]
	if !ok {
		return 0
	}

	return q.AsApproximateFloat64()
}

func milliCPU(v float64) resource.Quantity {
	return *resource.NewMilliQuantity(int64(v*1000+0.5), resource.DecimalSI)
}

func mebibytes(v float64) resource.Quantity {
	return *resource.NewQuantity(int64(v/(1<<20)+0.5)<<20, resource.BinarySI)
}

// sized returns a container with realistic requests and limits: most request several times their use, some too little,
// some nothing. The shares are round figures, not from a study.
func sized(key uint64, name string, p Profile, isInit bool) Container {
	c := Container{
		Name:    name,
		Init:    isInit,
		Profile: p,
		Request: corev1.ResourceList{},
		Limit:   corev1.ResourceList{},
	}

	high := p.High
	peak := p.High * 1.2

	if p.Kind == Bursty {
		high = p.High * 0.5
	}

	memory := p.Memory + p.Busy + p.Grow
	draw := unit(mix(key, 40))
	switch {
	case p.Kind == Leak: // OOM-killed at its limit
		c.Request[corev1.ResourceMemory] = mebibytes(p.Memory * 1.3)
		c.Limit[corev1.ResourceMemory] = mebibytes(memory)
		c.Request[corev1.ResourceCPU] = roundCPU(high * 2)
		c.Profile.Grow = bytes(c.Limit) - p.Memory

		return c

	case draw < 0.1: // no requests, no limits
		return c
	case draw < 0.22: // requests too little
		c.Request[corev1.ResourceCPU] = roundCPU(high * between(mix(key, 41), 0.4, 0.7))
		c.Request[corev1.ResourceMemory] = roundMemory(memory * between(mix(key, 42), 0.6, 0.85))
		return c
	}

	factor := between(mix(key, 41), 1.5, 4)
	if p.Kind == Idle && !isInit {
		factor *= 20 // requests of idle services are rarely reviewed
	}

	cpu := roundCPU(high * factor)
	ram := roundMemory(memory * between(mix(key, 42), 1.2, 2.2))

	c.Request[corev1.ResourceCPU] = cpu
	c.Request[corev1.ResourceMemory] = ram
	if unit(mix(key, 43)) < 0.6 {
		c.Limit[corev1.ResourceMemory] = roundMemory(math.Max(ram.AsApproximateFloat64(), memory*1.15))
	}
	if unit(mix(key, 44)) < 0.35 {
		c.Limit[corev1.ResourceCPU] = roundCPU(math.Max(cpu.AsApproximateFloat64(), peak))
	}

	return c
}

// roundCPU rounds up to a commonly configured quantity.
func roundCPU(v float64) resource.Quantity {
	for _, m := range []float64{10, 20, 50, 100, 200, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000} {
		if v*1000 <= m {
			return milliCPU(m / 1000)
		}
	}

	return milliCPU(math.Ceil(v))
}

func roundMemory(v float64) resource.Quantity {
	for _, m := range []float64{32, 64, 100, 128, 200, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288} {
		if v <= m*mib {
			return mebibytes(m * mib)
		}
	}

	return mebibytes(math.Ceil(v/(1<<30)) * (1 << 30))
}
