// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
)

// templatePatch is the part of recommendedInfo with the resources of containers.
type templatePatch struct {
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []patchContainer `json:"initContainers"`
				Containers     []patchContainer `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type patchContainer struct {
	Name      string `json:"name"`
	Resources struct {
		Requests quantityTexts `json:"requests"`
		// Limits that are null are removed by the patch. Adoption keeps them, because they could not be added again in place.
		Limits quantityTexts `json:"limits"`
	} `json:"resources"`
}

type quantityTexts map[corev1.ResourceName]*string

// DesiredSize returns the size that a Recommendation recommends: requests and limits of containers, or a number of replicas;
// empty if there is none.
func DesiredSize(rec *analysisv1alpha1.Recommendation) (adoption.Size, error) {
	var value analysisv1alpha1.ProposedRecommendation
	if err := yaml.Unmarshal([]byte(rec.Status.RecommendedValue), &value); err != nil {
		return adoption.Size{}, fmt.Errorf("recommendedValue: %w", err)
	}

	if value.ReplicasRecommendation != nil && value.ReplicasRecommendation.Replicas != nil {
		n := *value.ReplicasRecommendation.Replicas
		if n < 0 {
			return adoption.Size{}, fmt.Errorf("recommendedValue: %d replicas", n)
		}

		return adoption.Size{Replicas: &n}, nil
	}

	if value.ResourceRequest == nil {
		return adoption.Size{}, nil
	}

	all := map[string]corev1.ResourceRequirements{}
	for _, c := range value.ResourceRequest.Containers {
		requests := quantityTexts{}
		for name, text := range c.Target {
			requests[name] = &text
		}

		list, err := parseQuantities(c.ContainerName, requests)
		if err != nil {
			return adoption.Size{}, fmt.Errorf("recommendedValue: %w", err)
		}

		all[c.ContainerName] = corev1.ResourceRequirements{Requests: list}
	}

	// The value has requests alone, as gocrane writes it; limits are in the patch.
	if err := addLimits(rec.Status.RecommendedInfo, all); err != nil {
		return adoption.Size{}, err
	}

	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for name, r := range all {
		out.Containers[name] = ConvertResources(r)
	}

	return out, nil
}

// addLimits adds the limits of recommendedInfo, which recommendedValue does not contain.
func addLimits(info string, to map[string]corev1.ResourceRequirements) error {
	if info == "" {
		return nil
	}

	var patch templatePatch
	if err := json.Unmarshal([]byte(info), &patch); err != nil {
		return fmt.Errorf("recommendedInfo: %w", err)
	}

	for _, c := range append(patch.Spec.Template.Spec.InitContainers, patch.Spec.Template.Spec.Containers...) {
		r, ok := to[c.Name]
		if !ok {
			continue
		}

		list, err := parseQuantities(c.Name, c.Resources.Limits)
		if err != nil {
			return fmt.Errorf("recommendedInfo: %w", err)
		}

		r.Limits = list
		to[c.Name] = r
	}

	return nil
}

func parseQuantities(container string, from quantityTexts) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, text := range from {
		if text == nil {
			continue
		}

		q, err := apiresource.ParseQuantity(*text)
		if err != nil {
			return nil, fmt.Errorf("container %s: %s %q: %w", container, name, *text, err)
		}

		if q.Sign() < 0 {
			return nil, fmt.Errorf("container %s: %s %q is negative", container, name, *text)
		}

		list[name] = q
	}

	return list, nil
}
