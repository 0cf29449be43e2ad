// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// jsonObject is an object of a JSON document.
type jsonObject = map[string]any

// ResizePatch returns the body of a server-side apply to the resize subresource of a pod: the new resources with the UID and
// version of the pod.
func ResizePatch(pod *corev1.Pod, to adoption.Size) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: jsonObject{"spec": containersPatch(&pod.Spec, func(container string) map[string]any {
		return FormatResources(to.Containers[container])
	})}}
	out.SetAPIVersion("v1")
	out.SetKind("Pod")
	out.SetNamespace(pod.Namespace)
	out.SetName(pod.Name)
	// Neither a new pod of the name nor one that changed meanwhile is resized.
	out.SetUID(pod.UID)
	out.SetResourceVersion(pod.ResourceVersion)

	return out
}

// containersPatch returns the part of a pod spec with the resources that format returns for its containers.
func containersPatch(pod *corev1.PodSpec, format func(container string) map[string]any) jsonObject {
	spec := jsonObject{}
	for _, part := range []struct {
		key  string
		list []corev1.Container
	}{{"initContainers", pod.InitContainers}, {"containers", pod.Containers}} {
		var list []any
		for i := range part.list {
			if r := format(part.list[i].Name); len(r) > 0 {
				list = append(list, jsonObject{"name": part.list[i].Name, "resources": r})
			}
		}

		if len(list) > 0 {
			spec[part.key] = list
		}
	}

	return spec
}

// TemplatePatch returns the pod template with the new resources for spec.template of an apply or a merge.
func TemplatePatch(spec *corev1.PodSpec, to adoption.Size) map[string]any {
	return templateResources(spec, func(container string) map[string]any { return FormatResources(to.Containers[container]) })
}

// templateResources returns the pod template with the resources that format returns for its containers.
func templateResources(spec *corev1.PodSpec, format func(container string) map[string]any) map[string]any {
	return jsonObject{"spec": containersPatch(spec, format)}
}

// formatRestored returns the amounts of a container for a merge, with a null for each amount of the written sizes that is to be removed.
func formatRestored(to rightsize.Resources, container string, written []adoption.Size) map[string]any {
	out := FormatResources(to)
	for _, size := range written {
		for kind, amounts := range FormatResources(size.Containers[container]) {
			list, _ := out[kind].(jsonObject)
			if list == nil {
				list = jsonObject{}
			}

			added, _ := amounts.(jsonObject)
			for name := range added {
				if _, kept := list[name]; !kept {
					list[name] = nil
				}
			}

			out[kind] = list
		}
	}

	return out
}

// FormatResources returns requests and limits as quantities; absent amounts are left out.
func FormatResources(r rightsize.Resources) map[string]any {
	requests := jsonObject{}
	limits := jsonObject{}

	if r.CPURequest != nil {
		requests["cpu"] = units.FormatCPU(*r.CPURequest)
	}

	if r.MemoryRequest != nil {
		requests["memory"] = units.FormatMemory(*r.MemoryRequest)
	}

	if r.CPULimit != nil {
		limits["cpu"] = units.FormatCPU(*r.CPULimit)
	}

	if r.MemoryLimit != nil {
		limits["memory"] = units.FormatMemory(*r.MemoryLimit)
	}

	out := jsonObject{}
	if len(requests) > 0 {
		out["requests"] = requests
	}
	if len(limits) > 0 {
		out["limits"] = limits
	}

	return out
}
