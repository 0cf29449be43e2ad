// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Deployment, a ConfigMap or a record of Helm proves nothing about its namespace: whoever has rights in any namespace can create one there that looks
// like gocrane's. Only cluster-scoped objects, which administrators create, prove that gocrane or Crane is in a namespace.

// boundTo reports whether a ClusterRoleBinding has the ServiceAccount of a workload as a subject.
func boundTo(binding, workload *Object) bool {
	account := stringAt(workload, "spec", "template", "spec", "serviceAccountName")
	return account != "" && slices.ContainsFunc(mapsAt(binding, "subjects"), func(subject map[string]any) bool {
		return subject["kind"] == "ServiceAccount" && subject["namespace"] == workload.GetNamespace() && subject["name"] == account
	})
}

// provenByBinding reports whether a ClusterRoleBinding of the same component of gocrane has the ServiceAccount of a workload as a subject.
func provenByBinding(workload *Object, bindings []*Object) bool {
	entry, ok := known(workload.GetKind(), workload.GetName())
	return ok && slices.ContainsFunc(bindings, func(binding *Object) bool {
		role, ok := known(binding.GetKind(), binding.GetName())
		return ok && role.component == entry.component && boundTo(binding, workload)
	})
}

// findNamespaces finds the namespaces of gocrane: those that the operator names, else those that are proven. Others that look like gocrane's are
// recorded as unproven.
func (i *Inventory) findNamespaces(objects map[string][]*Object, releases []Release, named []string) {
	var candidates, craned []string
	for _, release := range releases {
		if !slices.Contains(costNames(), release.Chart) {
			candidates = append(candidates, release.Namespace)
		}
	}

	for _, o := range slices.Concat(objects["Deployment"], objects["DaemonSet"]) {
		if !gocraneWorkload(o) {
			continue
		}

		if entry, _ := known(o.GetKind(), o.GetName()); entry.component != componentCost {
			candidates = append(candidates, o.GetNamespace())
		}

		if provenByBinding(o, objects["ClusterRoleBinding"]) {
			i.Namespaces = append(i.Namespaces, o.GetNamespace())
			if o.GetName() == componentCraned {
				craned = append(craned, o.GetNamespace())
			}
		}
	}

	for _, o := range objects["ValidatingWebhookConfiguration"] {
		if namespace, ok := webhookOfGocrane(o); ok {
			i.Namespaces = append(i.Namespaces, namespace)
			craned = append(craned, namespace)
		}
	}

	sorted := func(names []string) []string {
		names = slices.Clone(names)
		slices.Sort(names)
		return slices.Compact(names)
	}

	if len(named) > 0 {
		i.Namespaces = named
		return
	}

	craned = sorted(craned)
	if len(craned) > 1 {
		candidates = append(candidates, craned...)
		i.Namespaces = nil
	}

	// That of craned comes first.
	i.Namespaces = slices.DeleteFunc(sorted(i.Namespaces), func(name string) bool { return slices.Contains(craned, name) })
	if len(craned) == 1 {
		i.Namespaces = slices.Insert(i.Namespaces, 0, craned[0])
	}

	i.Unproven = slices.DeleteFunc(sorted(candidates), func(name string) bool { return slices.Contains(i.Namespaces, name) })
}

// Proven returns an error if a namespace looks like one of gocrane and may be that of a user.
func (i *Inventory) Proven() error {
	if len(i.Unproven) == 0 {
		return nil
	}

	return fmt.Errorf("what looks like gocrane in namespaces %s may be of their users: no ClusterRoleBinding of gocrane names the ServiceAccount of its workloads, or two craned do. Name all namespaces of gocrane with --namespace",
		strings.Join(i.Unproven, ", "))
}

// unproven is Proven as a finding.
func unproven(inv *Inventory) []Finding {
	return one(SeverityDecision, "UnprovenNamespace",
		"what looks like gocrane in these namespaces may be of their users, and is left out: no ClusterRoleBinding of gocrane names the ServiceAccount of its workloads, or two craned do. Name all namespaces of gocrane with --namespace.",
		inv.Unproven)
}

// findNamespace finds the namespace of Crane: the one that the operator names, else the one that is proven by a ClusterRoleBinding of Crane.
func (c *craneObjects) findNamespace(all []*Object, named []string) error {
	var candidates, proven []string
	for _, o := range all {
		if o.GetKind() != "Deployment" || o.GetName() != componentCraned || gocraneWorkload(o) || o.GetLabels()[labelPartOf] != "crane" && !c.manifests[RefOf(o)] {
			continue
		}

		// Users may name a Deployment craned; only an administrator can bind a ClusterRole.
		candidates = append(candidates, o.GetNamespace())
		bound := slices.ContainsFunc(all, func(binding *Object) bool {
			return binding.GetKind() == "ClusterRoleBinding" && (binding.GetLabels()[labelPartOf] == "crane" || c.manifests[RefOf(binding)]) && boundTo(binding, o)
		})

		if slices.Contains(named, o.GetNamespace()) || len(named) == 0 && bound {
			proven = append(proven, o.GetNamespace())
		}
	}

	switch {
	case len(candidates) == 0:
		return errors.New("crane is not installed: there is no Deployment craned of Crane")
	case len(proven) != 1:
		return fmt.Errorf("what looks like Crane in namespaces %s may be of their users: %d of them are proven by a ClusterRoleBinding of Crane, or named. Name that of Crane with --namespace", strings.Join(candidates, ", "), len(proven))
	}

	c.namespace = proven[0]
	return nil
}
