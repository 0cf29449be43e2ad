// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// fakeEvents records events as "Warning Reason Node/name: message".
type fakeEvents struct{ list []string }

func (e *fakeEvents) Event(object runtime.Object, kind, reason, message string) {
	ref := object.(*corev1.ObjectReference)
	name := ref.Name
	if ref.Namespace != "" {
		name = ref.Namespace + "/" + name
	}

	e.list = append(e.list, fmt.Sprintf("%s %s %s %s: %s", kind, reason, ref.Kind, name, message))
}

func (e *fakeEvents) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (e *fakeEvents) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	e.Eventf(object, kind, reason, format, args...)
}

// reasons returns the events since the last call.
func (e *fakeEvents) reasons() (out []string) {
	for _, text := range e.list {
		out = append(out, strings.Fields(text)[1])
	}

	e.list = nil
	return out
}

var at = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// fixture is a reporter with all its outputs.
type fixture struct {
	*Reporter

	events   *fakeEvents
	clock    *clocktesting.FakeClock
	path     string
	audit    *Audit
	registry *prometheus.Registry
}

func newFixture(t *testing.T, enforced ...Kind) *fixture {
	t.Helper()

	s := &fixture{events: &fakeEvents{}, clock: clocktesting.NewFakeClock(at), registry: prometheus.NewRegistry()}
	s.path = filepath.Join(t.TempDir(), "deep", "audit.log")
	s.audit = newAudit(t, s.path, 1<<20, s.clock)
	s.Reporter = New(Config{
		Node: "node-1", Enforced: func(k Kind) bool { return slices.Contains(enforced, k) }, Events: s.events, Audit: s.audit, Log: logr.Discard(), Clock: s.clock,
	})

	if err := s.registry.Register(s.Reporter); err != nil {
		t.Fatal(err)
	}

	return s
}

func newAudit(t *testing.T, path string, maxBytes int64, clk *clocktesting.FakeClock) *Audit {
	t.Helper()

	a, err := OpenAudit(AuditConfig{Path: path, MaxBytes: maxBytes, Clock: clk, Log: logr.Discard(), Beat: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}

	return a
}

// records ends the audit and returns its records.
func (s *fixture) records(t *testing.T) (out []Record) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := s.audit.Run(ctx); err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(content)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("the audit file has line %q, want JSON: %v", line, err)
		}

		out = append(out, r)
	}

	return out
}

// value returns the value of a series such as name{a="b"}; -1 if missing.
func (s *fixture) value(t *testing.T, series string) float64 {
	t.Helper()

	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}

			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}

			if name != series {
				continue
			}

			if m.GetCounter() != nil {
				return m.GetCounter().GetValue()
			}

			return m.GetGauge().GetValue()
		}
	}

	return -1
}

func finding(phase qos.Phase) qos.Finding {
	return qos.Finding{Rule: "mixed/cpu", Action: "calm-down", Phase: phase, Value: 91.25, Threshold: 75, Unit: "percent", Count: 2, Needed: 2, Gap: 715, Resource: units.CPU}
}

var hog = qos.PodRef{UID: "u", Namespace: "batch", Name: "hog"}

func step(from, to, original qos.Quota) qos.Throttle {
	return qos.Throttle{Pod: hog, ContainerID: "id", ContainerName: "main", From: from, To: to, Original: original, Freed: 300, Rule: "mixed/cpu", Reason: "uses 1000m"}
}

// TestRule checks that a rule writes one event when it begins to fire and one when it ends.
func TestRule(t *testing.T) {
	s := newFixture(t, CPUThrottle)
	plan := qos.Plan{Rules: []qos.Finding{finding(qos.Rising)}}
	s.ReportPlan(&plan)

	if len(s.events.list) > 0 {
		t.Errorf("a rising rule has events %v, want none", s.events.list)
	}

	plan.Rules[0] = finding(qos.Firing)
	plan.Rules[0].Reason = "no pod is evicted: 60.0 % of cpu is used, the water mark is 80 %"
	plan.Throttles = []qos.Throttle{step(qos.Unlimited, 700, qos.Unlimited)}
	plan.Evictions = []qos.Eviction{{Pod: qos.PodRef{UID: "v", Namespace: "batch", Name: "other"}, Rule: "mixed/cpu"}}
	s.ReportPlan(&plan)

	want := "Warning AvoidanceTriggered Node node-1: mixed/cpu triggered action calm-down: 91.25 percent, above 75 percent, 2 times in a row; " +
		"throttles batch/hog; would evict batch/other; no pod is evicted: 60.0 % of cpu is used, the water mark is 80 %"
	if len(s.events.list) != 1 || s.events.list[0] != want {
		t.Errorf("events are %q\nwant %q", s.events.list, want)
	}
	if got := s.value(t, `crane_agent_rule_gap_cores{rule="mixed/cpu"}`); got != 0.715 {
		t.Errorf("the gap is %g cores, want 0.715", got)
	}

	s.events.reasons()
	for i := range 600 {
		s.clock.Step(time.Second)
		plan.Rules[0].Phase = []qos.Phase{qos.Firing, qos.Falling}[i%2]
		s.ReportPlan(&plan)
	}

	if len(s.events.list) > 0 {
		t.Errorf("%d events while the rule fires, the first %q; want none", len(s.events.list), s.events.list[0])
	}

	plan = qos.Plan{Rules: []qos.Finding{finding(qos.Calm)}}
	plan.Rules[0].Value = 60
	s.ReportPlan(&plan)

	if want := "Normal RestoreTriggered Node node-1: mixed/cpu restored action calm-down: 60 percent, not above 75 percent, 2 times in a row"; len(s.events.list) != 1 || s.events.list[0] != want {
		t.Errorf("%q, want %q", s.events.list, want)
	}

	for series, want := range map[string]float64{
		`crane_craneAgent_analyzer_status_total{key="mixed.cpu",type="avoidance"}`:  1,
		`crane_craneAgent_analyzer_status_total{key="mixed.cpu",type="restore"}`:    1,
		`crane_craneAgent_analyzer_status{key="mixed.cpu",type="avoidance"}`:        0,
		`crane_craneAgent_analyzer_status{key="mixed.cpu",type="restore"}`:          1,
		`crane_craneAgent_analyzer_status{key="mixed.cpu",type="analyzeError "}`:    0,
		`crane_craneAgent_analyzer_status{key="",type="enableScheduling"}`:          1,
		`crane_craneAgent_executor_status{subcomponent="throttle",step="avoid"}`:    -1, // Labels are sorted by name.
		`crane_craneAgent_executor_status{step="avoid",subcomponent="throttle"}`:    0,
		`crane_agent_rule_firing{preview="false",rule="mixed/cpu"}`:                 0,
		`crane_agent_rule_gap_cores{rule="mixed/cpu"}`:                              0,
		`crane_agent_actions_total{action="evict",outcome="would"}`:                 1,
		`crane_agent_actions_total{action="cpu-throttle",outcome="would"}`:          -1,
		`crane_craneAgent_executor_status_total{step="avoid",subcomponent="evict"}`: -1,
	} {
		if got := s.value(t, series); got != want {
			t.Errorf("%s is %g, want %g", series, got, want)
		}
	}

	records := s.records(t)
	if len(records) != 3 || records[0].Action != RuleFires || *records[0].Value != 91.25 || *records[0].Threshold != 75 || records[0].Gap != 715 ||
		records[1].Action != Evict || records[1].Outcome != NotEnforced || records[2].Action != RuleEnds || records[2].Node != "node-1" || records[2].Time.IsZero() {
		t.Errorf("records are %+v, want the firing rule, the eviction that is not enforced, and the end", records)
	}
}

// TestRuleFlaps checks that a flapping rule writes an event a minute, with the number of suppressed ones.
func TestRuleFlaps(t *testing.T) {
	s := newFixture(t)
	for i := range 121 {
		s.ReportPlan(&qos.Plan{Rules: []qos.Finding{finding([]qos.Phase{qos.Firing, qos.Calm}[i%2])}})
		s.clock.Step(time.Second)
	}

	if n := len(s.events.list); n < 4 || n > 6 || !strings.Contains(s.events.list[2], "29 more times") {
		t.Errorf("%d events in two minutes, want 4 to 6, the third with 29 more times: %q", n, s.events.list)
	}
	if got := s.value(t, "crane_agent_events_suppressed_total"); got < 110 {
		t.Errorf("%g events are suppressed, want at least 110", got)
	}
	if got := s.value(t, `crane_craneAgent_analyzer_status_total{key="mixed.cpu",type="avoidance"}`); got != 61 {
		t.Errorf("the rule fired %g times, want 61", got)
	}
}

// TestRuleDeleted checks that deleting a rule ends it and removes its series.
func TestRuleDeleted(t *testing.T) {
	s := newFixture(t)
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{finding(qos.Firing)}})
	s.events.reasons()
	s.ReportPlan(&qos.Plan{})

	if len(s.events.list) != 1 || !strings.HasSuffix(s.events.list[0], "mixed/cpu restored action calm-down: the rule was deleted") {
		t.Errorf("events are %q, want the end of the deleted rule", s.events.list)
	}

	for _, series := range []string{
		`crane_agent_rule_firing{preview="false",rule="mixed/cpu"}`, `crane_agent_rule_gap_cores{rule="mixed/cpu"}`,
		`crane_craneAgent_analyzer_status{key="mixed.cpu",type="avoidance"}`, `crane_craneAgent_analyzer_status_total{key="mixed.cpu",type="avoidance"}`,
	} {
		if got := s.value(t, series); got != -1 {
			t.Errorf("%s is %g, want no series of a deleted rule", series, got)
		}
	}
}

// TestRuleChanged checks that a rule that becomes a preview or changes its resource leaves no old series.
func TestRuleChanged(t *testing.T) {
	s := newFixture(t)
	f := finding(qos.Firing)
	memory := f
	memory.Resource = units.Memory
	memory.Preview = true
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{f}})
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{memory}})

	for series, want := range map[string]float64{
		`crane_agent_rule_firing{preview="false",rule="mixed/cpu"}`: -1, `crane_agent_rule_firing{preview="true",rule="mixed/cpu"}`: 1,
		`crane_agent_rule_gap_cores{rule="mixed/cpu"}`: -1, `crane_agent_rule_gap_bytes{rule="mixed/cpu"}`: 715, `crane_agent_preview_freed_cores{rule="mixed/cpu"}`: 0,
	} {
		if got := s.value(t, series); got != want {
			t.Errorf("%s is %g, want %g", series, got, want)
		}
	}

	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{f}})
	for series, want := range map[string]float64{
		`crane_agent_rule_firing{preview="false",rule="mixed/cpu"}`: 1, `crane_agent_rule_firing{preview="true",rule="mixed/cpu"}`: -1,
		`crane_agent_rule_gap_cores{rule="mixed/cpu"}`: 0.715, `crane_agent_rule_gap_bytes{rule="mixed/cpu"}`: -1, `crane_agent_preview_freed_cores{rule="mixed/cpu"}`: -1,
	} {
		if got := s.value(t, series); got != want {
			t.Errorf("then %s is %g, want %g", series, got, want)
		}
	}
}

// TestWithheld checks the event with the reason why evictions are withheld.
func TestWithheld(t *testing.T) {
	s := newFixture(t, Evict)
	f := finding(qos.Firing)
	plan := qos.Plan{Rules: []qos.Finding{f}}
	s.ReportPlan(&plan)
	s.events.reasons()

	plan.Rules[0].Withheld = qos.WithheldByWaterMark
	plan.Rules[0].Reason = "no pod is evicted: 60.0 % of memory is used, the water mark is 80 %"
	for range 100 {
		s.ReportPlan(&plan)
		s.clock.Step(time.Second)
	}

	if want := "Warning EvictionWithheld Node node-1: mixed/cpu: no pod is evicted: 60.0 % of memory is used, the water mark is 80 %"; len(s.events.list) != 1 || s.events.list[0] != want {
		t.Errorf("%q, want %q", s.events.list, want)
	}

	s.events.reasons()
	plan.Rules[0].Withheld = qos.WithheldForMetric
	s.ReportPlan(&plan)
	plan.Rules[0].Withheld = qos.WithheldByRate
	s.ReportPlan(&plan)

	if got := s.events.reasons(); !slices.Equal(got, []string{"EvictionWithheld"}) {
		t.Errorf("events have reasons %v, want EvictionWithheld once", got)
	}
	if got := s.value(t, `crane_agent_evictions_withheld_total{by="water-mark",rule="mixed/cpu"}`); got != 1 {
		t.Errorf("withheld evictions are counted %g times, want once", got)
	}
}

// TestThrottled checks that each step is audited, and the first and the last one are events on the pod.
func TestThrottled(t *testing.T) {
	s := newFixture(t, CPUThrottle)
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{finding(qos.Firing)}})
	s.events.reasons()
	s.ReportThrottle(step(qos.Unlimited, 700, qos.Unlimited), nil)
	s.ReportThrottle(step(700, 490, qos.Unlimited), nil)

	back := step(490, 700, qos.Unlimited)
	back.Freed = -210
	back.Rule = ""
	back.Reason = "the node is calm"
	s.ReportThrottle(back, nil)
	back.From = 700
	back.To = qos.Unlimited
	s.ReportThrottle(back, nil)

	want := []string{
		"Warning CPUThrottled Pod batch/hog: container main: limit from no limit to 0.7 cores; rule mixed/cpu, action calm-down: uses 1000m",
		"Normal CPURestored Pod batch/hog: container main: limit from 0.7 cores to no limit: the node is calm",
	}
	if !slices.Equal(s.events.list, want) {
		t.Errorf("events are %q\nwant %q", s.events.list, want)
	}

	for range 100 {
		s.ReportThrottle(step(700, 490, qos.Unlimited), errors.New("no space left"))
	}

	for series, want := range map[string]float64{
		`crane_craneAgent_executor_status_total{step="avoid",subcomponent="throttle"}`:   2,
		`crane_craneAgent_executor_status_total{step="restore",subcomponent="throttle"}`: 2,
		`crane_craneAgent_executor_error_total{step="avoid",subcomponent="throttle"}`:    100,
		`crane_agent_actions_total{action="cpu-restore",outcome="done"}`:                 2,
	} {
		if got := s.value(t, series); got != want {
			t.Errorf("%s is %g, want %g", series, got, want)
		}
	}

	records := s.records(t)[1:]
	if len(records) != 5 || records[0].From != "no limit" || records[0].To != "0.7 cores" || *records[0].FreesCores != 0.3 || records[0].AvoidanceAction != "calm-down" ||
		records[2].Action != CPURestore || *records[2].FreesCores != -0.21 || records[4].Outcome != Failed || records[4].Error != "no space left" {
		t.Errorf("records are %+v, want 5: the steps with their amounts, and the failure last", records)
	}
}

// TestEvictions checks the events and audit records of evictions.
func TestEvictions(t *testing.T) {
	s := newFixture(t, Evict)
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{finding(qos.Firing)}})
	s.events.reasons()
	outcome := func(result act.Result, why string) act.EvictionOutcome {
		return act.EvictionOutcome{Result: result, Reason: why, Eviction: qos.Eviction{
			Pod: hog, GracePeriod: 7 * time.Second, Freed: 1 << 30, Resource: units.Memory, Criterion: qos.ByMemory, Rule: "mixed/cpu", Reason: "uses 1024 MiB memory; BestEffort, priority 0",
		}}
	}

	s.ReportEviction(outcome(act.Refused, "The disruption budget web needs 2 healthy pods and has 2 currently"))
	s.ReportEviction(outcome(act.Withheld, "the cluster's budget is used up"))
	s.ReportEviction(outcome(act.Failed, "gone"))
	s.ReportEviction(outcome(act.Gone, "not found"))
	s.ReportEviction(outcome(act.Evicted, ""))

	want := []string{
		"Normal EvictionRefused Pod batch/hog: is not evicted: The disruption budget web needs 2 healthy pods and has 2 currently; rule mixed/cpu, action calm-down: uses 1024 MiB memory; BestEffort, priority 0",
		"Warning Evicted Pod batch/hog: evicted with 7s to end; rule mixed/cpu, action calm-down: uses 1024 MiB memory; BestEffort, priority 0",
	}
	if !slices.Equal(s.events.list, want) {
		t.Errorf("events are %q\nwant %q", s.events.list, want)
	}
	if got := s.value(t, "crane_craneAgent_executor_evict_total"); got != 1 {
		t.Errorf("%g evicted pods are counted, want 1", got)
	}

	var outcomes []string
	for _, r := range s.records(t)[1:] {
		outcomes = append(outcomes, string(r.Outcome))
		if *r.GraceSeconds != 7 || *r.FreesBytes != 1<<30 || r.UID != "u" || r.OrderedBy != qos.ByMemory || *r.Usage != 1<<30 {
			t.Errorf("the record is %+v, want a grace of 7s, 1 GiB and the order by memory", r)
		}
	}

	if got := strings.Join(outcomes, " "); got != "refused withheld failed gone done" {
		t.Errorf("outcomes are %q, want %q", got, "refused withheld failed gone done")
	}
}

// TestTaints checks that both changes of the taint are events on the node, and a failure is not.
func TestTaints(t *testing.T) {
	s := newFixture(t, Taint)
	s.ReportTaint(act.TaintOutcome{Avoided: true, Reason: "rule mixed/cpu is firing"})
	s.ReportTaint(act.TaintOutcome{Avoided: true, Err: errors.New("gone")})
	s.ReportTaint(act.TaintOutcome{Reason: "no rule has fired"})

	want := []string{
		"Warning NewPodsKeptAway Node node-1: new pods are kept away: rule mixed/cpu is firing",
		"Normal NewPodsWelcome Node node-1: new pods are admitted again: no rule has fired",
	}
	if !slices.Equal(s.events.list, want) {
		t.Errorf("events are %q\nwant %q", s.events.list, want)
	}
	if got := s.value(t, `crane_craneAgent_executor_error_total{step="avoid",subcomponent="schedule"}`); got != 1 {
		t.Errorf("%g failed taints are counted, want 1", got)
	}
}

// TestPreview checks that a rule in preview reports its actions once while it fires.
func TestPreview(t *testing.T) {
	s := newFixture(t, CPUThrottle, Evict, Taint)
	f := finding(qos.Firing)
	f.Preview = true
	plan := qos.Plan{Rules: []qos.Finding{f}, Previews: []qos.Preview{{
		Rule: f.Rule, Actions: qos.Actions{
			Throttles: []qos.Throttle{step(qos.Unlimited, 700, qos.Unlimited)},
			Evictions: []qos.Eviction{{Pod: hog, Freed: 1 << 30, Resource: units.Memory, Rule: f.Rule}},
		},
	}}}

	for range 10 {
		s.ReportPlan(&plan)
		s.clock.Step(time.Second)
	}

	want := "Warning AvoidanceTriggered Node node-1: mixed/cpu triggered action calm-down: 91.25 percent, above 75 percent, 2 times in a row; " +
		"in preview, nothing is done; would throttle batch/hog; would evict batch/hog"
	if !slices.Equal(s.events.list, []string{want}) {
		t.Errorf("%q, want %q", s.events.list, want)
	}

	for series, want := range map[string]float64{
		`crane_agent_preview_actions_total{action="cpu-throttle",rule="mixed/cpu"}`:    1,
		`crane_agent_preview_actions_total{action="evict",rule="mixed/cpu"}`:           1,
		`crane_agent_preview_freed_cores{rule="mixed/cpu"}`:                            0.3,
		`crane_agent_preview_freed_bytes{rule="mixed/cpu"}`:                            1 << 30,
		`crane_craneAgent_executor_status_total{step="avoid",subcomponent="throttle"}`: -1,
		`crane_craneAgent_executor_evict_total`:                                        0,
	} {
		if got := s.value(t, series); got != want {
			t.Errorf("%s is %g, want %g", series, got, want)
		}
	}

	// The next time it fires they are reported again.
	plan = qos.Plan{Rules: []qos.Finding{finding(qos.Calm)}}
	plan.Rules[0].Preview = true
	s.ReportPlan(&plan)
	f.Phase = qos.Firing
	s.ReportPlan(&qos.Plan{Rules: []qos.Finding{f}, Previews: []qos.Preview{{Rule: f.Rule, Actions: qos.Actions{Throttles: []qos.Throttle{step(qos.Unlimited, 700, qos.Unlimited)}}}}})

	if got := s.value(t, `crane_agent_preview_actions_total{action="cpu-throttle",rule="mixed/cpu"}`); got != 2 {
		t.Errorf("%g previewed throttles are counted, want 2", got)
	}

	outcomes := map[Outcome]int{}
	for _, r := range s.records(t) {
		outcomes[r.Outcome]++
	}

	if outcomes[Previewed] != 5 || outcomes[NotEnforced] > 0 {
		t.Errorf("outcomes are %v, want 5 previewed and none not enforced", outcomes)
	}
}

// TestNotEnforcedTaint checks that a taint that is not enforced is reported on change.
func TestNotEnforcedTaint(t *testing.T) {
	s := newFixture(t, CPUThrottle)
	for i := range 30 {
		s.ReportPlan(&qos.Plan{Avoid: qos.Avoidance{Desired: i >= 10 && i < 20, Change: true, Reason: "why"}})
	}

	records := s.records(t)
	if len(records) != 2 || records[0].Action != Taint || records[1].Action != Untaint || records[0].Outcome != NotEnforced {
		t.Errorf("records are %+v, want one taint and one untaint that are not enforced", records)
	}
}

// TestAudit checks that lines are complete, that there are at most two files of bounded size and that a partial line of a previous agent
// is terminated.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(path, []byte(`{"half":`), 0o600); err != nil {
		t.Fatal(err)
	}

	clk := clocktesting.NewFakeClock(time.Now())
	const maxBytes = 2000
	a := newAudit(t, path, maxBytes, clk)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()

	for i := range 500 {
		a.Write(Record{Action: Evict, Outcome: Done, Pod: fmt.Sprint("pod-", i)})
	}

	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	if a.Dropped() > 0 {
		t.Errorf("Dropped() = %d, want 0", a.Dropped())
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("the folder has %v, %v, want two files", entries, err)
	}

	last := ""
	for _, name := range []string{path + ".1", path} {
		content, err := os.ReadFile(name)
		if err != nil || len(content) > maxBytes {
			t.Fatalf("%s has %d bytes, %v, want at most %d", name, len(content), err, maxBytes)
		}

		for line := range strings.Lines(string(content)) {
			var r Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Errorf("the file has line %q, want JSON: %v", line, err)
			}

			last = r.Pod
		}
	}

	if last != "pod-499" {
		t.Errorf("the last record is of %s, want pod-499", last)
	}
}

// TestAuditTorn checks that the partial line is separate.
func TestAuditTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(`{"half":`), 0o600); err != nil {
		t.Fatal(err)
	}

	a := newAudit(t, path, 1<<20, clocktesting.NewFakeClock(time.Now()))
	a.Write(Record{Action: Evict})
	a.Write(Record{Action: Taint})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := a.Run(ctx); err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if lines := strings.Split(string(content), "\n"); err != nil || len(lines) != 4 || lines[0] != `{"half":` || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("the file is %q, %v, want the partial line and two complete ones", content, err)
	}
}

// TestAuditCannotWrite checks that a failing disk blocks no caller, that lost lines are counted and that a file that cannot be rotated
// does not grow.
func TestAuditCannotWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	clk := clocktesting.NewFakeClock(time.Now())

	a := newAudit(t, path, 200, clk)
	for range 3 * queueSize {
		a.Write(Record{Action: Evict}) // Run is not called.
	}

	if a.Dropped() != 2*queueSize {
		t.Errorf("Dropped() = %d before Run, want %d", a.Dropped(), 2*queueSize)
	}
	// A non-empty directory blocks the name of the old file.
	if err := os.MkdirAll(path+".1/x", 0o700); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()

	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return a.Dropped() > 3*queueSize-10, nil
	}); err != nil {
		t.Errorf("Dropped() = %d, want almost all %d while the disk fails", a.Dropped(), 3*queueSize)
	}

	if info, err := os.Stat(path); err != nil || info.Size() > 200 {
		t.Errorf("the file is %v, %v, want at most 200 bytes", info, err)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}

	a.Write(Record{Action: Taint})
	cancel()

	if err := <-done; err != nil {
		t.Errorf("Run after the failure = %v, want nil", err)
	}
	if content, err := os.ReadFile(path); err != nil || !strings.Contains(string(content), `"taint"`) {
		t.Errorf("the file is %s, %v, want the last record", content, err)
	}
	if _, err := OpenAudit(AuditConfig{Path: dir, MaxBytes: 200}); err == nil {
		t.Error("OpenAudit of a directory = nil, want an error")
	}
}

// TestLimiter checks the bound of tracked keys.
func TestLimiter(t *testing.T) {
	var l eventLimiter
	now := time.Now()
	for i := range 3 * maxTracked {
		if ok, _ := l.allow(fmt.Sprint(i), now); ok != (i < maxTracked) {
			t.Fatalf("allow(%d) = %t, want the first %d keys", i, ok, maxTracked)
		}
	}

	if ok, _ := l.allow("another", now.Add(minEventInterval)); !ok || len(l.last) != 1 {
		t.Errorf("allow after the interval = %t with %d tracked keys, want true and 1", ok, len(l.last))
	}
	// A clock set back suppresses no events.
	if ok, _ := l.allow("another", now.Add(-time.Hour)); !ok {
		t.Error("allow after the clock was set back = false, want true")
	}
}

// TestUndone checks that undone changes are audited one by one, with one event on the node.
func TestUndone(t *testing.T) {
	s := newFixture(t, CPUThrottle)
	s.ReportUndo(nil, "the agent has ended")

	if len(s.events.list) > 0 {
		t.Errorf("undoing nothing has events %q, want none", s.events.list)
	}

	s.ReportUndo([]act.Entry{
		{Key: "cpu/c1", Subject: "batch/hog", Files: []act.FileRecord{{File: "cpu.max", Set: "70000 100000", Original: "max 100000"}, {File: "cpu.max.burst", Set: "0", Original: "0", Condition: true}}},
		{Key: "memory/c2", Subject: "batch/reader", Files: []act.FileRecord{{File: "memory.high", Set: "1000", Original: "max"}}},
	}, "the agent has ended")

	if want := "Normal ChangesUndone Node node-1: 2 changes of the host were undone: the agent has ended"; !slices.Equal(s.events.list, []string{want}) {
		t.Errorf("%q, want %q", s.events.list, want)
	}
	if got := s.value(t, `crane_craneAgent_executor_status_total{step="restore",subcomponent="throttle"}`); got != 2 {
		t.Errorf("%g restored throttles are counted, want 2", got)
	}

	records := s.records(t)
	if len(records) != 2 || records[0].Action != CPURestore || records[0].Pod != "hog" || records[0].Container != "c1" || records[0].From != "cpu.max 70000 100000" ||
		records[0].To != "cpu.max max 100000" || records[1].Action != MemoryRestore || !strings.Contains(records[1].Reason, "the agent has ended") {
		t.Errorf("records are %+v, want the restored CPU of c1 of pod hog and the memory, with the reason", records)
	}
}

// TestOrderedBy checks that audit records have the order of victims and the victim's use in base units.
func TestOrderedBy(t *testing.T) {
	for _, test := range []struct {
		frees     float64
		resource  units.Resource
		criterion qos.Criterion
		want      float64
	}{
		{1500, units.CPU, qos.ByCPU, 1.5},
		{1 << 30, units.Memory, qos.ByMemory, 1 << 30},
		{300, qos.Disks, qos.ByDiskWrites, 300},
		{0.4, qos.Disks, qos.ByDiskWait, 0.4},
	} {
		a := evictionAction(&qos.Eviction{Freed: test.frees, Resource: test.resource, Criterion: test.criterion}, Done)
		r := a.toRecord()
		if r.OrderedBy != test.criterion || r.Usage == nil || *r.Usage != test.want || (r.FreesBytes != nil) != (test.resource == units.Memory) || (r.FreesCores != nil) != (test.resource == units.CPU) {
			t.Errorf("%s: the record is %+v, want a use of %g", test.criterion, r, test.want)
		}
	}

	if a := throttleAction(&qos.Throttle{Freed: 5}, Done); a.toRecord().Usage != nil {
		t.Error("the record of a throttle has a use, want none")
	}
}
