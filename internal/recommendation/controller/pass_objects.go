// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/series"
)

// clusterObjects are what a pass reads of the API server beside workloads, each once.
type clusterObjects struct {
	pods      []pod
	podsRead  bool
	byOwner   map[workloadKey][]int
	nodes     []corev1.Node
	nodesRead bool
	// allowed tells by the constraints of a pod which nodes take it.
	allowed map[string][]bool
	// templates are those of workloads, whether they have pods or not.
	templates templates
}

// pod is what recommenders need of a pod that has not ended.
type pod struct {
	workload.Pod
	namespace string
	labels    map[string]string
	status    podStatus
	// onEveryNode marks pods of DaemonSets, and static ones; bare those that have no controller.
	onEveryNode, unmanaged bool
	// placement is the part of the pod that says which nodes take it, as text: most pods share it.
	placement string
	claims    []string
	gpus      []gpuRequest
}

// gpuRequest is what a container asks for.
type gpuRequest struct {
	container string
	resource  corev1.ResourceName
	count     int64
}

// podStatus is how a pod fares.
type podStatus struct{ ready, hostNetwork, guaranteed bool }

// workloadKey is a workload, whatever the version of its API: sources of metrics do not know it.
type workloadKey struct{ namespace, kind, name string }

func workloadKeyOf(ref workload.Ref) workloadKey {
	return workloadKey{ref.Namespace, ref.Kind, ref.Name}
}

// constraints of a pod, as far as they are about nodes.
type placementRules struct {
	NodeSelector map[string]string    `json:"nodeSelector,omitempty"`
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	Tolerations  []corev1.Toleration  `json:"tolerations,omitempty"`
}

// pods are all pods of the cluster that have not ended.
func (w *passData) pods(ctx context.Context) ([]pod, error) {
	if w.objects.podsRead {
		return w.objects.pods, nil
	}
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	var out []pod
	err := w.lister.EachPod(listing, nil, func(o *corev1.Pod, p workload.Pod, mirror bool) error {
		constraint, err := placementOf(o)
		if err != nil {
			return err
		}
		one := pod{
			Pod: p, namespace: o.Namespace, labels: o.Labels, placement: constraint,
			onEveryNode: mirror || p.Owner.Kind == "DaemonSet", unmanaged: !mirror && metav1.GetControllerOfNoCopy(o) == nil,
			status: podStatus{ready: podReady(o), hostNetwork: o.Spec.HostNetwork, guaranteed: o.Status.QOSClass == corev1.PodQOSGuaranteed},
		}
		for i := range o.Spec.Volumes {
			switch v := &o.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				one.claims = append(one.claims, v.PersistentVolumeClaim.ClaimName)
			case v.Ephemeral != nil:
				one.claims = append(one.claims, o.Name+"-"+v.Name)
			}
		}
		for i := range o.Spec.Containers {
			for name, q := range o.Spec.Containers[i].Resources.Requests {
				if workload.IsGPU(name) && q.Value() > 0 {
					one.gpus = append(one.gpus, gpuRequest{o.Spec.Containers[i].Name, name, q.Value()})
				}
			}
		}
		out = append(out, one)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}
	w.objects.pods, w.objects.podsRead, w.objects.byOwner = out, true, map[workloadKey][]int{}
	for i, p := range out {
		key := workloadKeyOf(p.Owner)
		w.objects.byOwner[key] = append(w.objects.byOwner[key], i)
	}
	return out, nil
}

// podsOfWorkload are those of a workload, after pods.
func (w *passData) podsOfWorkload(ref workload.Ref) []pod {
	var out []pod
	for _, i := range w.objects.byOwner[workloadKeyOf(ref)] {
		out = append(out, w.objects.pods[i])
	}
	return out
}

func placementOf(o *corev1.Pod) (string, error) {
	c := placementRules{NodeSelector: o.Spec.NodeSelector, Tolerations: o.Spec.Tolerations}
	if o.Spec.Affinity != nil {
		c.NodeAffinity = o.Spec.Affinity.NodeAffinity
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("pod %s/%s: %w", o.Namespace, o.Name, err)
	}
	return string(raw), nil
}

func podReady(o *corev1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// allNodes are the nodes, without what nothing here looks at.
func (w *passData) allNodes(ctx context.Context) ([]corev1.Node, error) {
	if w.objects.nodesRead {
		return w.objects.nodes, nil
	}
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	var out []corev1.Node
	err := w.lister.EachNode(listing, func(n *corev1.Node) error {
		n.Annotations, n.ManagedFields, n.Status.Images, n.Status.VolumesAttached = nil, nil, nil, nil
		out = append(out, *n)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	w.objects.nodes, w.objects.nodesRead, w.objects.allowed = out, true, map[string][]bool{}
	return out, nil
}

// nodeCapacity is what nodes have left, by their index in allNodes. It is called after pods and allNodes.
func (w *passData) nodeCapacity() []packing.Node {
	byName := make(map[string]int, len(w.objects.nodes))
	out := make([]packing.Node, len(w.objects.nodes))
	for i := range w.objects.nodes {
		n := &w.objects.nodes[i]
		byName[n.Name] = i
		has := workload.AmountsOf(n.Status.Allocatable)
		out[i] = packing.Node{Name: n.Name, Allocatable: has, Free: has, FreePods: int(n.Status.Allocatable.Pods().Value())}
	}
	for _, p := range w.objects.pods {
		i, known := byName[p.Node]
		if !known {
			continue
		}
		out[i].Free = cost.Amounts{
			CPU: out[i].Free.CPU - p.Requests.CPU, Memory: out[i].Free.Memory - p.Requests.Memory, GPU: out[i].Free.GPU - p.Requests.GPU,
		}
		out[i].FreePods--
	}
	return out
}

// allowedNodes tells by the index of a node whether it takes a pod like this one, whatever room it has.
func (w *passData) allowedNodes(p pod) ([]bool, error) {
	if known, ok := w.objects.allowed[p.placement]; ok {
		return known, nil
	}
	var c placementRules
	if err := json.Unmarshal([]byte(p.placement), &c); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.namespace, p.Name, err)
	}
	like := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, Affinity: &corev1.Affinity{NodeAffinity: c.NodeAffinity},
	}}
	out := make([]bool, len(w.objects.nodes))
	for i := range w.objects.nodes {
		out[i] = workload.NodeRejectReason(&w.objects.nodes[i], like) == ""
	}
	w.objects.allowed[p.placement] = out
	return out, nil
}

// listEach visits all objects of a kind, page by page, from the API server.
func (w *passData) listEach(ctx context.Context, newList func() client.ObjectList, visit func(client.Object)) error {
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	opts := &client.ListOptions{Limit: pageSize}
	for {
		list := newList()
		if err := w.live.List(listing, list, opts); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if obj, ok := o.(client.Object); ok {
				visit(obj)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// hourlyFigures reads a figure of all that is in the namespaces of some targets, over so many hours.
func (w *passData) hourlyFigures(ctx context.Context, of metrics.HourlyMetric, targets []workload.Workload, hours int) ([]metrics.HourlySeries, error) {
	if w.history.Hourly == nil {
		return nil, wrapSourceError(errNoHourlyData)
	}
	reading, cancel := context.WithTimeout(ctx, w.historyTimeout)
	defer cancel()
	out, err := w.history.Hourly.Hourly(reading, metrics.HourlyRequest{Metric: of, Namespaces: namespacesOf(targets), End: w.historyEnd, Hours: hours})
	return out, wrapSourceError(err)
}

// namespacesOf are the namespaces of targets, each once; none for those that are in no namespace.
func namespacesOf(targets []workload.Workload) []string {
	var out []string
	for _, t := range targets {
		if t.Namespace != "" {
			out = append(out, t.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hoursByKey keeps the hours of each thing of a figure, the most where there are several of one.
func hoursByKey[K comparable](list []metrics.HourlySeries, key func(metrics.HourlySeries) K) map[K]observation.Hours {
	out := make(map[K]observation.Hours, len(list))
	for _, h := range list {
		k := key(h)
		if known, there := out[k]; there {
			known.Max(h.Values)
			continue
		}
		out[k] = h.Values
	}
	return out
}

// podTotals is a figure of all pods of a workload, those that are gone included: their sum, and how many there were, in each
// hour.
type podTotals struct{ sum, pods observation.Hours }

// totalsByWorkload adds a figure of pods up by workload.
func totalsByWorkload(list []metrics.HourlySeries, hours int) map[workloadKey]podTotals {
	out := map[workloadKey]podTotals{}
	one := make(observation.Hours, hours)
	for _, h := range list {
		key := workloadKeyOf(h.Key.Workload)
		of, there := out[key]
		if !there {
			of = podTotals{observation.Unknown(hours), observation.Unknown(hours)}
			out[key] = of
		}
		for i := range one {
			one[i] = series.Gap()
			if i < len(h.Values) && observation.IsKnown(h.Values[i]) {
				one[i] = 1
			}
		}
		of.sum.Add(h.Values)
		of.pods.Add(one)
	}
	return out
}

// thresholdFigure is a figure of pods that a recommender reads where it has a limit for it.
type thresholdFigure struct {
	// limit of 0 or less switches the figure off.
	limit float64
	of    metrics.HourlyMetric
	into  *map[workloadKey]podTotals
}

// readPodFigures reads figures of the pods of targets, added up by workload: pods that are gone have no labels any more.
func (w *passData) readPodFigures(ctx context.Context, targets []workload.Workload, hours int, figures ...thresholdFigure) error {
	for _, f := range figures {
		if f.limit <= 0 {
			continue
		}
		list, err := w.hourlyFigures(ctx, f.of, targets, hours)
		if err != nil {
			return err
		}
		*f.into = totalsByWorkload(list, hours)
	}
	return nil
}

// mean is the figure for one pod.
func (p podTotals) mean() observation.Hours {
	out := make(observation.Hours, len(p.sum))
	for i := range out {
		out[i] = p.sum[i] / p.pods[i] // A gap stays one.
	}
	return out
}
