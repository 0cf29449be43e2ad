// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/elasticrequest"
	tell "crane.io/crane/internal/agent/report"
	model "crane.io/crane/pkg/elastic"
)

const (
	annotation    = ensurancev1alpha1.AnnotationElasticResources
	reserveCPU    = ensurancev1alpha1.AnnotationReserveCPU
	reserveMemory = ensurancev1alpha1.AnnotationReserveMemory
)

// told is what was written and said last.
type told struct {
	written     time.Time
	tried       time.Time // the last write, be it that it failed
	version     string    // of the Node as it was written
	undone      time.Time // when somebody else was last seen to have written
	cpu, memory standing
	// shownCPU and shownMemory are what the annotation says.
	shownCPU, shownMemory standing
	failure               string
}

// standing is what of a result is worth a word when it changes.
type standing struct {
	problem bool
	// deficit is empty for none.
	deficit string
}

func standingOf[T model.Amount](r *model.Result[T]) standing {
	s := standing{problem: r.Problem != ""}
	if r.Deficit > 0 {
		s.deficit = quantity(r.Deficit)
	}
	return s
}

// publish writes what has changed, and the annotation also when it has become old.
func (m *Manager) publish(ctx context.Context, node *corev1.Node, r *report) {
	cpu, memory := standingOf(&r.cpu), standingOf(&r.memory)
	m.sayStanding(ensurancev1alpha1.ResourceReclaimedCPU, m.told.cpu, cpu, r.cpu.Problem)
	m.sayStanding(ensurancev1alpha1.ResourceReclaimedMemory, m.told.memory, memory, r.memory.Problem)
	m.told.cpu, m.told.memory = cpu, memory
	since := r.at.Sub(m.told.written)
	changed := (cpu != m.told.shownCPU || memory != m.told.shownMemory) && since >= apart
	c := change{}
	if r.cpu.Write {
		c.cpu = &r.cpu.Advertise
	}
	if r.memory.Write {
		c.memory = &r.memory.Advertise
	}
	if c.cpu == nil && c.memory == nil && !changed && since >= 0 && since < refresh {
		return
	}
	if !m.Enforce {
		m.would(node, r, c)
		return
	}
	m.told.tried = r.at
	if err := m.write(ctx, node, r, c, false); err != nil {
		if m.told.failure != err.Error() {
			m.told.failure = err.Error()
			m.Log.Info("Cannot write what the node offers; it is tried again", "error", err.Error())
		}
		return
	}
	m.told.written, m.told.failure, m.told.shownCPU, m.told.shownMemory = r.at, "", cpu, memory
	m.say(node, r, c, tell.Done)
}

// sayStanding logs what a resource lacks, when that begins and ends.
func (m *Manager) sayStanding(name string, before, now standing, problem string) {
	if now.problem != before.problem {
		if now.problem {
			m.Log.Info("Nothing more is offered: something is not known", "resource", name, "problem", problem)
		} else {
			m.Log.Info("All is known again of what is offered", "resource", name)
		}
	}
	if now.deficit != "" && before.deficit == "" {
		m.Log.Info("Pods hold more than the node can bear; a rule on ext_cpu_total_distribute above 100 evicts for it", "resource", name, "deficit", now.deficit)
	}
}

// would says what a dry run does not write.
func (m *Manager) would(node *corev1.Node, r *report, c change) {
	m.say(node, r, c, tell.Would)
	if c.cpu != nil {
		m.dry.cpu, m.dry.hasCPU = *c.cpu, true
	}
	if c.memory != nil {
		m.dry.memory, m.dry.hasMemory = *c.memory, true
	}
}

// say tells of what was written, or would be, in gocrane's words.
func (m *Manager) say(node *corev1.Node, r *report, c change, outcome tell.Outcome) {
	if c.cpu != nil {
		before, _ := shownCPU(node)
		if outcome == tell.Would {
			before = m.dry.cpu
		}
		a := action(ensurancev1alpha1.ResourceReclaimedCPU, before, *c.cpu, outcome)
		a.Why = fmt.Sprintf("Updating elastic resource %s-cpu with %d.", from(r.cpu.From), int64(*c.cpu)/1000)
		m.Did(a)
	}
	if c.memory != nil {
		before, _ := shownMemory(node)
		if outcome == tell.Would {
			before = m.dry.memory
		}
		a := action(ensurancev1alpha1.ResourceReclaimedMemory, before, *c.memory, outcome)
		a.Why = fmt.Sprintf("Updating elastic resource %s-memory with %d.", from(r.memory.From), int64(*c.memory))
		m.Did(a)
	}
}

func action[T model.Amount](name string, before, now T, outcome tell.Outcome) tell.Action {
	a := tell.Action{Kind: tell.NodeResource, Outcome: outcome, Container: name, From: quantity(before), To: quantity(now)}
	if outcome == tell.Done {
		a.Event = ensurancev1alpha1.ReasonUpdateNode
	}
	return a
}

// from is gocrane's word for where a need comes from.
func from(s model.Source) string {
	if s == model.FromForecast {
		return "tsp"
	}
	return "local"
}

// write patches the Node.
func (m *Manager) write(ctx context.Context, node *corev1.Node, r *report, c change, ended bool) error {
	a := account{At: r.at.UTC(), Ended: ended, CPU: text(&r.cpu, r.forecast.cpu), Memory: text(&r.memory, r.forecast.memory)}
	if ended {
		a.CPU.Was, a.Memory.Was = a.CPU.Advertised, a.Memory.Advertised
		a.CPU.Advertised, a.Memory.Advertised = quantity(*c.cpu), quantity(*c.memory)
		a.CPU.Phase, a.Memory.Phase = string(model.Withdrawn), string(model.Withdrawn)
	}
	var err error
	if c.annotation, err = a.encode(); err != nil {
		return err
	}
	raw, err := c.patch(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	now, err := m.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed++
		return fmt.Errorf("patching Node %s: %w", node.Name, err)
	}
	m.wrote++
	m.told.version = now.ResourceVersion
	return nil
}

// withdraw leaves on offer what pods hold, and takes away what none holds. Where the pods are not known nothing is changed: the time in
// the annotation tells that nobody keeps it up.
func (m *Manager) withdraw(ctx context.Context) error {
	r := m.last()
	state := m.View.State()
	if !m.Enforce || r == nil || state.Node == nil || state.Node.UID != m.node || !state.KnowsPods {
		return nil
	}
	held, last := elasticrequest.Held(state.Pods), *r
	last.at = m.Clock.Now()
	cpu, memory := held.CPU, held.Memory
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := act.Finally(ctx, m.Clock, func(ctx context.Context) error {
		return m.write(ctx, state.Node, &last, change{cpu: &cpu, memory: &memory, remove: true}, true)
	})
	if err != nil {
		return errors.Join(errors.New("what the node offers stays, with the time of the last decision in its annotation"), err)
	}
	m.Log.Info("Offers no more than what pods hold", "cpu", quantity(cpu), "memory", quantity(memory))
	return nil
}
