// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

const (
	// loadPolicyName is the ConfigMap with the policy of node loads in the namespace of craned.
	loadPolicyName, loadPolicyKey = "crane-node-load-policy", "policy.yaml"
	// agentComponent is the source of the events of the node agent; maxNodeEvents are kept for each node, maxEvents read.
	agentComponent           = "crane-agent"
	maxNodeEvents, maxEvents = 50, 5000
	// maxNamespaceEvents are those of the pods of one namespace on a node.
	maxNamespaceEvents = 10
	maxPinned          = 50
)

// nodeDetails adds what is known of the nodes beside their capacity. What the user may not read, or is not installed, is left out with a note.
type nodeDetails struct {
	cranedNamespace string
	client          client.Client
	out             *contract.NodeList
	index           map[string]*contract.Node
}

// note records why details are missing; kinds that are not installed have none.
func (d nodeDetails) note(what string, err error) {
	if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		d.out.Notes = append(d.out.Notes, what+" are unknown: "+metrics.PublicMessage(err))
	}
}

// readZones adds the NUMA zones of the NodeResourceTopologies.
func (d nodeDetails) readZones(ctx context.Context) {
	var list topologyv1alpha1.NodeResourceTopologyList
	if err := d.client.List(ctx, &list); err != nil {
		d.note("NUMA zones", err)
		return
	}

	for i := range list.Items {
		n := d.index[list.Items[i].Name]
		if n == nil {
			continue
		}

		for _, z := range list.Items[i].Zones {
			if z.Type != topologyv1alpha1.ZoneTypeNode || z.Resources == nil {
				continue
			}

			// Cores are counted up from the pods, which are read afterward.
			allocated := int64(0)
			n.Zones = append(n.Zones, contract.Zone{
				Name:              z.Name,
				CPUMilli:          z.Resources.Allocatable.Cpu().MilliValue(),
				MemoryBytes:       z.Resources.Allocatable.Memory().Value(),
				CPUAllocatedMilli: &allocated,
			})
		}
	}
}

// addPinned adds the cores that a pod has of each zone, by the annotation of the scheduler.
func addPinned(n *contract.Node, pod *corev1.Pod) {
	text := pod.Annotations[topologyv1alpha1.AnnotationPodTopologyResult]
	if text == "" || len(n.Zones) == 0 {
		return
	}

	placement, err := topologyconv.DecodeResult(text)
	if err != nil {
		return // Anyone may write the annotation; the scheduler reports it.
	}

	for _, share := range placement {
		i := slices.IndexFunc(n.Zones, func(z contract.Zone) bool { return z.Name == share.Zone })
		cores := share.Resources[units.CPU] / numa.Core
		if i < 0 || cores <= 0 {
			continue
		}

		*n.Zones[i].CPUAllocatedMilli += int64(cores) * 1000
		if len(n.Zones[i].Pods) < maxPinned {
			n.Zones[i].Pods = append(n.Zones[i].Pods, pod.Namespace+"/"+pod.Name)
		}
	}
}

// readWaterMarks adds the limits of the policy of node loads, and the loads above them. Without its ConfigMap it is the built-in one.
func (d nodeDetails) readWaterMarks(ctx context.Context) {
	policy, err := d.loadPolicy(ctx)
	if err != nil {
		d.note("water marks", err)
		return
	}

	d.out.WaterMarks = map[string]float64{}
	for _, limit := range policy.Limits {
		d.out.WaterMarks[policy.Metrics[limit.Metric].Name] = float64(limit.Max)
	}

	for i := range d.out.Nodes {
		n := &d.out.Nodes[i]
		for name, mark := range d.out.WaterMarks {
			if load, ok := n.Loads[name]; ok && load > mark {
				n.Above = append(n.Above, name)
			}
		}

		slices.Sort(n.Above)
	}
}

func (d nodeDetails) loadPolicy(ctx context.Context) (*nodeload.Policy, error) {
	var object corev1.ConfigMap
	err := d.client.Get(ctx, client.ObjectKey{Namespace: d.cranedNamespace, Name: loadPolicyName}, &object)
	if apierrors.IsNotFound(err) {
		d.out.Notes = append(d.out.Notes, "water marks are those of the built-in policy: there is no ConfigMap "+d.cranedNamespace+"/"+loadPolicyName)
		return policyfile.Builtin()
	}
	if err != nil {
		return nil, err
	}

	d.out.Source += ", water marks of ConfigMap " + d.cranedNamespace + "/" + loadPolicyName
	return policyfile.Decode([]byte(object.Data[loadPolicyKey]))
}

// readEvents adds the newest actions of the agent on each node. Events of nodes are in a namespace of the administrators. Those of pods may be written by
// whoever has rights in their namespace: they name their pod, and those of one namespace leave room for others.
func (d nodeDetails) readEvents(ctx context.Context) {
	var ofNodes, ofPods corev1.EventList
	agents := client.MatchingFields{"source": agentComponent}
	err := d.client.List(ctx, &ofNodes, client.InNamespace(metav1.NamespaceDefault), agents, client.Limit(maxEvents))
	if err == nil {
		err = d.client.List(ctx, &ofPods, agents, client.Limit(maxEvents))
	}
	if err != nil {
		d.note("actions of the agent", err)
		return
	}

	if ofNodes.Continue != "" || ofPods.Continue != "" {
		d.out.Notes = append(d.out.Notes, "only a part of the events of the agent was read")
	}

	byNode := map[*contract.Node][]agentEvent{}
	for i := range ofNodes.Items {
		e := &ofNodes.Items[i]
		if n := d.index[e.Source.Host]; n != nil && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == e.Source.Host {
			byNode[n] = append(byNode[n], newAgentEvent(e))
		}
	}

	for i := range ofPods.Items {
		e := &ofPods.Items[i]
		if n := d.index[e.Source.Host]; n != nil && e.InvolvedObject.Kind == "Pod" {
			byNode[n] = append(byNode[n], newAgentEvent(e))
		}
	}

	for n, all := range byNode {
		n.Events = newestEvents(all)
	}
}

// agentEvent is an event of the agent, with the namespace of its pod; empty for one of the node.
type agentEvent struct {
	namespace string
	mark      contract.Mark
}

func newAgentEvent(e *corev1.Event) agentEvent {
	// Events of the newer API have no LastTimestamp.
	at := e.LastTimestamp.Time
	if at.IsZero() {
		at = e.EventTime.Time
	}

	return agentEvent{e.InvolvedObject.Namespace, contract.Mark{At: at.Unix(), Kind: agentAction(e.Reason), Text: eventText(e)}}
}

// newestEvents returns the newest events of a node, of the pods of one namespace at most a part.
func newestEvents(all []agentEvent) []contract.Mark {
	slices.SortStableFunc(all, func(a, b agentEvent) int { return cmp.Compare(b.mark.At, a.mark.At) })
	counts := map[string]int{}
	var out []contract.Mark
	for _, e := range all {
		if e.namespace != "" {
			counts[e.namespace]++
		}

		if len(out) < maxNodeEvents && counts[e.namespace] <= maxNamespaceEvents {
			out = append(out, e.mark)
		}
	}

	return out
}

// agentAction groups the reasons of events of the agent.
func agentAction(reason string) string {
	switch reason {
	case "CPUThrottled", "MemoryThrottled":
		return "throttled"
	case "CPURestored", "MemoryRestored":
		return "restored"
	case "Evicted":
		return "evicted"
	}

	return "node"
}

func eventText(e *corev1.Event) string {
	if e.InvolvedObject.Kind == "Pod" {
		return e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name + ": " + e.Message
	}

	return e.Message
}
