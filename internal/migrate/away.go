// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/oom"
)

// craneKinds are the kinds of Crane's objects, beside those of its API groups.
func craneKinds() []schema.GroupVersionKind {
	return append(clusterKinds(), append(namespaceKinds(),
		schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
		schema.GroupVersionKind{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
		schema.GroupVersionKind{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"},
		schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	)...)
}

// createdByCrane reports whether Crane's processes create an object of their namespace.
func createdByCrane(o *Object) bool {
	switch o.GetKind() {
	case "Secret":
		return slices.Contains([]string{"craned-certificates", "metric-adapter-certificate"}, o.GetName())
	case "Lease":
		return o.GetName() == componentCraned || o.GetName() == componentScheduler || strings.HasPrefix(o.GetName(), "crane-agent-eviction-")
	case "ConfigMap":
		return slices.Contains([]string{oom.ConfigMapName, "oom-record-unreadable", savingsrecord.ConfigMapName, optout.ConfigMapName, pause.ConfigMapName}, o.GetName())
	}

	return false
}

// craneObjects finds the objects of a Crane installation.
type craneObjects struct {
	namespace string
	manifests map[Ref]bool
	items     []Item
	// pods, replicaSets and workloads are those of the whole cluster, hpas those that no EffectiveHorizontalPodAutoscaler controls.
	pods, replicaSets, workloads, hpas []*Object
	requested                          map[string][]string
	metrics                            []string
	unreadable                         map[string]string
}

// readCrane reads what Crane has in the cluster. named is the namespace of Crane; without, the one that is proven.
func readCrane(ctx context.Context, c client.Reader, named []string) (*craneObjects, error) {
	builtin, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return nil, err
	}

	out := &craneObjects{manifests: map[Ref]bool{}, requested: map[string][]string{}, unreadable: map[string]string{}}
	for _, o := range builtin {
		out.manifests[RefOf(o)] = true
	}

	r := &reader{Reader: c, unreadable: out.unreadable}
	var all []*Object
	for _, kind := range craneKinds() {
		found, err := r.list(ctx, kind)
		if err != nil {
			return nil, err
		}

		all = append(all, found...)
	}

	if err := out.findNamespace(all, named); err != nil {
		return nil, err
	}

	// The policy names the annotations that Crane writes on nodes, so it is read before the nodes are added.
	out.metrics = policyMetrics(nil, nil)
	for _, o := range all {
		if o.GetKind() == "ConfigMap" && o.GetNamespace() == out.namespace && o.GetName() == "crane-node-load-policy" {
			out.metrics = append(out.metrics, metricsOf(o)...)
		}
	}

	for _, o := range all {
		out.add(o)
	}

	return out, out.readCustomResources(ctx, r, all)
}

// add records an object as an item if it is of Crane, and else where findings need it.
func (c *craneObjects) add(o *Object) {
	if component := c.classify(o); component != "" {
		c.items = append(c.items, Item{
			Ref:       RefOf(o),
			Component: component,
			Fate:      FateRemoved,
			object:    o,
		})

		return
	}

	switch o.GetKind() {
	case "Pod":
		c.pods = append(c.pods, o)
		node := stringAt(o, "spec", "nodeName")
		c.requested[node] = append(c.requested[node], elasticRequests(o)...)
	case "ReplicaSet":
		c.replicaSets = append(c.replicaSets, o)
	case "HorizontalPodAutoscaler":
		c.hpas = append(c.hpas, o)
	case "Deployment", "StatefulSet", "DaemonSet":
		c.workloads = append(c.workloads, o)
	}
}

// classify returns the component of an object of Crane; empty for objects of others.
func (c *craneObjects) classify(o *Object) string {
	component := componentOfCrane(o)
	ours := c.installed(o)
	switch o.GetKind() {
	case "Pod", "ReplicaSet":
		ours = false // a workload owns them
	case "Node":
		component = componentNodes
		ours = marksOf(o, c.metrics, true).any()
	case "HorizontalPodAutoscaler":
		component = componentObjects
		ours = o.GetLabels()[labelManagedBy] == ehpaManager

	case "CustomResourceDefinition":
		component = componentCraned
		ours = slices.Contains(gocraneGroups(), stringAt(o, "spec", "group"))
	case "Secret":
		if o.GetNamespace() == c.namespace && stringAt(o, "type") == helmSecretType && craneRelease(o) {
			component = componentHelm
			ours = true
		}

	case "APIService":
		ours = strings.HasSuffix(o.GetName(), ".metrics.k8s.io") && apiOwner(o) == c.namespace+"/"+componentAdapter
	}

	if !ours {
		return ""
	}

	return component
}

// installed reports whether an object is of Crane's manifests or chart, or is created by Crane's processes.
func (c *craneObjects) installed(o *Object) bool {
	if c.manifests[RefOf(o)] || o.GetNamespace() == c.namespace && createdByCrane(o) {
		return true
	}

	return o.GetLabels()[labelPartOf] == "crane" && slices.Contains([]string{"", c.namespace, "kube-system"}, o.GetNamespace())
}

// craneRelease reports whether a Secret of Helm records a release whose manifest has Crane's craned. The name of the release is free.
func craneRelease(secret *Object) bool {
	r, err := parseRelease(secret)
	return err == nil && strings.Contains(r.Manifest, labelPartOf+": crane") && !gocraneImage(r.Manifest)
}

// componentOfCrane returns the component of an object by its name.
func componentOfCrane(o *Object) string {
	for _, name := range []string{componentAdapter, componentScheduler, componentAgent} {
		if strings.Contains(o.GetName(), name) || o.GetLabels()["app.kubernetes.io/name"] == name {
			return name
		}
	}

	if o.GetKind() == "APIService" {
		return componentAdapter
	}

	return componentCraned
}

func (c *craneObjects) readCustomResources(ctx context.Context, r *reader, all []*Object) error {
	inv := &Inventory{Unreadable: c.unreadable}
	if err := inv.readCustomResources(ctx, r, slices.DeleteFunc(slices.Clone(all), func(o *Object) bool { return o.GetKind() != "CustomResourceDefinition" })); err != nil {
		return err
	}

	for _, item := range inv.Items {
		item.Fate = FateRemoved
		c.items = append(c.items, item)
	}

	return nil
}

// gatherAway reads the cluster and checks that Crane may be removed.
func (m *Migration) gatherAway(ctx context.Context, o Options, p *Plan) (*state, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}

	inv, err := ReadInventory(ctx, m.Client)
	if err != nil {
		return nil, err
	}

	if inv.hasComponents() {
		return nil, errors.New("gocrane is installed as well: remove it first, or move to Crane with crane migrate run")
	}

	c, err := readCrane(ctx, m.Client, m.Namespaces)
	if err != nil {
		return nil, err
	}

	// Nothing is removed that a backup does not hold.
	if len(c.unreadable) > 0 {
		return nil, fmt.Errorf("a backup would be incomplete: %v", c.unreadable)
	}

	templates := c.templates()
	p.Findings = c.findings(templates)
	if err := undecided(p.Findings, o); err != nil {
		return nil, fmt.Errorf("decisions are missing:\n%w", err)
	}

	s := &state{Metrics: c.metrics, Requested: c.requested, Templates: templates}
	for _, item := range c.items {
		if !item.stored() {
			continue
		}

		s.Items = append(s.Items, storedItem{item.Component, item.Fate, item.object})
	}

	return s, nil
}
