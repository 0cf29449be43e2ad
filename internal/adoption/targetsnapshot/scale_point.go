// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/recommend/resource"
)

// scalePoint is the format of AnnotationScalePoint.
type scalePoint struct {
	Kind    string            `json:"kind"`
	Name    string            `json:"name"`
	Targets []scalePointShift `json:"targets"`
}

// scalePointShift is the change of a target in percent of the request.
type scalePointShift struct {
	Resource  corev1.ResourceName `json:"resource"`
	Container string              `json:"container,omitempty"`
	From      int32               `json:"from"`
	To        int32               `json:"to"`
}

// EncodeScalePoint encodes, for AnnotationScalePoint, the targets of an EffectiveHorizontalPodAutoscaler that change together
// with the requests.
func EncodeScalePoint(owner string, moves []resource.TargetChange) (string, error) {
	point := scalePoint{Kind: "EffectiveHorizontalPodAutoscaler", Name: owner}
	for _, m := range moves {
		resourceName := corev1.ResourceCPU
		if m.Memory {
			resourceName = corev1.ResourceMemory
		}

		point.Targets = append(point.Targets, scalePointShift{
			Resource:  resourceName,
			Container: m.Container,
			From:      m.Percent,
			To:        m.To,
		})
	}

	raw, err := json.Marshal(point)
	if err != nil {
		return "", fmt.Errorf("encoding the scale point: %w", err)
	}

	return string(raw), nil
}
