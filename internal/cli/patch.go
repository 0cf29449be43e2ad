// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/pkg/rightsize"
)

// The output formats that change manifests.
const (
	outputKustomize      = "kustomize"
	outputStrategicMerge = "strategic-merge"
	outputJSONPatch      = "json-patch"
	outputHelmValues     = "helm-values"
)

func patchNames() []string {
	return []string{outputKustomize, outputStrategicMerge, outputJSONPatch, outputHelmValues}
}

func isPatch(output string) bool { return slices.Contains(patchNames(), output) }

// patch is what changes in one workload.
type patch struct {
	item       item
	path       []string // of the pod spec within the object
	containers []patchContainer
	// custom tells that the kind is not Kubernetes' own: a merge would replace its list of containers as a whole.
	custom bool
}

// patchContainer is what changes in one container.
type patchContainer struct {
	workload.Container
	// list is containers or initContainers; index is its place there, -1 where the source does not know the order.
	list  string
	index int
	// set are the amounts that change, unset the limits that go; in the order of the resources, requests first.
	set   []amount
	unset []amount
	// full are all amounts that the container has afterwards.
	full []amount
}

// amount is a request or a limit.
type amount struct {
	// kind is requests or limits, resource cpu or memory.
	kind, resource, quantity string
}

// patches returns the changes of the report, and for each workload that should change and cannot be patched the reason.
// With values the patches are for a chart, which knows where its templates are.
func (r *report) patches(values bool) (patches []patch, left []string) {
	for _, it := range r.items {
		p := patch{item: it}
		for _, c := range it.plan.Containers {
			if one, changes := patchOf(it.workload, c); changes {
				p.containers = append(p.containers, one)
			}
		}
		if len(p.containers) == 0 {
			continue
		}
		path, why := patchPath(it.workload.Ref)
		if p.custom = isCustom(it.workload.Ref); p.custom {
			path, why = it.template.place(it.workload.Ref)
		}
		if values && p.custom {
			why = ""
		}
		if why != "" {
			left = append(left, it.workload.Ref.String()+" is left out: "+why)
			continue
		}
		p.path = path
		patches = append(patches, p)
	}
	return patches, left
}

// patchPath is where the pod spec is in the kinds of Kubernetes, or why it cannot be patched; neither for a custom kind.
func patchPath(ref workload.Ref) (path []string, why string) {
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	switch group + "/" + ref.Kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet":
		return []string{"spec", "template", "spec"}, ""
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}, ""
	case "batch/Job":
		return nil, "the pod template of a Job does not change after it was made"
	case "/Pod":
		return nil, "a pod that nobody owns has no template; make it anew"
	case "apps/ReplicaSet", "/ReplicationController":
		return nil, "a " + ref.Kind + " does not replace its pods when its template changes"
	}
	if ref.Kind == csv.Kind {
		return nil, "a file is no workload of a cluster"
	}
	return nil, ""
}

// isCustom tells kinds whose objects have to be looked at to know where their pod template is.
func isCustom(ref workload.Ref) bool {
	path, why := patchPath(ref)
	return path == nil && why == ""
}

// patchOf compares what a container asks for with what it should. A resource without a number stays as it is.
func patchOf(w workload.Workload, c rightsize.Recommendation) (patchContainer, bool) {
	out := patchContainer{list: "containers", index: -1}
	out.Container, _ = w.Container(c.Container)
	if out.Role != workload.App {
		out.list = "initContainers"
	}
	if w.UID != "" { // It is from the Kubernetes API, in the order of the template.
		for _, other := range w.Containers {
			if (other.Role == workload.App) == (out.Role == workload.App) {
				out.index++
			}
			if other.Name == c.Container {
				break
			}
		}
	}
	cpu, memory := c.CPU.Status == rightsize.Ready, c.Memory.Status == rightsize.Ready
	add(&out, amount{kind: "requests", resource: "cpu"}, c.Current.CPURequest, c.Target.CPURequest, cpu, rightsize.FormatCPU)
	add(&out, amount{kind: "requests", resource: "memory"}, c.Current.MemoryRequest, c.Target.MemoryRequest, memory, rightsize.FormatMemory)
	add(&out, amount{kind: "limits", resource: "cpu"}, c.Current.CPULimit, c.Target.CPULimit, cpu, rightsize.FormatCPU)
	add(&out, amount{kind: "limits", resource: "memory"}, c.Current.MemoryLimit, c.Target.MemoryLimit, memory, rightsize.FormatMemory)
	return out, len(out.set)+len(out.unset) > 0
}

// add notes one amount.
func add[T comparable](c *patchContainer, a amount, now, target *T, ready bool, format func(T) string) {
	if !ready {
		target = now
	}
	switch {
	case target == nil && now != nil:
		c.unset = append(c.unset, a)
	case target != nil:
		a.quantity = format(*target)
		c.full = append(c.full, a)
		if now == nil || *now != *target {
			c.set = append(c.set, a)
		}
	}
}

// resources is the content of a container's resources; what goes is null, which a merge takes as an order to remove.
func (c patchContainer) resources() map[string]any {
	out := byKindAndResource(c.set)
	for _, a := range c.unset {
		if out[a.kind] == nil {
			out[a.kind] = map[string]any{}
		}
		out[a.kind].(map[string]any)[a.resource] = nil
	}
	return out
}

func byKindAndResource(amounts []amount) map[string]any {
	out := map[string]any{}
	for _, kind := range []string{"requests", "limits"} {
		values := map[string]any{}
		for _, a := range amounts {
			if a.kind == kind {
				values[a.resource] = a.quantity
			}
		}
		if len(values) > 0 {
			out[kind] = values
		}
	}
	return out
}

// document is a strategic merge patch: the object with nothing but what changes.
func (p patch) document() map[string]any {
	lists := map[string]any{}
	for _, c := range p.containers {
		list, _ := lists[c.list].([]any)
		lists[c.list] = append(list, map[string]any{"name": c.Name, "resources": c.resources()})
	}
	inner := lists
	for _, field := range slices.Backward(p.path) {
		inner = map[string]any{field: inner}
	}
	ref := p.item.workload.Ref
	inner["apiVersion"], inner["kind"] = ref.APIVersion, ref.Kind
	inner["metadata"] = map[string]any{"name": ref.Name, "namespace": ref.Namespace}
	return inner
}

// removes tells that a limit goes.
func (p patch) removes() bool {
	return slices.ContainsFunc(p.containers, func(c patchContainer) bool { return len(c.unset) > 0 })
}

// forPatches calls write with the patches, after it has said what is left out.
func forPatches(s Streams, r *report, values bool, write func([]patch) error) error {
	patches, left := r.patches(values)
	if len(left) > 0 {
		fmt.Fprintln(s.Err, strings.Join(left, "\n"))
	}
	if len(patches) == 0 {
		fmt.Fprintln(s.Err, "Nothing is to be patched.")
	}
	return write(patches)
}
