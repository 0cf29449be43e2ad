// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"cmp"
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/optionalcrd"
)

// ScaledObjects finds KEDA autoscalers that are paused. Active ones have an HPA, which is found as such. They are listed only before an
// HPA is created.
type ScaledObjects struct{ kind *optionalcrd.Kind }

// NewScaledObjects returns a finder that lists from the API server.
func NewScaledObjects(live client.Reader, mapper meta.RESTMapper) *ScaledObjects {
	return &ScaledObjects{optionalcrd.New(schema.GroupKind{Group: "keda.sh", Kind: "ScaledObject"}, live, mapper)}
}

// Find returns the name of a ScaledObject of the target, empty for none and where the cluster has no such kind.
func (s *ScaledObjects) Find(ctx context.Context, now time.Time, namespace string, ref autoscalingv2.CrossVersionObjectReference) (string, error) {
	list, err := s.kind.List(ctx, namespace, now)
	if err != nil {
		return "", err
	}

	for i := range list {
		target, _, err := unstructured.NestedStringMap(list[i].Object, "spec", "scaleTargetRef")
		if err != nil || target["name"] == "" {
			continue // KEDA rejects it too.
		}
		if targetKey(autoscalingv2.CrossVersionObjectReference{APIVersion: target["apiVersion"], Kind: cmp.Or(target["kind"], "Deployment"), Name: target["name"]}) == targetKey(ref) {
			return "ScaledObject " + list[i].GetName(), nil
		}
	}

	return "", nil
}
