// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/agent/sense"
	"crane.io/crane/pkg/qos"
)

// refresh is the time between two readings of the node's pods.
const refresh = 10 * time.Second

// loop looks, decides and acts at each tick.
type loop struct {
	log       logr.Logger
	observer  *observe.Observer
	eyes      sense.Sense
	policy    qos.Policy
	pods      inventory.Pods
	state     qos.State
	throttler *act.Throttler // nil where nothing is carried out

	phases  map[string]qos.Phase
	avoided bool
	refused map[string]string // the last error by container, told once
}

// runLoop looks and decides until ctx ends, and carries out what flags allow. What it changed is undone at the end, and what an agent
// before it left is at the start.
func runLoop(ctx context.Context, o *Options, clk clock.WithTicker) error {
	log := logr.FromContextOrDiscard(ctx)
	set, err := o.readRules()
	if err != nil {
		return err
	}
	layout, err := cgroup.Detect(o.root())
	if err != nil {
		return fmt.Errorf("detect cgroups: %w", err)
	}
	l := &loop{log: log, observer: observe.New(o.root(), layout), phases: map[string]qos.Phase{}, refused: map[string]string{}}
	defer l.observer.Close()
	if o.enforces(enforceThrottle) {
		if l.throttler, err = o.newThrottler(log, layout, act.KernelFiles{}); err != nil {
			return err
		}
	}
	var problems []string
	if problems, err = l.readCluster(ctx, o, set); err != nil {
		return err
	}
	for _, p := range problems {
		log.Info("Cannot use a part of the rules", "problem", p)
	}
	ticker := clk.NewTicker(o.Interval)
	defer ticker.Stop()
	read := clk.Now()
	l.tick(read)
	for {
		select {
		case <-ctx.Done():
			return l.end()
		case now := <-ticker.C():
			if now.Sub(read) >= refresh {
				read = now
				if _, err := l.readCluster(ctx, o, set); err != nil {
					log.Info("Cannot read the node's pods; those of before hold", "error", err.Error())
				}
			}
			l.tick(clk.Now())
		}
	}
}

func (o *Options) newThrottler(log logr.Logger, layout cgroup.Layout, files act.Files) (*act.Throttler, error) {
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
	t := act.NewThrottler(layout, journal)
	if n := len(journal.Entries()); n > 0 {
		log.Info("Undoes what an agent before this one changed", "units", n)
	}
	if err := journal.UndoAll(); err != nil {
		log.Info("Cannot undo all of it; it is tried again at the end", "error", err.Error())
	}
	return t, nil
}

func (l *loop) readCluster(ctx context.Context, o *Options, set ruleset.Set) (problems []string, err error) {
	c, err := o.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	if l.policy, problems, err = o.policy(set, c.labels); err != nil {
		return nil, err
	}
	l.pods = inventory.New(c.pods, set.Allowed)
	return problems, nil
}

// tick is one look and what follows.
func (l *loop) tick(now time.Time) qos.Plan {
	snapshot := l.observer.Look(now)
	plan := qos.Decide(&l.policy, l.eyes.Observe(snapshot, l.pods, l.avoided), &l.state)
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

// end puts everything back.
func (l *loop) end() error {
	if l.throttler == nil {
		return nil
	}
	if err := l.throttler.UndoAll(); err != nil {
		return fmt.Errorf("undo at the end: %w", err)
	}
	return nil
}
