// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/workload"
)

// patchHead is the first line of what is written for a repository.
func (r *report) patchHead() string {
	return "# Recommended by crane: " + r.subtitle() + "\n"
}

// kustomizePatch is an entry of patches in a kustomization.
type kustomizePatch struct {
	Target patchTarget `json:"target"`
	Patch  string      `json:"patch"`
}

// patchTarget names one object.
type patchTarget struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

func targetOf(ref workload.Ref) patchTarget {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	return patchTarget{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: ref.Name, Namespace: ref.Namespace}
}

// renderKustomize writes a component that a kustomization includes; patches whose workload it does not have do nothing.
func renderKustomize(s Streams, r *report) error {
	return forPatches(s, r, false, func(patches []patch) error {
		component := struct {
			APIVersion string           `json:"apiVersion"`
			Kind       string           `json:"kind"`
			Patches    []kustomizePatch `json:"patches"`
		}{"kustomize.config.k8s.io/v1alpha1", "Component", make([]kustomizePatch, 0, len(patches))}
		for _, p := range patches {
			var content any = p.document()
			if p.custom {
				operations := p.operations()
				if operations == nil {
					fmt.Fprintln(s.Err, p.orderUnknown())
					continue
				}
				content = operations
			}
			text, err := yaml.Marshal(content)
			if err != nil {
				return fmt.Errorf("encoding the patch of %s: %w", p.item.workload.Ref, err)
			}
			target := targetOf(p.item.workload.Ref)
			target.Name = regexp.QuoteMeta(target.Name) // kustomize takes it for an expression that is anchored.
			component.Patches = append(component.Patches, kustomizePatch{target, string(text)})
		}
		return writeYAML(s.Out, r.patchHead(), component)
	})
}

// renderStrategicMerge writes a document for each workload.
func renderStrategicMerge(s Streams, r *report) error {
	return forPatches(s, r, false, func(patches []patch) error {
		head := r.patchHead()
		for _, p := range patches {
			if p.custom {
				fmt.Fprintf(s.Err, "%s is left out: a strategic merge replaces the whole list of containers of a custom kind; use --output %s or %s\n",
					p.item.workload.Ref, outputJSONPatch, outputKustomize)
				continue
			}
			if p.removes() {
				fmt.Fprintf(s.Err, "%s: a limit is removed, which kubectl patch and kustomize do and kubectl apply --server-side refuses\n", p.item.workload.Ref)
			}
			if err := writeYAML(s.Out, head, p.document()); err != nil {
				return err
			}
			head = "---\n"
		}
		return nil
	})
}

// jsonPatch is the patch of one workload.
type jsonPatch struct {
	Target patchTarget     `json:"target"`
	Patch  []jsonOperation `json:"patch"`
}

// jsonOperation is one of RFC 6902.
type jsonOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// renderJSONPatch writes a list of targets with their operations.
func renderJSONPatch(s Streams, r *report) error {
	return forPatches(s, r, false, func(patches []patch) error {
		out := make([]jsonPatch, 0, len(patches))
		for _, p := range patches {
			operations := p.operations()
			if operations == nil {
				fmt.Fprintln(s.Err, p.orderUnknown())
				continue
			}
			out = append(out, jsonPatch{targetOf(p.item.workload.Ref), operations})
		}
		enc := json.NewEncoder(s.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(out); err != nil {
			return fmt.Errorf("encoding JSON: %w", err)
		}
		return nil
	})
}

// orderUnknown says why there are no operations.
func (p patch) orderUnknown() string {
	return p.item.workload.Ref.String() + " is left out: only the Kubernetes API knows the order of its containers (see --kubeconfig)"
}

// operations are nil where the order of the containers is not known. Each container is first held against its name, so
// that a template that has changed since refuses the patch as a whole.
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

// operations add what is missing on the way: an operation on a field of an object that is not there fails.
func (c patchContainer) operations(at string) []jsonOperation {
	if !c.Declared.Resources {
		return []jsonOperation{{"add", at, byKindAndResource(c.set)}}
	}
	var out []jsonOperation
	for _, kind := range []string{"requests", "limits"} {
		declared := c.Declared.Requests
		if kind == "limits" {
			declared = c.Declared.Limits
		}
		if values, ok := byKindAndResource(c.set)[kind]; ok && !declared {
			out = append(out, jsonOperation{"add", at + "/" + kind, values})
			continue
		}
		for _, a := range c.set {
			if a.kind == kind { // add replaces what is there.
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

// renderHelmValues writes, for each container that changes, all it should ask for: namespace, kind, workload, container.
func renderHelmValues(s Streams, r *report) error {
	return forPatches(s, r, true, func(patches []patch) error {
		values := map[string]map[string]map[string]map[string]any{}
		for _, p := range patches {
			ref := p.item.workload.Ref
			if values[ref.Namespace] == nil {
				values[ref.Namespace] = map[string]map[string]map[string]any{}
			}
			if values[ref.Namespace][ref.Kind] == nil {
				values[ref.Namespace][ref.Kind] = map[string]map[string]any{}
			}
			containers := map[string]any{}
			for _, c := range p.containers {
				containers[c.Name] = byKindAndResource(c.full)
			}
			values[ref.Namespace][ref.Kind][ref.Name] = containers
		}
		return writeYAML(s.Out, r.patchHead(), map[string]any{"crane": values})
	})
}

func writeYAML(w io.Writer, head string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return fmt.Errorf("encoding YAML: %w", err)
	}
	if _, err := io.WriteString(w, head+string(text)); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	return nil
}
