// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// EncodeSize encodes the size of containers as recommendedValue and recommendedInfo of a Recommendation, the inverse of
// DesiredSize. spec distinguishes init containers; kind is the kind of the target.
func EncodeSize(kind string, spec *corev1.PodSpec, size adoption.Size) (value, info string, err error) {
	proposed := analysisv1alpha1.ProposedRecommendation{ResourceRequest: &analysisv1alpha1.ResourceRequestRecommendation{}}
	for _, name := range slices.Sorted(maps.Keys(size.Containers)) {
		requests := analysisv1alpha1.ResourceValues{}
		if list, ok := FormatResources(size.Containers[name])["requests"].(jsonObject); ok {
			for resource, text := range list {
				requests[corev1.ResourceName(resource)] = fmt.Sprint(text)
			}
		}

		proposed.ResourceRequest.Containers = append(proposed.ResourceRequest.Containers,
			analysisv1alpha1.ContainerRecommendation{ContainerName: name, Target: requests})
	}

	document, err := yaml.Marshal(proposed)
	if err != nil {
		return "", "", fmt.Errorf("encoding the recommended value: %w", err)
	}

	patch := jsonObject{"template": TemplatePatch(spec, size)}
	if kind == "CronJob" {
		patch = jsonObject{"jobTemplate": jsonObject{"spec": patch}}
	}

	raw, err := json.Marshal(jsonObject{"spec": patch})
	if err != nil {
		return "", "", fmt.Errorf("encoding the patch: %w", err)
	}

	return string(document), string(raw), nil
}
