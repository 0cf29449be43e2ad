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
	// defaultBudget and defaultBudgetWindow are how many pods the agents of a cluster evict together: two nodes at their own limit of five a
	// minute. A rule that is wrong everywhere then takes ten pods before somebody can look, not five from each node.
	defaultBudget       = 10
	defaultBudgetWindow = time.Minute
	mostBudget          = 1000
	leastBudgetWindow   = time.Second
	mostBudgetWindow    = time.Hour

	// defaultAuditBytes is some ten thousand actions.
	defaultAuditBytes = 10 << 20
	leastAuditBytes   = 4 << 10

	// defaultRecordBytes is some hours of a node with a hundred pods.
	defaultRecordBytes = 256 << 20
	leastRecordBytes   = 1 << 20

	// lastEvents is how long the end waits for events that are not written yet.
	lastEvents = 3 * time.Second
)

// Files of the state directory: of what was changed, and of limits of memory, whose changes take longer than others may wait.
const (
	changesFile = "changes.json"
	memoryFile  = "memory.json"
	// atEnd is why changes are put back at the end.
	atEnd = "the agent has ended"
)

// actors carry plans out, each nil where its kind is not to be carried out, and tell of it.
type actors struct {
	throttler *act.Throttler
	memory    *act.MemoryThrottler
	tainter   *act.Tainter
	evictor   *act.Evictor
	teller    *tell.Teller
}

// newTeller puts together what tells of actions, with the managers that write it down.
func (p *parts) newTeller(ctx context.Context) ([]Manager, error) {
	config := tell.Config{
		Node: p.node(), Enforced: func(k tell.Kind) bool { return p.enforces(string(k)) }, Log: p.log, Clock: p.clock,
	}
	var list []Manager
	if p.AuditFile != "" {
		audit, err := tell.OpenAudit(tell.AuditConfig{Path: p.AuditFile, MaxBytes: p.AuditBytes, Clock: p.clock, Log: p.log, Beat: p.pulse.For("audit")})
		if err != nil {
			return nil, fmt.Errorf("--audit-file: %w", err)
		}
		config.Audit = audit
		list = append(list, audit)
	}
	if p.api != nil && !p.DryRun {
		events := newEvents(ctx, p)
		config.Events = events.EventRecorder
		list = append(list, events)
	}
	p.teller = tell.New(config)
	return list, nil
}

// newActors puts together what carries plans out, with the managers that do so beside the loop, in the order in which they start.
func (p *parts) newActors(files act.Files) (actors, []Manager, error) {
	a := actors{teller: p.teller}
	var list []Manager
	if p.enforces(enforceThrottle) {
		a.throttler = act.NewThrottler(p.layout, p.journal)
	}
	if p.enforces(enforceMemory) && withoutHigh(p.layout) == "" {
		journal, err := p.memoryJournal(files)
		if err != nil {
			return a, nil, err
		}
		a.memory = act.NewMemoryThrottler(act.MemoryConfig{
			Layout: p.layout, Journal: journal, Files: files, Clock: p.clock, Beat: p.pulse.For("memory"),
			Undo: func() error { return undo(journal, p.teller, atEnd) },
		})
		list = append(list, farewell{a.memory, func() { a.hear(&qos.State{}) }})
	}
	if p.enforces(enforceTaint) {
		a.tainter = act.NewTainter(act.TaintConfig{
			Name: p.node(), Nodes: p.api.CoreV1().Nodes(), Node: p.view.Node, Clock: p.clock, Log: p.log, Beat: p.pulse.For("taint"), Told: a.teller.Tainted,
		})
		list = append(list, a.tainter)
	}
	if p.enforces(enforceEvict) {
		a.evictor = act.NewEvictor(act.EvictConfig{
			Client: act.APIEvictions{Client: p.api}, Clock: p.clock, Log: p.log, Beat: p.pulse.For("evict"),
			Budget: act.NewBudget(act.BudgetConfig{
				Leases: p.api.CoordinationV1().Leases(p.Namespace), Node: p.node(), Slots: p.EvictionBudget, Window: p.BudgetWindow, Clock: p.clock,
			}),
		})
		list = append(list, farewell{a.evictor, func() { a.hear(&qos.State{}) }})
	}
	return a, list, nil
}

// memoryJournal is the journal of limits of memory, which rules and pods on elastic resources share.
func (p *parts) memoryJournal(files act.Files) (*act.Journal, error) {
	if p.memory != nil {
		return p.memory, nil
	}
	var err error
	p.memory, err = p.openJournal(memoryFile, files)
	return p.memory, err
}

// untaken are the resources that nobody takes from pods though somebody evicts them. Where nobody does, it is told what would come after
// what.
func (a *actors) untaken() map[qos.Resource]bool {
	if a.evictor == nil {
		return nil
	}
	return map[qos.Resource]bool{qos.CPU: a.throttler == nil, qos.Memory: a.memory == nil}
}

// hear takes over what became of evictions and of changes of memory since the last tick.
func (a *actors) hear(state *qos.State) {
	if a.memory != nil {
		for _, o := range a.memory.Drain() {
			if o.Err == nil {
				state.MemoryThrottled(o.Throttle)
			}
			a.teller.MemoryThrottled(o.Throttle, o.Err)
		}
	}
	if a.evictor == nil {
		return
	}
	for _, o := range a.evictor.Drain() {
		o.Record(state)
		a.teller.Evicted(o)
	}
}

// carryOut does what a plan says, of the kinds that are to be carried out. knowsRules tells that the plan follows from all rules.
func (a *actors) carryOut(plan *qos.Plan, state *qos.State, snapshot *observe.Snapshot, knowsRules bool) {
	a.teller.Plan(plan)
	// Where rules are not known yet none fires, and a taint of an agent before this one stays.
	if a.tainter != nil && knowsRules {
		a.tainter.Want(plan.Avoid.Wanted, plan.Avoid.Why)
	}
	if a.evictor != nil {
		for _, e := range plan.Evictions {
			if a.evictor.Ask(e) {
				state.Asked(e, plan.At)
			}
		}
	}
	groups := groupsOf(plan, snapshot)
	if a.memory != nil {
		for _, t := range plan.MemoryThrottles {
			if group := groups[t.ContainerID]; group != "" && a.memory.Ask(t, group) {
				state.MemoryAsked(t)
			}
		}
	}
	if a.throttler != nil {
		a.throttle(plan, state, groups)
	}
}

// groupsOf are the groups of all containers, where a plan changes any.
func groupsOf(plan *qos.Plan, snapshot *observe.Snapshot) map[string]string {
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

// throttle changes limits of containers that the last look has found.
func (a *actors) throttle(plan *qos.Plan, state *qos.State, groups map[string]string) {
	for _, t := range plan.Throttles {
		err := errors.New("its cgroup is not known")
		if group := groups[t.ContainerID]; group != "" {
			err = a.throttler.Throttle(t, group)
		}
		if err == nil {
			state.Throttled(t)
		}
		a.teller.Throttled(t, err)
	}
	for _, k := range a.throttler.Keep(state.Throttles) {
		done := tell.Action{
			Kind: tell.CPURestore, Outcome: tell.Done, Pod: k.Pod, Container: k.ContainerID,
			Why: "somebody else has changed the container's limit, or it is gone: its pod gets back what it had lost for it",
		}
		if k.Err != nil {
			done.Outcome, done.Err = tell.Failed, k.Err.Error()
		}
		a.teller.Did(done)
	}
}

// farewell is a manager after whose end it is told what came of its last actions: the loop, which does so else, has ended before it.
type farewell struct {
	Manager

	tell func()
}

// Run implements Manager.
func (f farewell) Run(ctx context.Context) error {
	err := f.Manager.Run(ctx)
	if ctx.Err() != nil {
		f.tell()
	}
	return err
}

// events write beside who tells of something, from the start of the others to their end.
type events struct {
	record.EventRecorder

	end func(ctx context.Context)
}

func newEvents(ctx context.Context, p *parts) events {
	recorder, end := tell.NewRecorder(context.WithoutCancel(ctx), p.api, p.node())
	return events{recorder, end}
}

// Name implements Manager.
func (events) Name() string { return "events" }

// Run implements Manager.
func (e events) Run(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEvents)
	defer cancel()
	e.end(ctx)
	return nil
}
