// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

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
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/recommendation/sizereport"
)

// podSpecPath returns the path of the pod spec in a template, or the reason why it is unknown.
func podSpecPath(t sizereport.PodTemplate, ref workload.Ref) (path []string, reason string) {
	if t.Path == nil && t.UnknownReason == "" {
		return nil, templateUnknownPrefix(ref) + "the object was not read"
	}

	return t.Path, t.UnknownReason
}

func templateUnknownPrefix(ref workload.Ref) string {
	return "the pod template of " + strings.TrimSpace(ref.Kind+" "+ref.APIVersion) + " is unknown: "
}

// templatePaths returns the usual paths of pod specs: of kinds that create pods and of kinds that create jobs.
func templatePaths() [][]string {
	return [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}}
}

// ReadCluster reads what the patches of a format need of the cluster.
func ReadCluster(format string) func(context.Context, *clusterstate.State, *sizereport.Report) error {
	return func(ctx context.Context, state *clusterstate.State, r *sizereport.Report) error {
		if format != HelmValues { // Values name no path.
			if err := readTemplates(ctx, state, r); err != nil {
				return err
			}
		}

		return readLimits(ctx, state, r)
	}
}

// readTemplates reads each object of a custom kind whose requests should change. A failed read becomes the reason for
// skipping the patch; only a canceled context is an error.
func readTemplates(ctx context.Context, state *clusterstate.State, r *sizereport.Report) error {
	for i := range r.Items {
		it := &r.Items[i]
		if !isCustom(it.Workload.Ref) {
			continue
		}

		var changed []string
		for _, c := range it.Plan.Containers {
			if change, ok := newContainerPatch(it.Workload, c); ok {
				changed = append(changed, change.list+"/"+change.Name)
			}
		}

		if len(changed) > 0 {
			it.Template = readTemplate(ctx, state, it.Workload.Ref, changed)
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}

	return nil
}

// readTemplate reads an object and locates its pod template. containers are the required containers as list/name.
func readTemplate(ctx context.Context, state *clusterstate.State, ref workload.Ref, containers []string) sizereport.PodTemplate {
	unknown := templateUnknownPrefix(ref)
	lister, _, err := state.Access.Lister()
	if err != nil || state.Sources.Workloads == clusterstate.SourceMetrics {
		return sizereport.PodTemplate{UnknownReason: unknown + "it can be read from the Kubernetes API only (see --kubeconfig)"}
	}

	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return sizereport.PodTemplate{UnknownReason: unknown + err.Error()}
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gv.WithKind(ref.Kind))

	err = lister.Sources(object.GroupVersionKind()).Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object)
	switch {
	case apierrors.IsForbidden(err):
		return sizereport.PodTemplate{UnknownReason: unknown + "permission to read the object is missing: " + err.Error()}
	case err != nil:
		return sizereport.PodTemplate{UnknownReason: unknown + err.Error()}
	}

	return templateOf(object, containers)
}

// templateOf locates the pod template in the usual paths and checks that it contains all containers.
func templateOf(object *unstructured.Unstructured, containers []string) sizereport.PodTemplate {
	for _, path := range templatePaths() {
		names := containerKeys(object, path)
		if len(names) == 0 {
			continue
		}

		for _, c := range containers {
			if !slices.Contains(names, c) {
				return sizereport.PodTemplate{UnknownReason: fmt.Sprintf("its template at %s has no %s; the container was probably injected into its pods", strings.Join(path, "."), c)}
			}
		}

		return sizereport.PodTemplate{Path: path}
	}

	kind, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "workloadRef", "name")
	if kind != "" && name != "" {
		return sizereport.PodTemplate{UnknownReason: fmt.Sprintf("its pods are created from the template of %s/%s (spec.workloadRef): patch that object", kind, name)}
	}

	return sizereport.PodTemplate{UnknownReason: fmt.Sprintf("%s %s has no pod template at spec.template or spec.jobTemplate.spec.template", object.GetKind(), object.GetAPIVersion())}
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
