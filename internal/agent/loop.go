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
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/recording"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/pkg/qos"
)

// loop is the manager that observes, decides and acts at each tick.
type loop struct {
	log      logr.Logger
	clock    clock.WithTicker
	interval time.Duration
	// observeStep records a heartbeat and the duration of a step.
	observeStep func(step string, since time.Time)

	view         cluster.Source
	newInventory func(*cluster.State) inventory.Pods
	limits       qos.Limits
	waterMarks   waterMarks

	observer     *observe.Observer
	latest       *observe.Latest
	signals      signals.SignalBuilder
	clusterState *cluster.State // of the current policy and pods
	policy       qos.Policy
	pods         inventory.Pods
	state        qos.State
	// reclaimable returns the node's reclaimable capacity; nil if it is not computed.
	reclaimable func() elasticrequest.ReclaimableCapacity

	executors

	// baselines stores the baselines for the next agent; may be nil.
	baselines *baselines.Store
	// recorder records snapshots; may be nil.
	recorder *recording.Recorder
	// exported reports that snapshots are exported at /metrics.
	exported bool
	avoided  bool
	// inheritedUntil is the time until which limits of the previous agent stay; zero for none. inheritedCPU and inheritedMemory are those of
	// containers that were not measured yet.
	inheritedUntil  time.Time
	inheritedCPU    []act.InheritedLimit[cgroup.Bandwidth]
	inheritedMemory []act.InheritedLimit[qos.MemoryHigh]
	problems        []string // already logged
}

// newLoop returns the loop.
func (e environment) newLoop(view cluster.Source, a executors) (*loop, error) {
	limits, err := e.limits()
	if err != nil {
		return nil, err
	}

	marks, err := e.newWaterMarks(e.log, e.clock)
	if err != nil {
		return nil, err
	}

	l := &loop{
		newInventory:   e.newInventory,
		log:            e.log,
		clock:          e.clock,
		interval:       e.Interval,
		view:           view,
		limits:         limits,
		waterMarks:     marks,
		latest:         e.latest,
		observer:       observe.New(e.hostRoot(), e.layout),
		executors:      a,
		exported:       e.serves(),
		inheritedUntil: e.restart.inheritedUntil(),
	}

	if !l.inheritedUntil.IsZero() && l.throttler != nil {
		l.inheritedCPU = l.throttler.InheritedLimits()
	}
	if !l.inheritedUntil.IsZero() && l.memory != nil {
		l.inheritedMemory = l.memory.InheritedLimits()
	}

	l.observer.SetKubelet(e.KubeletRoot, e.kubelet)
	// Each step is a heartbeat and a duration in the metrics.
	beat := e.heartbeats.Register(l.Name())
	l.observeStep = func(step string, since time.Time) {
		beat(step)
		e.heartbeats.ObserveStep(l.Name(), step, e.clock.Since(since))
	}

	return l, nil
}

// Name implements Manager.
func (*loop) Name() string { return "qos" }

// Run observes, decides and executes the enforced actions until ctx ends.
func (l *loop) Run(ctx context.Context) error {
	defer l.observer.Close()

	ticker := l.clock.NewTicker(l.interval)
	defer ticker.Stop()

	for {
		l.tick(l.clock.Now())
		select {
		case <-ctx.Done():
			l.saveBaselines(true)
			return nil
		case <-ticker.C():
		}
	}
}

// journals are the journals of host changes; one is nil if nothing of its kind is changed.
type journals struct{ changes, memory *act.Journal }

// openJournals opens the journals that this agent needs and those that a previous one left, and undoes the changes of the latter that this
// one does not take over.
func (e environment) openJournals(files act.FileWriter, reporter *report.Reporter) (j journals, err error) {
	if e.needsJournal() {
		if j.changes, err = e.openJournal(changesFile, files, reporter); err != nil {
			return j, err
		}
	}

	if e.throttlesMemory() || e.limitsElasticPods() || e.leftJournal(memoryFile) {
		j.memory, err = e.openJournal(memoryFile, files, reporter)
	}

	return j, err
}

// openJournal opens a journal of host changes and undoes the changes of a previous agent.
func (e environment) openJournal(name string, files act.FileWriter, reporter *report.Reporter) (*act.Journal, error) {
	if err := os.MkdirAll(e.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}

	journal, err := act.OpenJournal(filepath.Join(e.StateDir, name), e.layout, files)
	if journal == nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}

	journal.Stopped = e.stopped
	if err != nil {
		e.log.Error(err, "undoing the changes of a previous agent")
	}

	undo := journal.UndoAll
	if e.restart != nil && e.restart.inherited {
		undo = func() error { return journal.UndoUnless(e.ownsUnit) }
	}
	if err := undoJournal(journal, undo, reporter, "left by a previous agent"); err != nil {
		e.log.Error(err, "undoing all changes; will retry at the end")
	}

	return journal, nil
}

// undoJournal undoes changes in a journal and reports them.
func undoJournal(journal *act.Journal, undo func() error, reporter *report.Reporter, why string) error {
	before := journal.Entries()
	err := undo()
	reporter.ReportUndo(slices.DeleteFunc(before, func(e act.Entry) bool {
		_, remains := journal.Entry(e.Key)
		return remains
	}), why)

	return err
}

// refreshPolicy updates policy and pods after a change of the cluster's state.
func (l *loop) refreshPolicy() {
	l.policy.WaterMarks = l.waterMarks.file.Content()
	current := l.view.State()
	if current == l.clusterState {
		return
	}

	// Without a tainter the plan's own decision counts, as if it were executed.
	if l.clusterState == nil || l.tainter != nil {
		l.avoided = act.IsTainted(current.Node)
	}

	l.clusterState = current
	marks := l.policy.WaterMarks
	var problems []string
	l.policy, problems = nodePolicy(current, l.limits)
	l.policy.WaterMarks = marks
	l.policy.Unthrottled = l.unthrottled()
	l.pods = l.newInventory(current)
	l.observer.SetRunQueueSampling(signals.RunQueueSampling(l.policy.Rules))
	l.observer.SetDiskIOInterval(signals.TransferInterval(l.policy.Rules, l.exported))

	for _, p := range problems {
		if !slices.Contains(l.problems, p) {
			l.log.Info("a part of the rules cannot be used", "problem", p)
		}
	}

	l.problems = problems
}

// tick observes, decides and acts once.
func (l *loop) tick(now time.Time) qos.Plan {
	l.refreshPolicy()
	l.drainResults(&l.state)
	l.undoInherited(now)
	snapshot := l.observer.Collect(now)
	l.latest.Publish(snapshot)
	l.inheritLimits(snapshot)

	if l.recorder != nil {
		l.recorder.Record(snapshot, l.clusterState)
	}

	l.observeStep("look", now)
	collected := l.clock.Now()

	if l.reclaimable != nil {
		l.pods.SetReclaimable(l.reclaimable())
	}

	plan := qos.Decide(&l.policy, l.signals.Build(snapshot, l.pods, l.avoided), &l.state)
	l.observeStep("decide", collected)
	decided := l.clock.Now()
	l.execute(&plan, &l.state, snapshot, rulesComplete(l.clusterState))
	l.observeStep("act", decided)
	l.saveBaselines(false)

	if l.tainter == nil {
		l.avoided = plan.Avoid.Desired // As if the plan were executed.
	}

	return plan
}
