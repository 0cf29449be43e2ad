// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
	"crane.io/crane/pkg/units"
)

// pageSize is the page size of lists of pods and budgets.
const pageSize = 500

// snapshot is the cluster state of one round.
type snapshot struct {
	nodes []corev1.Node
	// used is the sum of pod requests by node, arriving the pods that are not in its samples yet.
	used     []corev1.ResourceList
	pods     []int64
	arriving []nodeload.Arrivals
	// requested is used in the units that shares are learned from.
	requested []nodeload.Amount
	// onHot holds the pods of hot nodes.
	onHot map[int][]*corev1.Pod
	// repelling holds all pods with a required anti-affinity.
	repelling []antiAffinityPod
	// ready counts the ready pods of each controller.
	ready map[string]int

	optedOut optout.Set

	budgets []budget
	allowed []int32
	// heldNodes are the nodes whose holds this round has changed.
	heldNodes map[int]bool
}

// antiAffinityPod is a pod with a required anti-affinity.
type antiAffinityPod struct {
	pod  *corev1.Pod
	node int
}

// budget is a PodDisruptionBudget.
type budget struct {
	namespace string
	selector  labels.Selector
}

// read lists pods and budgets, page by page, and keeps what the decision needs. It counts pods that started
// less than horizon ago as pending.
func read(ctx context.Context, from client.Reader, nodes []corev1.Node, hot map[int]bool, horizon time.Duration, now time.Time) (*snapshot, error) {
	s := &snapshot{
		nodes:     nodes,
		used:      make([]corev1.ResourceList, len(nodes)),
		pods:      make([]int64, len(nodes)),
		arriving:  make([]nodeload.Arrivals, len(nodes)),
		requested: make([]nodeload.Amount, len(nodes)),
		onHot:     map[int][]*corev1.Pod{},
		ready:     map[string]int{},
		heldNodes: map[int]bool{},
	}

	index := make(map[string]int, len(nodes))
	for i := range nodes {
		index[nodes[i].Name] = i
		s.used[i] = corev1.ResourceList{}
	}

	// Pages bound the memory: only the pods of hot nodes and those with an anti-affinity are kept.
	opts := &client.ListOptions{Limit: pageSize}
	for {
		list := &corev1.PodList{}
		if err := from.List(ctx, list, opts); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}

		for i := range list.Items {
			if node, ok := index[list.Items[i].Spec.NodeName]; ok {
				s.add(&list.Items[i], node, hot[node], horizon, now)
			}
		}

		opts.Continue = list.Continue
		if opts.Continue == "" {
			break
		}
	}

	return s, s.readBudgets(ctx, from)
}

func (s *snapshot) add(pod *corev1.Pod, node int, hot bool, horizon time.Duration, now time.Time) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}

	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	s.addRequests(node, requests)
	amount := amountOf(requests)

	s.requested[node].CPU += amount.CPU
	s.requested[node].Memory += amount.Memory
	if eviction.IsReady(pod) {
		s.ready[workloadOf(pod)]++
	}

	var started time.Time
	if pod.Status.StartTime != nil {
		started = pod.Status.StartTime.Time
	}

	if started.IsZero() || now.Sub(started) < horizon {
		use, _ := nodeload.Estimate(nodeload.PodRequest{
			Request: amount, Limit: amountOf(podresource.PodLimits(pod, podresource.PodResourcesOptions{})),
		}, nodeload.Amount{}, nodeload.DefaultShare())
		s.arriving[node].Add(string(pod.UID), use, started)
	}

	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		s.repelling = append(s.repelling, antiAffinityPod{affinityCopy(pod), node})
	}
	if hot {
		s.onHot[node] = append(s.onHot[node], pod.DeepCopy()) // a copy, so that the page can be freed
	}
}

// affinityCopy returns the fields of a pod that its anti-affinity needs.
func affinityCopy(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      pod.Name,
			UID:       pod.UID,
			Labels:    pod.Labels,
		},
		Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: pod.Spec.Affinity.PodAntiAffinity}},
	}
}

// addRequests adds a pod's requests to its node.
func (s *snapshot) addRequests(node int, requests corev1.ResourceList) {
	s.pods[node]++
	for name, q := range requests {
		sum := s.used[node][name]
		sum.Add(q)
		s.used[node][name] = sum
	}
}

func (s *snapshot) readBudgets(ctx context.Context, from client.Reader) error {
	opts := &client.ListOptions{Limit: pageSize}
	for {
		list := &policyv1.PodDisruptionBudgetList{}
		if err := from.List(ctx, list, opts); err != nil {
			return fmt.Errorf("listing disruption budgets: %w", err)
		}

		for i := range list.Items {
			pdb := &list.Items[i]
			selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
			if err != nil {
				selector = labels.Everything() // An invalid selector blocks all pods of the namespace.
			}

			allowed := pdb.Status.DisruptionsAllowed
			if err != nil || pdb.Status.ObservedGeneration < pdb.Generation {
				allowed = 0
			}

			s.budgets = append(s.budgets, budget{pdb.Namespace, selector})
			s.allowed = append(s.allowed, allowed)
		}

		opts.Continue = list.Continue
		if opts.Continue == "" {
			return nil
		}
	}
}

// budgetsOf returns the budgets that select a pod.
func (s *snapshot) budgetsOf(pod *corev1.Pod) []int {
	var out []int
	for i, b := range s.budgets {
		if b.namespace == pod.Namespace && b.selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, i)
		}
	}

	return out
}

// candidates returns the pods of a hot node as input of the decision.
func (s *snapshot) candidates(
	node int, use func(namespace, pod string) (nodeload.Amount, bool), blocked func(pod *corev1.Pod, othersReady int) string, coolDownReason func(*corev1.Pod) string,
) []rebalance.Pod {
	var out []rebalance.Pod
	for _, pod := range s.onHot[node] {
		p := rebalance.Pod{
			Namespace: pod.Namespace,
			Name:      pod.Name,
			UID:       string(pod.UID),
			Workload:  workloadOf(pod),
			Budgets:   s.budgetsOf(pod),
			Blocked:   blocked(pod, s.othersReady(pod)),
		}

		// The eviction API refuses pods with two budgets, and a cool-down ends by itself, so that it comes last.
		switch {
		case p.Blocked != "":
		case len(p.Budgets) > 1:
			p.Blocked = "it has more than one disruption budget, which the eviction API refuses"
		default:
			p.Blocked = coolDownReason(pod)
		}

		if pod.Spec.Priority != nil {
			p.Priority = *pod.Spec.Priority
		}
		if cost, err := strconv.ParseInt(pod.Annotations[deletionCost], 10, 32); err == nil {
			p.DeletionCost = int32(cost)
		}
		if amount, ok := use(pod.Namespace, pod.Name); ok {
			p.Use = amount
		}

		out = append(out, p)
	}

	return out
}

// othersReady returns the number of ready pods of the workload of a pod beside it.
func (s *snapshot) othersReady(pod *corev1.Pod) int {
	ready := s.ready[workloadOf(pod)]
	if eviction.IsReady(pod) {
		ready--
	}

	return ready
}

func workloadOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return pod.Namespace + "/" + owner.Kind + "/" + owner.Name
	}

	return pod.Namespace + "/Pod/" + pod.Name
}

func amountOf(list corev1.ResourceList) nodeload.Amount {
	return nodeload.Amount{CPU: units.MilliCPU(list.Cpu().MilliValue()), Memory: units.Bytes(list.Memory().Value())}
}

// recordMove adds a moved pod to its new node, so that the next pod sees less free capacity.
func (s *snapshot) recordMove(pod *corev1.Pod, to int) {
	s.addRequests(to, podresource.PodRequests(pod, podresource.PodResourcesOptions{}))
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		moved := affinityCopy(pod)
		moved.UID += "/moved" // stands for the replacement pod
		s.repelling = append(s.repelling, antiAffinityPod{moved, to})
	}
}
