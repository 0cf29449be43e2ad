// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// ReadRoom sets the room on their nodes for the pods whose requests are below these demands, with two requests for each of the nodes.
// Pods of one node share its room.
func (r SnapshotReader) ReadRoom(ctx context.Context, s *TargetSnapshot, demands []adoption.Demand, pods []adoption.Pod) error {
	byNode := map[string][]int{}
	for i := range s.Pods { // In the order of the pods of the input.
		if node := s.Pods[i].Spec.NodeName; node != "" && exceedsRequest(pods[i], demands) {
			byNode[node] = append(byNode[node], i)
		}
	}

	for node, indices := range byNode {
		room, err := r.readNodeRoom(ctx, node)
		if err != nil {
			return err
		}

		room /= units.MilliCPU(len(indices))
		for _, i := range indices {
			pods[i].Room = &room
		}
	}

	return nil
}

// exceedsRequest reports whether a demand is above the request of its container in the pod.
func exceedsRequest(p adoption.Pod, demands []adoption.Demand) bool {
	return slices.ContainsFunc(demands, func(d adoption.Demand) bool {
		return d.Pod == p.Name && slices.ContainsFunc(p.Containers, func(c adoption.Container) bool {
			return c.Name == d.Container && c.Size.CPURequest != nil && d.Use > *c.Size.CPURequest
		})
	})
}

// readNodeRoom returns the CPU of a node that its pods do not request.
func (r SnapshotReader) readNodeRoom(ctx context.Context, name string) (units.MilliCPU, error) {
	var node corev1.Node
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return 0, fmt.Errorf("reading node %s: %w", name, err)
	}

	room := node.Status.Allocatable.Cpu().MilliValue()
	next := ""
	for {
		var list corev1.PodList
		err := r.Live.List(ctx, &list, client.MatchingFields{"spec.nodeName": name}, client.Limit(pageSize), client.Continue(next))
		if err != nil {
			return 0, fmt.Errorf("listing the pods of node %s: %w", name, err)
		}

		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}

			requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true})
			room -= requests.Cpu().MilliValue()
		}

		if next = list.Continue; next == "" {
			return units.MilliCPU(max(room, 0)), nil
		}
	}
}

// RequestsInForce returns the size that the pods of a workload should have in a namespace with these LimitRanges, and the requests of
// single pods that were raised; ok is false if adoption does not act on the workload. That includes a state that cannot be parsed, which
// a condition reports.
func RequestsInForce(o client.Object, ranges []corev1.LimitRange) (size adoption.Size, raised []adoption.RaisedRequest, ok bool) {
	state, err := ReadState(o, analysisv1alpha1.AnalysisTypeResource)
	if err != nil || state.Phase == adoption.Stopped || state.Phase == adoption.Withdrawing || OptedOut(o.GetLabels()) {
		return size, nil, false
	}
	if state.Phase != adoption.Untouched {
		return state.Current, state.Raised, true
	}

	s := &TargetSnapshot{Object: o}
	s.readKindFields()

	if s.podSpec == nil {
		return size, nil, false
	}

	spec := effectiveresources.NewPod(s.podSpec, ranges)
	size.Containers = map[string]rightsize.Resources{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			size.Containers[list[i].Name] = ConvertResources(list[i].Resources)
		}
	}

	return size, nil, true
}
