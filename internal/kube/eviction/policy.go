// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction interprets the API server's answer to an eviction. It distinguishes an eviction that a PodDisruptionBudget
// blocks from an error of the API server with the same status code (429, 500), and from an unknown outcome.
package eviction

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SafeToEvict is the annotation of cluster-autoscaler that allows or forbids evicting a pod.
	SafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// minCriticalPriority is the lowest priority of system-critical pods (scheduling.SystemCriticalPriority).
	minCriticalPriority = 2_000_000_000
)

// Annotations by which pods ask other evictors to leave them alone.
const (
	annotationDoNotDisrupt     = "karpenter.sh/do-not-disrupt"
	annotationDoNotEvict       = "karpenter.sh/do-not-evict" // of Karpenter before 1.0
	annotationPreferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
)

// Annotations of static pods: the mark of the API server's mirror pod, and the source of the kubelet's pod.
const (
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationSource = "kubernetes.io/config.source"
)

// Policy decides which pods Crane evicts. Its zero value, which rebalancing uses, evicts only pods that a controller replaces elsewhere
// without loss of work, and never the last ready pod of a workload. PodDisruptionBudgets hold in addition.
type Policy struct {
	// BarePods, JobPods and LastReplicas allow evicting pods without a controller, pods of Jobs, and the last ready pod of a workload.
	BarePods, JobPods, LastReplicas bool
}

// BlockReason returns why a pod is never evicted; empty if it may be, as far as it is not the last replica.
func (p Policy) BlockReason(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	source := pod.Annotations[annotationSource]
	switch {
	case pod.Annotations[annotationMirror] != "" || source != "" && source != "api":
		return "static pod"
	case owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node"):
		return "it belongs to its node (" + owner.Kind + ")"
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= minCriticalPriority:
		return "its priority is critical to the system"

	case AnnotationReason(pod) != "":
		return AnnotationReason(pod)
	case owner == nil && !p.BarePods:
		return "no controller would replace it"
	case owner != nil && owner.Kind == "Job" && !p.JobPods:
		return "it belongs to a Job, whose work would be lost"
	}

	return ""
}

// AnnotationReason returns which annotation of a pod forbids its eviction; empty for none. It holds for every eviction by Crane.
func AnnotationReason(pod *corev1.Pod) string {
	if pod.Annotations[SafeToEvict] == "false" {
		return SafeToEvict + " is false"
	}

	// Karpenter wants the value true. Another one than false asks for the same, such as a duration.
	for _, name := range []string{annotationDoNotDisrupt, annotationDoNotEvict} {
		if value := pod.Annotations[name]; value != "" && value != "false" {
			return name + " is " + value
		}
	}

	// The descheduler reads the name alone.
	if value, isSet := pod.Annotations[annotationPreferNoEviction]; isSet && value != "false" {
		return annotationPreferNoEviction + " is set"
	}

	return ""
}

// IsReady reports whether a pod serves: it is ready and not terminating.
func IsReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ReplicaBlockReason returns why a pod is not evicted by the number of other pods of its workload that are ready; empty if it may be.
func (p Policy) ReplicaBlockReason(othersReady int) string {
	if othersReady < 1 && !p.LastReplicas {
		return "no other pod of its workload is ready"
	}

	return ""
}

// multiplePDBs is part of the API server's answer, with code 500 and no reason, for a pod with more than one budget, which it
// never evicts.
const multiplePDBs = "more than one PodDisruptionBudget"

// BlockedByPDB reports whether disruption budgets block an eviction, with the message of the API server.
func BlockedByPDB(err error) (message string, blocked bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}

	s := status.Status()
	if strings.Contains(s.Message, multiplePDBs) {
		return s.Message, true
	}
	if s.Details == nil {
		return "", false
	}

	var texts []string
	for _, c := range s.Details.Causes {
		if c.Type == policyv1.DisruptionBudgetCause {
			texts = append(texts, c.Message)
			blocked = true
		}
	}

	return strings.Join(texts, "; "), blocked
}

// OutcomeUnknown reports whether it is unknown if a pod was evicted: the API server's answer is neither success nor a refusal, so
// the pod may be terminating.
func OutcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}
