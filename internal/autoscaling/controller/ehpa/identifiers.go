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

// Prefixes of a resourceIdentifier, as gocrane's; objects have none there, since they are not forecast.
const (
	prefixResource  = "resource."
	prefixContainer = "container-resource."
	prefixPods      = "pods."
	prefixObject    = "object."
	prefixExternal  = "external."
)

// Prefixes of the names of proposals that are not metrics.
const (
	proposalPrediction = "prediction of "
	proposalCron       = "cron "
)

// resourceIdentifiers names each metric of a spec: gocrane's resourceIdentifier, with the container, or a number, behind it where two
// metrics would share one.
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

// managedName is the name of what is made for an autoscaler.
func managedName(ehpa string) string {
	return truncateWithHash(autoscalingv1alpha1.ManagedObjectPrefix+ehpa, 253)
}

// labelValue fits a name into a label.
func labelValue(name string) string { return truncateWithHash(name, 63) }

// truncateWithHash shortens what is too long and tells it apart by a hash.
func truncateWithHash(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:most-len(tail)], "-.") + tail
}

// targetKey makes targets comparable, whatever version of their group they are named in.
func targetKey(ref autoscalingv2.CrossVersionObjectReference) string {
	kind := targetKind(ref)
	return kind.Group + "/" + kind.Kind + "/" + ref.Name
}

// targetKind is the kind of a target; a built-in kind may come without its group.
func targetKind(ref autoscalingv2.CrossVersionObjectReference) schema.GroupVersionKind {
	return workload.KindOf(ref.APIVersion, ref.Kind)
}

// targetRef names the target.
func targetRef(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) workload.Ref {
	ref := ehpa.Spec.ScaleTargetRef
	return workload.Ref{Namespace: ehpa.Namespace, APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
}

// qualifiedRef is a target with its apiVersion.
func qualifiedRef(ref autoscalingv2.CrossVersionObjectReference) autoscalingv2.CrossVersionObjectReference {
	ref.APIVersion = targetKind(ref).GroupVersion().String()
	return ref
}
