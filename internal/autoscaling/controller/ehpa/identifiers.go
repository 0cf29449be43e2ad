// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// Prefixes of a resourceIdentifier. They are gocrane's, except that of objects, which gocrane does not forecast.
const (
	prefixResource  = "resource."
	prefixContainer = "container-resource."
	prefixPods      = "pods."
	prefixObject    = "object."
	prefixExternal  = "external."
)

// Prefixes of the names of proposals that are no metrics of the spec.
const (
	proposalPrediction = "prediction of "
	proposalCron       = "cron "
)

// resourceIdentifiers returns gocrane's resourceIdentifier of each metric. Where two metrics would share one, the later one has the name of
// its container, or a number, appended.
func resourceIdentifiers(metrics []autoscalingv2.MetricSpec) []string {
	out := make([]string, len(metrics))
	seen := map[string]int{}
	for i := range metrics {
		m := &metrics[i]
		name := resourceIdentifier(m)
		if seen[name] > 0 && m.Type == autoscalingv2.ContainerResourceMetricSourceType {
			name += "." + m.ContainerResource.Container
		}

		seen[name]++
		out[i] = name
		if n := seen[name]; n > 1 {
			out[i] = fmt.Sprintf("%s.%d", name, n)
		}
	}

	return out
}

func resourceIdentifier(m *autoscalingv2.MetricSpec) string {
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		return prefixResource + string(m.Resource.Name)
	case autoscalingv2.ContainerResourceMetricSourceType:
		return prefixContainer + string(m.ContainerResource.Name)
	case autoscalingv2.PodsMetricSourceType:
		return prefixPods + m.Pods.Metric.Name
	case autoscalingv2.ObjectMetricSourceType:
		return prefixObject + m.Object.Metric.Name
	case autoscalingv2.ExternalMetricSourceType:
		return prefixExternal + m.External.Metric.Name
	}

	return string(m.Type)
}

// managedName returns the name of the objects that an autoscaler controls.
func managedName(ehpa string) string {
	return truncateWithHash(autoscalingv1alpha1.ManagedObjectPrefix+ehpa, 253)
}

// labelValue returns a name as the value of a label.
func labelValue(name string) string { return truncateWithHash(name, 63) }

// truncateWithHash shortens a long name and appends a hash, so that it stays unique.
func truncateWithHash(name string, maxLength int) string {
	if len(name) <= maxLength {
		return name
	}

	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:maxLength-len(tail)], "-.") + tail
}

// targetKey returns a key that is equal for references to one target, whatever version of its group they name.
func targetKey(ref autoscalingv2.CrossVersionObjectReference) string {
	kind := targetKind(ref)
	return kind.Group + "/" + kind.Kind + "/" + ref.Name
}

// targetKind returns the kind of a target. References to built-in kinds may lack the group.
func targetKind(ref autoscalingv2.CrossVersionObjectReference) schema.GroupVersionKind {
	return workload.KindOf(ref.APIVersion, ref.Kind)
}

// targetRef returns the target of an autoscaler.
func targetRef(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) workload.Ref {
	ref := ehpa.Spec.ScaleTargetRef
	return workload.Ref{
		Namespace:  ehpa.Namespace,
		APIVersion: ref.APIVersion,
		Kind:       ref.Kind,
		Name:       ref.Name,
	}
}

// qualifiedRef returns a target with its apiVersion.
func qualifiedRef(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	ref.APIVersion = targetKind(ref).GroupVersion().String()
	return ref
}
