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

// clusterObjects are the objects that a batch has read, each once.
type clusterObjects struct {
	pods       []pod
	podsRead   bool
	byWorkload map[workloadKey][]int
	nodes      []corev1.Node
	nodesRead  bool
	// allowed caches, by the placement of a pod, which nodes accept it.
	allowed map[string][]bool
	// templates are the pod templates of workloads, with pods or without.
	templates templates
}

// pod holds the parts of a pod that recommenders need. Pods that have ended are left out.
type pod struct {
	workload.Pod
	namespace string
	labels    map[string]string
	status    podStatus
	// onEveryNode marks DaemonSet pods and static pods, unmanaged ones that no controller would replace.
	onEveryNode, unmanaged bool
	// placement is the JSON of the placementRules, which most pods share.
	placement string
	claims    []string
	gpus      []gpuRequest
}

// gpuRequest is the number of GPUs that a container requests.
type gpuRequest struct {
	container string
	resource  corev1.ResourceName
	count     int64
}

type podStatus struct{ ready, hostNetwork, guaranteed bool }

// workloadKey names a workload without its API version, which sources of metrics do not know.
type workloadKey struct{ namespace, kind, name string }

func workloadKeyOf(ref workload.Ref) workloadKey {
	return workloadKey{ref.Namespace, ref.Kind, ref.Name}
}

// placementRules are the fields of a pod that restrict its nodes.
type placementRules struct {
	NodeSelector map[string]string    `json:"nodeSelector,omitempty"`
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	Tolerations  []corev1.Toleration  `json:"tolerations,omitempty"`
}

// pods returns the pods of the scopes that have not ended.
func (d *runData) pods(ctx context.Context) ([]pod, error) {
	if d.objects.podsRead {
		return d.objects.pods, nil
	}

	listCtx, cancel := context.WithTimeout(ctx, d.listTimeout)
	defer cancel()

	var out []pod
	byWorkload := map[workloadKey][]int{}
	err := d.lister.EachPod(listCtx, d.namespaces, func(o *corev1.Pod, p workload.Pod, mirror bool) error {
		placement, err := placementOf(o)
		if err != nil {
			return err
		}

		key := workloadKeyOf(p.Owner)
		byWorkload[key] = append(byWorkload[key], len(out))
		out = append(out, pod{
			Pod:         p,
			namespace:   o.Namespace,
			labels:      o.Labels,
			placement:   placement,
			claims:      claimsOf(o),
			gpus:        podGPUs(o),
			onEveryNode: mirror || p.Owner.Kind == "DaemonSet",
			unmanaged:   !mirror && metav1.GetControllerOfNoCopy(o) == nil,
			status:      podStatus{ready: isReady(o), hostNetwork: o.Spec.HostNetwork, guaranteed: o.Status.QOSClass == corev1.PodQOSGuaranteed},
		})

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}

	d.objects.pods = out
	d.objects.podsRead = true
	d.objects.byWorkload = byWorkload

	return out, nil
}

// claimsOf returns the names of the claims that a pod mounts.
func claimsOf(o *corev1.Pod) []string {
	var out []string
	for i := range o.Spec.Volumes {
		switch v := &o.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, o.Name+"-"+v.Name)
		}
	}

	return out
}

func podGPUs(o *corev1.Pod) []gpuRequest {
	var out []gpuRequest
	for i := range o.Spec.Containers {
		for name, q := range o.Spec.Containers[i].Resources.Requests {
			if workload.IsGPU(name) && q.Value() > 0 {
				out = append(out, gpuRequest{o.Spec.Containers[i].Name, name, q.Value()})
			}
		}
	}

	return out
}

// podsOfWorkload returns the pods of a workload. It is called after pods.
func (d *runData) podsOfWorkload(ref workload.Ref) []pod {
	var out []pod
	for _, i := range d.objects.byWorkload[workloadKeyOf(ref)] {
		out = append(out, d.objects.pods[i])
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

func isReady(o *corev1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// allNodes returns the nodes, without the fields that no recommender uses.
func (d *runData) allNodes(ctx context.Context) ([]corev1.Node, error) {
	if d.objects.nodesRead {
		return d.objects.nodes, nil
	}

	listCtx, cancel := context.WithTimeout(ctx, d.listTimeout)
	defer cancel()

	var out []corev1.Node
	err := d.lister.EachNode(listCtx, func(n *corev1.Node) error {
		node := *n // The object belongs to the cache.
		node.Annotations = nil
		node.ManagedFields = nil
		node.Status.Images = nil
		node.Status.VolumesAttached = nil
		out = append(out, node)

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}

	d.objects.nodes = out
	d.objects.nodesRead = true
	d.objects.allowed = map[string][]bool{}

	return out, nil
}

// nodeCapacity returns the free capacity of the nodes, in the order of allNodes. It is called after pods and allNodes.
func (d *runData) nodeCapacity() []packing.Node {
	byName := make(map[string]int, len(d.objects.nodes))
	out := make([]packing.Node, len(d.objects.nodes))
	for i := range d.objects.nodes {
		n := &d.objects.nodes[i]
		byName[n.Name] = i
		allocatable := workload.AmountsOf(n.Status.Allocatable)
		out[i] = packing.Node{
			Name:        n.Name,
			Allocatable: allocatable,
			Free:        allocatable,
			FreePods:    int(n.Status.Allocatable.Pods().Value()),
		}
	}

	// Pending pods, and pods of nodes that were not listed, use no capacity here.
	for _, p := range d.objects.pods {
		i, ok := byName[p.Node]
		if !ok {
			continue
		}

		out[i].Free = cost.Amounts{
			CPU: out[i].Free.CPU - p.Requests.CPU, Memory: out[i].Free.Memory - p.Requests.Memory, GPU: out[i].Free.GPU - p.Requests.GPU,
		}
		out[i].FreePods--
	}

	return out
}

// allowedNodes reports, by the index of a node, whether it accepts a pod regardless of free capacity.
func (d *runData) allowedNodes(p pod) ([]bool, error) {
	if allowed, ok := d.objects.allowed[p.placement]; ok {
		return allowed, nil
	}

	var c placementRules
	if err := json.Unmarshal([]byte(p.placement), &c); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.namespace, p.Name, err)
	}

	sample := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, Affinity: &corev1.Affinity{NodeAffinity: c.NodeAffinity},
	}}

	out := make([]bool, len(d.objects.nodes))
	for i := range d.objects.nodes {
		out[i] = workload.NodeRejectReason(&d.objects.nodes[i], sample) == ""
	}

	d.objects.allowed[p.placement] = out
	return out, nil
}

// listEach visits the objects of the kind of an empty list in the scopes, page by page, from the API server.
func listEach[T client.Object](ctx context.Context, d *runData, empty client.ObjectList, visit func(T)) error {
	listCtx, cancel := context.WithTimeout(ctx, d.listTimeout)
	defer cancel()

	for _, namespace := range d.scopes() {
		if err := listNamespace(listCtx, d.live, namespace, empty, visit); err != nil {
			return err
		}
	}

	return nil
}

func listNamespace[T client.Object](ctx context.Context, from client.Reader, namespace string, empty client.ObjectList, visit func(T)) error {
	opts := &client.ListOptions{Namespace: namespace, Limit: pageSize}
	for {
		list, _ := empty.DeepCopyObject().(client.ObjectList) // A page of its own: visited objects are kept.
		err := from.List(ctx, list, opts)
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error {
				if object, ok := o.(T); ok {
					visit(object)
				}

				return nil
			})
		}

		if err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}

		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// hourlyFigures reads a figure of everything in the namespaces of the targets, over a number of hours.
func (d *runData) hourlyFigures(ctx context.Context, metric metrics.HourlyMetric, targets []workload.Workload, hours int) ([]metrics.HourlySeries, error) {
	if d.history.Hourly == nil {
		return nil, wrapSourceError(errNoHourlyData)
	}

	readCtx, cancel := context.WithTimeout(ctx, d.historyTimeout)
	defer cancel()

	out, err := d.history.Hourly.Hourly(readCtx, metrics.HourlyRequest{
		Metric:     metric,
		Namespaces: namespacesOf(targets),
		End:        d.historyEnd,
		Hours:      hours,
	})

	return out, wrapSourceError(err)
}

// namespacesOf returns the namespaces of targets, sorted, each once; none for cluster-scoped targets.
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

// readHours reads a figure over a number of hours and returns it by key, the maximum of several series of one key.
func readHours[K comparable](
	ctx context.Context, d *runData, metric metrics.HourlyMetric, targets []workload.Workload, hours int, key func(metrics.HourlySeries) K,
) (map[K]observation.Hours, error) {
	list, err := d.hourlyFigures(ctx, metric, targets, hours)
	if err != nil {
		return nil, err
	}

	out := make(map[K]observation.Hours, len(list))
	for _, h := range list {
		k := key(h)
		if previous, exists := out[k]; exists {
			previous.Max(h.Values)
			continue
		}

		out[k] = h.Values
	}

	return out, nil
}

// podTotals are, for each hour, the sum of a figure over the pods of a workload and the number of these pods. Deleted pods count.
type podTotals struct{ sum, pods observation.Hours }

// totalsByWorkload sums a figure of pods by workload.
func totalsByWorkload(list []metrics.HourlySeries, hours int) map[workloadKey]podTotals {
	out := map[workloadKey]podTotals{}
	podCount := make(observation.Hours, hours)
	for _, h := range list {
		key := workloadKeyOf(h.Key.Workload)
		totals, ok := out[key]
		if !ok {
			totals = podTotals{observation.Unknown(hours), observation.Unknown(hours)}
			out[key] = totals
		}

		for i := range podCount {
			podCount[i] = series.Gap()
			if i < len(h.Values) && observation.IsKnown(h.Values[i]) {
				podCount[i] = 1
			}
		}

		totals.sum.Add(h.Values)
		totals.pods.Add(podCount)
	}

	return out
}

// thresholdFigure is a figure of pods that a recommender compares with a limit.
type thresholdFigure struct {
	// limit of 0 or less disables the figure.
	limit  float64
	metric metrics.HourlyMetric
	result *map[workloadKey]podTotals
}

// readPodFigures reads figures of the pods of targets, summed by workload, since deleted pods have no labels to select by.
func (d *runData) readPodFigures(ctx context.Context, targets []workload.Workload, hours int, figures ...thresholdFigure) error {
	for _, f := range figures {
		if f.limit <= 0 {
			continue
		}

		list, err := d.hourlyFigures(ctx, f.metric, targets, hours)
		if err != nil {
			return err
		}

		*f.result = totalsByWorkload(list, hours)
	}

	return nil
}

// mean returns the figure per pod.
func (p podTotals) mean() observation.Hours {
	out := make(observation.Hours, len(p.sum))
	for i := range out {
		out[i] = p.sum[i] / p.pods[i] // A gap stays one.
	}

	return out
}
