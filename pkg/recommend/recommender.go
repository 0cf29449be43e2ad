// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Recommender computes one type of Recommendation. A program that builds craned registers its own beside the built-in ones
// (package cmd/craned/command).
type Recommender struct {
	// Name is the type of the Recommendations, and the name of the recommender in rules and in the configuration file.
	Name string
	// Supports reports whether targets of a kind can be evaluated. If it is nil, all kinds that run pods are.
	Supports func(apiVersion, kind string) bool
	// Configure returns an evaluation with the settings of the configuration file, overridden by those of a rule. An unknown
	// key or an invalid value is an error that names the key.
	Configure func(settings map[string]string) (Evaluation, error)
}

// Evaluation is a Recommender with the settings of one rule. It has no I/O and no clock: the same Observation gives the same
// Recommendation.
type Evaluation interface {
	// Prepare returns the data that Recommend needs. It is called once for all targets of a rule.
	Prepare() Needs
	// Recommend decides about one target. An error concerns this target alone, whose last Recommendation is kept.
	Recommend(observation Observation) (Recommendation, error)
}

// Needs is the data that an Evaluation needs beside the target itself.
type Needs struct {
	// Usage is the length of the history of usage; 0 for none.
	Usage time.Duration
	// Totals adds the sum over the pods of the target to the Observation. It needs Usage.
	Totals bool
}

// Observation is everything known of one target.
type Observation struct {
	// Now is the end of the history: the start of the current minute, whose samples are not complete.
	Now    time.Time
	Target Target
	// CPU and Memory are the usage of all pods of the target, in cores and bytes; empty without Needs.Totals or if none was
	// measured.
	CPU, Memory series.Series
	// MaxCPU and MaxMemory are what the largest node has for pods; 0 if unknown.
	MaxCPU    units.MilliCPU
	MaxMemory units.Bytes
}

// Target is the object that a Recommendation is about.
type Target struct {
	APIVersion, Kind, Namespace, Name string
	Labels                            map[string]string
	// Replicas is the wanted number of pods.
	Replicas int32
	// Containers are those of the pod template, init containers included.
	Containers []Container
}

// Container is a container of a target.
type Container struct {
	Name string
	// Init is set if the container runs to completion before the others start.
	Init bool
	// Sidecar is set if the container is among initContainers and runs beside the others.
	Sidecar bool
	// Current are the requests and limits of the template.
	Current rightsize.Resources
	// Usage is the usage by day over all pods; nil without Needs.Usage or if none was measured.
	Usage *rightsize.Profile
}

// Recommendation is the decision about one target.
type Recommendation struct {
	Plan
	// Current and Recommended are the same part of the target's manifest before and after. They are encoded as JSON into
	// status.currentInfo and status.recommendedInfo, a merge patch; nil if the plan names only an action.
	Current, Recommended any
	// Value is encoded as YAML into status.recommendedValue; nil for none.
	Value any
}

var namePattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// Validate returns an error if the recommender cannot be registered.
func (r Recommender) Validate() error {
	if !namePattern.MatchString(r.Name) {
		return fmt.Errorf("recommender %q: the name must be a CamelCase word of at most 63 letters and digits", r.Name)
	}

	if r.Configure == nil {
		return fmt.Errorf("recommender %s: Configure is missing", r.Name)
	}

	return nil
}

// Validate returns an error if the state or the action of a plan is unknown, or if a plan without a proposal has one.
func (r Recommendation) Validate() error {
	switch r.State {
	case Ready:
	case Learning, NoData, Refused, Clear:
		if r.Action != "" || r.Recommended != nil || r.Value != nil {
			return fmt.Errorf("a plan in state %s has a proposal", r.State)
		}

		return nil

	default:
		return fmt.Errorf("unknown state %q", r.State)
	}

	switch r.Action {
	case NoAction, Patch, Create, Delete:
	default:
		return fmt.Errorf("unknown action %q", r.Action)
	}

	if (r.Current == nil) != (r.Recommended == nil) {
		return errors.New("only one of Current and Recommended is set")
	}

	return nil
}
