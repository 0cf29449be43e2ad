// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
)

// fixture is a host with known pods for an agent whose loop the test calls.
type fixture struct {
	root, state string
	clock       *clocktesting.FakeClock
	files       act.FileWriter
	view        cluster.Source
}

// wiredAgent is an agent whose parts do not run.
type wiredAgent struct {
	environment
	journals

	reporter *report.Reporter
}

// agent wires an agent that enforces the given kinds and returns its loop and managers.
func (b fixture) agent(t *testing.T, enforce ...string) (*wiredAgent, *loop, []Manager) {
	t.Helper()

	o := NewOptions()
	o.StateDir = b.state
	o.HostRoot = b.root

	o.Enforce = enforce
	layout, err := cgroup.Detect(o.hostRoot())
	if err != nil {
		t.Fatal(err)
	}

	p := &wiredAgent{environment: environment{
		Options: o, log: logr.Discard(), clock: b.clock, layout: layout, heartbeats: heartbeat.New(b.clock), latest: &observe.Latest{},
	}}

	p.restart = p.readHandover()
	if p.reporter, _, err = p.newReporter(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	if p.journals, err = p.openJournals(b.files, p.reporter); err != nil {
		t.Fatal(err)
	}

	a, beside := p.newExecutors(clusterAccess{view: b.view}, p.journals, b.files, p.reporter)
	l, err := p.newLoop(b.view, a)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(l.observer.Close)
	return p, l, beside
}

// known returns a view of pods and the rules of a file for any node labels.
func known(t *testing.T, rules string, pods ...*corev1.Pod) cluster.Static {
	t.Helper()

	set, err := ruleset.Parse([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}

	return cluster.NewStatic(cluster.State{IgnoreNodeLabels: true, KnowsPods: true, Rules: set, Pods: pods})
}
