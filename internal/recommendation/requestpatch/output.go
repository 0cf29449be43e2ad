// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/recommendation/sizereport"
)

// patchHeader returns the comment on the first lines: the subtitle, and the patches whose pods would be refused.
func patchHeader(r *sizereport.Report, patches []patch) string {
	lines := []string{documents.Comment("Recommended by crane: " + r.Subtitle())}
	for _, note := range refusalNotes(patches) {
		lines = append(lines, documents.Comment(note))
	}

	return strings.Join(lines, "")
}

// kustomizePatch is an entry of the patches of a kustomization.
type kustomizePatch struct {
	Target patchTarget `json:"target"`
	Patch  string      `json:"patch"`
}

// patchTarget identifies one object.
type patchTarget struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

func newPatchTarget(ref workload.Ref) patchTarget {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	return patchTarget{
		Group:     gvk.Group,
		Version:   gvk.Version,
		Kind:      gvk.Kind,
		Name:      ref.Name,
		Namespace: ref.Namespace,
	}
}

// WriteKustomize writes a component for a kustomization; patches without a matching object have no effect.
func WriteKustomize(out, notes io.Writer, r *sizereport.Report) error {
	return writePatches(notes, r, false, func(patches []patch) error {
		component := struct {
			APIVersion string           `json:"apiVersion"`
			Kind       string           `json:"kind"`
			Patches    []kustomizePatch `json:"patches"`
		}{"kustomize.config.k8s.io/v1alpha1", "Component", make([]kustomizePatch, 0, len(patches))}

		for _, p := range patches {
			var content any = p.strategicMerge()
			if p.custom {
				operations := p.operations()
				if operations == nil {
					termtext.Fprintln(notes, p.orderUnknownMessage())
					continue
				}

				content = operations
			}

			text, err := documents.YAML(content)
			if err != nil {
				return fmt.Errorf("encoding the patch of %s: %w", p.item.Workload.Ref, err)
			}

			target := newPatchTarget(p.item.Workload.Ref)
			target.Name = regexp.QuoteMeta(target.Name) // kustomize matches it as an anchored regular expression.
			component.Patches = append(component.Patches, kustomizePatch{target, string(text)})
		}

		return documents.WriteYAML(out, patchHeader(r, patches), component)
	})
}

// WriteStrategicMerge writes one document per workload.
func WriteStrategicMerge(out, notes io.Writer, r *sizereport.Report) error {
	return writePatches(notes, r, false, func(patches []patch) error {
		head := patchHeader(r, patches)
		for _, p := range patches {
			if p.custom {
				termtext.Fprintf(notes, "%s is skipped: a strategic merge replaces the whole list of containers of a custom kind; use --output %s or %s\n",
					p.item.Workload.Ref, JSONPatch, Kustomize)
				continue
			}

			if p.removesLimit() {
				termtext.Fprintf(notes, "%s: a limit is removed, which kubectl patch and kustomize support and kubectl apply --server-side rejects\n", p.item.Workload.Ref)
			}

			if err := documents.WriteYAML(out, head, p.strategicMerge()); err != nil {
				return err
			}

			head = "---\n"
		}

		return nil
	})
}

// StrategicMergeText returns the strategic merge patch of the workload of a report. It is empty if nothing changes or if a merge
// cannot change the kind.
func StrategicMergeText(r *sizereport.Report) string {
	patches, _ := patchesOf(r, false)
	if len(patches) != 1 || patches[0].custom {
		return ""
	}

	var text strings.Builder
	if err := WriteStrategicMerge(&text, &text, r); err != nil {
		return ""
	}

	return text.String()
}

// jsonPatch is the patch of one workload.
type jsonPatch struct {
	Target patchTarget     `json:"target"`
	Patch  []jsonOperation `json:"patch"`
}

// jsonOperation is an operation of RFC 6902.
type jsonOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// WriteJSONPatch writes a list of targets with their operations.
func WriteJSONPatch(out, notes io.Writer, r *sizereport.Report) error {
	return writePatches(notes, r, false, func(patches []patch) error {
		for _, note := range refusalNotes(patches) { // JSON has no comments.
			termtext.Fprintln(notes, note)
		}

		all := make([]jsonPatch, 0, len(patches))
		for _, p := range patches {
			operations := p.operations()
			if operations == nil {
				termtext.Fprintln(notes, p.orderUnknownMessage())
				continue
			}

			all = append(all, jsonPatch{newPatchTarget(p.item.Workload.Ref), operations})
		}

		return documents.WriteJSON(out, all)
	})
}

// orderUnknownMessage explains why there are no operations.
func (p patch) orderUnknownMessage() string {
	return p.item.Workload.Ref.String() + " is skipped: the order of its containers can be read from the Kubernetes API only (see --kubeconfig)"
}

// operations returns nil if the order of the containers is unknown. The name of each container is tested first, so
// that the patch fails if the template has changed.
func (p patch) operations() []jsonOperation {
	var out []jsonOperation
	for _, c := range p.containers {
		if c.index < 0 {
			return nil
		}

		at := "/" + strings.Join(p.path, "/") + "/" + c.list + "/" + strconv.Itoa(c.index)
		out = append(out, jsonOperation{"test", at + "/name", c.Name})
		out = append(out, c.operations(at+"/resources")...)
	}

	return out
}

// operations adds missing parent objects, because an operation on a field of a missing object fails.
func (c containerPatch) operations(at string) []jsonOperation {
	if !c.Declared.Resources {
		return []jsonOperation{{"add", at, groupAmounts(c.set)}}
	}

	var out []jsonOperation
	for _, kind := range []string{"requests", "limits"} {
		declared := c.Declared.Requests
		if kind == "limits" {
			declared = c.Declared.Limits
		}

		if values, ok := groupAmounts(c.set)[kind]; ok && !declared {
			out = append(out, jsonOperation{"add", at + "/" + kind, values})
			continue
		}

		for _, a := range c.set {
			if a.kind == kind { // add replaces an existing value.
				out = append(out, jsonOperation{"add", at + "/" + kind + "/" + a.resource, a.quantity})
			}
		}

		for _, a := range c.unset {
			if a.kind == kind {
				out = append(out, jsonOperation{Op: "remove", Path: at + "/" + kind + "/" + a.resource})
			}
		}
	}

	return out
}

// WriteHelmValues writes all recommended amounts of each changed container by namespace, kind, workload and
// container.
func WriteHelmValues(out, notes io.Writer, r *sizereport.Report) error {
	return writePatches(notes, r, true, func(patches []patch) error {
		values := map[string]map[string]map[string]map[string]any{}
		for _, p := range patches {
			ref := p.item.Workload.Ref
			if values[ref.Namespace] == nil {
				values[ref.Namespace] = map[string]map[string]map[string]any{}
			}
			if values[ref.Namespace][ref.Kind] == nil {
				values[ref.Namespace][ref.Kind] = map[string]map[string]any{}
			}

			containers := map[string]any{}
			for _, c := range p.containers {
				containers[c.Name] = groupAmounts(c.full)
			}
			values[ref.Namespace][ref.Kind][ref.Name] = containers
		}

		return documents.WriteYAML(out, patchHeader(r, patches), map[string]any{"crane": values})
	})
}
