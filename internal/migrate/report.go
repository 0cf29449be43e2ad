// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Report is the result of `crane migrate check`.
type Report struct {
	KubernetesVersion string            `json:"kubernetesVersion"`
	Installed         bool              `json:"installed"`
	InstalledBy       string            `json:"installedBy,omitempty"`
	Namespaces        []string          `json:"namespaces,omitempty"`
	Releases          []Release         `json:"helmReleases,omitempty"`
	Images            []string          `json:"images,omitempty"`
	Pods              PodUse            `json:"pods"`
	Counts            map[Fate]int      `json:"counts,omitempty"`
	Findings          []Finding         `json:"findings,omitempty"`
	Items             []Item            `json:"items,omitempty"`
	Unreadable        map[string]string `json:"unreadable,omitempty"`
	Imports           []Import          `json:"imports,omitempty"`

	inventory *Inventory
}

// Check reads the cluster and reports what a migration makes of each object. namespaces are those of gocrane; without, those that are proven.
func Check(ctx context.Context, c client.Reader, serverVersion string, namespaces ...string) (*Report, error) {
	inv, err := ReadInventory(ctx, c, namespaces...)
	if err != nil {
		return nil, err
	}

	r := &Report{
		KubernetesVersion: serverVersion,
		Installed:         inv.Installed(),
		Releases:          inv.Releases,
		Pods:              inv.Pods,
		Unreadable:        inv.Unreadable,
		Items:             inv.Items,
		Findings:          findings(inv, serverVersion),
		Counts:            map[Fate]int{},
		inventory:         inv,
	}

	r.Imports, err = readImports(ctx, c, inv)
	if err != nil {
		return nil, err
	}

	// Without gocrane there may still be objects to import.
	if !r.Installed {
		return r, nil
	}

	r.Namespaces = inv.Namespaces
	r.Images = inv.images()
	r.InstalledBy = "YAML manifests"
	if len(inv.Releases) > 0 {
		r.InstalledBy = "Helm"
	}

	for _, item := range inv.Items {
		r.Counts[item.Fate]++
	}

	return r, nil
}

// Decisions returns how many findings and objects need a decision.
func (r *Report) Decisions() int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == SeverityDecision {
			n++
		}
	}

	return n
}

// Group is a number of items of one kind that share their fate.
type Group struct {
	Component, Kind string
	Fate            Fate
	Note            string
	Names           []string
}

// Groups summarizes the items: those of one component, kind, fate and note are one group.
func (r *Report) Groups() []Group {
	type key struct {
		component, kind, note string
		fate                  Fate
	}

	groups := map[key]*Group{}
	for _, item := range r.Items {
		k := key{item.Component, item.Kind, item.Note, item.Fate}
		if item.Kind == "Node" {
			k.note = "annotations, taint, condition and capacity of gocrane's agent and scheduler are withdrawn"
		}

		if groups[k] == nil {
			groups[k] = &Group{
				Component: k.component,
				Kind:      k.kind,
				Fate:      k.fate,
				Note:      k.note,
			}
		}

		groups[k].Names = append(groups[k].Names, strings.TrimPrefix(item.Namespace+"/"+item.Name, "/"))
	}

	out := make([]Group, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}

	// Groups that need a decision come first, as in Fates.
	order := Fates()
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(slices.Index(order, a.Fate)-slices.Index(order, b.Fate), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Note, b.Note))
	})

	return out
}

// images returns the images of gocrane's workloads.
func (i *Inventory) images() []string {
	found := map[string]bool{}
	for _, item := range i.Items {
		if item.Kind != "Deployment" && item.Kind != "DaemonSet" {
			continue
		}

		for _, c := range mapsAt(item.object, "spec", "template", "spec", "containers") {
			if image, _, _ := unstructured.NestedString(c, "image"); gocraneImage(image) || item.Component != componentUsers {
				found[image] = true
			}
		}
	}

	return slices.Sorted(maps.Keys(found))
}
