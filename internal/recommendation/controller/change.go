// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// maxChange is the maximum number of characters of status.change.
const maxChange = 60

// changeSize is the part of recommendedInfo and currentInfo that status.change shows: the requests of one pod, and replicas.
type changeSize struct {
	kind     string
	requests map[corev1.ResourceName]apiresource.Quantity
	replicas string
}

// formatChange returns the change of a Recommendation in short, such as "cpu 1 → 778m, memory 1136Mi → 512Mi".
func formatChange(c analysisv1alpha1.RecommendationContent) string {
	before := sizeOf(c.CurrentInfo)
	after := sizeOf(c.RecommendedInfo)
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if from, to := before.request(name), after.request(name); to != "none" && from != to {
			parts = append(parts, string(name)+" "+from+" → "+to)
		}
	}

	if after.replicas != "" && before.replicas != "" && after.replicas != before.replicas {
		parts = append(parts, "replicas "+before.replicas+" → "+after.replicas)
	}

	text := strings.Join(parts, ", ")
	// Without such a difference the text names the kind of change.
	switch {
	case text != "":
	case c.Action == analysisv1alpha1.ActionPatch && len(after.requests) > 0 && before.sameRequests(after):
		text = "limits only"
	case c.Action == analysisv1alpha1.ActionCreate:
		text = strings.TrimSpace("create " + after.kind)
	case c.Action != "":
		text = strings.ToLower(string(c.Action))
	}

	if short := []rune(text); len(short) > maxChange {
		text = string(short[:maxChange-1]) + "…"
	}

	return text
}

// request returns the sum of the requests of a pod; "none" without one.
func (s changeSize) request(name corev1.ResourceName) string {
	if q, ok := s.requests[name]; ok {
		return q.String()
	}

	return "none"
}

func (s changeSize) sameRequests(o changeSize) bool {
	return s.request(corev1.ResourceCPU) == o.request(corev1.ResourceCPU) && s.request(corev1.ResourceMemory) == o.request(corev1.ResourceMemory)
}

// sizeOf reads a strategic merge patch or an object.
func sizeOf(document string) changeSize {
	out := changeSize{requests: map[corev1.ResourceName]apiresource.Quantity{}}
	var root map[string]any
	if json.Unmarshal([]byte(document), &root) != nil {
		return out
	}

	out.kind, _ = root["kind"].(string)
	out.read(root)
	return out
}

// read adds what an object contains, at any depth.
func (s *changeSize) read(object map[string]any) {
	for key, value := range object {
		switch v := value.(type) {
		case float64:
			if key == "replicas" {
				s.replicas = strconv.FormatFloat(v, 'f', -1, 64)
			}
		case map[string]any:
			if key == "requests" {
				s.addRequests(v)
			} else {
				s.read(v)
			}

		case []any:
			for _, item := range v {
				if inner, ok := item.(map[string]any); ok {
					s.read(inner)
				}
			}
		}
	}
}

func (s *changeSize) addRequests(requests map[string]any) {
	for name, value := range requests {
		text, _ := value.(string)
		q, err := apiresource.ParseQuantity(text)
		if err != nil {
			continue
		}

		sum := s.requests[corev1.ResourceName(name)]
		sum.Add(q)
		s.requests[corev1.ResourceName(name)] = sum
	}
}
