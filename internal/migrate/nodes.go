// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// NodeMarks is what gocrane wrote to a Node.
type NodeMarks struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Taints      []map[string]any  `json:"taints,omitempty"`
	Conditions  []map[string]any  `json:"conditions,omitempty"`
	Capacity    map[string]string `json:"capacity,omitempty"`
	Allocatable map[string]string `json:"allocatable,omitempty"`
}

// loadMetrics are the metrics of gocrane's default policy, which are annotation keys of Nodes.
func loadMetrics() []string {
	return []string{"cpu_usage_avg_5m", "cpu_usage_max_avg_1h", "cpu_usage_max_avg_1d", "mem_usage_avg_5m", "mem_usage_max_avg_1h", "mem_usage_max_avg_1d"}
}

const (
	hotValueKey        = "node_hot_value"
	taintKey           = "interference.crane.io"
	nodeCondition      = "interference-identified"
	reservePrefix      = "reserve.node.gocrane.io/"
	agentPrefix        = "ensurance.crane.io/" // of Crane's agent
	labelTopologyAware = "topology.crane.io/topology-awareness"
)

// marksOf returns what gocrane wrote to a node, and with ours what Crane wrote as well. metrics are the annotation keys of the policy.
func marksOf(node *Object, metrics []string, ours bool) NodeMarks {
	m := NodeMarks{Annotations: map[string]string{}, Labels: map[string]string{}}
	for key, value := range node.GetAnnotations() {
		if key == hotValueKey || slices.Contains(metrics, key) || strings.HasPrefix(key, reservePrefix) || ours && strings.HasPrefix(key, agentPrefix) {
			m.Annotations[key] = value
		}
	}

	if value, ok := node.GetLabels()[labelTopologyAware]; ok {
		m.Labels[labelTopologyAware] = value
	}

	for _, t := range mapsAt(node, "spec", "taints") {
		if t["key"] == taintKey {
			m.Taints = append(m.Taints, t)
		}
	}

	for _, c := range mapsAt(node, "status", "conditions") {
		if c["type"] == nodeCondition {
			m.Conditions = append(m.Conditions, c)
		}
	}

	m.Capacity = resourcesOf(node, "capacity")
	m.Allocatable = resourcesOf(node, "allocatable")
	return m
}

// resourcesOf returns gocrane's extended resources in a field of the status.
func resourcesOf(node *Object, field string) map[string]string {
	out := map[string]string{}
	for name, quantity := range stringMapAt(node, "status", field) {
		if strings.HasPrefix(name, resourcePrefix) {
			out[name] = quantity
		}
	}

	return out
}

// any reports whether gocrane wrote anything.
func (m NodeMarks) any() bool {
	return len(m.Annotations)+len(m.Labels)+len(m.Taints)+len(m.Conditions)+len(m.Capacity)+len(m.Allocatable) > 0
}

// text lists the marks.
func (m NodeMarks) text() string {
	var parts []string
	add := func(what string, keys []string) {
		if len(keys) > 0 {
			parts = append(parts, what+" "+strings.Join(keys, ", "))
		}
	}

	add("annotations", slices.Sorted(maps.Keys(m.Annotations)))
	add("labels", slices.Sorted(maps.Keys(m.Labels)))

	if len(m.Taints) > 0 {
		add("taint", []string{taintKey})
	}
	if len(m.Conditions) > 0 {
		add("condition", []string{nodeCondition})
	}

	add("resources", slices.Sorted(maps.Keys(m.Capacity)))
	return strings.Join(parts, "; ")
}

// withdrawal returns the part of the marks that a migration withdraws: the taint, the condition, capacity that no pod requests, and
// annotations of loads that Crane's policy does not continue. Labels and reservations are settings of users.
func (m NodeMarks) withdrawal(continued, requested []string) NodeMarks {
	out := NodeMarks{
		Annotations: map[string]string{},
		Taints:      m.Taints,
		Conditions:  m.Conditions,
		Capacity:    map[string]string{},
		Allocatable: map[string]string{},
	}

	for key, value := range m.Annotations {
		if !strings.HasPrefix(key, reservePrefix) && !slices.Contains(continued, key) {
			out.Annotations[key] = value
		}
	}

	// Capacity that pods still request stays on the node.
	for name, quantity := range m.Capacity {
		if !slices.Contains(requested, name) {
			out.Capacity[name] = quantity
		}
	}

	for name, quantity := range m.Allocatable {
		if !slices.Contains(requested, name) {
			out.Allocatable[name] = quantity
		}
	}

	return out
}

// strip removes the marks from a node and reports whether its metadata or spec, and its status, changed.
func (m NodeMarks) strip(node *Object) (main, status bool) {
	for key := range m.Annotations {
		if _, ok := node.GetAnnotations()[key]; ok {
			main = true
			unstructured.RemoveNestedField(node.Object, "metadata", "annotations", key)
		}
	}

	for _, t := range m.Taints {
		main = editMaps(node, func(all []any) []any { return without(all, "key", t["key"]) }, "spec", "taints") || main
	}

	for _, c := range m.Conditions {
		status = editMaps(node, func(all []any) []any { return without(all, "type", c["type"]) }, "status", "conditions") || status
	}

	for field, values := range map[string]map[string]string{"capacity": m.Capacity, "allocatable": m.Allocatable} {
		for name := range values {
			if _, ok := stringMapAt(node, "status", field)[name]; ok {
				status = true
				unstructured.RemoveNestedField(node.Object, "status", field, name)
			}
		}
	}

	return main, status
}

// restore adds the marks to a node and reports whether its metadata or spec, and its status, changed.
func (m NodeMarks) restore(node *Object) (main, status bool) {
	annotations := node.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	for key, value := range m.Annotations {
		if annotations[key] != value {
			annotations[key] = value
			main = true
		}
	}

	setAnnotations(node, annotations)
	// What the node has already is left as it is, so that nothing is written for it.
	for _, t := range m.Taints {
		main = editMaps(node, func(all []any) []any { return with(all, "key", t) }, "spec", "taints") || main
	}

	for _, c := range m.Conditions {
		status = editMaps(node, func(all []any) []any { return with(all, "type", c) }, "status", "conditions") || status
	}

	for field, values := range map[string]map[string]string{"capacity": m.Capacity, "allocatable": m.Allocatable} {
		current := stringMapAt(node, "status", field)
		for name, quantity := range values {
			if current[name] != quantity {
				status = true
				_ = unstructured.SetNestedField(node.Object, quantity, "status", field, name)
			}
		}
	}

	return main, status
}

// setAnnotations sets the annotations of an object, which has no empty ones.
func setAnnotations(o *Object, annotations map[string]string) {
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
}

// editMaps replaces a list field and reports whether its length changed. An empty list is removed.
func editMaps(o *Object, edit func([]any) []any, path ...string) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	edited := edit(slices.Clone(list))
	if len(edited) == len(list) {
		return false
	}
	if len(edited) == 0 {
		unstructured.RemoveNestedField(o.Object, path...)
		return true
	}

	return unstructured.SetNestedSlice(o.Object, edited, path...) == nil
}

func without(all []any, key string, value any) []any {
	return slices.DeleteFunc(all, func(e any) bool {
		m, ok := e.(map[string]any)
		return ok && m[key] == value
	})
}

// with appends an entry unless one with the same key exists.
func with(all []any, key string, entry map[string]any) []any {
	for _, e := range all {
		if m, ok := e.(map[string]any); ok && m[key] == entry[key] {
			return all
		}
	}

	return append(all, entry)
}
