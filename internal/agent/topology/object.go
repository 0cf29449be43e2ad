// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/dynamic"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/units"
)

var (
	// errNoDefinition reports that the CustomResourceDefinition is not installed.
	errNoDefinition = errors.New("the API server has no NodeResourceTopologies: their CustomResourceDefinition is not installed")
	// errOtherOwner reports an object with another controller.
	errOtherOwner = errors.New("has another controller and is left unchanged")
)

const fieldManager = "crane-agent"

// operation is the request that was made, or in a dry run would be.
type operation string

const (
	operationNone   operation = "nothing"
	operationCreate operation = "create"
	operationPatch  operation = "patch"
)

// topologyObject reads and writes the NodeResourceTopology of a node.
type topologyObject struct {
	client dynamic.Interface
	// dryRun disables writes.
	dryRun bool
}

func (o *topologyObject) resource() dynamic.NamespaceableResourceInterface {
	return o.client.Resource(topologyv1alpha1.GroupVersion.WithResource("noderesourcetopologies"))
}

// sync creates or patches the object and returns the operation. It changes only semantic differences and leaves attributes of other
// clients alone.
func (o *topologyObject) sync(ctx context.Context, node *corev1.Node, want *topologyv1alpha1.NodeResourceTopology) (operation, error) {
	found, err := o.resource().Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return operationCreate, o.create(ctx, node, want)
	}
	if err != nil {
		return operationNone, fmt.Errorf("getting NodeResourceTopology %s: %w", node.Name, err)
	}

	now := &topologyv1alpha1.NodeResourceTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, now); err != nil {
		return operationNone, fmt.Errorf("decoding NodeResourceTopology %s: %w", node.Name, err)
	}

	if c := metav1.GetControllerOf(now); c != nil && (c.Kind != "Node" || c.Name != node.Name) {
		return operationNone, fmt.Errorf("NodeResourceTopology %s of %s %s: %w", node.Name, c.Kind, c.Name, errOtherOwner)
	}

	next := mergeObject(now, node, want)
	if equality.Semantic.DeepEqual(now, next) {
		return operationNone, nil
	}

	return operationPatch, o.patch(ctx, now, next)
}

// mergeObject returns the object with the wanted fields.
func mergeObject(now *topologyv1alpha1.NodeResourceTopology, node *corev1.Node, want *topologyv1alpha1.NodeResourceTopology) *topologyv1alpha1.NodeResourceTopology {
	next := now.DeepCopy()
	next.OwnerReferences = ownerReferences(now.OwnerReferences, node)
	next.CraneManagerPolicy = want.CraneManagerPolicy
	next.Zones = want.Zones

	// Empty lists are omitted, so that they come back as nil.
	next.Reserved = want.Reserved
	delete(next.Attributes, topologyv1alpha1.AttributeReservedSystemCPUs)

	if len(want.Attributes) > 0 && next.Attributes == nil {
		next.Attributes = map[string]string{}
	}

	maps.Copy(next.Attributes, want.Attributes)
	return next
}

// ownerReferences adds the node as controller and replaces a previous Node of the same name.
func ownerReferences(found []metav1.OwnerReference, node *corev1.Node) []metav1.OwnerReference {
	nodeRef := *metav1.NewControllerRef(node, corev1.SchemeGroupVersion.WithKind("Node"))
	nodeRef.BlockOwnerDeletion = nil // It would need a right to the finalizers of nodes.

	out := []metav1.OwnerReference{nodeRef}
	for _, r := range found {
		if r.Kind != "Node" || r.Name != node.Name {
			out = append(out, r)
		}
	}

	return out
}

func (o *topologyObject) create(ctx context.Context, node *corev1.Node, want *topologyv1alpha1.NodeResourceTopology) error {
	object := want.DeepCopy()
	object.TypeMeta = metav1.TypeMeta{APIVersion: topologyv1alpha1.GroupVersion.String(), Kind: "NodeResourceTopology"}

	object.ObjectMeta = metav1.ObjectMeta{Name: node.Name, OwnerReferences: ownerReferences(nil, node)}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("encoding NodeResourceTopology %s: %w", node.Name, err)
	}

	if o.dryRun {
		return nil
	}

	_, err = o.resource().Create(ctx, &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return errNoDefinition
	}
	if err != nil {
		return fmt.Errorf("creating NodeResourceTopology %s: %w", node.Name, err)
	}

	return nil
}

// patch sends the difference, on condition that the object is unchanged.
func (o *topologyObject) patch(ctx context.Context, now, next *topologyv1alpha1.NodeResourceTopology) error {
	unversioned := now.DeepCopy()
	unversioned.ResourceVersion = "" // so that the patch contains it

	before, err := json.Marshal(unversioned)
	var after, content []byte
	if err == nil {
		after, err = json.Marshal(next)
	}
	if err == nil {
		content, err = jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	}

	if err != nil {
		return fmt.Errorf("encoding NodeResourceTopology %s: %w", now.Name, err)
	}

	if o.dryRun {
		return nil
	}

	if _, err := o.resource().Patch(ctx, now.Name, types.MergePatchType, content, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("patching NodeResourceTopology %s: %w", now.Name, err)
	}

	return nil
}

// Summary is a machine's topology for tables and JSON output.
type Summary struct {
	Zones []ZoneSummary `json:"zones"`
	// KubeletSource describes the source of the kubelet's configuration; empty if unknown, as are the reservations then.
	KubeletSource string `json:"kubeletSource,omitempty"`
	// KubeletAssignsCPUs means that the kubelet's CPU manager policy is static.
	KubeletAssignsCPUs bool `json:"kubeletAssignsCpus,omitempty"`
	// ReservedCPUs lists the CPUs that are not assigned to containers.
	ReservedCPUs string   `json:"reservedCpus,omitempty"`
	Problems     []string `json:"problems,omitempty"`
}

// ZoneSummary is a zone of a Summary.
type ZoneSummary struct {
	Name string `json:"name"`
	// CPUs lists the online CPUs; Cores is the number of their physical cores.
	CPUs  string `json:"cpus"`
	Cores int    `json:"cores"`
	// UsableCPU and UsableMemory are allocatable to pods, in cores and bytes; nil if the reservations are unknown.
	UsableCPU    *float64    `json:"usableCpu,omitempty"`
	Memory       units.Bytes `json:"memory"`
	UsableMemory *int64      `json:"usableMemory,omitempty"`
	Distances    []int       `json:"distances,omitempty"`
}

// Summarize reads the topology of a node, which is nil if unknown. Unknown parts are reported as problems.
func Summarize(ctx context.Context, root host.Root, kubelet *KubeletReader, node *corev1.Node) Summary {
	machine, err := ReadMachine(root)
	if err != nil {
		return Summary{Zones: []ZoneSummary{}, Problems: []string{fmt.Sprintf("the CPUs are unknown: %v", err)}}
	}

	out := Summary{Zones: make([]ZoneSummary, len(machine.Zones))}
	k, readErr := kubelet.Read(ctx, node)
	topology := newNodeTopology(machine, k, node)

	if readErr == nil {
		out.KubeletSource = k.Source
		out.KubeletAssignsCPUs = k.Static
		if reserved, err := topology.ReservedCPUs(); err == nil {
			out.ReservedCPUs = reserved.String()
		}

		out.Problems = topology.Problems()
		if queryErr := kubelet.LastError(); queryErr != nil {
			out.Problems = append(out.Problems, fmt.Sprintf("the kubelet did not return its configuration; its file is used, which lacks flags and drop-in files: %v", queryErr))
		}
	} else {
		// Allocatable amounts are meaningless while the reservations are unknown.
		out.Problems = append(slices.Clone(machine.Problems), readErr.Error())
	}

	object := topology.Build()
	for i := range machine.Zones {
		z := &machine.Zones[i]
		out.Zones[i] = ZoneSummary{
			Name:   z.Name(),
			CPUs:   z.CPUs.String(),
			Cores:  machine.Cores(z.CPUs),
			Memory: z.Memory,
		}

		for _, id := range slices.Sorted(maps.Keys(z.Distances)) {
			out.Zones[i].Distances = append(out.Zones[i].Distances, z.Distances[id])
		}

		if readErr == nil {
			usable := object.Zones[i].Resources.Allocatable
			out.Zones[i].UsableCPU = new(float64(usable.Cpu().MilliValue()) / 1000)
			out.Zones[i].UsableMemory = new(usable.Memory().Value())
		}
	}

	return out
}

// Rows returns the zones as table cells: name, CPUs, cores, usable cores, memory and usable memory in MiB, distances.
func (s *Summary) Rows() [][7]string {
	out := make([][7]string, len(s.Zones))
	for i, z := range s.Zones {
		const notKnown = "unknown"
		row := [7]string{z.Name, z.CPUs, strconv.Itoa(z.Cores), notKnown, units.FormatMiB(int64(z.Memory)), notKnown, ""}
		if z.UsableCPU != nil {
			row[3] = strconv.FormatFloat(*z.UsableCPU, 'f', -1, 64)
		}
		if z.UsableMemory != nil {
			row[5] = units.FormatMiB(*z.UsableMemory)
		}

		for k, d := range z.Distances {
			if k > 0 {
				row[6] += " "
			}
			row[6] += strconv.Itoa(d)
		}

		out[i] = row
	}

	return out
}
