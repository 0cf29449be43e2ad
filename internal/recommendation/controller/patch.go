// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// containerChange is what one container requests and limits, before or after a recommendation.
type containerChange struct {
	container string
	role      workload.Role
	requests  analysisv1alpha1.ResourceValues
	// limits hold only what the recommendation changes; nil values take a limit away. gocrane never wrote limits, but a
	// request above its limit would be refused.
	limits map[corev1.ResourceName]*string
}

// changesOf returns what the sized containers of a workload ask for today, and what they should.
func changesOf(w workload.Workload, plan resource.Plan) (current, recommended []containerChange) {
	for _, r := range plan.Containers {
		if r.CPU.Status != rightsize.Ready && r.Memory.Status != rightsize.Ready {
			continue
		}
		c, _ := w.Container(r.Container)
		before := containerChange{container: r.Container, role: c.Role, requests: requestsOf(r.Current)}
		after := containerChange{container: r.Container, role: c.Role, requests: requestsOf(r.Target)}
		if r.CPU.Status == rightsize.Ready {
			setLimit(&before, &after, corev1.ResourceCPU, formatOptional(r.Current.CPULimit, rightsize.FormatCPU), formatOptional(r.Target.CPULimit, rightsize.FormatCPU))
		}
		if r.Memory.Status == rightsize.Ready {
			setLimit(&before, &after, corev1.ResourceMemory,
				formatOptional(r.Current.MemoryLimit, rightsize.FormatMemory), formatOptional(r.Target.MemoryLimit, rightsize.FormatMemory))
		}
		current, recommended = append(current, before), append(recommended, after)
	}
	return current, recommended
}

// setLimit notes a limit on both sides where it changes.
func setLimit(before, after *containerChange, name corev1.ResourceName, from, to *string) {
	if from == nil && to == nil || from != nil && to != nil && *from == *to {
		return
	}
	for _, side := range []struct {
		c     *containerChange
		value *string
	}{{before, from}, {after, to}} {
		if side.c.limits == nil {
			side.c.limits = map[corev1.ResourceName]*string{}
		}
		side.c.limits[name] = side.value
	}
}

func requestsOf(r rightsize.Resources) analysisv1alpha1.ResourceValues {
	out := analysisv1alpha1.ResourceValues{}
	if text := formatOptional(r.CPURequest, rightsize.FormatCPU); text != nil {
		out[corev1.ResourceCPU] = *text
	}
	if text := formatOptional(r.MemoryRequest, rightsize.FormatMemory); text != nil {
		out[corev1.ResourceMemory] = *text
	}
	return out
}

func formatOptional[T any](v *T, format func(T) string) *string {
	if v == nil {
		return nil
	}
	text := format(*v)
	return &text
}

// patchContainer is a container of a strategic merge patch: the lists of containers merge by name.
type patchContainer struct {
	Name      string         `json:"name"`
	Resources patchResources `json:"resources"`
}

type patchResources struct {
	// Requests must not be null where there are none: a patch would take them away.
	Requests analysisv1alpha1.ResourceValues `json:"requests,omitzero"`
	Limits   map[corev1.ResourceName]*string `json:"limits,omitempty"`
}

type patchPodSpec struct {
	InitContainers []patchContainer `json:"initContainers,omitempty"`
	Containers     []patchContainer `json:"containers,omitempty"`
}

// encodePatch writes the requests as a strategic merge patch of a workload of the given kind, as recommendedInfo and
// currentInfo hold it. Sidecars stand where the pod template has them, among the init containers.
func encodePatch(kind string, all []containerChange) (string, error) {
	var spec patchPodSpec
	for _, r := range all {
		c := patchContainer{Name: r.container, Resources: patchResources{Requests: r.requests, Limits: r.limits}}
		if r.role == workload.App {
			spec.Containers = append(spec.Containers, c)
		} else {
			spec.InitContainers = append(spec.InitContainers, c)
		}
	}
	type object map[string]any
	var patch object
	switch kind {
	case "Pod":
		patch = object{"spec": spec}
	case "CronJob":
		patch = object{"spec": object{"jobTemplate": object{"spec": object{"template": object{"spec": spec}}}}}
	default:
		patch = object{"spec": object{"template": object{"spec": spec}}}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("encoding the patch: %w", err)
	}
	return string(raw), nil
}

// encodeValue writes the requests as the YAML document of recommendedValue and of the target's annotation.
func encodeValue(all []containerChange) (string, error) {
	proposed := analysisv1alpha1.ProposedRecommendation{
		ResourceRequest: &analysisv1alpha1.ResourceRequestRecommendation{},
	}
	for _, r := range all {
		proposed.ResourceRequest.Containers = append(proposed.ResourceRequest.Containers,
			analysisv1alpha1.ContainerRecommendation{ContainerName: r.container, Target: r.requests})
	}
	raw, err := yaml.Marshal(proposed)
	if err != nil {
		return "", fmt.Errorf("encoding the recommended value: %w", err)
	}
	return string(raw), nil
}

// parsedValue is what a recommended value says.
type parsedValue struct {
	containers map[string]corev1.ResourceList
	replicas   *int32
}

// parseValue reads what encodeValue, or gocrane, wrote. Quantities that do not parse are an error that names them.
func parseValue(text string) (parsedValue, error) {
	var proposed analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(text), &proposed); err != nil {
		return parsedValue{}, fmt.Errorf("recommendedValue: %w", err)
	}
	var out parsedValue
	if proposed.ReplicasRecommendation != nil {
		out.replicas = proposed.ReplicasRecommendation.Replicas
	}
	if proposed.ResourceRequest == nil {
		return out, nil
	}
	out.containers = map[string]corev1.ResourceList{}
	for _, c := range proposed.ResourceRequest.Containers {
		list := corev1.ResourceList{}
		for name, text := range c.Target {
			q, err := apiresource.ParseQuantity(text)
			if err != nil {
				return parsedValue{}, fmt.Errorf("recommendedValue: container %s: %s %q: %w", c.ContainerName, name, text, err)
			}
			list[name] = q
		}
		out.containers[c.ContainerName] = list
	}
	return out, nil
}
