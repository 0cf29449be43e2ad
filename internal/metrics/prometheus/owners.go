// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
)

// Metrics of kube-state-metrics that say who owns what.
const (
	podOwnerMetric        = "kube_pod_owner"
	replicaSetOwnerMetric = "kube_replicaset_owner"
	jobOwnerMetric        = "kube_job_owner"
	podInfoMetric         = "kube_pod_info"
)

// objectName is an object in a namespace.
type objectName struct{ namespace, name string }

// owner is the controller of an object; the zero value means that it is not known.
type owner struct{ kind, name string }

// owners is who owned what within a day, pods that are gone included.
type owners struct {
	pods        map[objectName]owner
	nodes       map[objectName]string
	replicaSets map[objectName]owner
	jobs        map[objectName]owner
}

// readOwners reads the owners of everything that was there between from and to: four requests, each for all namespaces
// at once.
func (s *Source) readOwners(ctx context.Context, from, to time.Time, in scope) (*owners, error) {
	o := &owners{
		pods: map[objectName]owner{}, nodes: map[objectName]string{}, replicaSets: map[objectName]owner{}, jobs: map[objectName]owner{},
	}
	names := newInterner()
	controllers := []Matcher{{Label: "owner_is_controller", Op: "!=", Value: "false"}}
	for _, read := range []struct {
		metric, object, kind, owner, node string
		own                               []Matcher
		into                              map[objectName]owner
	}{
		{podOwnerMetric, "pod", "owner_kind", "owner_name", "", controllers, o.pods},
		{replicaSetOwnerMetric, "replicaset", "owner_kind", "owner_name", "", controllers, o.replicaSets},
		{jobOwnerMetric, "job_name", "owner_kind", "owner_name", "", controllers, o.jobs},
		// Knows the nodes, and owners of pods for which kube_pod_owner is missing.
		{podInfoMetric, "pod", "created_by_kind", "created_by_name", "node", nil, o.pods},
	} {
		rows := &ownerRows{object: read.object, kind: read.kind, owner: read.owner, node: read.node, names: names}
		err := s.eachBatch(ctx, in, func(namespaces []Matcher) error {
			sel := selector(read.metric, s.matchers(slices.Concat(namespaces, read.own)...)...)
			if err := s.present(ctx, sel, rows.by(), from, to, rows); err != nil {
				return err
			}
			for _, r := range rows.list {
				if _, known := read.into[r.object]; !known && r.by.kind != "" {
					read.into[r.object] = r.by
				}
				if r.node != "" {
					o.nodes[r.object] = r.node
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", read.metric, err)
		}
	}
	return o, nil
}

// present finds the series of a selector that had samples between from and to, in the index of the server, which costs
// it next to nothing. A query is the way out where the index is closed to us or knows recent data only; it looks at
// every sample of the window.
func (s *Source) present(ctx context.Context, sel, by string, from, to time.Time, rows *ownerRows) error {
	err := s.client.labelSets(ctx, sel, from, to, rows)
	if err == nil && len(rows.list) > 0 || err != nil && !isEndpointUnavailable(err) {
		return err
	}
	query := fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", by, sel, promDuration(to.Sub(from)))
	return s.client.query(ctx, instantPath, url.Values{"query": {query}, "time": {formatTime(to)}}, "vector", rows)
}

// ownerRows collects who owned what, from series whose labels have these names. node is empty where a label of that
// name would be about the exporter and not about the pod.
type ownerRows struct {
	object, kind, owner, node string
	names                     *interner
	list                      []ownerRow
}

type ownerRow struct {
	object objectName
	by     owner
	node   string
}

// by lists the labels that matter.
func (r *ownerRows) by() string {
	by := "namespace, " + r.object + ", " + r.kind + ", " + r.owner
	if r.node != "" {
		by += ", " + r.node
	}
	return by
}

func (r *ownerRows) reset() { r.list = r.list[:0] }

func (r *ownerRows) add(labels []label, _ []point) error {
	var row ownerRow
	for _, l := range labels {
		switch string(l.name) {
		case "":
		case "namespace":
			row.object.namespace = r.names.str(l.value)
		case r.object:
			row.object.name = string(l.value)
		case r.kind:
			row.by.kind = r.names.str(l.value)
		case r.owner:
			row.by.name = r.names.str(l.value)
		case r.node:
			row.node = r.names.str(l.value)
		}
	}
	if row.object.namespace != "" && row.object.name != "" {
		r.list = append(r.list, row)
	}
	return nil
}

// resolve finds the workload of a pod, and its node if known: by the owners, one level up for ReplicaSets and Jobs,
// and by the pod's name where nobody exported an owner.
func (o *owners) resolve(namespace, pod string) (workload.Ref, string) {
	key := objectName{namespace, pod}
	node := o.nodes[key]
	by, ok := o.pods[key]
	if !ok {
		return ownerFromName(namespace, pod), node
	}
	switch by.kind {
	case "<none>", "Node": // a pod of its own, or a static one
		return newRef(namespace, "Pod", pod), node
	case "ReplicaSet":
		if up, ok := o.replicaSets[objectName{namespace, by.name}]; ok {
			return upperOwner(namespace, by, up), node
		}
		if base, hash, ok := cutLast(by.name); ok && isTemplateHash(hash) {
			return newRef(namespace, "Deployment", base), node
		}
	case "Job":
		if up, ok := o.jobs[objectName{namespace, by.name}]; ok {
			return upperOwner(namespace, by, up), node
		}
		if base, minutes, ok := cutLast(by.name); ok && isNumber(minutes) && (len(minutes) == 8 || len(minutes) == 10) {
			return newRef(namespace, "CronJob", base), node
		}
	}
	return newRef(namespace, by.kind, by.name), node
}

// upperOwner is the upper owner, or the lower one if that has none.
func upperOwner(namespace string, lower, upper owner) workload.Ref {
	if upper.kind == "<none>" || upper.name == "" {
		return newRef(namespace, lower.kind, lower.name)
	}
	return newRef(namespace, upper.kind, upper.name)
}
