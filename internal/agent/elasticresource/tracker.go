// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/report"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// tracker holds the state of one resource between decisions.
type tracker[T model.Amount] struct {
	// name is the ordinary resource, elastic the one that is advertised.
	name, elastic corev1.ResourceName
	// unit is the unit of elastic.
	unit T
	// reserve is the annotation of the Node that overrides the flag.
	reserve string
	// parseForecast and parseElastic convert forecasts and quantities of elastic.
	parseForecast func(float64) (T, error)
	parseElastic  func(resource.Quantity) T

	policy model.Policy[T]
	state  model.State[T]
	// dryRun is what the node would advertise if writes were enforced; notInDryRun means that it would not have the resource.
	dryRun      T
	notInDryRun bool
	// logged and annotated are the conditions last logged and last written to the annotation.
	logged, annotated condition
}

func newCPUTracker() tracker[units.MilliCPU] {
	return tracker[units.MilliCPU]{
		name: corev1.ResourceCPU, elastic: ensurancev1alpha1.ResourceReclaimedCPU, unit: 1000, reserve: reserveCPU,
		parseForecast: model.ParseCores, policy: model.CPU(),
		parseElastic: func(q resource.Quantity) units.MilliCPU {
			const maxCores = 1 << 40 // so that millicores written by other clients do not overflow
			return units.MilliCPU(min(max(q.Value(), 0), maxCores) * 1000)
		},
	}
}

func newMemoryTracker() tracker[units.Bytes] {
	return tracker[units.Bytes]{
		name:          corev1.ResourceMemory,
		elastic:       ensurancev1alpha1.ResourceReclaimedMemory,
		unit:          1,
		reserve:       reserveMemory,
		parseForecast: model.ParseBytes,
		policy:        model.Memory(),
		parseElastic:  func(q resource.Quantity) units.Bytes { return units.Bytes(max(q.Value(), 0)) },
	}
}

// result is the result of a decision; hasForecast holds whether a valid forecast was used.
type result[T model.Amount] struct {
	model.Result[T]

	hasForecast bool
}

// advertised returns what a node advertises: the smaller of capacity and allocatable, in case another client wrote only one of them.
func (t *tracker[T]) advertised(node *corev1.Node) (amount T, absent bool) {
	q, ok := node.Status.Capacity[t.elastic]
	allocatable, isAllocatable := node.Status.Allocatable[t.elastic]
	if ok && isAllocatable && allocatable.Cmp(q) < 0 {
		q = allocatable
	}

	return t.parseElastic(q), !ok
}

// differs reports whether the node shows another amount than decided.
func (t *tracker[T]) differs(node *corev1.Node, decided T) bool {
	amount, absent := t.advertised(node)
	return amount != decided && (!absent || decided != 0)
}

// reset starts with a new Node.
func (t *tracker[T]) reset(node *corev1.Node) {
	t.state = model.State[T]{}
	t.logged = condition{}
	t.annotated = condition{}
	t.dryRun, t.notInDryRun = t.advertised(node)
}

// decide completes the inputs with those of the node and decides.
func (t *tracker[T]) decide(in model.Input[T], node *corev1.Node, forecast forecastState, reserve units.Ratio, enforce bool) result[T] {
	in.Forecast = readForecast(forecast, node, t.name, in.At, t.parseForecast)
	in.Reserve, in.ReserveProblem = readReserve(node, t.reserve, reserve)
	in.Advertised, in.NotAdvertised = t.dryRun, t.notInDryRun
	if enforce {
		in.Advertised, in.NotAdvertised = t.advertised(node)
	}

	return result[T]{model.Decide(in, t.policy, &t.state), in.Forecast.OK}
}

// condition holds the parts of a result whose changes are logged.
type condition struct {
	problem bool
	// deficit is empty for none.
	deficit string
}

func (r *result[T]) condition() condition {
	s := condition{problem: r.Problem != ""}
	if r.Deficit > 0 {
		s.deficit = formatQuantity(r.Deficit)
	}

	return s
}

// change returns the amount to write; nil for none.
func (r *result[T]) change() *T {
	if !r.NeedsWrite {
		return nil
	}

	return &r.Advertise
}

// logCondition logs the beginning and the end of problems and deficits.
func (t *tracker[T]) logCondition(log logr.Logger, r *result[T]) {
	before := t.logged
	now := r.condition()
	t.logged = now
	switch {
	case now.problem && !before.problem:
		log.Info("offering nothing more because an input is unknown", "resource", t.elastic, "problem", r.Problem)
	case !now.problem && before.problem:
		log.Info("all inputs of the offer are known again", "resource", t.elastic)
	}

	if now.deficit != "" && before.deficit == "" {
		log.Info("pods hold more than the offer; a rule on ext_cpu_total_distribute above 100 evicts for it", "resource", t.elastic, "deficit", now.deficit)
	}
}

// report reports a change, if there is one, with gocrane's event text. In a dry run it records what the node would advertise.
func (t *tracker[T]) report(emit func(report.Action), node *corev1.Node, r *result[T], enforced bool) {
	to := r.change()
	if to == nil {
		return
	}

	a := report.Action{
		Kind:        report.NodeResource,
		Outcome:     report.Done,
		EventReason: ensurancev1alpha1.ReasonUpdateNode,
		Container:   string(t.elastic),
		To:          formatQuantity(*to),
	}

	before, _ := t.advertised(node)
	if !enforced {
		before = t.dryRun
		a.Outcome = report.NotEnforced
		a.EventReason = ""
		t.dryRun = *to
		t.notInDryRun = false
	}

	a.From = formatQuantity(before)
	a.Reason = fmt.Sprintf("Updating elastic resource %s-%s with %d.", sourceLabel(r.NeedSource), t.name, int64(*to/t.unit))
	emit(a)
}

// sourceLabel returns gocrane's name for the source of the need.
func sourceLabel(s model.Source) string {
	if s == model.SourceForecast {
		return "tsp"
	}

	return "local"
}
