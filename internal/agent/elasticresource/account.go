// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// account is the annotation: what is offered and each term of it, in quantities of Kubernetes.
type account struct {
	// At is when it was written. One that is older than half an hour is of an agent that is no more.
	At time.Time `json:"at"`
	// Ended tells that the agent has ended in order and offers nothing but what pods hold.
	Ended  bool          `json:"ended,omitempty"`
	CPU    *resourceText `json:"cpu,omitempty"`
	Memory *resourceText `json:"memory,omitempty"`
}

type resourceText struct {
	// Advertised is what the node shows; Was what it showed before the agent ended.
	Advertised string `json:"advertised"`
	Was        string `json:"was,omitempty"`
	Phase      string `json:"phase"`
	// Offer = Allocatable - Reserve - Need - Margin; Need is the larger of Forecast and Use, as From says.
	Offer       string `json:"offer,omitempty"`
	Allocatable string `json:"allocatable,omitempty"`
	Reserve     string `json:"reserve,omitempty"`
	Need        string `json:"need,omitempty"`
	From        string `json:"from,omitempty"`
	Forecast    string `json:"forecast,omitempty"`
	Use         string `json:"use,omitempty"`
	Margin      string `json:"margin,omitempty"`
	// Stable is the least offer since StableSince: more is not given out.
	Stable      string     `json:"stable,omitempty"`
	StableSince *time.Time `json:"stableSince,omitempty"`
	// Allocated is what pods hold, Deficit by how much that is more than the offer.
	Allocated string `json:"allocated"`
	Deficit   string `json:"deficit,omitempty"`
	// Problem says what is not known.
	Problem string `json:"problem,omitempty"`
}

// text is the account of a result. wanted tells that a forecast counts.
func text[T model.Amount](r *model.Result[T], forecast bool) *resourceText {
	out := &resourceText{Advertised: quantity(r.Advertise), Phase: string(r.Phase), Allocated: quantity(r.Allocated), Problem: r.Problem}
	if r.Allocatable > 0 {
		out.Allocatable, out.Reserve = quantity(r.Allocatable), quantity(r.Reserve)
	}
	if r.From != model.FromNothing {
		out.Need, out.From, out.Margin, out.Use = quantity(r.Need), string(r.From), quantity(r.Margin), quantity(r.Use)
		if forecast {
			out.Forecast = quantity(r.Forecast)
		}
		if r.Allocatable > 0 {
			out.Offer = quantity(r.Offer)
		}
	}
	if !r.Since.IsZero() {
		since := r.Since.UTC()
		out.Stable, out.StableSince = quantity(r.Stable), &since
	}
	if r.Deficit > 0 {
		out.Deficit = quantity(r.Deficit)
	}
	return out
}

// quantity writes an amount as Kubernetes does: cores, or bytes.
func quantity[T model.Amount](v T) string {
	switch v := any(v).(type) {
	case series.MilliCPU:
		return resource.NewMilliQuantity(int64(v), resource.DecimalSI).String()
	case series.Bytes:
		return resource.NewQuantity(int64(v), resource.BinarySI).String()
	}
	return ""
}

// parseAccount reads an annotation; nil where there is none that can be read.
func parseAccount(annotation string) *account {
	var a account
	if annotation == "" || json.Unmarshal([]byte(annotation), &a) != nil {
		return nil
	}
	return &a
}

// was is what a resource showed before the agent ended; 0 where that is not said.
func (r *resourceText) was() resource.Quantity {
	if r == nil {
		return resource.Quantity{}
	}
	q, err := resource.ParseQuantity(r.Was)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

func (a *account) encode() (string, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("annotation: %w", err)
	}
	return string(raw), nil
}
