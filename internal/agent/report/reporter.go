// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/pkg/qos"
)

// Reasons of events: the first two are gocrane's. Those of pods are on the pod.
const (
	reasonTriggered       = ensurancev1alpha1.ReasonAvoidanceTriggered
	reasonRestored        = ensurancev1alpha1.ReasonRestoreTriggered
	reasonWithheld        = "EvictionWithheld"
	reasonNewPodsKeptAway = "NewPodsKeptAway"
	reasonNewPodsWelcome  = "NewPodsWelcome"
	reasonChangesUndone   = "ChangesUndone"
	reasonEvicted         = "Evicted"
	reasonEvictionRefused = "EvictionRefused"
	reasonCPUThrottled    = "CPUThrottled"
	reasonCPURestored     = "CPURestored"
	reasonMemoryThrottled = "MemoryThrottled"
	reasonMemoryRestored  = "MemoryRestored"
)

const (
	// maxMessageBytes bounds the message of an event, which may have 1024 bytes.
	maxMessageBytes = 900
	// maxNamedPods bounds the pods named in an event of the node.
	maxNamedPods = 5
)

// Config configures a Reporter.
type Config struct {
	// Node is the node's name.
	Node string
	// Enforced reports whether a kind of action is enforced.
	Enforced func(kind Kind) bool
	// Events is nil if no events are written, as in a dry run; Audit is nil without an audit file.
	Events record.EventRecorder
	Audit  *Audit
	Log    logr.Logger
	Clock  clock.PassiveClock
}

// Reporter reports actions and their reasons. It is safe for concurrent use and never blocks.
type Reporter struct {
	cfg     Config
	metrics *metrics

	mu     sync.Mutex
	limits eventLimiter
	rules  map[string]*ruleStatus
	// avoided is the last reported state of a taint that is not enforced.
	avoided bool
}

// ruleStatus is the reported status of a rule.
type ruleStatus struct {
	key      string // gocrane's name
	action   string
	firing   bool
	phase    qos.Phase
	withheld qos.WithholdReason
	// reported holds the actions that are not enforced and were reported while the rule fires.
	reported map[string]bool
	seen     bool
}

// New returns a reporter.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, metrics: newMetrics(), rules: map[string]*ruleStatus{}}
}

// Describe implements prometheus.Collector.
func (r *Reporter) Describe(to chan<- *prometheus.Desc) {
	for _, c := range r.metrics.collectors() {
		c.Describe(to)
	}
	to <- droppedDesc
}

// Collect implements prometheus.Collector.
func (r *Reporter) Collect(to chan<- prometheus.Metric) {
	for _, c := range r.metrics.collectors() {
		c.Collect(to)
	}

	if r.cfg.Audit != nil {
		to <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(r.cfg.Audit.Dropped()))
	}
}

var droppedDesc = prometheus.NewDesc("crane_agent_audit_dropped_lines_total", "Lines that could not be written to the audit file.", nil, nil)

// ReportThrottle reports an executed throttle or its error. The first step and the full restore of a container are events.
func (r *Reporter) ReportThrottle(plan qos.Throttle, err error) {
	r.reportLimit(throttleAction(&plan, Done), plan.From == plan.Original, plan.To == plan.Original, reasonCPUThrottled, reasonCPURestored, err)
}

func (r *Reporter) reportLimit(a Action, first, restored bool, throttledReason, restoredReason string, err error) {
	switch {
	case err != nil:
		a.Outcome = Failed
		a.Error = err.Error()
	case first:
		a.EventReason = throttledReason
		a.Warning = true
	case restored:
		a.EventReason = restoredReason
	}

	r.ReportAction(a)
}

// ReportMemoryThrottle reports an executed memory throttle or its error, like ReportThrottle.
func (r *Reporter) ReportMemoryThrottle(plan qos.MemoryThrottle, err error) {
	r.reportLimit(memoryThrottleAction(&plan, Done), plan.From == plan.Original, plan.To == plan.Original, reasonMemoryThrottled, reasonMemoryRestored, err)
}

// ReportEviction reports the outcome of an eviction.
func (r *Reporter) ReportEviction(o act.EvictionOutcome) {
	a := evictionAction(&o.Eviction, Failed)
	a.Error = o.Reason
	switch o.Result {
	case act.Evicted:
		a.Outcome = Done
		a.EventReason = reasonEvicted
		a.Warning = true
	case act.Refused:
		a.Outcome = Refused
		a.EventReason = reasonEvictionRefused

	case act.Gone:
		a.Outcome = Gone
	case act.Withheld:
		a.Outcome = Withheld
	case act.Failed:
	}

	r.ReportAction(a)
}

// ReportTaint reports a change of the taint or its error.
func (r *Reporter) ReportTaint(o act.TaintOutcome) {
	a := Action{
		Kind:        Untaint,
		Outcome:     Done,
		Reason:      o.Reason,
		EventReason: reasonNewPodsWelcome,
	}

	if o.Avoided {
		a.Kind = Taint
		a.EventReason = reasonNewPodsKeptAway
		a.Warning = true
	}

	if o.Err != nil {
		a.Outcome = Failed
		a.Error = o.Err.Error()
		a.EventReason = ""
	}

	r.ReportAction(a)
}

// ReportUndo reports the undone entries of a journal at the start or the end of an agent.
func (r *Reporter) ReportUndo(list []act.Entry, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for i := range list {
		e := &list[i]
		kind, container, _ := strings.Cut(e.Key, "/")
		a := Action{
			Kind:      undoneKind(kind),
			Outcome:   Done,
			Container: container,
			Reason:    e.Subject + ": " + why,
		}

		a.Pod.Namespace, a.Pod.Name, _ = strings.Cut(e.Subject, "/")
		for j := range e.Files {
			if f := &e.Files[j]; !f.Condition {
				a.From = join(a.From, f.File+" "+f.Set)
				a.To = join(a.To, f.File+" "+f.Original)
			}
		}

		r.reportAction(a)
	}

	if len(list) > 0 {
		r.writeEvent(qos.PodRef{}, corev1.EventTypeNormal, reasonChangesUndone, why, fmt.Sprintf("%d changes of the host were undone: %s", len(list), why))
	}
}

// undoneKind returns the kind of action that undoes units with the given key prefix.
func undoneKind(unit string) Kind {
	switch unit {
	case "cpu":
		return CPURestore
	case "memory":
		return MemoryRestore
	case "cpuset", "memset":
		return CPUManager
	}

	return Kind(unit)
}

func join(list, next string) string {
	if list == "" {
		return next
	}

	return list + ", " + next
}

// ReportAction reports any action.
func (r *Reporter) ReportAction(a Action) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.reportAction(a)
}

func (r *Reporter) reportAction(a Action) {
	if a.Action == "" && r.rules[a.Rule] != nil {
		a.Action = r.rules[a.Rule].action
	}

	r.metrics.countAction(&a)
	if a.Outcome == Failed {
		// A repeated error adds nothing.
		if ok, _ := r.limits.allow("failed "+string(a.Kind)+" "+a.Pod.UID+" "+a.Container, r.cfg.Clock.Now()); !ok {
			return
		}
	}

	r.writeAudit(a.toRecord())
	r.logAction(&a)

	if a.EventReason == "" {
		return
	}

	kind := corev1.EventTypeNormal
	if a.Warning {
		kind = corev1.EventTypeWarning
	}

	r.writeEvent(a.Pod, kind, a.EventReason, a.Container, a.sentence())
}

// sentence describes the action.
func (a *Action) sentence() string {
	var text string
	switch {
	case a.Kind == Evict && a.Outcome == Refused:
		text = "is not evicted: " + a.Error
	case a.Kind == Evict:
		text = fmt.Sprintf("evicted with %s to end", a.Grace)
	case a.Kind == Taint:
		return "new pods are kept away: " + a.Reason

	case a.Kind == NodeResource, a.Kind == CPUManager, a.Kind == NodeZones:
		return a.Reason
	case a.Kind == Untaint:
		return "new pods are admitted again: " + a.Reason
	default:
		text = fmt.Sprintf("container %s: limit from %s to %s", a.Container, a.From, a.To)
	}

	if a.Rule != "" {
		text += fmt.Sprintf("; rule %s, action %s", a.Rule, a.Action)
	}

	return text + ": " + a.Reason
}

func (r *Reporter) writeAudit(record Record) {
	if r.cfg.Audit == nil {
		return
	}

	record.Time = r.cfg.Clock.Now()
	record.Node = r.cfg.Node
	r.cfg.Audit.Write(record)
}

func (r *Reporter) logAction(a *Action) {
	values := []any{"action", string(a.Kind), "outcome", string(a.Outcome)}
	add := func(name, value string) {
		if value != "" {
			values = append(values, name, value)
		}
	}

	if a.Pod.UID != "" {
		add("pod", a.Pod.String())
	}

	add("container", a.Container)
	add("from", a.From)
	add("to", a.To)
	add("rule", a.Rule)
	add("why", a.Reason)
	add("error", a.Error)

	if a.Grace != nil {
		add("grace", a.Grace.String())
	}
	r.cfg.Log.Info("action", values...)
}

// writeEvent writes an event on a pod, or on the node without one, within the rate limit.
func (r *Reporter) writeEvent(pod qos.PodRef, kind, reason, subject, text string) {
	if r.cfg.Events == nil {
		return
	}

	ok, suppressed := r.limits.allow(reason+" "+pod.UID+" "+subject, r.cfg.Clock.Now())
	if !ok {
		r.metrics.suppressed.Inc()
		return
	}

	if len(text) > maxMessageBytes {
		text = strings.ToValidUTF8(text[:maxMessageBytes], "") + "..."
	}
	if suppressed > 0 {
		text += fmt.Sprintf(" (%d more times since the last event)", suppressed)
	}

	// Events without a pod are those of the node; kubectl describe finds them by the name as UID.
	regarding := &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       r.cfg.Node,
		UID:        types.UID(r.cfg.Node),
	}

	if pod.UID != "" {
		regarding = &corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Namespace:  pod.Namespace,
			Name:       pod.Name,
			UID:        types.UID(pod.UID),
		}
	}

	r.cfg.Events.Event(regarding, kind, reason, text)
}
