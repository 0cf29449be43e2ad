// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

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
)

// ScaledObjects looks for KEDA's autoscalers. Those that scale have an HPA, which is seen as such; this finds those that are
// paused. It is asked only before an HPA is made, so nothing is watched that most clusters do not have.
type ScaledObjects struct {
	Live   client.Reader
	Mapper meta.RESTMapper

	mu sync.Mutex
	// unknown is when the cluster last said that it knows no such kind. Asking takes a whole discovery.
	unknown time.Time
}

// askAgain is how long that is taken for granted.
const askAgain = time.Minute

// On returns the name of a ScaledObject on a target; empty for none, and where the cluster knows no such kind.
func (s *ScaledObjects) On(ctx context.Context, now time.Time, namespace string, ref autoscalingv2.CrossVersionObjectReference) (string, error) {
	mapping, err := s.mapping(now)
	if err != nil || mapping == nil {
		return "", err
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind("ScaledObjectList"))
	if err := s.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing ScaledObjects: %w", err)
	}
	for i := range list.Items {
		target, _, err := unstructured.NestedStringMap(list.Items[i].Object, "spec", "scaleTargetRef")
		if err != nil || target["name"] == "" {
			continue // KEDA refuses it as well.
		}
		kind := target["kind"]
		if kind == "" {
			kind = "Deployment"
		}
		if targetKey(autoscalingv2.CrossVersionObjectReference{APIVersion: target["apiVersion"], Kind: kind, Name: target["name"]}) == targetKey(ref) {
			return "ScaledObject " + list.Items[i].GetName(), nil
		}
	}
	return "", nil
}

// mapping is the kind as the cluster serves it; nil where it does not.
func (s *ScaledObjects) mapping(now time.Time) (*meta.RESTMapping, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unknown.IsZero() && now.Sub(s.unknown) < askAgain {
		return nil, nil //nolint:nilnil // There is none, and that is no error.
	}
	mapping, err := s.Mapper.RESTMapping(schema.GroupKind{Group: "keda.sh", Kind: "ScaledObject"})
	if meta.IsNoMatchError(err) {
		s.unknown = now
		return nil, nil //nolint:nilnil // As above.
	}
	if err != nil {
		return nil, fmt.Errorf("looking for ScaledObjects: %w", err)
	}
	return mapping, nil
}
