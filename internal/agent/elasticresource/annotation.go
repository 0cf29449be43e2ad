// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// nodeAnnotation is the content of the annotation: what the node advertises, with every term of the formula as a Kubernetes quantity.
type nodeAnnotation struct {
	// At is the time of the write. An annotation older than half an hour belongs to an agent that no longer runs.
	At time.Time `json:"at"`
	// Ended means that the agent stopped in order and advertises only what pods hold.
	Ended  bool                `json:"ended,omitempty"`
	CPU    *resourceAnnotation `json:"cpu,omitempty"`
	Memory *resourceAnnotation `json:"memory,omitempty"`
}

type resourceAnnotation struct {
	// Advertised is what the node shows, Previous what it showed before the agent stopped.
	Advertised string `json:"advertised"`
	Previous   string `json:"was,omitempty"`
	Phase      string `json:"phase"`
	// Offer = Allocatable - Reserve - Need - Margin. Need is the larger of Forecast and Use; From names which.
	Offer       string `json:"offer,omitempty"`
	Allocatable string `json:"allocatable,omitempty"`
	Reserve     string `json:"reserve,omitempty"`
	Need        string `json:"need,omitempty"`
	From        string `json:"from,omitempty"`
	Forecast    string `json:"forecast,omitempty"`
	Use         string `json:"use,omitempty"`
	Margin      string `json:"margin,omitempty"`
	// Stable is the smallest offer since StableSince; no more is advertised.
	Stable      string     `json:"stable,omitempty"`
	StableSince *time.Time `json:"stableSince,omitempty"`
	// Allocated is what pods hold, Deficit the part of it above the offer.
	Allocated string `json:"allocated"`
	Deficit   string `json:"deficit,omitempty"`
	// Problem lists unknown inputs.
	Problem string `json:"problem,omitempty"`
}

// describeResult returns the terms of a result.
func describeResult[T model.Amount](r *result[T]) *resourceAnnotation {
	out := &resourceAnnotation{
		Advertised: formatQuantity(r.Advertise),
		Phase:      string(r.Phase),
		Allocated:  formatQuantity(r.Allocated),
		Problem:    r.Problem,
	}

	if r.Allocatable > 0 {
		out.Allocatable = formatQuantity(r.Allocatable)
		out.Reserve = formatQuantity(r.Reserve)
	}

	// Terms that are unknown are left out, so that a reader does not take them for 0.
	if r.NeedSource != model.SourceNone {
		out.Need = formatQuantity(r.Need)
		out.From = string(r.NeedSource)

		out.Margin = formatQuantity(r.Margin)
		out.Use = formatQuantity(r.Use)
		if r.hasForecast {
			out.Forecast = formatQuantity(r.Forecast)
		}
		if r.Allocatable > 0 {
			out.Offer = formatQuantity(r.Offer)
		}
	}

	if !r.Since.IsZero() {
		since := r.Since.UTC()
		out.Stable = formatQuantity(r.Stable)
		out.StableSince = &since
	}

	if r.Deficit > 0 {
		out.Deficit = formatQuantity(r.Deficit)
	}

	return out
}

// formatQuantity formats an amount as a Kubernetes quantity in cores or bytes.
func formatQuantity[T model.Amount](v T) string {
	switch v := any(v).(type) {
	case units.MilliCPU:
		return resource.NewMilliQuantity(int64(v), resource.DecimalSI).String()
	case units.Bytes:
		return resource.NewQuantity(int64(v), resource.BinarySI).String()
	}

	return ""
}

// parseAnnotation returns nil for a missing or invalid annotation.
func parseAnnotation(annotation string) *nodeAnnotation {
	var a nodeAnnotation
	if annotation == "" || json.Unmarshal([]byte(annotation), &a) != nil {
		return nil
	}

	return &a
}

// previousQuantity returns what was advertised before the agent stopped; 0 if unknown.
func (r *resourceAnnotation) previousQuantity() resource.Quantity {
	if r == nil {
		return resource.Quantity{}
	}

	q, err := resource.ParseQuantity(r.Previous)
	if err != nil {
		return resource.Quantity{}
	}

	return q
}

func (a *nodeAnnotation) encode() (string, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encoding the annotation: %w", err)
	}

	return string(raw), nil
}

const kindNode = "Node"

// newPrediction returns the object of a node; it is deleted with the Node.
func newPrediction(namespace string, node *corev1.Node, spec predictionv1alpha1.TimeSeriesPredictionSpec) *predictionv1alpha1.TimeSeriesPrediction {
	return &predictionv1alpha1.TimeSeriesPrediction{
		TypeMeta: metav1.TypeMeta{APIVersion: predictionv1alpha1.GroupVersion.String(), Kind: "TimeSeriesPrediction"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: predictionv1alpha1.NodeResourcePrefix + node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: kindNode, Name: node.Name, UID: node.UID}},
		},
		Spec: spec,
	}
}
