// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/internal/kube/podlimits"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/recommendation/sizereport"
)

// readLimits sets the refusal of each item whose requests should change and whose pods a LimitRange or ResourceQuota of its namespace would
// refuse then. What cannot be read is said in the refusal as well; only a canceled context is an error.
func readLimits(ctx context.Context, state *clusterstate.State, r *sizereport.Report) error {
	lister, _, err := state.Access.Lister()
	if err != nil || state.Sources.Workloads == clusterstate.SourceMetrics {
		return nil //nolint:nilerr // Without the Kubernetes API there are no LimitRanges to compare with.
	}

	reader := lister.Sources(corev1.SchemeGroupVersion.WithKind("LimitRange")).Reader
	rules := map[string]podlimits.Rules{}
	unreadable := map[string]string{}
	for i := range r.Items {
		it := &r.Items[i]
		namespace := it.Workload.Namespace
		if !changes(it) || namespace == "" {
			continue
		}

		if _, read := rules[namespace]; !read {
			found, err := podlimits.Read(ctx, reader, namespace)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				unreadable[namespace] = fmt.Sprintf("it is not known whether its namespace allows this: %v", err)
			}

			rules[namespace] = found
		}

		it.Refusal = unreadable[namespace]
		if it.Refusal == "" {
			it.Refusal = refusalOf(rules[namespace], it)
		}
	}

	return nil
}

// changes reports whether an item has a patch.
func changes(it *sizereport.Item) bool {
	for _, c := range it.Plan.Containers {
		if _, ok := newContainerPatch(it.Workload, c); ok {
			return true
		}
	}

	return false
}

// refusalOf returns why pods of the recommended size would be refused although those of the present size are not; empty if they would not.
func refusalOf(rules podlimits.Rules, it *sizereport.Item) string {
	before := &corev1.Pod{}
	for _, c := range it.Workload.Containers {
		to := &before.Spec.Containers
		if c.Role != workload.App {
			to = &before.Spec.InitContainers
		}

		container := corev1.Container{Name: c.Name, Resources: corev1.ResourceRequirements{Requests: amountsOf(c.Requests), Limits: amountsOf(c.Limits)}}
		if c.Role == workload.Sidecar {
			container.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}

		*to = append(*to, container)
	}

	after := before.DeepCopy()
	for _, c := range it.Plan.Containers {
		change, ok := newContainerPatch(it.Workload, c)
		if !ok {
			continue
		}

		for _, list := range [][]corev1.Container{after.Spec.InitContainers, after.Spec.Containers} {
			for i := range list {
				if list[i].Name == c.Container {
					change.applyTo(&list[i].Resources)
				}
			}
		}
	}

	before.Spec = *effectiveresources.NewPod(&before.Spec, rules.LimitRanges)
	after.Spec = *effectiveresources.NewPod(&after.Spec, rules.LimitRanges)
	change := podlimits.Change{
		Before: before,
		After:  after,
		Pods:   int64(it.Workload.Replicas),
	}
	if reason := rules.ChangeRefusal([]podlimits.Change{change}); reason != "" {
		return "its pods would be refused: " + reason
	}

	return ""
}

func amountsOf(r workload.Resources) corev1.ResourceList {
	out := corev1.ResourceList{}
	if r.CPU > 0 {
		out[corev1.ResourceCPU] = *apiresource.NewMilliQuantity(int64(r.CPU), apiresource.DecimalSI)
	}
	if r.Memory > 0 {
		out[corev1.ResourceMemory] = *apiresource.NewQuantity(int64(r.Memory), apiresource.BinarySI)
	}

	return out
}

// applyTo makes the change.
func (c containerPatch) applyTo(r *corev1.ResourceRequirements) {
	list := func(kind string) corev1.ResourceList {
		if kind == "limits" {
			return r.Limits
		}

		return r.Requests
	}

	for _, a := range c.set {
		if q, err := apiresource.ParseQuantity(a.quantity); err == nil {
			list(a.kind)[corev1.ResourceName(a.resource)] = q
		}
	}
	for _, a := range c.unset {
		delete(list(a.kind), corev1.ResourceName(a.resource))
	}
}

// refusalNotes returns a line for each patch that would be refused.
func refusalNotes(patches []patch) []string {
	var out []string
	for _, p := range patches {
		if p.item.Refusal != "" {
			line := fmt.Sprintf("Warning: %s: %s", p.item.Workload.Ref, p.item.Refusal)
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
	}

	return out
}
