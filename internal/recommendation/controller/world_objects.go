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

// objects are what a pass reads of the API server beside workloads, each once.
type objects struct {
	pods      []pod
	podsRead  bool
	byOwner   map[owner][]int
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
	uses      podUse
	// everywhere marks pods of DaemonSets, and static ones; bare those that have no controller.
	everywhere, bare bool
	// constraint is the part of the pod that says which nodes take it, as text: most pods share it.
	constraint string
	claims     []string
	gpus       []gpuAsk
}

// gpuAsk is what a container asks for.
type gpuAsk struct {
	container string
	resource  corev1.ResourceName
	count     int64
}

// podUse is how a pod fares.
type podUse struct{ ready, hostNetwork, guaranteed bool }

// owner is a workload, whatever the version of its API: sources of metrics do not know it.
type owner struct{ namespace, kind, name string }

func ownerOf(ref workload.Ref) owner { return owner{ref.Namespace, ref.Kind, ref.Name} }

// constraints of a pod, as far as they are about nodes.
type podConstraints struct {
	NodeSelector map[string]string    `json:"nodeSelector,omitempty"`
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	Tolerations  []corev1.Toleration  `json:"tolerations,omitempty"`
}

// pods are all pods of the cluster that have not ended.
func (w *world) pods(ctx context.Context) ([]pod, error) {
	if w.seen.podsRead {
		return w.seen.pods, nil
	}
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	var out []pod
	err := w.lister.EachPod(listing, nil, func(o *corev1.Pod, p workload.Pod, mirror bool) error {
		constraint, err := constraintOf(o)
		if err != nil {
			return err
		}
		one := pod{
			Pod: p, namespace: o.Namespace, labels: o.Labels, constraint: constraint,
			everywhere: mirror || p.Owner.Kind == "DaemonSet", bare: !mirror && metav1.GetControllerOfNoCopy(o) == nil,
			uses: podUse{ready: podReady(o), hostNetwork: o.Spec.HostNetwork, guaranteed: o.Status.QOSClass == corev1.PodQOSGuaranteed},
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
					one.gpus = append(one.gpus, gpuAsk{o.Spec.Containers[i].Name, name, q.Value()})
				}
			}
		}
		out = append(out, one)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}
	w.seen.pods, w.seen.podsRead, w.seen.byOwner = out, true, map[owner][]int{}
	for i, p := range out {
		key := ownerOf(p.Owner)
		w.seen.byOwner[key] = append(w.seen.byOwner[key], i)
	}
	return out, nil
}

// podsOf are those of a workload, after pods.
func (w *world) podsOf(ref workload.Ref) []pod {
	var out []pod
	for _, i := range w.seen.byOwner[ownerOf(ref)] {
		out = append(out, w.seen.pods[i])
	}
	return out
}

func constraintOf(o *corev1.Pod) (string, error) {
	c := podConstraints{NodeSelector: o.Spec.NodeSelector, Tolerations: o.Spec.Tolerations}
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
func (w *world) allNodes(ctx context.Context) ([]corev1.Node, error) {
	if w.seen.nodesRead {
		return w.seen.nodes, nil
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
	w.seen.nodes, w.seen.nodesRead, w.seen.allowed = out, true, map[string][]bool{}
	return out, nil
}

// room is what nodes have left, by their index in allNodes. It is called after pods and allNodes.
func (w *world) room() []packing.Node {
	byName := make(map[string]int, len(w.seen.nodes))
	out := make([]packing.Node, len(w.seen.nodes))
	for i := range w.seen.nodes {
		n := &w.seen.nodes[i]
		byName[n.Name] = i
		has := workload.AmountsOf(n.Status.Allocatable)
		out[i] = packing.Node{Name: n.Name, Allocatable: has, Free: has, FreePods: int(n.Status.Allocatable.Pods().Value())}
	}
	for _, p := range w.seen.pods {
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

// allowed tells by the index of a node whether it takes a pod like this one, whatever room it has.
func (w *world) allowed(p pod) ([]bool, error) {
	if known, ok := w.seen.allowed[p.constraint]; ok {
		return known, nil
	}
	var c podConstraints
	if err := json.Unmarshal([]byte(p.constraint), &c); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.namespace, p.Name, err)
	}
	like := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, Affinity: &corev1.Affinity{NodeAffinity: c.NodeAffinity},
	}}
	out := make([]bool, len(w.seen.nodes))
	for i := range w.seen.nodes {
		out[i] = workload.Refuses(&w.seen.nodes[i], like) == ""
	}
	w.seen.allowed[p.constraint] = out
	return out, nil
}

// each visits all objects of a kind, page by page, from the API server.
func (w *world) each(ctx context.Context, newList func() client.ObjectList, visit func(client.Object)) error {
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

// hourly reads a figure of all that is in the namespaces of some targets, over so many hours.
func (w *world) hourly(ctx context.Context, of metrics.Figure, targets []workload.Workload, hours int) ([]metrics.Hourly, error) {
	if w.hours == nil {
		return nil, queried(errNoFigures)
	}
	reading, cancel := context.WithTimeout(ctx, w.historyTimeout)
	defer cancel()
	out, err := w.hours.Hourly(reading, metrics.HourlyRequest{Figure: of, Namespaces: namespacesOf(targets), End: w.end, Hours: hours})
	return out, queried(err)
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

// hoursOf keeps the hours of each thing of a figure, the most where there are several of one.
func hoursOf[K comparable](list []metrics.Hourly, key func(metrics.Hourly) K) map[K]observation.Hours {
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

// podHours is a figure of all pods of a workload, those that are gone included: their sum, and how many there were, in each
// hour.
type podHours struct{ sum, pods observation.Hours }

// byOwner adds a figure of pods up by workload.
func byOwner(list []metrics.Hourly, hours int) map[owner]podHours {
	out := map[owner]podHours{}
	one := make(observation.Hours, hours)
	for _, h := range list {
		key := ownerOf(h.Key.Workload)
		of, there := out[key]
		if !there {
			of = podHours{observation.Unknown(hours), observation.Unknown(hours)}
			out[key] = of
		}
		for i := range one {
			one[i] = series.Gap()
			if i < len(h.Values) && observation.Known(h.Values[i]) {
				one[i] = 1
			}
		}
		of.sum.Add(h.Values)
		of.pods.Add(one)
	}
	return out
}

// podFigure is a figure of pods that a recommender reads where it has a limit for it.
type podFigure struct {
	// limit of 0 or less switches the figure off.
	limit float64
	of    metrics.Figure
	into  *map[owner]podHours
}

// readPods reads figures of the pods of targets, added up by workload: pods that are gone have no labels any more.
func (w *world) readPods(ctx context.Context, targets []workload.Workload, hours int, figures ...podFigure) error {
	for _, f := range figures {
		if f.limit <= 0 {
			continue
		}
		list, err := w.hourly(ctx, f.of, targets, hours)
		if err != nil {
			return err
		}
		*f.into = byOwner(list, hours)
	}
	return nil
}

// mean is the figure for one pod.
func (p podHours) mean() observation.Hours {
	out := make(observation.Hours, len(p.sum))
	for i := range out {
		out[i] = p.sum[i] / p.pods[i] // A gap stays one.
	}
	return out
}
