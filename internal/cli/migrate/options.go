// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"slices"
)

// Options are the choices of a user. They are recorded at the start and hold until the end.
type Options struct {
	// ImageRegistry and ImageTag name the images of Crane in the built-in manifests.
	ImageRegistry string `json:"imageRegistry,omitempty"`
	ImageTag      string `json:"imageTag,omitempty"`
	// EVPA is off or act: what becomes of EffectiveVerticalPodAutoscalers that Crane would act on.
	EVPA string `json:"evpa,omitempty"`
	// ExternalMetrics is keep or take, where another adapter serves external metrics.
	ExternalMetrics string `json:"externalMetrics,omitempty"`
	// Manifests reports whether the manifests are those of a file.
	Manifests bool `json:"manifests,omitempty"`
}

// The values of choices.
const (
	EVPAOff  = "off"
	EVPAAct  = "act"
	KeepAPI  = "keep"
	TakeAPI  = "take"
	imageTag = "latest"
)

// Validate reports unknown values.
func (o Options) Validate() error {
	var errs []error
	if !slices.Contains([]string{"", EVPAOff, EVPAAct}, o.EVPA) {
		errs = append(errs, fmt.Errorf("--evpa %q: want off or act", o.EVPA))
	}
	if !slices.Contains([]string{"", KeepAPI, TakeAPI}, o.ExternalMetrics) {
		errs = append(errs, fmt.Errorf("--external-metrics %q: want keep or take", o.ExternalMetrics))
	}
	return errors.Join(errs...)
}

// undecided returns the findings that need a decision which the options do not have.
func undecided(all []Finding, o Options) error {
	var errs []error
	for _, f := range all {
		switch {
		case f.Severity != SeverityDecision:
		case f.Reason == "EVPAActs" && o.EVPA != "":
		case f.Reason == "ForeignExternalMetrics" && o.ExternalMetrics != "":
		default:
			errs = append(errs, fmt.Errorf("%s: %s", f.Reason, f.Message))
		}
	}
	return errors.Join(errs...)
}
