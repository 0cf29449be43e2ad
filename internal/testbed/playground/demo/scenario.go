// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo reads and runs scenario files: the steps of a demo in a playground, faults included. An Executor carries
// out the steps.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// demos contains the scenarios of `playground --demo NAME`.
//
//go:embed demos/*.yaml
var demos embed.FS

const (
	maxSpareNodes = 10
	maxAgentNodes = 3
)

// Scenario is the content of a scenario file.
type Scenario struct {
	// Description is printed before the first step.
	Description string `json:"description"`
	// SpareNodes is the number of nodes in addition to those of the options on which only DaemonSets that tolerate any
	// taint run.
	SpareNodes int `json:"spareNodes,omitempty"`
	// AgentNodes is the number of nodes with 16 cores and 32 GiB in addition to those of the options, each with an
	// emulated host and a crane-agent. Only workloads that tolerate their taint crane.io/nodepool=agent run there.
	AgentNodes int `json:"agentNodes,omitempty"`
	// Agent contains flags of crane-agent, in the form of Craned.
	Agent map[string]string `json:"agent,omitempty"`
	// Craned contains flags of craned by name, without dashes, that override those of its Deployment, such as short
	// intervals.
	Craned map[string]string `json:"craned,omitempty"`
	// ControllerManager contains flags of kube-controller-manager, in the form of Craned.
	ControllerManager map[string]string `json:"controllerManager,omitempty"`
	// MetricRules is the configuration of the metric adapter at its first start; empty for that of config/.
	MetricRules string `json:"metricRules,omitempty"`
	// Load is an external load with a history in Prometheus; nil for none.
	Load *Load `json:"load,omitempty"`
	// Steps are sorted by At.
	Steps []Step `json:"steps"`
}

// Step is one action. Exactly one of Stop, Start, Kill, Apply, Policy, Show, Crane and Chart is set, or only Say.
type Step struct {
	// At is the time after the playground is ready.
	At metav1.Duration `json:"at"`
	// Say is printed before the action.
	Say string `json:"say,omitempty"`
	// Means is printed after the action: what its output shows.
	Means string `json:"means,omitempty"`
	// Stop stops a component until a later Start.
	Stop string `json:"stop,omitempty"`
	// Start starts a component that was stopped.
	Start string `json:"start,omitempty"`
	// Kill sends SIGKILL to a component; its supervisor restarts it.
	Kill string `json:"kill,omitempty"`
	// Apply is a manifest that is applied as the cluster's administrator.
	Apply string `json:"apply,omitempty"`
	// Show is a command line for `kubectl`, run with the playground's kubeconfig; its output is printed.
	Show []string `json:"show,omitempty"`
	// Until is a regular expression. The command of Show is repeated until its output matches; the demo fails if it does not within
	// two minutes.
	Until string `json:"until,omitempty"`
	// Policy replaces the node-load policy of craned and crane-scheduler.
	Policy string `json:"policy,omitempty"`
	// Crane is a command line for `crane`; its output is printed. The argument {scheduler} is replaced by the address
	// at which crane-scheduler explains its decisions.
	Crane []string `json:"crane,omitempty"`
	// Chart watches and draws the scenario's load and pods.
	Chart *Chart `json:"chart,omitempty"`
}

// Executor carries out the steps of a scenario.
type Executor interface {
	Stop(ctx context.Context, component string) error
	Start(ctx context.Context, component string) error
	Kill(ctx context.Context, component string) error
	Apply(ctx context.Context, manifest string) error
	// Show runs kubectl, again until its output matches a regular expression, empty for once.
	Show(ctx context.Context, args []string, until string) error
	Policy(ctx context.Context, content string) error
	Crane(ctx context.Context, args []string) error
	Chart(ctx context.Context, c Chart) error
	Say(text string)
}

// Names returns the names of the built-in demos.
func Names() []string {
	entries, err := demos.ReadDir("demos")
	if err != nil {
		return nil
	}

	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}

	return names
}

// Demo returns the built-in scenario of that name.
func Demo(name string) (*Scenario, error) {
	content, err := demos.ReadFile("demos/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("unknown demo %q; available: %s", name, strings.Join(Names(), ", "))
	}

	return Parse(content)
}

// Parse reads a scenario file strictly.
func Parse(content []byte) (*Scenario, error) {
	var s Scenario
	if err := yaml.UnmarshalStrict(content, &s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}

	if s.SpareNodes < 0 || s.SpareNodes > maxSpareNodes {
		return nil, fmt.Errorf("scenario: spareNodes: %d is not between 0 and %d", s.SpareNodes, maxSpareNodes)
	}

	if s.AgentNodes < 0 || s.AgentNodes > maxAgentNodes {
		return nil, fmt.Errorf("scenario: agentNodes: %d is not between 0 and %d", s.AgentNodes, maxAgentNodes)
	}

	if len(s.Steps) == 0 {
		return nil, errors.New("scenario: steps: at least one is required")
	}

	if s.Load != nil {
		if err := s.Load.validate(); err != nil {
			return nil, fmt.Errorf("scenario: %w", err)
		}
	}

	// Errors name the step by its index in the file.
	for i, step := range s.Steps {
		err := step.validate()
		if err == nil && step.Chart != nil && s.Load == nil {
			err = errors.New("chart: the scenario has no load")
		}

		if err != nil {
			return nil, fmt.Errorf("scenario: steps[%d]: %w", i, err)
		}
	}

	if !slices.IsSortedFunc(s.Steps, func(a, b Step) int { return int(a.At.Duration - b.At.Duration) }) {
		return nil, errors.New("scenario: steps: must be in ascending order of at")
	}

	return &s, nil
}

func (s Step) validate() error {
	actions := 0
	for _, set := range []bool{s.Stop != "", s.Start != "", s.Kill != "", s.Apply != "", len(s.Show) > 0, s.Policy != "", len(s.Crane) > 0, s.Chart != nil} {
		if set {
			actions++
		}
	}

	switch {
	case s.At.Duration < 0:
		return fmt.Errorf("at: %s is negative", s.At.Duration)
	case actions > 1:
		return errors.New("only one of stop, start, kill, apply, show, policy, crane and chart may be set")
	case actions == 0 && s.Say == "" && s.Means == "":
		return errors.New("one of say, stop, start, kill, apply, show, policy, crane and chart is required")

	case s.Until != "" && len(s.Show) == 0:
		return errors.New("until: requires show")
	case s.Until != "" && !validPattern(s.Until):
		return fmt.Errorf("until: %q is not a regular expression", s.Until)
	case s.Chart != nil:
		return s.Chart.validate()
	}

	return nil
}

func validPattern(text string) bool {
	_, err := regexp.Compile(text)
	return err == nil
}

// Play runs the scenario to its end, to the first step that fails, or until ctx ends.
func (s *Scenario) Play(ctx context.Context, clk clock.Clock, stage Executor) error {
	begin := clk.Now()
	stage.Say(strings.TrimSpace(s.Description))

	for i, step := range s.Steps {
		if err := sleepUntil(ctx, clk, begin.Add(step.At.Duration)); err != nil {
			return err
		}

		if step.Say != "" {
			stage.Say(fmt.Sprintf("[%s] %s", step.At.Duration, strings.TrimSpace(step.Say)))
		}

		if err := step.play(ctx, stage); err != nil {
			return fmt.Errorf("scenario: steps[%d]: %w", i, err)
		}

		if step.Means != "" {
			stage.Say("=> " + strings.TrimSpace(step.Means) + "\n")
		}
	}

	return nil
}

func (s Step) play(ctx context.Context, stage Executor) error {
	switch {
	case s.Stop != "":
		return stage.Stop(ctx, s.Stop)
	case s.Start != "":
		return stage.Start(ctx, s.Start)
	case s.Kill != "":
		return stage.Kill(ctx, s.Kill)
	case s.Apply != "":
		return stage.Apply(ctx, s.Apply)

	case len(s.Show) > 0:
		return stage.Show(ctx, s.Show, s.Until)
	case s.Policy != "":
		return stage.Policy(ctx, s.Policy)
	case len(s.Crane) > 0:
		return stage.Crane(ctx, s.Crane)
	case s.Chart != nil:
		return stage.Chart(ctx, *s.Chart)
	default:
		return nil
	}
}

func sleepUntil(ctx context.Context, clk clock.Clock, t time.Time) error {
	wait := t.Sub(clk.Now())
	if wait <= 0 {
		return ctx.Err()
	}

	timer := clk.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
