// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podresource "k8s.io/component-helpers/resource"

	"crane.io/crane/internal/kube/workload"
)

// fits says why a pod cannot run on a node; empty where it can. It looks at what kube-scheduler's filters look at for pods
// that are not blocked: readiness, taints, selectors and node affinity, requests, and required anti-affinity both ways.
func (s *snapshot) fits(pod *corev1.Pod, to int) string {
	node := &s.nodes[to]
	if why := workload.NodeRejectReason(node, pod); why != "" {
		return why
	}
	if short := s.short(pod, to); short != "" {
		return "without enough " + short
	}
	if s.repelled(pod, to) {
		return "with pods that it must not be near"
	}
	return ""
}

// short names the first resource that the node has not enough of.
func (s *snapshot) short(pod *corev1.Pod, to int) string {
	allocatable := s.nodes[to].Status.Allocatable
	if s.pods[to]+1 > allocatable.Pods().Value() {
		return "pods"
	}
	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	var lacking []string
	for name, q := range requests {
		if q.IsZero() {
			continue
		}
		sum := s.used[to][name].DeepCopy()
		sum.Add(q)
		if has := allocatable[name]; sum.Cmp(has) > 0 {
			lacking = append(lacking, fmt.Sprint(name))
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return slices.Min(lacking)
}

// repelled tells whether a required anti-affinity of the pod, or of one that runs, keeps it off the node.
func (s *snapshot) repelled(pod *corev1.Pod, to int) bool {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		if len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 && !s.alone(pod, to) {
			return true
		}
	}
	for _, other := range s.repelling {
		if other.pod.UID == pod.UID {
			continue
		}
		for i := range other.pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			term := &other.pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			if s.sameTopology(term.TopologyKey, other.node, to) && meant(term, other.pod.Namespace, pod) {
				return true
			}
		}
	}
	return false
}

// alone tells that the pod's own anti-affinity is of the kind that replicas have against each other and that the node has
// none of those. Terms about other pods would need all pods in mind; they are taken as not met.
func (s *snapshot) alone(pod *corev1.Pod, to int) bool {
	for i := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		term := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if !meant(term, pod.Namespace, pod) {
			return false
		}
		for _, other := range s.repelling {
			if other.pod.UID != pod.UID && s.sameTopology(term.TopologyKey, other.node, to) && meant(term, pod.Namespace, other.pod) {
				return false
			}
		}
	}
	return true
}

func (s *snapshot) sameTopology(key string, a, b int) bool {
	x, ok := s.nodes[a].Labels[key]
	return ok && x == s.nodes[b].Labels[key]
}

// meant tells whether a term of a pod in a namespace is about another pod. A selector of namespaces means all.
func meant(term *corev1.PodAffinityTerm, namespace string, pod *corev1.Pod) bool {
	namespaces := term.Namespaces
	if len(namespaces) == 0 && term.NamespaceSelector == nil {
		namespaces = []string{namespace}
	}
	if len(namespaces) > 0 && term.NamespaceSelector == nil && !slices.Contains(namespaces, pod.Namespace) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	return err != nil || selector.Matches(labels.Set(pod.Labels))
}
