// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/optionalcrd"
)

// VPAFinder finds VerticalPodAutoscalers.
type VPAFinder interface {
	// Find returns the names of those that act in a namespace, by target.
	Find(ctx context.Context, namespace string, now time.Time) (map[targetindex.Key]string, error)
}

// VerticalPodAutoscalers finds those of the Kubernetes project.
type VerticalPodAutoscalers struct{ kind *optionalcrd.Kind }

// NewVerticalPodAutoscalers returns a finder that lists from the API server.
func NewVerticalPodAutoscalers(live client.Reader, mapper meta.RESTMapper) *VerticalPodAutoscalers {
	return &VerticalPodAutoscalers{optionalcrd.New(schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}, live, mapper)}
}

// Find implements VPAFinder. It omits those with update mode Off, which only recommend.
func (v *VerticalPodAutoscalers) Find(ctx context.Context, namespace string, now time.Time) (map[targetindex.Key]string, error) {
	list, err := v.kind.List(ctx, namespace, now)
	if err != nil {
		return nil, err
	}

	out := map[targetindex.Key]string{}
	for i := range list {
		o := list[i].Object
		mode, _, _ := unstructured.NestedString(o, "spec", "updatePolicy", "updateMode")

		ref, _, err := unstructured.NestedStringMap(o, "spec", "targetRef")
		if err != nil || mode == "Off" || ref["name"] == "" {
			continue // It changes no pods.
		}

		key := targetKey(namespace, autoscalingv2.CrossVersionObjectReference{APIVersion: ref["apiVersion"], Kind: ref["kind"], Name: ref["name"]})
		out[key] = list[i].GetName()
	}

	return out, nil
}
