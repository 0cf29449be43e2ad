// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo reads and plays scenario files: what happens in a playground, in what order, faults included. It
// knows the steps and the clock; what a step does to the system is its Stage's.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"
)

// demos are the scenarios that `playground --demo NAME` knows.
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
	// SpareNodes is how many nodes the playground has beside those of its options: nothing but DaemonSets that tolerate any
	// taint runs there, and never has.
	SpareNodes int `json:"spareNodes,omitempty"`
	// AgentNodes is how many nodes of 16 cores and 32 GiB there are beside those of the options, each with a host below it on which
	// a crane-agent runs. Their label and taint crane.io/nodepool=agent keep workloads away that do not ask for them.
	AgentNodes int `json:"agentNodes,omitempty"`
	// Agent holds flags of crane-agent, as Craned those of craned.
	Agent map[string]string `json:"agent,omitempty"`
	// Craned holds flags of craned, by their names without dashes, that the demo needs beside those of its Deployment: short
	// times, mostly.
	Craned map[string]string `json:"craned,omitempty"`
	// ControllerManager holds flags of kube-controller-manager, likewise.
	ControllerManager map[string]string `json:"controllerManager,omitempty"`
	// MetricRules is the configuration that the metric adapter has at its first start in place of the one in config/.
	MetricRules string `json:"metricRules,omitempty"`
	// Load is a load from outside that Prometheus knows the past of; nil for none.
	Load *Load `json:"load,omitempty"`
	// Steps in the order of their times.
	Steps []Step `json:"steps"`
}

// Step is one thing that happens. Exactly one of Stop, Start, Kill, Apply, Policy, Show, Crane and Chart is set, or Say alone.
type Step struct {
	// At is the time after the playground is ready.
	At metav1.Duration `json:"at"`
	// Say is printed when the step comes.
	Say string `json:"say,omitempty"`
	// Stop ends a component until a later Start.
	Stop string `json:"stop,omitempty"`
	// Start starts a component that was stopped.
	Start string `json:"start,omitempty"`
	// Kill ends a component with SIGKILL; its supervisor restarts it.
	Kill string `json:"kill,omitempty"`
	// Apply is a manifest that is applied as the cluster's administrator.
	Apply string `json:"apply,omitempty"`
	// Show is a command line for `kubectl`, run with the playground's kubeconfig; its output is printed.
	Show []string `json:"show,omitempty"`
	// Policy replaces the node-load policy that craned and crane-scheduler follow.
	Policy string `json:"policy,omitempty"`
	// Crane is a command line for `crane`; its output is printed. An argument {scheduler} is replaced by the address at
	// which crane-scheduler explains itself.
	Crane []string `json:"crane,omitempty"`
	// Chart watches the scenario's load and the pods that carry it, and draws both.
	Chart *Chart `json:"chart,omitempty"`
}

// Stage is the system that a scenario is played on.
type Stage interface {
	Stop(ctx context.Context, component string) error
	Start(ctx context.Context, component string) error
	Kill(ctx context.Context, component string) error
	Apply(ctx context.Context, manifest string) error
	Show(ctx context.Context, args []string) error
	Policy(ctx context.Context, content string) error
	Crane(ctx context.Context, args []string) error
	Chart(ctx context.Context, c Chart) error
	Say(text string)
}

// Names lists the demos that are built in.
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
		return nil, fmt.Errorf("no demo %q; there are: %s", name, strings.Join(Names(), ", "))
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
	for i, step := range s.Steps {
		err := step.validate()
		if err == nil && step.Chart != nil && s.Load == nil {
			err = errors.New("chart: there is no load to watch")
		}
		if err != nil {
			return nil, fmt.Errorf("scenario: steps[%d]: %w", i, err)
		}
	}
	if !slices.IsSortedFunc(s.Steps, func(a, b Step) int { return int(a.At.Duration - b.At.Duration) }) {
		return nil, errors.New("scenario: steps: must be in the order of their times")
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
		return fmt.Errorf("at: %s lies before the start", s.At.Duration)
	case actions > 1:
		return errors.New("only one of stop, start, kill, apply, show, policy, crane and chart may be set")
	case actions == 0 && s.Say == "":
		return errors.New("one of say, stop, start, kill, apply, show, policy, crane and chart is required")
	case s.Chart != nil:
		return s.Chart.validate()
	}
	return nil
}

// Play plays the scenario to its end, to the first step that fails, or until ctx ends.
func (s *Scenario) Play(ctx context.Context, clk clock.Clock, stage Stage) error {
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
	}
	return nil
}

func (s Step) play(ctx context.Context, stage Stage) error {
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
		return stage.Show(ctx, s.Show)
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
