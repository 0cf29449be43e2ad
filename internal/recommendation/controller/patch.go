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
	"crane.io/crane/pkg/units"
)

// containerChange holds the requests and limits of a container before or after a recommendation.
type containerChange struct {
	container string
	role      workload.Role
	requests  analysisv1alpha1.ResourceValues
	// limits holds the limits that change; a nil value removes the limit. gocrane never wrote limits, but the API server rejects
	// a request above its limit.
	limits map[corev1.ResourceName]*string
}

// changesOf returns the sized containers of a workload before and after a plan.
func changesOf(w workload.Workload, plan resource.Plan) (current, recommended []containerChange) {
	for _, r := range plan.Containers {
		if r.CPU.Status != rightsize.Ready && r.Memory.Status != rightsize.Ready {
			continue
		}

		c, _ := w.Container(r.Container)
		before := containerChange{container: r.Container, role: c.Role, requests: requestsOf(r.Current)}
		after := containerChange{container: r.Container, role: c.Role, requests: requestsOf(r.Target)}
		if r.CPU.Status == rightsize.Ready {
			setLimit(&before, &after, corev1.ResourceCPU, formatOptional(r.Current.CPULimit, units.FormatCPU), formatOptional(r.Target.CPULimit, units.FormatCPU))
		}

		if r.Memory.Status == rightsize.Ready {
			setLimit(&before, &after, corev1.ResourceMemory,
				formatOptional(r.Current.MemoryLimit, units.FormatMemory), formatOptional(r.Target.MemoryLimit, units.FormatMemory))
		}

		current = append(current, before)
		recommended = append(recommended, after)
	}

	return current, recommended
}

// changeOf returns the containers before and after a change of a limit and, with it, of the request.
func changeOf(container string, role workload.Role, name corev1.ResourceName, from, to string, withRequest bool) (before, after containerChange) {
	before = containerChange{container: container, role: role}
	after = containerChange{container: container, role: role}
	setLimit(&before, &after, name, &from, &to)

	if withRequest {
		before.requests = analysisv1alpha1.ResourceValues{name: from}
		after.requests = analysisv1alpha1.ResourceValues{name: to}
	}

	return before, after
}

// withPatch returns the decision with patches of the changed containers, if there are any.
func (d decision) withPatch(kind string, current, recommended []containerChange) (decision, error) {
	if len(recommended) == 0 {
		return d, nil
	}

	var err error
	if d.current, err = encodePatch(kind, current); err != nil {
		return d, err
	}

	d.recommended, err = encodePatch(kind, recommended)
	return d, err
}

// setLimit sets a limit on both sides if it changes.
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
	if text := formatOptional(r.CPURequest, units.FormatCPU); text != nil {
		out[corev1.ResourceCPU] = *text
	}
	if text := formatOptional(r.MemoryRequest, units.FormatMemory); text != nil {
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
	// Requests is omitted rather than null if there are none: null would remove the requests.
	Requests analysisv1alpha1.ResourceValues `json:"requests,omitzero"`
	Limits   map[corev1.ResourceName]*string `json:"limits,omitempty"`
}

type patchPodSpec struct {
	InitContainers []patchContainer `json:"initContainers,omitempty"`
	Containers     []patchContainer `json:"containers,omitempty"`
}

// encodePatch returns a strategic merge patch of a workload of the given kind, in the form of recommendedInfo and currentInfo.
// Sidecars are among the init containers, as in the pod template.
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

// encodeValue returns the YAML document of recommendedValue and of the target's annotation.
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

// parsedValue is a decoded recommendedValue.
type parsedValue struct {
	containers map[string]corev1.ResourceList
	replicas   *int32
}

// parseValue decodes a recommendedValue of Crane or gocrane. The error names a quantity that does not parse.
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
