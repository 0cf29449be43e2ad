// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreignvpa finds the VerticalPodAutoscalers of the Kubernetes project that act on workloads. Crane changes no pods beside one.
package foreignvpa

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/optionalcrd"
	"crane.io/crane/internal/kube/workload"
)

// modeOff is the mode of an autoscaler, or of a container in it, that only recommends.
const modeOff = "Off"

// GroupKind is the kind of the autoscalers.
func GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}
}

// Finder finds autoscalers by listing them from the API server.
type Finder struct{ kind *optionalcrd.Kind }

// NewFinder returns a finder. The cluster need not have the kind.
func NewFinder(live client.Reader, mapper meta.RESTMapper) *Finder {
	return &Finder{optionalcrd.New(GroupKind(), live, mapper)}
}

// Find returns the names of those that act in a namespace, by target.
func (f *Finder) Find(ctx context.Context, namespace string, now time.Time) (map[targetindex.Key]string, error) {
	list, err := f.kind.List(ctx, namespace, now)
	if err != nil {
		return nil, fmt.Errorf("finding VerticalPodAutoscalers in %s: %w", namespace, err)
	}

	out := map[targetindex.Key]string{}
	for i := range list {
		if vpa := Parse(&list[i]); vpa.Acts {
			out[vpa.Target] = vpa.Name
		}
	}

	return out, nil
}

// Autoscaler is a VerticalPodAutoscaler.
type Autoscaler struct {
	Name   string
	Target targetindex.Key
	// Mode is its update mode. Acts reports whether it changes pods of its target: not with mode Off, which only recommends.
	Mode string
	Acts bool
}

// Parse returns what an object says about itself.
func Parse(o *unstructured.Unstructured) Autoscaler {
	out := Autoscaler{Name: o.GetName(), Mode: "Auto"} // Auto is the default.
	if mode, found, _ := unstructured.NestedString(o.Object, "spec", "updatePolicy", "updateMode"); found && mode != "" {
		out.Mode = mode
	}

	ref, _, err := unstructured.NestedStringMap(o.Object, "spec", "targetRef")
	if err != nil || ref["name"] == "" {
		return out // It changes no pods.
	}

	out.Target = targetindex.Key{
		Group:     workload.GroupOf(ref["apiVersion"], ref["kind"]),
		Kind:      ref["kind"],
		Namespace: o.GetNamespace(),
		Name:      ref["name"],
	}
	out.Acts = out.Mode != modeOff && !allContainersOff(o)

	return out
}

// allContainersOff reports whether the autoscaler leaves out every container: the default is off, and none has another mode.
func allContainersOff(o *unstructured.Unstructured) bool {
	policies, _, _ := unstructured.NestedSlice(o.Object, "spec", "resourcePolicy", "containerPolicies")
	off := false
	for _, p := range policies {
		policy, _ := p.(map[string]any)
		mode, _ := policy["mode"].(string)
		if mode != modeOff {
			return false
		}

		off = off || policy["containerName"] == "*"
	}

	return off
}
