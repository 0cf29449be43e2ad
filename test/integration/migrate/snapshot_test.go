// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"crane.io/crane/internal/migrate"
)

// snapshot reads every object of the cluster, without what may differ after an undo: uid, resourceVersion, generation, timestamps and
// managedFields, what controllers derive of others, and the status that controllers of Kubernetes compute. A namespace that is being deleted is left
// out with its objects: it stays as long as an aggregated API is unavailable, as all are where pods are simulated.
func (f *fixture) snapshot() map[migrate.Ref]map[string]any {
	f.Helper()

	d, err := discovery.NewDiscoveryClientForConfig(f.control.Config())
	if err != nil {
		f.Fatal(err)
	}

	_, lists, err := d.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		f.Fatal(err)
	}

	namespaces, err := f.list(f.Context(), "", "v1", "Namespace")
	if err != nil {
		f.Fatal(err)
	}

	ending := map[string]bool{}
	for i := range namespaces.Items {
		ending[namespaces.Items[i].GetName()] = namespaces.Items[i].GetDeletionTimestamp() != nil
	}

	out := map[migrate.Ref]map[string]any{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			f.Fatal(err)
		}

		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") || derived(r.Kind) || gv.Group == "autoscaling" && gv.Version != "v2" {
				continue
			}

			all, err := f.list(f.Context(), gv.Group, gv.Version, r.Kind)
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				f.Fatalf("listing %s: %v", r.Kind, err)
			}

			for i := range all.Items {
				o := &all.Items[i]
				if ending[o.GetNamespace()] || r.Kind == "Namespace" && ending[o.GetName()] {
					continue
				}

				if ref := migrate.RefOf(o); ref.Kind != "Lease" || ref.Namespace == "crane-system" || ref.Namespace == "finops" {
					out[ref] = comparable(o)
				}
			}
		}
	}

	return out
}

// derived reports whether objects of a kind follow from others.
func derived(kind string) bool {
	return slices.Contains([]string{"Event", "Pod", "ReplicaSet", "ControllerRevision", "Endpoints", "EndpointSlice", "ComponentStatus", "PodMetrics", "NodeMetrics", "IPAddress", "ServiceCIDR"}, kind)
}

func comparable(o *object) map[string]any {
	out := o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}

	for _, key := range []string{"deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation"} {
		unstructured.RemoveNestedField(out.Object, "metadata", "annotations", key)
	}

	if a := out.GetAnnotations(); len(a) == 0 {
		unstructured.RemoveNestedField(out.Object, "metadata", "annotations")
	}

	switch o.GetKind() {
	case "Deployment", "DaemonSet", "HorizontalPodAutoscaler", "APIService", "CustomResourceDefinition", "Namespace", "FlowSchema", "PriorityLevelConfiguration", "PodDisruptionBudget":
		delete(out.Object, "status")
	}

	return out.Object
}

// compare reports how the cluster differs from a snapshot.
func (f *fixture) compare(what string, before map[migrate.Ref]map[string]any) {
	f.Helper()

	now := f.snapshot()
	different := 0
	for ref, want := range before {
		have, ok := now[ref]
		if !ok {
			different++
			f.Errorf("%s: %s is missing, want it there", what, ref)
			continue
		}

		if f.ignoreUIDs {
			withoutUIDs(have)
		}

		if diff := cmp.Diff(want, have); diff != "" {
			different++
			f.Errorf("%s: %s differs (-before +now), want no difference:\n%s", what, ref, diff)
		}

		delete(now, ref)
	}

	for ref := range now {
		different++
		f.Errorf("%s: %s is new, want no other object", what, ref)
	}
	f.Logf("%s: %d objects compared, %d differ", what, len(before), different)
}
