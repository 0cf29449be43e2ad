// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/controller/targets"
)

// Others finds who else sizes pods.
type Others interface {
	// In returns the names of those that act in a namespace, by target.
	In(ctx context.Context, namespace string, now time.Time) (map[targets.Key]string, error)
}

// VerticalPodAutoscalers finds those of the Kubernetes project. Nothing is watched that many clusters do not have.
type VerticalPodAutoscalers struct {
	Live   client.Reader
	Mapper meta.RESTMapper

	mu sync.Mutex
	// unknown is when the cluster last said that it knows no such kind. Asking takes a whole discovery.
	unknown time.Time
}

// askAgain is how long that is taken for granted.
const askAgain = time.Minute

// In implements Others. One whose update mode is Off only recommends, and is nobody's rival.
func (v *VerticalPodAutoscalers) In(ctx context.Context, namespace string, now time.Time) (map[targets.Key]string, error) {
	mapping, err := v.mapping(now)
	if err != nil || mapping == nil {
		return nil, err
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind("VerticalPodAutoscalerList"))
	if err := v.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing VerticalPodAutoscalers: %w", err)
	}
	out := map[targets.Key]string{}
	for i := range list.Items {
		o := list.Items[i].Object
		mode, _, _ := unstructured.NestedString(o, "spec", "updatePolicy", "updateMode")
		ref, _, err := unstructured.NestedStringMap(o, "spec", "targetRef")
		if err != nil || mode == "Off" || ref["name"] == "" {
			continue // It acts on nothing.
		}
		key := keyFor(namespace, autoscalingv2.CrossVersionObjectReference{APIVersion: ref["apiVersion"], Kind: ref["kind"], Name: ref["name"]})
		out[key] = list.Items[i].GetName()
	}
	return out, nil
}

// mapping is the kind as the cluster serves it; nil where it does not.
func (v *VerticalPodAutoscalers) mapping(now time.Time) (*meta.RESTMapping, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.unknown.IsZero() && now.Sub(v.unknown) < askAgain {
		return nil, nil //nolint:nilnil // There is none, and that is no error.
	}
	mapping, err := v.Mapper.RESTMapping(schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"})
	if meta.IsNoMatchError(err) {
		v.unknown = now
		return nil, nil //nolint:nilnil // As above.
	}
	if err != nil {
		return nil, fmt.Errorf("looking for VerticalPodAutoscalers: %w", err)
	}
	return mapping, nil
}
