// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/sense"
	"crane.io/crane/pkg/qos"
)

// loop is the manager that looks, decides and acts at each tick.
type loop struct {
	log      logr.Logger
	clock    clock.WithTicker
	interval time.Duration
	beat     func(step string)
	took     func(step string, d time.Duration)

	view   cluster.Source
	limits qos.Limits
	marks  marks

	observer  *observe.Observer
	latest    *observe.Latest
	eyes      sense.Sense
	known     *cluster.State // that policy and pods are made of
	policy    qos.Policy
	pods      inventory.Pods
	state     qos.State
	throttler *act.Throttler // nil where nothing is carried out

	phases   map[string]qos.Phase
	avoided  bool
	problems []string          // told last
	refused  map[string]string // the last error by container, told once
}

// newLoop puts the loop together.
func (p *parts) newLoop() (*loop, error) {
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
		observer: observe.New(p.root(), p.layout), phases: map[string]qos.Phase{}, refused: map[string]string{},
	}
	l.beat, l.took = p.pulse.For(l.Name()), func(step string, d time.Duration) { p.pulse.Took(l.Name(), step, d) }
	if p.enforces(enforceThrottle) {
		l.throttler = act.NewThrottler(p.layout, p.journal)
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
		l.beat("tick")
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// openJournal opens the journal of what is changed on the host, and undoes what an agent before this one has left.
func (o *Options) openJournal(log logr.Logger, layout cgroup.Layout, files act.Files) (*act.Journal, error) {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	journal, err := act.OpenJournal(filepath.Join(o.StateDir, "changes.json"), layout, files)
	if journal == nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	if err != nil {
		log.Info("Cannot undo what an agent before this one changed", "error", err.Error())
	}
	if n := len(journal.Entries()); n > 0 {
		log.Info("Undoes what an agent before this one changed", "units", n)
	}
	if err := journal.UndoAll(); err != nil {
		log.Info("Cannot undo all of it; it is tried again at the end", "error", err.Error())
	}
	return journal, nil
}

// learn takes over what has changed about rules and pods.
func (l *loop) learn() {
	l.policy.Marks = l.marks.file.Content()
	now := l.view.State()
	if now == l.known {
		return
	}
	if l.known == nil {
		l.avoided = tainted(now.Node)
	}
	l.known = now
	marks := l.policy.Marks
	var problems []string
	l.policy, problems = policyOf(now, l.limits)
	l.policy.Marks = marks
	l.pods = podsOf(now)
	l.observer.SampleRunQueue(sense.RunQueues(l.policy.Rules))
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
	snapshot := l.observer.Look(now)
	l.latest.Publish(snapshot)
	looked := l.clock.Now()
	l.took("look", looked.Sub(now))
	plan := qos.Decide(&l.policy, l.eyes.Observe(snapshot, l.pods, l.avoided), &l.state)
	l.took("decide", l.clock.Since(looked))
	l.tell(plan)
	if l.throttler == nil {
		return plan
	}
	groups := make(map[string]string, len(plan.Throttles))
	for _, t := range plan.Throttles {
		groups[t.ContainerID] = ""
	}
	for i := range snapshot.Pods {
		for _, c := range snapshot.Pods[i].Containers {
			if _, ok := groups[c.ID]; ok {
				groups[c.ID] = c.Path
			}
		}
	}
	for _, t := range plan.Throttles {
		l.throttle(t, groups[t.ContainerID])
	}
	return plan
}

func (l *loop) throttle(t qos.Throttle, group string) {
	err := errors.New("its cgroup is not known")
	if group != "" {
		err = l.throttler.Throttle(t, group)
	}
	if err != nil {
		if l.refused[t.ContainerID] != err.Error() {
			l.log.Info("Cannot change a limit", "pod", t.Pod.String(), "error", err.Error())
			l.refused[t.ContainerID] = err.Error()
		}
		return
	}
	delete(l.refused, t.ContainerID)
	l.state.Throttled(t)
	l.log.Info("Changed a limit of cpu", "pod", t.Pod.String(), "container", t.ContainerOf, "from", t.From.String(), "to", t.To.String(), "rule", t.Rule, "why", t.Why)
}

// tell logs what has changed since the last tick.
func (l *loop) tell(plan qos.Plan) {
	for _, f := range plan.Rules {
		if l.phases[f.Rule] == f.Phase {
			continue
		}
		l.phases[f.Rule] = f.Phase
		l.log.Info("Rule is "+string(f.Phase), "rule", f.Rule, "value", f.Value, "above", f.Above, "unit", f.Unit, "count", f.Count, "needed", f.Needed, "why", f.Why)
		if f.Phase != qos.Firing {
			continue
		}
		for _, e := range plan.Evictions {
			l.log.Info("Would evict a pod; this version does not", "pod", e.Pod.String(), "rule", e.Rule, "why", e.Why)
		}
		if l.throttler == nil {
			for _, t := range plan.Throttles {
				l.log.Info("Would change a limit of cpu", "pod", t.Pod.String(), "from", t.From.String(), "to", t.To.String(), "rule", t.Rule, "why", t.Why)
			}
		}
	}
	if plan.Avoid.Wanted != l.avoided {
		l.avoided = plan.Avoid.Wanted
		l.log.Info("Would change whether new pods are kept away; this version does not", "kept", plan.Avoid.Wanted, "why", plan.Avoid.Why)
	}
}
