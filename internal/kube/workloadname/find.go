// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workloadname finds workloads by the names that users write, and suggests similar ones.
package workloadname

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/usererror"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/units"
)

// MissingNamespace returns an error if a namespace does not exist; nil if it exists or cannot be read.
func MissingNamespace(ctx context.Context, c client.Reader, name string) error {
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		return nil
	}

	var list corev1.NamespaceList
	var names []string
	if c.List(ctx, &list) == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}

	return fmt.Errorf("namespace %s does not exist%s", name, DidYouMean(name, names))
}

// KindMatches compares kinds as kubectl does: case-insensitively, in the plural, or by short name.
func KindMatches(written, kind string) bool {
	written = strings.ToLower(written)
	kind = strings.ToLower(kind)
	return written == kind || written == kind+"s" || ShortKinds()[written] == kind
}

// ShortKinds returns kubectl's short names of kinds.
func ShortKinds() map[string]string {
	return map[string]string{
		"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "cj": "cronjob", "rs": "replicaset",
		"rc": "replicationcontroller", "po": "pod", "ro": "rollout",
	}
}

// Names returns the names of workloads, with their namespaces if they have some.
func Names(all []workload.Workload) []string {
	names := make([]string, 0, len(all))
	for _, w := range all {
		names = append(names, w.Name)
	}

	return names
}

// Matches reports whether a reference names a workload: NAME, KIND/NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME.
func Matches(ref workload.Ref, reference string) bool {
	parts := strings.Split(reference, "/")
	if ref.Name != parts[len(parts)-1] {
		return false
	}

	switch len(parts) {
	case 1:
		return true
	case 2:
		return ref.Namespace == parts[0] || KindMatches(parts[0], ref.Kind)
	case 3:
		return ref.Namespace == parts[0] && KindMatches(parts[1], ref.Kind)
	}

	return false
}

// List returns the references of workloads for a message, the first ten by name.
func List(all []workload.Workload) string {
	const maxListed = 10
	names := make([]string, 0, len(all))
	for _, w := range all {
		names = append(names, w.String())
	}

	slices.Sort(names)
	return units.FormatFirst(names, maxListed)
}

// Find returns the only workload of a name, as in web, deployment/web, shop/web or shop/deployment/web. The
// default namespace is that of a name without one; empty for all.
func Find(ctx context.Context, c client.Client, defaultNamespace, name string) (workload.Workload, error) {
	var namespaces []string
	if defaultNamespace != "" {
		namespaces = []string{defaultNamespace}
	}

	direct := workload.Source{Reader: c, PageSize: clusteraccess.PageSize}
	lister := &workload.Lister{Sources: func(schema.GroupVersionKind) workload.Source { return direct }, Scales: c, Scheme: c.Scheme(), WithoutDefaults: func(error) {}}
	all, err := lister.Inventory(ctx, namespaces)
	if err != nil {
		return workload.Workload{}, fmt.Errorf("listing workloads: %w", err)
	}

	namespace, _, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace = defaultNamespace
	}

	var found []workload.Workload
	for _, w := range all {
		if Matches(w.Ref, name) {
			found = append(found, w)
		}
	}

	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return workload.Workload{}, usererror.Invalid(fmt.Errorf("%s is the name of several workloads: use one of %s", name, List(found)))
	}

	// A wrong namespace is the better explanation only if no workload has a similar name.
	hint := suggestWorkload(name, all)
	if hint == "" && namespace != "" {
		if missing := MissingNamespace(ctx, c, namespace); missing != nil {
			return workload.Workload{}, usererror.NotFound(missing)
		}
	}

	return workload.Workload{}, usererror.NotFound(fmt.Errorf("no workload %s%s", name, hint))
}

// suggestWorkload returns workloads with the same name, or else with a similar one, as the end of an error message.
func suggestWorkload(name string, all []workload.Workload) string {
	last := name[strings.LastIndex(name, "/")+1:]
	if same := slices.DeleteFunc(slices.Clone(all), func(w workload.Workload) bool { return w.Name != last }); len(same) > 0 {
		return "; did you mean " + List(same) + "?"
	}

	return DidYouMean(last, Names(all))
}
