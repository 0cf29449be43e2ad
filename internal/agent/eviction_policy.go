// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/internal/kube/slimclient"
	"crane.io/crane/pkg/qos"
)

const evictAlsoFlag = "evict-also"

// Values of --evict-also.
const (
	evictBarePods     = "bare-pods"
	evictJobPods      = "job-pods"
	evictLastReplicas = "last-replicas"
)

func evictAlsoValues() []string { return []string{evictBarePods, evictJobPods, evictLastReplicas} }

// EvictionOptions are the flags of the eviction policy.
type EvictionOptions struct {
	// Also lists kinds of pods that are evicted in addition to those that a controller replaces.
	Also []string
}

func (o *EvictionOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Also, evictAlsoFlag, o.Also, "Kinds of pods that may be evicted in addition to those that a controller replaces: "+strings.Join(evictAlsoValues(), ", ")+". Pods on reclaimed capacity always may be.")
}

func (o *EvictionOptions) validate() field.ErrorList {
	var errs field.ErrorList
	for _, kind := range o.Also {
		if !slices.Contains(evictAlsoValues(), kind) {
			errs = append(errs, field.NotSupported(field.NewPath("--"+evictAlsoFlag), kind, evictAlsoValues()))
		}
	}

	return errs
}

// policyFor returns the eviction policy for a pod. A pod that requests reclaimed capacity may lose it by definition.
func (o *EvictionOptions) policyFor(pod *corev1.Pod) eviction.Policy {
	elastic := !elasticrequest.SumContainers(pod).IsZero()
	allows := func(kind string) bool { return elastic || slices.Contains(o.Also, kind) }
	return eviction.Policy{BarePods: allows(evictBarePods), JobPods: allows(evictJobPods), LastReplicas: allows(evictLastReplicas)}
}

// blockReason returns why a pod is never evicted; empty if it may be.
func (o *EvictionOptions) blockReason(pod *corev1.Pod) string {
	return o.policyFor(pod).BlockReason(pod)
}

// replicaGuard counts the ready pods of a workload before one of them is evicted. The agent watches only the pods of its node, so it asks
// the API server, at most once for each attempted eviction.
type replicaGuard struct {
	view   cluster.View
	client slimclient.Interface
	policy func(*corev1.Pod) eviction.Policy
}

// podPageSize is the page size of lists of pods.
const podPageSize = 500

// blockReason returns why a pod must not be evicted now, because no other pod of its workload is ready; empty if it may be.
func (g replicaGuard) blockReason(ctx context.Context, ref qos.PodRef) (string, error) {
	list := g.view.Pods()
	i := slices.Index(inventory.UIDs(list), ref.UID)
	if i < 0 {
		return "", nil // It is gone; the API server decides.
	}

	pod := list[i]
	owner := metav1.GetControllerOfNoCopy(pod)

	policy := g.policy(pod)
	if owner == nil || pod.Status.Phase != corev1.PodRunning || policy.ReplicaBlockReason(0) == "" {
		return "", nil
	}

	ready, err := g.countOthersReady(ctx, pod, owner)
	if err != nil {
		return "", fmt.Errorf("counting the ready pods of %s %s/%s: %w", owner.Kind, pod.Namespace, owner.Name, err)
	}

	return policy.ReplicaBlockReason(ready), nil
}

// countOthersReady returns the number of ready pods of a controller beside one, of the first page that has any.
func (g replicaGuard) countOthersReady(ctx context.Context, pod *corev1.Pod, owner *metav1.OwnerReference) (int, error) {
	opts := metav1.ListOptions{Limit: podPageSize, FieldSelector: fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)).String()}
	if hash := pod.Labels[podTemplateHash]; hash != "" {
		opts.LabelSelector = labels.Set{podTemplateHash: hash}.String() // all pods of a ReplicaSet have it
	}

	ready := 0
	for {
		page, err := g.client.CoreV1().Pods(pod.Namespace).List(ctx, opts)
		if err != nil {
			return 0, err
		}

		for i := range page.Items {
			other := &page.Items[i]
			controller := metav1.GetControllerOfNoCopy(other)
			if controller != nil && controller.UID == owner.UID && other.UID != pod.UID && eviction.IsReady(other) {
				ready++
			}
		}

		opts.Continue = page.Continue
		if opts.Continue == "" || ready > 0 {
			return ready, nil
		}
	}
}

// podTemplateHash is the label by which a Deployment's ReplicaSets are distinguished.
const podTemplateHash = "pod-template-hash"
