// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
)

// podSpecPath returns the path of the pod spec in a template, or the reason why it is unknown.
func podSpecPath(t podTemplate, ref workload.Ref) (path []string, reason string) {
	if t.path == nil && t.unknownReason == "" {
		return nil, templateUnknownPrefix(ref) + "the object was not read"
	}

	return t.path, t.unknownReason
}

func templateUnknownPrefix(ref workload.Ref) string {
	return "the pod template of " + strings.TrimSpace(ref.Kind+" "+ref.APIVersion) + " is unknown: "
}

// templatePaths returns the usual paths of pod specs: of kinds that create pods and of kinds that create jobs.
func templatePaths() [][]string {
	return [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}}
}

// findTemplates reads each object of a custom kind whose requests should change. A failed read becomes the reason for
// skipping the patch; only a canceled context is an error.
func findTemplates(ctx context.Context, state *clusterState, r *sizeReport) error {
	for i := range r.items {
		it := &r.items[i]
		if !isCustom(it.workload.Ref) {
			continue
		}

		var changed []string
		for _, c := range it.plan.Containers {
			if change, ok := newContainerPatch(it.workload, c); ok {
				changed = append(changed, change.list+"/"+change.Name)
			}
		}

		if len(changed) > 0 {
			it.template = readTemplate(ctx, state, it.workload.Ref, changed)
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}

	return nil
}

// readTemplate reads an object and locates its pod template. containers are the required containers as list/name.
func readTemplate(ctx context.Context, state *clusterState, ref workload.Ref, containers []string) podTemplate {
	unknown := templateUnknownPrefix(ref)
	lister, _, err := state.kubernetes.lister()
	if err != nil || state.sources.workloads == sourceMetrics {
		return podTemplate{unknownReason: unknown + "it can be read from the Kubernetes API only (see --kubeconfig)"}
	}

	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return podTemplate{unknownReason: unknown + err.Error()}
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gv.WithKind(ref.Kind))

	err = lister.Sources(object.GroupVersionKind()).Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object)
	switch {
	case apierrors.IsForbidden(err):
		return podTemplate{unknownReason: unknown + "permission to read the object is missing: " + err.Error()}
	case err != nil:
		return podTemplate{unknownReason: unknown + err.Error()}
	}

	return templateOf(object, containers)
}

// templateOf locates the pod template in the usual paths and checks that it contains all containers.
func templateOf(object *unstructured.Unstructured, containers []string) podTemplate {
	for _, path := range templatePaths() {
		names := containerKeys(object, path)
		if len(names) == 0 {
			continue
		}

		for _, c := range containers {
			if !slices.Contains(names, c) {
				return podTemplate{unknownReason: fmt.Sprintf("its template at %s has no %s; the container was probably injected into its pods", strings.Join(path, "."), c)}
			}
		}

		return podTemplate{path: path}
	}

	kind, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "name")
	if kind != "" && name != "" {
		return podTemplate{unknownReason: fmt.Sprintf("its pods are created from the template of %s/%s (spec.workloadRef): patch that object", kind, name)}
	}

	return podTemplate{unknownReason: fmt.Sprintf("%s %s has no pod template at spec.template or spec.jobTemplate.spec.template", object.GetKind(), object.GetAPIVersion())}
}

// containerKeys returns list/name of the containers in a pod spec, or nil if there is no valid pod spec.
func containerKeys(object *unstructured.Unstructured, path []string) []string {
	var names []string
	for _, list := range []string{"containers", "initContainers"} {
		containers, _, err := unstructured.NestedSlice(object.Object, append(slices.Clone(path), list)...)
		if err != nil {
			return nil
		}

		for _, c := range containers {
			fields, ok := c.(map[string]any)
			if !ok {
				return nil
			}

			name, _, err := unstructured.NestedString(fields, "name")
			if err != nil {
				return nil
			}

			names = append(names, list+"/"+name)
		}
	}

	return names
}
