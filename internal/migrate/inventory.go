// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects of one response of the API server.
const pageSize = 500

// Item is an object of a gocrane installation and what becomes of it.
type Item struct {
	Ref

	Component string `json:"component"`
	Fate      Fate   `json:"fate"`
	Note      string `json:"note,omitempty"`

	object *Object
}

// Inventory is everything that a gocrane installation has in a cluster.
type Inventory struct {
	// Namespaces have gocrane's components, that of craned first.
	Namespaces []string
	// Unproven are namespaces with what looks like gocrane and may be of their users. Nothing in them is an item.
	Unproven []string
	// Releases are the current Helm releases of gocrane's charts.
	Releases []Release
	Items    []Item
	// Unreadable has the kinds that could not be read, with the reason.
	Unreadable map[string]string
	// Pods counts the pods of others that use gocrane.
	Pods PodUse
	// others are objects that are no part of the installation and are looked at for findings.
	others map[string][]*Object
	// requested are gocrane's extended resources that pods request, by node.
	requested map[string][]string
}

// PodUse counts pods of users that depend on gocrane's components.
type PodUse struct {
	Scheduled int `json:"scheduledByCraneScheduler"`
	Topology  int `json:"withTopologyAnnotations"`
	Elastic   int `json:"withElasticResources"`
}

// Installed reports whether there is a gocrane installation, or one of which only CRDs are left.
func (i *Inventory) Installed() bool { return len(i.Items) > 0 }

// kinds of the objects that are listed in the whole cluster.
func clusterKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Version: "v1", Kind: "Node"},
		{Version: "v1", Kind: "Pod"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
		{Version: "v1", Kind: "ConfigMap"},
	}
}

// namespaceKinds are the kinds that are listed in gocrane's namespaces alone.
func namespaceKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Version: "v1", Kind: "Secret"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	}
}

// reader lists objects and collects the kinds that cannot be read.
type reader struct {
	client.Reader
	unreadable map[string]string
}

// list returns the objects of a kind. A kind that is not served has none; one that must not be read is recorded.
func (r *reader) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]*Object, error) {
	var out []*Object
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))

		err := r.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, options...)...)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsForbidden(err):
			r.unreadable[kind.Kind] = err.Error()
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}

		for i := range list.Items {
			out = append(out, &list.Items[i])
		}

		if next = list.GetContinue(); next == "" {
			return out, nil
		}
	}
}

// ReadInventory reads what a gocrane installation has in the cluster. It needs the verbs get and list alone; kinds that it must not read
// are listed in Unreadable. named are the namespaces of gocrane; without, those that are proven.
func ReadInventory(ctx context.Context, c client.Reader, named ...string) (*Inventory, error) {
	r := &reader{Reader: c, unreadable: map[string]string{}}
	inv := &Inventory{Unreadable: r.unreadable, others: map[string][]*Object{}, requested: map[string][]string{}}

	objects := map[string][]*Object{}
	for _, kind := range clusterKinds() {
		found, err := r.list(ctx, kind)
		if err != nil {
			return nil, err
		}

		objects[kind.Kind] = found
	}

	if err := inv.readReleases(ctx, r, objects, named); err != nil {
		return nil, err
	}

	for _, namespace := range inv.Namespaces {
		for _, kind := range namespaceKinds() {
			found, err := r.list(ctx, kind, client.InNamespace(namespace))
			if err != nil {
				return nil, err
			}

			objects[kind.Kind] = append(objects[kind.Kind], found...)
		}
	}

	f := newFacts(inv, objects)
	if err := inv.readCustomResources(ctx, r, objects["CustomResourceDefinition"]); err != nil {
		return nil, err
	}

	for _, found := range objects {
		for _, o := range found {
			if item, ok := f.classify(o); ok {
				inv.Items = append(inv.Items, item)
			}
		}
	}

	// Objects of Crane's kinds alone do not prove that gocrane was here.
	if !inv.hasComponents() && !f.oldDefinitions {
		inv.Items = nil
	}

	inv.keepOthers(objects)
	slices.SortFunc(inv.Items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return inv, nil
}

// hasComponents reports whether a process or a Helm release of gocrane is there. fadvisor and cost-exporter, which work alone, do not count.
func (i *Inventory) hasComponents() bool {
	return slices.ContainsFunc(i.Items, func(it Item) bool {
		switch it.Component {
		case componentCost, componentUsers:
			return false
		case componentHelm:
			return it.Fate == FateRemoved
		}

		return it.Kind == "Deployment" || it.Kind == "DaemonSet" || it.Kind == "ValidatingWebhookConfiguration"
	})
}

// readReleases finds the namespaces of gocrane, and in them the newest revision of each Helm release of gocrane's charts; older revisions are items as
// well.
func (i *Inventory) readReleases(ctx context.Context, r *reader, objects map[string][]*Object, named []string) error {
	secrets, err := r.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, client.MatchingFields{"type": helmSecretType})
	if err != nil {
		return err
	}

	var found []Release
	failures := map[Ref]error{}
	for _, s := range secrets {
		release, err := decodeRelease(s)
		if err != nil {
			failures[RefOf(s)] = err
		}

		if err == nil && release != nil {
			release.object = s
			found = append(found, *release)
		}
	}

	i.findNamespaces(objects, found, named)

	// A Secret that cannot be decoded matters only in a namespace of gocrane.
	for ref, err := range failures {
		if slices.Contains(i.Namespaces, ref.Namespace) {
			i.Unreadable[ref.String()] = err.Error()
		}
	}

	i.addReleases(slices.DeleteFunc(found, func(release Release) bool { return !slices.Contains(i.Namespaces, release.Namespace) }))
	return nil
}

// addReleases adds revisions of releases as items.
func (i *Inventory) addReleases(revisions []Release) {
	newest := map[string]Release{}
	for _, release := range revisions {
		item := Item{
			Ref:       RefOf(release.object),
			Component: componentHelm,
			Fate:      FateRemoved,
			Note:      "revision of the release " + release.Name + "; `helm uninstall` would delete what Crane takes over",
			object:    release.object,
		}

		if slices.Contains(costNames(), release.Chart) {
			item.Fate = FateKept
			item.Note = noteCost()
		}

		i.Items = append(i.Items, item)
		key := release.Namespace + "/" + release.Name
		if newest[key].Revision < release.Revision {
			newest[key] = release
		}
	}

	for _, release := range newest {
		i.Releases = append(i.Releases, release)
	}

	slices.SortFunc(i.Releases, func(a, b Release) int {
		return cmp.Or(cmp.Compare(a.Chart, b.Chart), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
}

// readCustomResources adds the objects of gocrane's kinds.
func (i *Inventory) readCustomResources(ctx context.Context, r *reader, definitions []*Object) error {
	for _, crd := range definitions {
		if !slices.Contains(gocraneGroups(), stringAt(crd, "spec", "group")) {
			continue
		}

		kind := schema.GroupVersionKind{Group: stringAt(crd, "spec", "group"), Version: "v1alpha1", Kind: stringAt(crd, "spec", "names", "kind")}
		found, err := r.list(ctx, kind)
		if err != nil {
			return err
		}

		for _, o := range found {
			i.Items = append(i.Items, customItem(o))
		}
	}

	return nil
}

// keepOthers keeps the objects that findings are made of.
func (i *Inventory) keepOthers(objects map[string][]*Object) {
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "APIService", "HorizontalPodAutoscaler", "PrometheusRule", "ConfigMap", "Node", "ClusterRoleBinding"} {
		i.others[kind] = objects[kind]
	}

	for _, pod := range objects["Pod"] {
		i.Pods.count(pod)
		node := stringAt(pod, "spec", "nodeName")
		i.requested[node] = append(i.requested[node], elasticRequests(pod)...)
	}
}

func (p *PodUse) count(pod *Object) {
	if stringAt(pod, "spec", "schedulerName") == schedulerName {
		p.Scheduled++
	}

	for key := range pod.GetAnnotations() {
		if strings.HasPrefix(key, annotationTopology) {
			p.Topology++
			break
		}
	}

	if len(elasticRequests(pod)) > 0 {
		p.Elastic++
	}
}

// elasticRequests returns the names of gocrane's extended resources that a pod requests.
func elasticRequests(pod *Object) []string {
	var out []string
	for _, container := range append(mapsAt(pod, "spec", "containers"), mapsAt(pod, "spec", "initContainers")...) {
		requests, _, _ := unstructured.NestedMap(container, "resources", "requests")
		for name := range requests {
			if strings.HasPrefix(name, resourcePrefix) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}

	return out
}
