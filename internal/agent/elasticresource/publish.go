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
	annotationName = ensurancev1alpha1.AnnotationElasticResources
	reserveCPU     = ensurancev1alpha1.AnnotationReserveCPU
	reserveMemory  = ensurancev1alpha1.AnnotationReserveMemory
)

// writeRecord holds what was last written and logged.
type writeRecord struct {
	written     time.Time
	tried       time.Time // last write, including failed ones
	version     string    // resource version after the last write
	overwritten time.Time // last overwrite by another client
	cpu, memory condition
	// annotatedCPU and annotatedMemory are the conditions in the annotation.
	annotatedCPU, annotatedMemory condition
	failure                       string
}

// condition holds the parts of a result whose changes are logged.
type condition struct {
	problem bool
	// deficit is empty for none.
	deficit string
}

func newCondition[T model.Amount](r *model.Result[T]) condition {
	s := condition{problem: r.Problem != ""}
	if r.Deficit > 0 {
		s.deficit = formatQuantity(r.Deficit)
	}
	return s
}

// publish writes changes, and the annotation also when it is due for a refresh.
func (m *Manager) publish(ctx context.Context, node *corev1.Node, r *decision) {
	cpu, memory := newCondition(&r.cpu), newCondition(&r.memory)
	m.logCondition(ensurancev1alpha1.ResourceReclaimedCPU, m.written.cpu, cpu, r.cpu.Problem)
	m.logCondition(ensurancev1alpha1.ResourceReclaimedMemory, m.written.memory, memory, r.memory.Problem)
	m.written.cpu, m.written.memory = cpu, memory
	since := r.at.Sub(m.written.written)
	changed := (cpu != m.written.annotatedCPU || memory != m.written.annotatedMemory) && since >= minAnnotationInterval
	c := nodeChange{}
	if r.cpu.NeedsWrite {
		c.cpu = &r.cpu.Advertise
	}
	if r.memory.NeedsWrite {
		c.memory = &r.memory.Advertise
	}
	if c.cpu == nil && c.memory == nil && !changed && since >= 0 && since < refreshInterval {
		return
	}
	if !m.Enforce {
		m.recordDryRun(node, r, c)
		return
	}
	m.written.tried = r.at
	if err := m.patchNode(ctx, node, r, c, false); err != nil {
		if m.written.failure != err.Error() {
			m.written.failure = err.Error()
			m.Log.Info("failed to write the node's elastic resources; retrying", "error", err.Error())
		}
		return
	}
	m.written.written, m.written.failure, m.written.annotatedCPU, m.written.annotatedMemory = r.at, "", cpu, memory
	m.reportChange(node, r, c, tell.Done)
}

// logCondition logs the beginning and the end of problems and deficits.
func (m *Manager) logCondition(name string, before, now condition, problem string) {
	if now.problem != before.problem {
		if now.problem {
			m.Log.Info("offering nothing more because an input is unknown", "resource", name, "problem", problem)
		} else {
			m.Log.Info("all inputs of the offer are known again", "resource", name)
		}
	}
	if now.deficit != "" && before.deficit == "" {
		m.Log.Info("pods hold more than the offer; a rule on ext_cpu_total_distribute above 100 evicts for it", "resource", name, "deficit", now.deficit)
	}
}

// recordDryRun reports what would be written.
func (m *Manager) recordDryRun(node *corev1.Node, r *decision, c nodeChange) {
	m.reportChange(node, r, c, tell.NotEnforced)
	if c.cpu != nil {
		m.dryRun.cpu, m.dryRun.hasCPU = *c.cpu, true
	}
	if c.memory != nil {
		m.dryRun.memory, m.dryRun.hasMemory = *c.memory, true
	}
}

// reportChange reports a write, or what a dry run would write, with gocrane's event texts.
func (m *Manager) reportChange(node *corev1.Node, r *decision, c nodeChange, outcome tell.Outcome) {
	if c.cpu != nil {
		before, _ := advertisedCPU(node)
		if outcome == tell.NotEnforced {
			before = m.dryRun.cpu
		}
		a := newAction(ensurancev1alpha1.ResourceReclaimedCPU, before, *c.cpu, outcome)
		a.Reason = fmt.Sprintf("Updating elastic resource %s-cpu with %d.", sourceLabel(r.cpu.NeedSource), int64(*c.cpu)/1000)
		m.Report(a)
	}
	if c.memory != nil {
		before, _ := advertisedMemory(node)
		if outcome == tell.NotEnforced {
			before = m.dryRun.memory
		}
		a := newAction(ensurancev1alpha1.ResourceReclaimedMemory, before, *c.memory, outcome)
		a.Reason = fmt.Sprintf("Updating elastic resource %s-memory with %d.", sourceLabel(r.memory.NeedSource), int64(*c.memory))
		m.Report(a)
	}
}

func newAction[T model.Amount](name string, before, now T, outcome tell.Outcome) tell.Action {
	a := tell.Action{Kind: tell.NodeResource, Outcome: outcome, Container: name, From: formatQuantity(before), To: formatQuantity(now)}
	if outcome == tell.Done {
		a.EventReason = ensurancev1alpha1.ReasonUpdateNode
	}
	return a
}

// sourceLabel returns gocrane's name for the source of the need.
func sourceLabel(s model.Source) string {
	if s == model.SourceForecast {
		return "tsp"
	}
	return "local"
}

// patchNode patches the Node.
func (m *Manager) patchNode(ctx context.Context, node *corev1.Node, r *decision, c nodeChange, ended bool) error {
	a := nodeAnnotation{At: r.at.UTC(), Ended: ended, CPU: describeResult(&r.cpu, r.forecast.cpu), Memory: describeResult(&r.memory, r.forecast.memory)}
	if ended {
		a.CPU.Previous, a.Memory.Previous = a.CPU.Advertised, a.Memory.Advertised
		a.CPU.Advertised, a.Memory.Advertised = formatQuantity(*c.cpu), formatQuantity(*c.memory)
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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now, err := m.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed++
		return fmt.Errorf("patching Node %s: %w", node.Name, err)
	}
	m.wrote++
	m.written.version = now.ResourceVersion
	return nil
}

// withdraw advertises only what pods hold and removes resources that no pod holds. It changes nothing while the pods are unknown; the
// time in the annotation shows that the agent has stopped.
func (m *Manager) withdraw(ctx context.Context) error {
	r := m.lastDecision()
	state := m.View.State()
	if !m.Enforce || r == nil || state.Node == nil || state.Node.UID != m.node || !state.KnowsPods {
		return nil
	}
	held, last := elasticrequest.SumAllocated(state.Pods), *r
	last.at = m.Clock.Now()
	cpu, memory := held.CPU, held.Memory
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := act.RetryAtEnd(ctx, m.Clock, func(ctx context.Context) error {
		return m.patchNode(ctx, state.Node, &last, nodeChange{cpu: &cpu, memory: &memory, remove: true}, true)
	})
	if err != nil {
		return errors.Join(errors.New("the node keeps its elastic resources, with the time of the last decision in its annotation"), err)
	}
	m.Log.Info("offering only what pods hold", "cpu", formatQuantity(cpu), "memory", formatQuantity(memory))
	return nil
}
