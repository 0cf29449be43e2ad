// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/record"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/observe"
	tell "crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/qos"
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
	reporter  *tell.Reporter
}

// newReporter creates the reporter and returns the managers that write its reports.
func (p *parts) newReporter(ctx context.Context) ([]Manager, error) {
	config := tell.Config{
		Node: p.nodeName(), Enforced: func(k tell.Kind) bool { return p.enforces(string(k)) }, Log: p.log, Clock: p.clock,
	}
	var list []Manager
	if p.AuditFile != "" {
		audit, err := tell.OpenAudit(tell.AuditConfig{Path: p.AuditFile, MaxBytes: p.AuditBytes, Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("audit")})
		if err != nil {
			return nil, fmt.Errorf("--audit-file: %w", err)
		}
		config.Audit = audit
		list = append(list, audit)
	}
	if p.api != nil && !p.DryRun {
		events := newEventManager(ctx, p)
		config.Events = events.EventRecorder
		list = append(list, events)
	}
	p.reporter = tell.New(config)
	return list, nil
}

// newExecutors returns the executors and the managers that act beside the loop, in start order.
func (p *parts) newExecutors(files act.FileWriter) (executors, []Manager, error) {
	a := executors{reporter: p.reporter}
	var list []Manager
	if p.enforces(enforceThrottle) {
		a.throttler = act.NewThrottler(p.layout, p.journal)
	}
	if p.enforces(enforceMemory) && memoryHighMissing(p.layout) == "" {
		journal, err := p.memoryJournal(files)
		if err != nil {
			return a, nil, err
		}
		a.memory = act.NewMemoryThrottler(act.MemoryThrottlerConfig{
			Layout: p.layout, Journal: journal, Files: files, Clock: p.clock, Beat: p.heartbeats.Register("memory"),
			Undo: func() error { return undoJournal(journal, p.reporter, reasonAgentEnded) },
		})
		list = append(list, drainOnStop{a.memory, func() { a.drainResults(&qos.State{}) }})
	}
	if p.enforces(enforceTaint) {
		a.tainter = act.NewTainter(act.TainterConfig{
			Name: p.nodeName(), Nodes: p.api.CoreV1().Nodes(), Node: p.view.Node, Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("taint"), Report: a.reporter.ReportTaint,
		})
		list = append(list, a.tainter)
	}
	if p.enforces(enforceEvict) {
		a.evictor = act.NewEvictor(act.EvictorConfig{
			Client: act.APIEvictionClient{Client: p.api}, Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("evict"),
			Budget: act.NewBudget(act.BudgetConfig{
				Leases: p.api.CoordinationV1().Leases(p.Namespace), Node: p.nodeName(), Slots: p.EvictionBudget, Window: p.BudgetWindow, Clock: p.clock,
			}),
		})
		list = append(list, drainOnStop{a.evictor, func() { a.drainResults(&qos.State{}) }})
	}
	return a, list, nil
}

// memoryJournal returns the journal of memory limits, which rules and elastic pods share.
func (p *parts) memoryJournal(files act.FileWriter) (*act.Journal, error) {
	if p.memory != nil {
		return p.memory, nil
	}
	var err error
	p.memory, err = p.openJournal(memoryFile, files)
	return p.memory, err
}

// unthrottled lists resources that trigger evictions but are never throttled. Without enforced evictions it is empty, so that the reported
// plan shows the full order of actions.
func (a *executors) unthrottled() map[qos.Resource]bool {
	if a.evictor == nil {
		return nil
	}
	return map[qos.Resource]bool{qos.CPU: a.throttler == nil, qos.Memory: a.memory == nil}
}

// drainResults records and reports the outcomes of evictions and memory throttles since the last tick.
func (a *executors) drainResults(state *qos.State) {
	if a.memory != nil {
		for _, o := range a.memory.Drain() {
			if o.Err == nil {
				state.RecordMemoryThrottle(o.Throttle)
			}
			a.reporter.ReportMemoryThrottle(o.Throttle, o.Err)
		}
	}
	if a.evictor == nil {
		return
	}
	for _, o := range a.evictor.Drain() {
		o.Record(state)
		a.reporter.ReportEviction(o)
	}
}

// execute executes the enforced actions of a plan. knowsRules reports that the plan is based on all rules.
func (a *executors) execute(plan *qos.Plan, state *qos.State, snapshot *observe.Snapshot, knowsRules bool) {
	a.reporter.ReportPlan(plan)
	// Before all rules are known the taint of the previous agent stays.
	if a.tainter != nil && knowsRules {
		a.tainter.SetDesired(plan.Avoid.Desired, plan.Avoid.Reason)
	}
	if a.evictor != nil {
		for _, e := range plan.Evictions {
			if a.evictor.Enqueue(e) {
				state.BeginEviction(e, plan.At)
			}
		}
	}
	groups := containerGroups(plan, snapshot)
	if a.memory != nil {
		for _, t := range plan.MemoryThrottles {
			if group := groups[t.ContainerID]; group != "" && a.memory.Enqueue(t, group) {
				state.BeginMemoryThrottle(t)
			}
		}
	}
	if a.throttler != nil {
		a.executeThrottles(plan, state, groups)
	}
}

// containerGroups returns the cgroups of all containers by ID; nil if the plan changes none.
func containerGroups(plan *qos.Plan, snapshot *observe.Snapshot) map[string]string {
	if len(plan.Throttles)+len(plan.MemoryThrottles) == 0 {
		return nil
	}
	groups := map[string]string{}
	for i := range snapshot.Pods {
		for _, c := range snapshot.Pods[i].Containers {
			groups[c.ID] = c.Path
		}
	}
	return groups
}

// executeThrottles changes the CPU limits of containers in the last snapshot.
func (a *executors) executeThrottles(plan *qos.Plan, state *qos.State, groups map[string]string) {
	for _, t := range plan.Throttles {
		err := errors.New("its cgroup is unknown")
		if group := groups[t.ContainerID]; group != "" {
			err = a.throttler.Throttle(t, group)
		}
		if err == nil {
			state.RecordThrottle(t)
		}
		a.reporter.ReportThrottle(t, err)
	}
	for _, k := range a.throttler.RestoreUntracked(state.IsThrottled) {
		done := tell.Action{
			Kind: tell.CPURestore, Outcome: tell.Done, Pod: k.Pod, Container: k.ContainerID,
			Reason: "another process changed the container's limit, or it is gone: the limits of its pod are restored",
		}
		if k.Err != nil {
			done.Outcome, done.Error = tell.Failed, k.Err.Error()
		}
		a.reporter.ReportAction(done)
	}
}

// drainOnStop collects outstanding results after its manager stops, because the loop has already ended.
type drainOnStop struct {
	Manager

	drain func()
}

func (f drainOnStop) Run(ctx context.Context) error {
	err := f.Manager.Run(ctx)
	if ctx.Err() != nil {
		f.drain()
	}
	return err
}

// eventManager writes events until all other managers have ended.
type eventManager struct {
	record.EventRecorder

	flush func(ctx context.Context)
}

func newEventManager(ctx context.Context, p *parts) eventManager {
	recorder, end := tell.NewRecorder(context.WithoutCancel(ctx), p.api, p.nodeName())
	return eventManager{recorder, end}
}

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
