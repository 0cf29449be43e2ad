// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/elasticrequest"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
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
	failure     string    // last logged
}

// publish writes changes, and the annotation also when it is due for a refresh.
func (m *Manager) publish(ctx context.Context, node *corev1.Node, r *decision) {
	m.cpu.logCondition(m.Log, &r.cpu)
	m.memory.logCondition(m.Log, &r.memory)
	since := r.at.Sub(m.written.written)
	changed := (m.cpu.logged != m.cpu.annotated || m.memory.logged != m.memory.annotated) && since >= minAnnotationInterval

	c := nodeChange{cpu: r.cpu.change(), memory: r.memory.change()}
	if c.cpu == nil && c.memory == nil && !changed && since >= 0 && since < refreshInterval {
		return
	}

	if m.Enforce {
		m.written.tried = r.at
		if err := m.patchNode(ctx, node, r, c, false); err != nil {
			// Repeated at each decision; only another error is news.
			if m.written.failure != err.Error() {
				m.written.failure = err.Error()
				m.Log.Error(err, "writing the node's elastic resources; retrying")
			}

			return
		}

		m.written.written = r.at
		m.written.failure = ""
		m.cpu.annotated = m.cpu.logged
		m.memory.annotated = m.memory.logged
	}

	m.cpu.report(m.Report, node, &r.cpu, m.Enforce)
	m.memory.report(m.Report, node, &r.memory, m.Enforce)
}

// patchNode patches the Node.
func (m *Manager) patchNode(ctx context.Context, node *corev1.Node, r *decision, c nodeChange, ended bool) error {
	a := nodeAnnotation{
		At:     r.at.UTC(),
		Ended:  ended,
		CPU:    describeResult(&r.cpu),
		Memory: describeResult(&r.memory),
	}

	// At the end Previous keeps what was advertised, from which the next agent resumes.
	if ended {
		a.CPU.Previous = a.CPU.Advertised
		a.Memory.Previous = a.Memory.Advertised
		a.CPU.Advertised = formatQuantity(*c.cpu)
		a.Memory.Advertised = formatQuantity(*c.memory)
		a.CPU.Phase = string(model.Withdrawn)
		a.Memory.Phase = string(model.Withdrawn)
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
	m.written.version = now.ResourceVersion // The watch may deliver an older Node after this write.
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

	allocated := elasticrequest.SumAllocated(state.Pods)
	last := *r
	last.at = m.Clock.Now()
	cpu := allocated.CPU
	memory := allocated.Memory
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

// nodeChange holds the changes of a Node; nil amounts stay.
type nodeChange struct {
	cpu    *units.MilliCPU
	memory *units.Bytes
	// remove deletes resources with amount 0 instead of showing 0.
	remove     bool
	annotation string
}

// patch returns a strategic merge patch of the Node's status with the two resources and the annotation. It contains the Node's UID, so
// that the API server rejects it for another Node of the same name.
func (c nodeChange) patch(node *corev1.Node) ([]byte, error) {
	amounts := map[corev1.ResourceName]*string{}
	put := func(name corev1.ResourceName, v int64) {
		if v == 0 && c.remove {
			amounts[name] = nil
			return
		}

		amounts[name] = new(resource.NewQuantity(v, resource.DecimalSI).String())
	}

	if c.cpu != nil {
		put(ensurancev1alpha1.ResourceReclaimedCPU, int64(*c.cpu)/1000)
	}
	if c.memory != nil {
		put(ensurancev1alpha1.ResourceReclaimedMemory, int64(*c.memory))
	}

	body := map[string]any{
		"metadata": map[string]any{"uid": node.UID, "annotations": map[string]string{ensurancev1alpha1.AnnotationElasticResources: c.annotation}},
	}

	if len(amounts) > 0 {
		body["status"] = map[string]any{"capacity": amounts, "allocatable": amounts}
	}

	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of Node %s: %w", node.Name, err)
	}

	return raw, nil
}

// readReserve returns the share of a resource that is never advertised: the Node's annotation, else the flag's value.
func readReserve(node *corev1.Node, annotation string, fallback units.Ratio) (units.Ratio, string) {
	value, ok := node.Annotations[annotation]
	if !ok {
		return fallback, ""
	}

	r, err := model.ParseReserve(value)
	if err != nil {
		return 0, fmt.Sprintf("annotation %s: %v", annotation, err)
	}

	return r, ""
}
