// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels that every pod of the catalogue carries. LabelName with the namespace identifies its workload.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelComponent = "app.kubernetes.io/component"
)

// annotationDuration tells a simulated node how long the containers of a Job's pod run.
const annotationDuration = "sim.crane.io/duration"

// Container is one container of a workload: what it asks for and what it really uses.
type Container struct {
	Name string
	// Init containers run before the others and use next to nothing.
	Init    bool
	Request corev1.ResourceList
	Limit   corev1.ResourceList
	Profile Profile
}

// Workload is one entry of the catalogue.
type Workload struct {
	// Namespace and Name are unique together. Kind is Deployment, StatefulSet, DaemonSet or CronJob.
	Namespace, Name string
	Kind            string
	// Replicas is how many pods it has at a time; a DaemonSet has one on each node whatever it says.
	Replicas   int
	Containers []Container
	// Schedule and RunTime are set for a CronJob: when, in cron's format, and how long a run takes.
	Schedule string
	RunTime  time.Duration
	// MaxReplicas is above 0 where a HorizontalPodAutoscaler scales the workload between Replicas and it.
	MaxReplicas int
	// Rollout is where in the history, as a share of it, the present generation of pods took over from an earlier one;
	// 0 where there was none.
	Rollout float64
}

// Objects are what makes the workload in a cluster: its controller, and its autoscaler if it has one.
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
	case "StatefulSet":
		return &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: w.Kind},
			ObjectMeta: w.meta(),
			Spec: appsv1.StatefulSetSpec{
				Replicas: &replicas, Selector: selector, ServiceName: w.Name, Template: w.template(),
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

// template gives the pods' labels and containers.
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

// autoscaler targets 70 % of the CPU request, a common setting.
func (w *Workload) autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	least, target := int32(w.Replicas), int32(70)
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: w.meta(),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: w.Kind, Name: w.Name},
			MinReplicas:    &least, MaxReplicas: int32(w.MaxReplicas),
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

// Demand is what a set of workloads needs of a cluster.
type Demand struct {
	// Pods at the most, DaemonSets apart: those are PodsPerNode on each node.
	Pods, PodsPerNode int
	// CPU and Memory are the sums of the larger of request and peak use, in cores and bytes, DaemonSets apart.
	CPU, Memory float64
	// NodeCPU and NodeMemory are the same for the DaemonSets of one node.
	NodeCPU, NodeMemory float64
	// PodCPU and PodMemory are those of the largest pod: a node must be larger.
	PodCPU, PodMemory float64
}

// Sum adds up what the workloads need.
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
		d.PodCPU, d.PodMemory = max(d.PodCPU, cpu), max(d.PodMemory, memory)
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

// amount is a quantity in its base unit, 0 where there is none.
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
