// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestpatch writes the recommended requests of a report as patches: as a kustomization, a strategic merge, a JSON patch
// or Helm values.
package requestpatch

import (
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// The output formats for manifests.
const (
	Kustomize      = "kustomize"
	StrategicMerge = "strategic-merge"
	JSONPatch      = "json-patch"
	HelmValues     = "helm-values"
)

// Formats returns the formats of patches.
func Formats() []string {
	return []string{Kustomize, StrategicMerge, JSONPatch, HelmValues}
}

// IsFormat reports whether an output format is one of patches.
func IsFormat(output string) bool { return slices.Contains(Formats(), output) }

// patch is the change of one workload.
type patch struct {
	item       sizereport.Item
	path       []string // of the pod spec in the object
	containers []containerPatch
	// custom is set for custom kinds, for which a merge replaces the whole list of containers.
	custom bool
}

// containerPatch is the change of one container.
type containerPatch struct {
	workload.Container
	// list is containers or initContainers; index is the position in it, -1 if the source does not provide the order.
	list  string
	index int
	// set are changed amounts and unset removed limits, ordered by resource, requests first.
	set   []amount
	unset []amount
	// full are all amounts after the change.
	full []amount
}

// amount is a request or a limit.
type amount struct {
	// kind is requests or limits, resource cpu or memory.
	kind, resource, quantity string
}

// patchesOf returns the changes of the report, and the reasons for workloads that cannot be patched. Helm values do not
// require the path of the pod template.
func patchesOf(r *sizereport.Report, helmValues bool) (patches []patch, skipped []string) {
	for _, it := range r.Items {
		p := patch{item: it}
		for _, c := range it.Plan.Containers {
			if change, ok := newContainerPatch(it.Workload, c); ok {
				p.containers = append(p.containers, change)
			}
		}

		if len(p.containers) == 0 {
			continue
		}

		path, reason := patchPath(it.Workload.Ref)
		if p.custom = isCustom(it.Workload.Ref); p.custom {
			path, reason = podSpecPath(it.Template, it.Workload.Ref)
		}
		// Values name containers and need no path.
		if helmValues && p.custom {
			reason = ""
		}

		if reason != "" {
			skipped = append(skipped, it.Workload.Ref.String()+" is skipped: "+reason)
			continue
		}

		p.path = path
		patches = append(patches, p)
	}

	return patches, skipped
}

// patchPath returns the path of the pod spec in kinds of Kubernetes, or why the kind cannot be patched; neither for a
// custom kind.
func patchPath(ref workload.Ref) (path []string, reason string) {
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	switch group + "/" + ref.Kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet":
		return []string{"spec", "template", "spec"}, ""
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}, ""
	case "batch/Job":
		return nil, "the pod template of a Job is immutable"
	case "/Pod":
		return nil, "a pod without owner has no template; recreate the pod"
	case "apps/ReplicaSet", "/ReplicationController":
		return nil, "a " + ref.Kind + " does not replace its pods when its template changes"
	}

	if ref.Kind == csv.Kind {
		return nil, "a file is not a workload of a cluster"
	}

	return nil, ""
}

// isCustom reports whether the path of the pod template has to be read from the object.
func isCustom(ref workload.Ref) bool {
	path, reason := patchPath(ref)
	return path == nil && reason == ""
}

// newContainerPatch compares the current with the recommended amounts. A resource without recommendation is
// unchanged.
func newContainerPatch(w workload.Workload, c rightsize.Recommendation) (containerPatch, bool) {
	out := containerPatch{list: "containers", index: -1}
	out.Container, _ = w.Container(c.Container)
	if out.Role != workload.App {
		out.list = "initContainers"
	}

	if w.UID != "" { // The Kubernetes API provides the order of the template.
		for _, other := range w.Containers {
			if (other.Role == workload.App) == (out.Role == workload.App) {
				out.index++
			}

			if other.Name == c.Container {
				break
			}
		}
	}

	cpu := c.CPU.Status == rightsize.Ready
	memory := c.Memory.Status == rightsize.Ready
	addAmount(&out, amount{kind: "requests", resource: "cpu"}, c.Current.CPURequest, c.Target.CPURequest, cpu, units.FormatCPU)
	addAmount(&out, amount{kind: "requests", resource: "memory"}, c.Current.MemoryRequest, c.Target.MemoryRequest, memory, units.FormatMemory)
	addAmount(&out, amount{kind: "limits", resource: "cpu"}, c.Current.CPULimit, c.Target.CPULimit, cpu, units.FormatCPU)
	addAmount(&out, amount{kind: "limits", resource: "memory"}, c.Current.MemoryLimit, c.Target.MemoryLimit, memory, units.FormatMemory)

	if w.UID != "" {
		out.keepDefaults()
	}

	return out, len(out.set)+len(out.unset) > 0
}

// keepDefaults changes the patch of a container whose template does not have all that pods have: a limit by default cannot be removed from the
// template, and a new limit would be the request too where there is none.
func (c *containerPatch) keepDefaults() {
	declared := map[amount]bool{
		{kind: "requests", resource: "cpu"}:    c.Declared.CPURequest,
		{kind: "requests", resource: "memory"}: c.Declared.MemoryRequest,
		{kind: "limits", resource: "cpu"}:      c.Declared.CPULimit,
		{kind: "limits", resource: "memory"}:   c.Declared.MemoryLimit,
	}

	c.unset = slices.DeleteFunc(c.unset, func(a amount) bool { return !declared[a] })
	for _, full := range c.full {
		request := amount{kind: full.kind, resource: full.resource}
		limitChanges := slices.ContainsFunc(slices.Concat(c.set, c.unset), func(a amount) bool { return a.kind == "limits" && a.resource == full.resource })
		if full.kind == "requests" && !declared[request] && limitChanges && !slices.Contains(c.set, full) {
			c.set = append(c.set, full)
		}
	}
}

// addAmount adds the change of one amount.
func addAmount[T comparable](c *containerPatch, a amount, now, target *T, ready bool, format func(T) string) {
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

// resources returns the resources field; null removes a limit in a merge.
func (c containerPatch) resources() map[string]any {
	out := groupAmounts(c.set)
	for _, a := range c.unset {
		if out[a.kind] == nil {
			out[a.kind] = map[string]any{}
		}
		out[a.kind].(map[string]any)[a.resource] = nil
	}

	return out
}

func groupAmounts(amounts []amount) map[string]any {
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

// strategicMerge returns a strategic merge patch with the changed fields only.
func (p patch) strategicMerge() map[string]any {
	lists := map[string]any{}
	for _, c := range p.containers {
		list, _ := lists[c.list].([]any)
		lists[c.list] = append(list, map[string]any{"name": c.Name, "resources": c.resources()})
	}

	inner := lists
	for _, field := range slices.Backward(p.path) {
		inner = map[string]any{field: inner}
	}

	ref := p.item.Workload.Ref
	inner["apiVersion"], inner["kind"] = ref.APIVersion, ref.Kind
	inner["metadata"] = map[string]any{"name": ref.Name, "namespace": ref.Namespace}

	return inner
}

// removesLimit reports whether a limit is removed.
func (p patch) removesLimit() bool {
	return slices.ContainsFunc(p.containers, func(c containerPatch) bool { return len(c.unset) > 0 })
}

// writePatches prints the skipped workloads and calls write with the patches.
func writePatches(notes io.Writer, r *sizereport.Report, helmValues bool, write func([]patch) error) error {
	patches, skipped := patchesOf(r, helmValues)
	for _, line := range skipped {
		termtext.Fprintln(notes, line)
	}

	if len(patches) == 0 {
		termtext.Fprintln(notes, "Nothing to patch.")
	}

	return write(patches)
}
