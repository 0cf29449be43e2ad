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

// fits returns why a pod cannot run on a node; empty if it can. It evaluates what kube-scheduler's filters evaluate
// for pods that are not blocked: readiness, taints, selectors and node affinity, requests, and required anti-affinity
// in both directions.
func (s *snapshot) fits(pod *corev1.Pod, to int) string {
	node := &s.nodes[to]
	if why := workload.NodeRejectReason(node, pod); why != "" {
		return why
	}

	if short := s.insufficientResource(pod, to); short != "" {
		return "without enough " + short
	}

	if s.violatesAntiAffinity(pod, to) {
		return "with pods that it must not be near"
	}

	return ""
}

// insufficientResource returns the first resource of which the node has too little.
func (s *snapshot) insufficientResource(pod *corev1.Pod, to int) string {
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

		total := s.used[to][name].DeepCopy()
		total.Add(q)

		if limit := allocatable[name]; total.Cmp(limit) > 0 {
			lacking = append(lacking, fmt.Sprint(name))
		}
	}

	// The map of requests has no order; the smallest name makes the reason repeatable.
	if len(lacking) == 0 {
		return ""
	}

	return slices.Min(lacking)
}

// violatesAntiAffinity reports whether a required anti-affinity of the pod or of a running pod excludes the node.
func (s *snapshot) violatesAntiAffinity(pod *corev1.Pod, to int) bool {
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
			if s.sameTopology(term.TopologyKey, other.node, to) && termMatches(term, other.pod.Namespace, pod) {
				return true
			}
		}
	}

	return false
}

// alone reports whether the pod's own anti-affinity is the usual one between replicas and the node has none of them.
// Terms about other pods would need all pods in memory; they count as violated.
func (s *snapshot) alone(pod *corev1.Pod, to int) bool {
	for i := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		term := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if !termMatches(term, pod.Namespace, pod) {
			return false
		}

		for _, other := range s.repelling {
			if other.pod.UID != pod.UID && s.sameTopology(term.TopologyKey, other.node, to) && termMatches(term, pod.Namespace, other.pod) {
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

// termMatches reports whether an affinity term of a pod in a namespace selects another pod. A namespace selector
// counts as all namespaces.
func termMatches(term *corev1.PodAffinityTerm, namespace string, pod *corev1.Pod) bool {
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
