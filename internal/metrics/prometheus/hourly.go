// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
)

var _ metrics.HourlyReader = (*Source)(nil)

// Hourly implements metrics.HourlyReader.
func (s *Source) Hourly(ctx context.Context, req metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	return s.hourly(ctx, req, nil)
}

func (s *Source) hourly(ctx context.Context, req metrics.HourlyRequest, kept *keptOwners) ([]metrics.HourlySeries, error) {
	f, known := s.figure(req.Metric)
	if !known || req.Hours < 1 {
		return nil, fmt.Errorf("figure %q for %d hours: there is no such figure, or no hour", req.Metric, req.Hours)
	}
	end := req.End
	if now := s.now(); now.Before(end) {
		end = now
	}
	end = end.UTC().Truncate(time.Second)
	// The value at t is about (t-1h, t].
	w := metrics.Window{Start: end.Add(-time.Duration(req.Hours-1) * time.Hour), End: end.Add(time.Second), Step: time.Hour}
	in := scope{names: slices.Compact(slices.Sorted(slices.Values(req.Namespaces))), all: len(req.Namespaces) == 0 || !f.namespaced}
	if in.all {
		in.names = nil
	}
	var found []metrics.LabelledSeries
	err := s.eachBatch(ctx, in, func(own []Matcher) error {
		list, err := s.Range(ctx, f.expr(own), w)
		found = append(found, list...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s over %d hours: %w", req.Metric, req.Hours, err)
	}
	out, namespaces := f.read(found)
	if !f.pods || len(out) == 0 {
		return out, nil
	}
	owners, err := s.ownersOf(ctx, metrics.Window{Start: w.Start.Add(-time.Hour), End: end}, in, namespaces, kept)
	if err != nil {
		return nil, err
	}
	for i := range out {
		key := &out[i].Key
		key.Workload, key.Node = owners.resolve(key.Workload.Namespace, key.Pod)
	}
	return out, nil
}

// figure is how a figure is asked for, and what its series are about.
type figure struct {
	// expr is the query, with more matchers for what is in namespaces.
	expr       func(own []Matcher) string
	namespaced bool
	// key reads labels; pods tells that Workload is to be found.
	key  func(metrics.Labels) metrics.HourlySeries
	pods bool
}

// read makes figures of series, and names their namespaces.
func (f figure) read(found []metrics.LabelledSeries) (out []metrics.HourlySeries, namespaces []string) {
	out = make([]metrics.HourlySeries, 0, len(found))
	for _, l := range found {
		one := f.key(l.Labels)
		if one.Key.Workload.Namespace == "" && one.Key.Node == "" || f.pods && one.Key.Pod == "" {
			continue
		}
		one.Values = l.Values
		out = append(out, one)
		namespaces = append(namespaces, one.Key.Workload.Namespace)
	}
	slices.Sort(namespaces)
	return out, slices.Compact(namespaces)
}

// ownersOf are the owners of pods in the namespaces in which some were found, from those that are kept where they are among
// them. Where owners are kept, those of all namespaces that were asked for are read: the next figure finds others.
func (s *Source) ownersOf(ctx context.Context, w metrics.Window, asked scope, found []string, kept *keptOwners) (*owners, error) {
	in := scope{names: found}
	if o := kept.find(w.Start, w.End, in); o != nil {
		return o, nil
	}
	if kept != nil && !asked.all {
		in = asked
	}
	o, err := s.readOwners(ctx, w.Start, w.End, in)
	if err != nil {
		return nil, err
	}
	kept.keep(w.Start, w.End, in, o)
	return o, nil
}

// hour is the range of one step.
func hour() string { return openRange(time.Hour) }

// figure describes each figure.
func (s *Source) figure(of metrics.HourlyMetric) (figure, bool) {
	switch of {
	case metrics.PodCPU:
		return figure{expr: s.podCPU, key: podKey, namespaced: true, pods: true}, true
	case metrics.PodReceived:
		return figure{expr: s.traffic("container_network_receive_bytes_total"), key: podKey, namespaced: true, pods: true}, true
	case metrics.PodSent:
		return figure{expr: s.traffic("container_network_transmit_bytes_total"), key: podKey, namespaced: true, pods: true}, true
	case metrics.ContainerThrottled:
		return figure{expr: s.throttled, key: podKey, namespaced: true, pods: true}, true
	case metrics.GPUUse:
		return figure{expr: s.gpu("DCGM_FI_DEV_GPU_UTIL", "/ 100"), key: gpuKey, pods: true}, true
	case metrics.GPUMemory:
		return figure{expr: s.gpu("DCGM_FI_DEV_FB_USED", "* 1048576"), key: gpuKey, pods: true}, true
	case metrics.NodePods:
		return figure{expr: s.nodePods, key: nodeKey}, true
	case metrics.NodeCPURequests:
		return figure{expr: s.nodeRequests("cpu"), key: nodeKey}, true
	case metrics.NodeMemoryRequests:
		return figure{expr: s.nodeRequests("memory"), key: nodeKey}, true
	case metrics.ServiceAddresses:
		return figure{expr: s.serviceAddresses, key: objectKey("Service", "endpoint"), namespaced: true}, true
	case metrics.ClaimMounts:
		return figure{expr: s.claimMounts, key: objectKey("PersistentVolumeClaim", "persistentvolumeclaim"), namespaced: true}, true
	}
	return figure{}, false
}

func podKey(l metrics.Labels) metrics.HourlySeries {
	return metrics.HourlySeries{Key: metrics.ContainerKey{Workload: newRef(l["namespace"], "Pod", l["pod"]), Pod: l["pod"], Container: l["container"]}}
}

func nodeKey(l metrics.Labels) metrics.HourlySeries {
	return metrics.HourlySeries{Key: metrics.ContainerKey{Node: l["node"]}}
}

func objectKey(kind, label string) func(metrics.Labels) metrics.HourlySeries {
	return func(l metrics.Labels) metrics.HourlySeries {
		return metrics.HourlySeries{Key: metrics.ContainerKey{Workload: newRef(l["namespace"], kind, l[label])}}
	}
}

// gpuKey reads the labels of the DCGM exporter. Where Prometheus puts its own in their place, pod and namespace are those
// of the exporter, and those of who has the GPU begin with exported_.
func gpuKey(l metrics.Labels) metrics.HourlySeries {
	exported := ""
	if l["exported_pod"] != "" {
		exported = "exported_"
	}
	out := podKey(metrics.Labels{"namespace": l[exported+"namespace"], "pod": l[exported+"pod"], "container": l[exported+"container"]})
	if out.Device = l["UUID"]; out.Device == "" {
		out.Device = l["gpu"]
	}
	return out
}
