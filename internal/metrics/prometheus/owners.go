// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"crane.io/crane/internal/kube/workload"
)

// Metrics of kube-state-metrics about owners.
const (
	podOwnerMetric        = "kube_pod_owner"
	replicaSetOwnerMetric = "kube_replicaset_owner"
	jobOwnerMetric        = "kube_job_owner"
	podInfoMetric         = "kube_pod_info"

	replicationControllerOwnerMetric = "kube_replicationcontroller_owner"
)

// objectName is the name of an object in a namespace.
type objectName struct{ namespace, name string }

// owner is the controller of an object; the zero value means unknown.
type owner struct{ kind, name string }

// owners holds the owners of objects within a time range, deleted pods included, and the nodes of pods.
type owners struct {
	pods        map[objectName]owner
	nodes       map[objectName]string
	replicaSets map[objectName]owner
	jobs        map[objectName]owner
	// replicationControllers are empty where no pod has one.
	replicationControllers map[objectName]owner
}

// ownerReader reads the owners of objects.
type ownerReader struct {
	*queries

	clusters *clusterCheck
	// cache may be nil.
	cache *ownerCache
}

// read returns the owners of all objects that existed between from and to. It sends four requests, each for all namespaces, and a fifth one where
// a pod has a ReplicationController. Objects of
// several clusters would be taken for one, so it refuses a server that mixes them.
func (r *ownerReader) read(ctx context.Context, from, to time.Time, in scope) (*owners, error) {
	in, err := r.clusters.narrow(ctx, in)
	if err != nil {
		return nil, err
	}

	if o := r.cache.find(from, to, in); o != nil {
		return o, nil
	}

	o := &owners{
		pods:        map[objectName]owner{},
		nodes:       map[objectName]string{},
		replicaSets: map[objectName]owner{},
		jobs:        map[objectName]owner{},

		replicationControllers: map[objectName]owner{},
	}

	names := newInterner()
	controllers := []Matcher{{Label: "owner_is_controller", Op: "!=", Value: "false"}}
	for _, m := range []struct {
		metric, object, kind, owner, node string
		matchers                          []Matcher
		owners                            map[objectName]owner
	}{
		{podOwnerMetric, "pod", "owner_kind", "owner_name", "", controllers, o.pods},
		{replicaSetOwnerMetric, "replicaset", "owner_kind", "owner_name", "", controllers, o.replicaSets},
		{jobOwnerMetric, "job_name", "owner_kind", "owner_name", "", controllers, o.jobs},
		// Provides nodes, and the owners of pods without kube_pod_owner.
		{podInfoMetric, "pod", "created_by_kind", "created_by_name", "node", nil, o.pods},
		{replicationControllerOwnerMetric, "replicationcontroller", "owner_kind", "owner_name", "", controllers, o.replicationControllers},
	} {
		if m.metric == replicationControllerOwnerMetric && !o.anyPodOf("ReplicationController") {
			continue
		}

		rows := &ownerRows{
			object: m.object,
			kind:   m.kind,
			owner:  m.owner,
			node:   m.node,
			names:  names,
		}

		err := r.eachBatch(ctx, in, func(namespaces []Matcher) error {
			if err := r.present(ctx, r.expr.selector(m.metric, slices.Concat(namespaces, m.matchers)...), from, to, rows); err != nil {
				return err
			}

			for _, row := range rows.list {
				if _, resolved := m.owners[row.object]; !resolved && row.owner.kind != "" {
					m.owners[row.object] = row.owner
				}
				if row.node != "" {
					o.nodes[row.object] = row.node
				}
			}

			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.metric, err)
		}
	}

	r.cache.add(from, to, in, o)
	return o, nil
}

// present collects the series of a selector that had samples between from and to, from the index of the server, which is cheap. Where the
// index is unavailable or holds recent data only, it sends a query that reads every sample of the window.
func (r *ownerReader) present(ctx context.Context, sel string, from, to time.Time, rows *ownerRows) error {
	err := r.client.labelSets(ctx, sel, from, to, rows)
	if err == nil && len(rows.list) > 0 || err != nil && !isEndpointUnavailable(err) {
		return err
	}

	query := fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", rows.by(), sel, promDuration(to.Sub(from)))
	return r.client.query(ctx, instantPath, instantParams(query, to), "vector", rows)
}

// ownerRows collects owners from series with the given label names. node is empty where the label node would describe the exporter instead
// of the pod.
type ownerRows struct {
	object, kind, owner, node string
	names                     *interner
	list                      []ownerRow
}

type ownerRow struct {
	object objectName
	owner  owner
	node   string
}

// by lists the labels to group by.
func (r *ownerRows) by() string {
	groupLabels := "namespace, " + r.object + ", " + r.kind + ", " + r.owner
	if r.node != "" {
		groupLabels += ", " + r.node
	}

	return groupLabels
}

func (r *ownerRows) reset() { r.list = r.list[:0] }

func (r *ownerRows) add(labels []label, _ []point) error {
	var row ownerRow
	for _, l := range labels {
		switch string(l.name) {
		case "":
		case "namespace":
			row.object.namespace = r.names.intern(l.value)
		case r.object:
			row.object.name = string(l.value)

		case r.kind:
			row.owner.kind = r.names.intern(l.value)
		case r.owner:
			row.owner.name = r.names.intern(l.value)
		case r.node:
			row.node = r.names.intern(l.value)
		}
	}

	if row.object.namespace != "" && row.object.name != "" {
		r.list = append(r.list, row)
	}

	return nil
}

// anyPodOf reports whether a pod has a controller of the kind.
func (o *owners) anyPodOf(kind string) bool {
	for _, controller := range o.pods {
		if controller.kind == kind {
			return true
		}
	}

	return false
}

// resolve returns the workload of a pod and its node, which is empty where unknown. It follows the owners, one level up for ReplicaSets,
// ReplicationControllers and Jobs, and derives the workload from the pod's name where no owner is exported.
func (o *owners) resolve(namespace, pod string) (workload.Ref, string) {
	key := objectName{namespace, pod}
	node := o.nodes[key]

	controller, ok := o.pods[key]
	if !ok {
		return ownerFromName(namespace, pod), node
	}

	switch controller.kind {
	case "<none>", "Node": // A pod without a controller, or a static pod.
		return newRef(namespace, "Pod", pod), node
	case "ReplicaSet":
		if upper, ok := o.replicaSets[objectName{namespace, controller.name}]; ok {
			return upperOwner(namespace, controller, upper), node
		}

		if base, hash, ok := cutLast(controller.name); ok && isTemplateHash(hash) {
			return newRef(namespace, "Deployment", base), node
		}

	case "ReplicationController":
		if upper, ok := o.replicationControllers[objectName{namespace, controller.name}]; ok {
			return upperOwner(namespace, controller, upper), node
		}

	case "Job":
		if upper, ok := o.jobs[objectName{namespace, controller.name}]; ok {
			return upperOwner(namespace, controller, upper), node
		}

		if base, minutes, ok := cutLast(controller.name); ok && isNumber(minutes) && (len(minutes) == 8 || len(minutes) == 10) {
			return newRef(namespace, "CronJob", base), node
		}
	}

	return newRef(namespace, controller.kind, controller.name), node
}

// upperOwner returns the upper owner, or the lower one if that has none.
func upperOwner(namespace string, lower, upper owner) workload.Ref {
	if upper.kind == "<none>" || upper.name == "" {
		return newRef(namespace, lower.kind, lower.name)
	}

	return newRef(namespace, upper.kind, upper.name)
}

// maxCachedOwners bounds the objects in an ownerCache, about 60 MiB. Owners beyond it are read again.
const maxCachedOwners = 300_000

// ownerCache caches the owners of objects by time range and namespaces. It is safe for concurrent use; a nil cache keeps nothing.
type ownerCache struct {
	mu      sync.Mutex
	objects int
	entries []ownerCacheEntry
}

type ownerCacheEntry struct {
	from, to time.Time
	scope    scope
	owners   *owners
}

// find returns the owners of a time range and scope that cover the given ones, or nil.
func (k *ownerCache) find(from, to time.Time, in scope) *owners {
	if k == nil {
		return nil
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	for _, e := range k.entries {
		if !e.from.After(from) && !e.to.Before(to) && e.scope.covers(in) {
			return e.owners
		}
	}

	return nil
}

// add caches the owners of a time range and scope, within the bound.
func (k *ownerCache) add(from, to time.Time, in scope, o *owners) {
	if k == nil {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	n := len(o.pods) + len(o.nodes) + len(o.replicaSets) + len(o.jobs) + len(o.replicationControllers)
	if k.objects+n > maxCachedOwners {
		return
	}

	k.objects += n
	k.entries = append(k.entries, ownerCacheEntry{from, to, in, o})
}
