// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// cluster is a small cluster of running pods without an API server; its nodes are simulated kubelets.
type cluster struct {
	objects   Objects
	workloads []*load.Workload
	source    *load.Source
	nodes     []*kubelet.Node
	requested []float64 // cores, by node
}

// newCluster binds the pods of a catalog to nodes and starts them at the given time.
func newCluster(tb testing.TB, workloads []*load.Workload, nodes int, at time.Time) *cluster {
	tb.Helper()

	c := &cluster{workloads: workloads, source: load.NewSource(workloads, 1), requested: make([]float64, nodes)}
	for i := range nodes {
		spec := kubelet.NodeSpec{Name: fmt.Sprintf("node-%d", i), CPU: resource.MustParse("32"), Memory: resource.MustParse("256Gi"), MaxPods: 250}
		c.nodes = append(c.nodes, kubelet.NewNode(spec, kubelet.DefaultTiming(), "127.0.0.1", fmt.Sprintf("10.200.%d.", i)))
		c.objects.Nodes = append(c.objects.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: map[string]string{"kubernetes.io/hostname": spec.Name}, CreationTimestamp: metav1.NewTime(at)},
			Status:     corev1.NodeStatus{Capacity: spec.Capacity(), Allocatable: spec.Allocatable()},
		})
	}

	for _, w := range workloads {
		c.place(tb, w, at)
	}

	c.run(at, at.Add(10*time.Second))
	return c
}

func (c *cluster) place(tb testing.TB, w *load.Workload, at time.Time) {
	tb.Helper()

	for _, o := range w.Objects() {
		switch o := o.(type) {
		case *appsv1.Deployment:
			c.objects.Deployments = append(c.objects.Deployments, o)
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name + "-" + suffix(10, o.Namespace, o.Name),
				OwnerReferences: []metav1.OwnerReference{controllerRef("Deployment", o.Name)},
			}, Spec: appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas}}

			c.objects.ReplicaSets = append(c.objects.ReplicaSets, set)
			for i := range w.Replicas {
				c.bind(o.Spec.Template, o.Namespace, set.Name+"-"+suffix(5, set.Name, fmt.Sprint(i)), "ReplicaSet", set.Name, at)
			}

		case *appsv1.StatefulSet:
			c.objects.StatefulSets = append(c.objects.StatefulSets, o)
			for i := range w.Replicas {
				c.bind(o.Spec.Template, o.Namespace, fmt.Sprintf("%s-%d", o.Name, i), "StatefulSet", o.Name, at)
			}

		case *appsv1.DaemonSet:
			c.objects.DaemonSets = append(c.objects.DaemonSets, o)
			for i := range c.nodes {
				c.bind(o.Spec.Template, o.Namespace, o.Name+"-"+suffix(5, o.Name, fmt.Sprint(i)), "DaemonSet", o.Name, at)
			}

		case *batchv1.CronJob:
			c.objects.CronJobs = append(c.objects.CronJobs, o)

		case *autoscalingv2.HorizontalPodAutoscaler:
			c.objects.Autoscalers = append(c.objects.Autoscalers, o)

		default:
			tb.Fatalf("Objects of %s/%s: got a %T, want a controller or an autoscaler", w.Namespace, w.Name, o)
		}
	}
}

func (c *cluster) bind(template corev1.PodTemplateSpec, namespace, name, kind, owner string, at time.Time) {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace = namespace
	pod.Name = name
	pod.UID = pastUID(namespace, name)
	pod.OwnerReferences = []metav1.OwnerReference{controllerRef(kind, owner)}
	pod.CreationTimestamp = metav1.NewTime(at)

	i := c.leastRequested()
	c.requested[i] += pod.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64() + 0.1
	pod.Spec.NodeName = c.nodes[i].Spec().Name
	c.objects.Pods = append(c.objects.Pods, pod)
	c.nodes[i].Observe(pod, at)
}

// leastRequested returns the index of the node with the smallest sum of requests.
func (c *cluster) leastRequested() int {
	best := 0
	for i := range c.nodes {
		if c.requested[i] < c.requested[best] {
			best = i
		}
	}

	return best
}

// run advances the nodes from one time to another and updates the pods from them.
func (c *cluster) run(from, to time.Time) {
	for at := from; !at.After(to); at = at.Add(time.Second) {
		for _, n := range c.nodes {
			for _, pod := range n.Pods() {
				n.Step(pod.UID, at)
			}
		}

		if at.Sub(from)%(5*time.Second) == 0 {
			for _, n := range c.nodes {
				n.Measure(c.source, at)
			}
		}
	}

	c.objects.Pods = nil
	for _, n := range c.nodes {
		c.objects.Pods = append(c.objects.Pods, n.Pods()...)
	}
}

func (c *cluster) snapshot(at time.Time) Snapshot {
	s := Snapshot{At: at, Objects: c.objects}
	for _, n := range c.nodes {
		s.Containers = n.Containers(s.Containers, true)
		state := n.State()
		state.Reachable = true
		s.Nodes = append(s.Nodes, state)
	}

	return s
}

// write writes the history of the cluster to a Prometheus.
func (c *cluster) write(tb testing.TB, e *Exporter, s *promserver.Server, past load.Past, step time.Duration) promserver.BackfillStats {
	tb.Helper()

	grid := promserver.Grid{Start: past.Start, End: past.End, Step: step}
	h, err := e.Backfill(c.objects, past, grid)
	if err != nil {
		tb.Fatal(err)
	}

	stats, err := s.Backfill(tb.Context(), grid, h.Series)
	if err != nil {
		tb.Fatal(err)
	}

	h.Commit()
	return stats
}
