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

// podTemplate is the part of recommendedInfo that says what containers ask for.
type podTemplate struct {
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []wantedContainer `json:"initContainers"`
				Containers     []wantedContainer `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type wantedContainer struct {
	Name      string `json:"name"`
	Resources struct {
		Requests amounts `json:"requests"`
		// Limits that are null are taken away by the patch; adoption leaves them, for it could not bring them back in place.
		Limits amounts `json:"limits"`
	} `json:"resources"`
}

type amounts map[corev1.ResourceName]*string

// Wanted is the size that a Recommendation recommends: requests and limits of containers, or a number of replicas. It is
// empty where there is none. What cannot be read is an error.
func Wanted(rec *analysisv1alpha1.Recommendation) (adoption.Size, error) {
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
		requests := amounts{}
		for name, text := range c.Target {
			requests[name] = &text
		}
		list, err := quantities(c.ContainerName, requests)
		if err != nil {
			return adoption.Size{}, fmt.Errorf("recommendedValue: %w", err)
		}
		all[c.ContainerName] = corev1.ResourceRequirements{Requests: list}
	}
	if err := limits(rec.Status.RecommendedInfo, all); err != nil {
		return adoption.Size{}, err
	}
	out := adoption.Size{Containers: map[string]rightsize.Resources{}}
	for name, r := range all {
		out.Containers[name] = Resources(r)
	}
	return out, nil
}

// limits adds the limits of recommendedInfo, which recommendedValue does not carry.
func limits(info string, to map[string]corev1.ResourceRequirements) error {
	if info == "" {
		return nil
	}
	var patch podTemplate
	if err := json.Unmarshal([]byte(info), &patch); err != nil {
		return fmt.Errorf("recommendedInfo: %w", err)
	}
	for _, c := range append(patch.Spec.Template.Spec.InitContainers, patch.Spec.Template.Spec.Containers...) {
		r, known := to[c.Name]
		if !known {
			continue
		}
		list, err := quantities(c.Name, c.Resources.Limits)
		if err != nil {
			return fmt.Errorf("recommendedInfo: %w", err)
		}
		r.Limits = list
		to[c.Name] = r
	}
	return nil
}

func quantities(container string, from amounts) (corev1.ResourceList, error) {
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
