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

// podTemplate is where an object of a custom kind has the spec of its pods, or why that is not known.
type podTemplate struct {
	path []string
	why  string
}

// place is where the pod spec is, or why there is no patch.
func (t podTemplate) place(ref workload.Ref) (path []string, why string) {
	if t.path == nil && t.why == "" {
		return nil, templateUnknown(ref) + "nobody looked"
	}
	return t.path, t.why
}

func templateUnknown(ref workload.Ref) string {
	return "where " + strings.TrimSpace(ref.Kind+" "+ref.APIVersion) + " has its pod template is not known: "
}

// templatePaths are where kinds that make pods have their spec: most, and those that make jobs.
func templatePaths() [][]string {
	return [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}}
}

// findTemplates looks at each object of a custom kind that should change. What cannot be read is the reason why there is
// no patch; only the end of the context is an error.
func (e *surroundings) findTemplates(ctx context.Context, r *report) error {
	for i := range r.items {
		it := &r.items[i]
		if !isCustom(it.workload.Ref) {
			continue
		}
		var changed []string
		for _, c := range it.plan.Containers {
			if one, changes := patchOf(it.workload, c); changes {
				changed = append(changed, one.list+"/"+one.Name)
			}
		}
		if len(changed) > 0 {
			it.template = e.template(ctx, it.workload.Ref, changed)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// template reads an object. containers are those that it must have, each behind the name of its list.
func (e *surroundings) template(ctx context.Context, ref workload.Ref, containers []string) podTemplate {
	unknown := templateUnknown(ref)
	lister, _, err := e.kubernetes.lister()
	if err != nil || e.from.workloads == fromMetrics {
		return podTemplate{why: unknown + "only the Kubernetes API can tell (see --kubeconfig)"}
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return podTemplate{why: unknown + err.Error()}
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gv.WithKind(ref.Kind))
	err = lister.Sources(object.GroupVersionKind()).Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object)
	switch {
	case apierrors.IsForbidden(err):
		return podTemplate{why: unknown + "the rights to read it are missing: " + err.Error()}
	case err != nil:
		return podTemplate{why: unknown + err.Error()}
	}
	return templateOf(object, containers)
}

// templateOf looks where the usual kinds have it, and takes it only with all of the containers in it.
func templateOf(object *unstructured.Unstructured, containers []string) podTemplate {
	for _, path := range templatePaths() {
		names := namesIn(object, path)
		if len(names) == 0 {
			continue
		}
		for _, c := range containers {
			if !slices.Contains(names, c) {
				return podTemplate{why: fmt.Sprintf("its template at %s has no %s, which something else must have put into its pods", strings.Join(path, "."), c)}
			}
		}
		return podTemplate{path: path}
	}
	kind, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "name")
	if kind != "" && name != "" {
		return podTemplate{why: fmt.Sprintf("its pods are made from the template of %s/%s (spec.workloadRef): change that one", kind, name)}
	}
	return podTemplate{why: fmt.Sprintf("%s %s has no pod template at spec.template or spec.jobTemplate.spec.template", object.GetKind(), object.GetAPIVersion())}
}

// namesIn lists list/name of the containers of a pod spec; none where there is no such spec.
func namesIn(object *unstructured.Unstructured, path []string) []string {
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
