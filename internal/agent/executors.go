// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const (
	// defaultBudget and defaultBudgetWindow bound the evictions of all agents of a cluster to twice a node's own limit of five a minute. A
	// rule that is wrong on every node then evicts ten pods a minute and not five per node.
	defaultBudget       = 10
	defaultBudgetWindow = time.Minute
	maxBudget           = 1000
	minBudgetWindow     = time.Second
	maxBudgetWindow     = time.Hour

	// defaultAuditBytes holds about ten thousand actions.
	defaultAuditBytes = 10 << 20
	minAuditBytes     = 4 << 10

	// defaultRecordBytes holds some hours of a node with a hundred pods.
	defaultRecordBytes = 256 << 20
	minRecordBytes     = 1 << 20

	// eventFlushTimeout bounds the wait for unwritten events at the end.
	eventFlushTimeout = 3 * time.Second
)

// Files in the state directory: the journal of changes, and the journal of memory limits, whose changes take longer.
const (
	changesFile = "changes.json"
	memoryFile  = "memory.json"
	// reasonAgentEnded is the reason for undoing changes at the end.
	reasonAgentEnded = "the agent has ended"
)

// executors execute and report plans; those of kinds that are not enforced are nil.
type executors struct {
	throttler *act.Throttler
	memory    *act.MemoryThrottler
	tainter   *act.Tainter
	evictor   *act.Evictor
	reporter  *report.Reporter
}

// newReporter returns the reporter and the managers that write its reports.
func (e environment) newReporter(ctx context.Context, api *clients) (*report.Reporter, []Manager, error) {
	config := report.Config{
		Node:     e.Cluster.nodeName(),
		Enforced: func(k report.Kind) bool { return e.enforces(string(k)) },
		Log:      e.log,
		Clock:    e.clock,
	}

	var list []Manager
	if e.AuditFile != "" {
		audit, err := report.OpenAudit(report.AuditConfig{
			Path:     e.AuditFile,
			MaxBytes: e.AuditBytes,
			Clock:    e.clock,
			Log:      e.log,
			Beat:     e.heartbeats.Register("audit"),
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--audit-file: %w", err)
		}

		config.Audit = audit
		list = append(list, audit)
	}

	if api != nil && !e.DryRun {
		recorder, flush := report.NewRecorder(context.WithoutCancel(ctx), api, e.Cluster.nodeName())
		config.Events = recorder
		list = append(list, eventManager{flush})
	}

	return report.New(config), list, nil
}

// newExecutors returns the executors and the managers that act beside the loop, in start order.
func (e environment) newExecutors(access clusterAccess, j journals, files act.FileWriter, reporter *report.Reporter) (executors, []Manager) {
	a := executors{reporter: reporter}
	var list []Manager

	if e.enforces(enforceThrottle) {
		a.throttler = act.NewThrottler(e.layout, j.changes)
	}

	if e.throttlesMemory() {
		a.memory = act.NewMemoryThrottler(act.MemoryThrottlerConfig{
			Layout:  e.layout,
			Journal: j.memory,
			Files:   files,
			Clock:   e.clock,
			Beat:    e.heartbeats.Register("memory"),
			Undo: func() error {
				if e.restart.kept() {
					return nil
				}

				return undoJournal(j.memory, j.memory.UndoAll, reporter, reasonAgentEnded)
			},
		})

		list = append(list, drainOnStop{a.memory, func() { a.drainResults(&qos.State{}) }})
	}

	// A taint that the previous agent left is removed even if this one sets none.
	if enforced := e.enforces(enforceTaint); enforced || e.restart.leftTaint() && access.api != nil {
		tainter := act.NewTainter(act.TainterConfig{
			Name:   e.Cluster.nodeName(),
			Nodes:  access.api.CoreV1().Nodes(),
			Node:   access.view.Node,
			Clock:  e.clock,
			Log:    e.log,
			Beat:   e.heartbeats.Register("taint"),
			Report: reporter.ReportTaint,
			Keep:   e.restart.kept,
		})

		list = append(list, tainter)
		if enforced {
			a.tainter = tainter
		} else {
			tainter.SetDesired(false, "the agent does not set the taint (--enforce)")
		}
	}

	if e.enforces(enforceEvict) {
		a.evictor = act.NewEvictor(act.EvictorConfig{
			Client:  act.APIEvictionClient{Client: access.api},
			Blocked: replicaGuard{access.view, access.api.Interface, e.Eviction.policyFor}.blockReason,
			Clock:   e.clock,
			Log:     e.log,
			Beat:    e.heartbeats.Register("evict"),
			Budget: act.NewBudget(act.BudgetConfig{
				Leases: access.api.CoordinationV1().Leases(e.Cluster.Namespace),
				Node:   e.Cluster.nodeName(),
				Slots:  e.EvictionBudget,
				Window: e.BudgetWindow,
				Clock:  e.clock,
			}),
		})

		list = append(list, drainOnStop{a.evictor, func() { a.drainResults(&qos.State{}) }})
	}

	return a, list
}

// throttlesMemory reports whether rules change memory limits.
func (e environment) throttlesMemory() bool {
	return e.enforces(enforceMemory) && memoryHighMissing(e.layout) == ""
}

// unthrottled lists resources that trigger evictions but are never throttled. Without enforced evictions it is empty, so that the reported
// plan shows the full order of actions.
func (e *executors) unthrottled() map[units.Resource]bool {
	if e.evictor == nil {
		return nil
	}

	return map[units.Resource]bool{units.CPU: e.throttler == nil, units.Memory: e.memory == nil}
}

// drainResults records and reports the outcomes of evictions and memory throttles since the last tick.
func (e *executors) drainResults(state *qos.State) {
	if e.memory != nil {
		for _, o := range e.memory.Drain() {
			if o.Err == nil {
				state.RecordMemoryThrottle(o.Throttle)
			}
			e.reporter.ReportMemoryThrottle(o.Throttle, o.Err)
		}
	}

	if e.evictor == nil {
		return
	}

	for _, o := range e.evictor.Drain() {
		o.Record(state)
		e.reporter.ReportEviction(o)
	}
}

// execute executes the enforced actions of a plan. knowsRules reports that the plan is based on all rules.
func (e *executors) execute(plan *qos.Plan, state *qos.State, snapshot *observe.Snapshot, knowsRules bool) {
	e.reporter.ReportPlan(plan)
	// Before all rules are known the taint of the previous agent stays.
	if e.tainter != nil && knowsRules {
		e.tainter.SetDesired(plan.Avoid.Desired, plan.Avoid.Reason)
	}

	if e.evictor != nil {
		for _, eviction := range plan.Evictions {
			if e.evictor.Enqueue(eviction) {
				state.BeginEviction(eviction, plan.At)
			}
		}
	}

	var groups map[string]string
	if len(plan.Throttles)+len(plan.MemoryThrottles) > 0 {
		groups = snapshot.ContainerGroups()
	}

	if e.memory != nil {
		for _, t := range plan.MemoryThrottles {
			if group := groups[t.ContainerID]; group != "" && e.memory.Enqueue(t, group) {
				state.BeginMemoryThrottle(t)
			}
		}
	}

	if e.throttler != nil {
		e.executeThrottles(plan, state, groups)
	}
}

// executeThrottles changes the CPU limits of containers in the last snapshot.
func (e *executors) executeThrottles(plan *qos.Plan, state *qos.State, groups map[string]string) {
	for _, t := range plan.Throttles {
		err := errors.New("its cgroup is unknown")
		if group := groups[t.ContainerID]; group != "" {
			// A container that ended since the measurement has nothing left to change or to report.
			if e.throttler.IsGone(group) {
				continue
			}

			err = e.throttler.Throttle(t, group)
		}
		if err == nil {
			state.RecordThrottle(t)
		}

		e.reporter.ReportThrottle(t, err)
	}

	// A container that ended or was changed by others leaves its pod's weight lowered.
	for _, result := range e.throttler.RestoreUntracked(state.IsThrottled) {
		done := report.Action{
			Kind:      report.CPURestore,
			Outcome:   report.Done,
			Pod:       result.Pod,
			Container: result.ContainerID,
			Reason:    "another process changed the container's limit, or it is gone: the limits of its pod are restored",
		}

		if result.Err != nil {
			done.Outcome = report.Failed
			done.Error = result.Err.Error()
		}

		e.reporter.ReportAction(done)
	}
}

// drainOnStop collects outstanding results after its manager stops, because the loop has already ended.
type drainOnStop struct {
	Manager

	drain func()
}

func (d drainOnStop) Run(ctx context.Context) error {
	err := d.Manager.Run(ctx)
	if ctx.Err() != nil {
		d.drain()
	}

	return err
}

// eventManager writes events until all other managers have ended.
type eventManager struct{ flush func(ctx context.Context) }

// Name implements Manager.
func (eventManager) Name() string { return "events" }

// Run implements Manager.
func (e eventManager) Run(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventFlushTimeout)
	defer cancel()

	e.flush(ctx)
	return nil
}
