// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/baselines"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/recording"
	tell "crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/pkg/qos"
)

// loop is the manager that looks, decides and acts at each tick.
type loop struct {
	log      logr.Logger
	clock    clock.WithTicker
	interval time.Duration
	// done is the heartbeat, with what a step took.
	done func(step string, since time.Time)

	view   cluster.Source
	limits qos.Limits
	marks  marks

	observer *observe.Observer
	latest   *observe.Latest
	eyes     signals.Sense
	known    *cluster.State // that policy and pods are made of
	policy   qos.Policy
	pods     inventory.Pods
	state    qos.State
	// bears is what the node can bear of reclaimed capacity; nil where nobody reckons that.
	bears func() elasticrequest.Room

	actors

	// usual keeps what is usual with pods for the next agent; nil where nobody does.
	usual *baselines.Keeper
	// recorder writes down what is seen; nil where nobody wants that.
	recorder *recording.Recorder
	// shown tells that what is observed is shown at /metrics.
	shown    bool
	avoided  bool
	problems []string // told last
}

// newLoop puts the loop together.
func (p *parts) newLoop(a actors) (*loop, error) {
	limits, err := p.limits()
	if err != nil {
		return nil, err
	}
	marks, err := p.newMarks(p.log, p.clock)
	if err != nil {
		return nil, err
	}
	l := &loop{
		log: p.log, clock: p.clock, interval: p.Interval, view: p.view, limits: limits, marks: marks, latest: p.latest,
		observer: observe.New(p.root(), p.layout), actors: a, shown: p.serves(),
	}
	l.observer.KubeletAt(p.KubeletRoot)
	beat := p.pulse.For(l.Name())
	l.done = func(step string, since time.Time) {
		beat(step)
		p.pulse.Took(l.Name(), step, p.clock.Since(since))
	}
	return l, nil
}

// Name implements Manager.
func (*loop) Name() string { return "qos" }

// Run looks and decides until ctx ends, and carries out what flags allow.
func (l *loop) Run(ctx context.Context) error {
	defer l.observer.Close()
	ticker := l.clock.NewTicker(l.interval)
	defer ticker.Stop()
	for {
		l.tick(l.clock.Now())
		select {
		case <-ctx.Done():
			l.keep(true)
			return nil
		case <-ticker.C():
		}
	}
}

// openJournal opens a journal of what is changed on the host, and undoes what an agent before this one has left.
func (p *parts) openJournal(name string, files act.Files) (*act.Journal, error) {
	if err := os.MkdirAll(p.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	journal, err := act.OpenJournal(filepath.Join(p.StateDir, name), p.layout, files)
	if journal == nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	if err != nil {
		p.log.Info("Cannot undo what an agent before this one changed", "error", err.Error())
	}
	if err := undo(journal, p.teller, "an agent before this one has left it"); err != nil {
		p.log.Info("Cannot undo all of it; it is tried again at the end", "error", err.Error())
	}
	return journal, nil
}

// undo puts everything back that a journal holds, and tells of it.
func undo(journal *act.Journal, teller *tell.Teller, why string) error {
	before := journal.Entries()
	err := journal.UndoAll()
	teller.Undone(slices.DeleteFunc(before, func(e act.Entry) bool {
		_, held := journal.Entry(e.Key)
		return held
	}), why)
	return err
}

// learn takes over what has changed about rules and pods.
func (l *loop) learn() {
	l.policy.Marks = l.marks.file.Content()
	now := l.view.State()
	if now == l.known {
		return
	}
	if l.known == nil || l.tainter != nil {
		l.avoided = act.Tainted(now.Node)
	}
	l.known = now
	marks := l.policy.Marks
	var problems []string
	l.policy, problems = policyOf(now, l.limits)
	l.policy.Marks, l.policy.Untaken = marks, l.untaken()
	l.pods = podsOf(now)
	l.observer.SampleRunQueue(signals.RunQueues(l.policy.Rules))
	l.observer.SampleTransfers(signals.TransfersEvery(l.policy.Rules, l.shown))
	for _, p := range problems {
		if !slices.Contains(l.problems, p) {
			l.log.Info("Cannot use a part of the rules", "problem", p)
		}
	}
	l.problems = problems
}

// tick is one look and what follows.
func (l *loop) tick(now time.Time) qos.Plan {
	l.learn()
	l.hear(&l.state)
	snapshot := l.observer.Look(now)
	l.latest.Publish(snapshot)
	if l.recorder != nil {
		l.recorder.Look(snapshot, l.known)
	}
	l.done("look", now)
	looked := l.clock.Now()
	if l.bears != nil {
		l.pods.Bear(l.bears())
	}
	plan := qos.Decide(&l.policy, l.eyes.Observe(snapshot, l.pods, l.avoided), &l.state)
	l.done("decide", looked)
	decided := l.clock.Now()
	l.carryOut(&plan, &l.state, snapshot, complete(l.known))
	l.done("act", decided)
	l.keep(false)
	if l.tainter == nil {
		l.avoided = plan.Avoid.Wanted // As if it were done.
	}
	return plan
}
