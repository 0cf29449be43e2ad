// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options are the choices of a user. They are recorded at the start and hold until the end.
type Options struct {
	// ImageRegistry and ImageTag name the images of Crane in the built-in manifests. The default of the tag is the version of this program.
	ImageRegistry string `json:"imageRegistry,omitempty"`
	ImageTag      string `json:"imageTag,omitempty"`
	// EVPA is off or act: what becomes of EffectiveVerticalPodAutoscalers that Crane would act on.
	EVPA string `json:"evpa,omitempty"`
	// ExternalMetrics is keep or take, where another adapter serves external metrics.
	ExternalMetrics string `json:"externalMetrics,omitempty"`
	// Away reports whether Crane is removed and not installed. Requests is pods or template, Scheduler and MetricAdapter are keep or remove.
	Away          bool   `json:"away,omitempty"`
	Requests      string `json:"requests,omitempty"`
	Scheduler     string `json:"scheduler,omitempty"`
	MetricAdapter string `json:"metricAdapter,omitempty"`
	// Manifests reports whether the manifests are those of a file.
	Manifests bool `json:"manifests,omitempty"`
}

// The values of choices.
const (
	EVPAOff = "off"
	EVPAAct = "act"
	KeepAPI = "keep"
	TakeAPI = "take"

	RequestsPods     = "pods"
	RequestsTemplate = "template"
	Keep             = "keep"
	Remove           = "remove"
)

// Validate reports unknown values.
func (o Options) Validate() error {
	var errs []error
	for _, choice := range []struct{ flag, value, first, second string }{
		{"evpa", o.EVPA, EVPAOff, EVPAAct},
		{"external-metrics", o.ExternalMetrics, KeepAPI, TakeAPI},
		{"requests", o.Requests, RequestsPods, RequestsTemplate},
		{"scheduler", o.Scheduler, Keep, Remove},
		{"metric-adapter", o.MetricAdapter, Keep, Remove},
	} {
		if !slices.Contains([]string{"", choice.first, choice.second}, choice.value) {
			errs = append(errs, fmt.Errorf("--%s %q: want %s or %s", choice.flag, choice.value, choice.first, choice.second))
		}
	}

	return errors.Join(errs...)
}

// undecided returns the findings, with their objects, that need a decision which the options do not have.
func undecided(all []Finding, o Options) error {
	var errs []error
	for _, f := range all {
		switch {
		case f.Severity != SeverityDecision:
		case f.Reason == "EVPAActs" && o.EVPA != "":
		case f.Reason == "ForeignExternalMetrics" && o.ExternalMetrics != "":
		case o.Away && f.Reason == "RequestsOfPods" && o.Requests != "":
		case o.Away && f.Reason == "PodsOfScheduler" && o.Scheduler != "":
		case o.Away && f.Reason == "MetricsOfAdapter" && o.MetricAdapter != "":
		default:
			errs = append(errs, fmt.Errorf("%s: %s%s", f.Reason, f.Message, strings.Join(append([]string{""}, f.Objects...), "\n   - ")))
		}
	}

	return errors.Join(errs...)
}
