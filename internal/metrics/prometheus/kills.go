// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"iter"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

// Metrics of kube-state-metrics about the ends of containers. Those of init containers, which include sidecars, have names of their own.
const (
	oomReasonMetric      = "kube_pod_container_status_last_terminated_reason"
	initOOMReasonMetric  = "kube_pod_init_container_status_last_terminated_reason"
	endReasonMetric      = "kube_pod_container_status_terminated_reason"
	initEndReasonMetric  = "kube_pod_init_container_status_terminated_reason"
	restartsMetric       = "kube_pod_container_status_restarts_total"
	initRestartsMetric   = "kube_pod_init_container_status_restarts_total"
	byRun                = "namespace, pod, container, uid"
	figureLabel          = "figure"
	restartsFigure       = "restarts"
	limitFigure          = "limit"
	limitsExportedFigure = "limits exported"
)

// OOMKills implements metrics.OOMReader. A kill is a higher count of the kernel, which the kubelet exports, or the first appearance of the reason OOMKilled for a pod's container, in its last or its
// current state, or a restart while it is there; several within one step count as one. The step that contains the end of the window is read
// as far as it goes. What the server rejects as too large is unknown for that namespace alone.
func (e *eventReader) OOMKills(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.OOMKill, error] {
	return func(yield func(metrics.OOMKill, error) bool) {
		if w.Step == 0 {
			w.Step = time.Hour
		}

		if err := checkStep(w.Step); err != nil {
			yield(metrics.OOMKill{}, fmt.Errorf("OOM kills: %w", err))
			return
		}

		from := ceilTime(w.Start, w.Step)
		end := w.End.UTC().Truncate(time.Second)
		if now := e.now().UTC().Truncate(time.Second); now.Before(end) {
			end = now
		}

		if !from.Before(end) {
			return
		}

		counted, ok := e.eventKills(ctx, metrics.Window{Start: from, End: end, Step: w.Step}, newScope(namespaces), yield)
		if !ok {
			return
		}

		reasons := OneOf("__name__", []string{oomReasonMetric, initOOMReasonMetric, endReasonMetric, initEndReasonMetric})
		in, err := e.scopeOf(ctx, namespaces, e.expr.selector("", reasons, oomKilled()), from, end)
		if err != nil {
			yield(metrics.OOMKill{}, err)
			return
		}

		in, err = e.owners.clusters.narrow(ctx, in)
		if err != nil {
			yield(metrics.OOMKill{}, err)
			return
		}

		if len(in.names) == 0 {
			return
		}

		// The step before the window shows which kills are older.
		k := &killDetector{
			events:  e,
			in:      in,
			step:    w.Step,
			start:   from,
			runs:    map[runKey]run{},
			unknown: map[string]string{},
		}
		for from := from.Add(-w.Step); from.Before(end); {
			to := from.Add(w.Step).Truncate(day).Add(day) // The step before the window belongs to its first day.
			if to.After(end) {
				to = end
			}

			kills, err := k.read(ctx, from, to)
			if err != nil {
				yield(metrics.OOMKill{}, fmt.Errorf("OOM kills on %s: %w", from.Format(time.DateOnly), err))
				return
			}

			for _, kill := range kills {
				if counted.has(kill, w.Step) {
					continue
				}
				if !yield(kill, nil) {
					return
				}
			}

			from = to
		}

		for namespace, reason := range k.unknown {
			if !yield(unknownKills(namespace, reason), nil) {
				return
			}
		}
	}
}

// unknownKills returns the element of a namespace whose kills cannot be read.
func unknownKills(namespace, reason string) metrics.OOMKill {
	return metrics.OOMKill{Key: metrics.ContainerKey{Workload: newRef(namespace, "", "")}, Unknown: reason}
}

func oomKilled() Matcher { return Matcher{Label: "reason", Op: "=", Value: "OOMKilled"} }

// killDetector finds kills in consecutive days.
type killDetector struct {
	events *eventReader
	in     scope
	step   time.Duration
	// start is the start of the window; earlier kills are only remembered.
	start time.Time
	runs  map[runKey]run
	// unknown has the reason by namespace why kills cannot be read.
	unknown map[string]string
}

// tooLarge records that the kills of a namespace cannot be read.
func (k *killDetector) tooLarge(namespace string, err error) error {
	k.unknown[namespace] = metrics.PublicMessage(err)
	return nil
}

// runKey is a container of one pod. The UID, which older versions of kube-state-metrics do not export, distinguishes pods of one name.
type runKey struct {
	rowKey

	uid string
}

// run is the last known state of a container whose last end was a kill.
type run struct{ restarts float64 }

// observation is what is known about the containers that were killed in or before a step.
type observation struct {
	// at is the start of the step.
	at       time.Time
	restarts map[runKey]float64
	limits   map[rowKey]float64
	// limitsExported has the namespaces in which the limit of any container is known: one without has none. It is decided by namespace, so
	// that a read of one namespace and one of all agree.
	limitsExported map[string]bool
}

// read reads the kills of a day, or of the part of it within the window.
func (k *killDetector) read(ctx context.Context, from, to time.Time) ([]metrics.OOMKill, error) {
	observations, err := k.observe(ctx, from, to)
	if err != nil {
		return nil, err
	}

	var kills []metrics.OOMKill
	var found []string
	for _, o := range observations {
		for key, restarts := range o.restarts {
			if !k.isKill(key, restarts) || o.at.Before(k.start) {
				continue
			}

			limit, limited := o.limits[key.rowKey]
			kills = append(kills, metrics.OOMKill{
				Key:     metrics.ContainerKey{Workload: newRef(key.namespace, "Pod", key.pod), Pod: key.pod, Container: key.container},
				Time:    o.at,
				Memory:  units.Bytes(limit),
				NoLimit: !limited && o.limitsExported[key.namespace],
			})
			found = append(found, key.namespace)
		}
	}

	if len(kills) == 0 {
		return nil, nil
	}

	owners, err := k.events.owners.read(ctx, from, to, newScope(found))
	if err != nil {
		return nil, err
	}

	for i := range kills {
		key := &kills[i].Key
		key.Workload, key.Node = owners.resolve(key.Workload.Namespace, key.Pod)
	}

	return kills, nil
}

// isKill updates the state of a container and reports whether it was killed since the last one. The restarts of a pod never fall, so a
// lower number is that of another pod of the same name, or of a kube-state-metrics that starts.
func (k *killDetector) isKill(key runKey, restarts float64) bool {
	last, known := k.runs[key]
	if known && restarts < last.restarts && key.uid != "" {
		return false
	}

	k.runs[key] = run{restarts: restarts}
	return !known || restarts != last.restarts
}

// observe reads the steps of [from, to): the whole ones with a query on the grid, the rest with one at its end.
func (k *killDetector) observe(ctx context.Context, from, to time.Time) ([]observation, error) {
	whole := int(to.Sub(from) / k.step)
	out := make([]observation, whole, whole+1)
	for i := range out {
		at := from.Add(time.Duration(i) * k.step)
		out[i] = newObservation(at)
	}

	if whole > 0 {
		// The value at t covers (t-step, t].
		w := metrics.Window{Start: from.Add(k.step), End: from.Add(time.Duration(whole+1) * k.step), Step: k.step}
		err := k.events.eachBatchOr(ctx, k.in, func(matchers []Matcher) error {
			list, err := k.events.Range(ctx, k.events.expr.oomKills(k.step, matchers), w)
			for _, l := range list {
				for i, v := range l.Values {
					out[i].add(l.Labels, v)
				}
			}

			return err
		}, k.tooLarge)
		if err != nil {
			return nil, err
		}
	}

	restStart := from.Add(time.Duration(whole) * k.step)
	rest := to.Sub(restStart)
	if rest < time.Second {
		return out, nil
	}

	last := newObservation(restStart)
	err := k.events.eachBatchOr(ctx, k.in, func(matchers []Matcher) error {
		list, err := k.events.Instant(ctx, k.events.expr.oomKills(rest, matchers), to)
		for _, sample := range list {
			last.add(sample.Labels, sample.Value)
		}

		return err
	}, k.tooLarge)

	return append(out, last), err
}

func newObservation(at time.Time) observation {
	return observation{
		at:             at,
		restarts:       map[runKey]float64{},
		limits:         map[rowKey]float64{},
		limitsExported: map[string]bool{},
	}
}

// add adds a value of the query of kills.
func (o *observation) add(l metrics.Labels, v float64) {
	key := rowKey{l["namespace"], l["pod"], l["container"]}
	if !(v >= 0 && v <= maxAmount) {
		return
	}

	switch l[figureLabel] {
	case restartsFigure:
		if key.namespace != "" && key.pod != "" && key.container != "" {
			o.restarts[runKey{key, l["uid"]}] = v
		}

	case limitFigure:
		if v > 0 {
			o.limits[key] = v
		}
	case limitsExportedFigure:
		o.limitsExported[key.namespace] = true
	}
}

// oomKills returns the query of the containers whose last or current end within a window is a kill: their restarts, which are 0 where they
// are not exported, their memory limits, and the namespaces with any limit. The window, rather than its end, counts, because pods are
// deleted or replaced soon after a kill.
func (x expressions) oomKills(window time.Duration, matchers []Matcher) string {
	over := func(by string, names []string, more ...Matcher) string {
		sel := x.selector("", append(append([]Matcher{OneOf("__name__", names)}, more...), matchers...)...)
		return fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", by, sel, openRange(window))
	}
	figure := func(expr, name string) string {
		return fmt.Sprintf(`label_replace(%s, %q, %q, "", "")`, expr, figureLabel, name)
	}

	killed := fmt.Sprintf("(max by (%s) (%s or %s) == 1)", byRun,
		over(byRun, []string{oomReasonMetric, initOOMReasonMetric}, oomKilled()), over(byRun, []string{endReasonMetric, initEndReasonMetric}, oomKilled()))
	restarts := over(byRun, []string{restartsMetric, initRestartsMetric})
	limits := over(byContainer, []string{limitsMetric, initLimitsMetric}, Matcher{Label: "resource", Op: "=", Value: "memory"})

	return fmt.Sprintf("%s or %s or %s",
		figure(fmt.Sprintf("((%s and on (%s) %s) or (0 * %s))", restarts, byRun, killed, killed), restartsFigure),
		figure(fmt.Sprintf("(%s and on (%s) %s)", limits, byContainer, killed), limitFigure),
		figure(fmt.Sprintf("(count by (namespace) (%s) and on (namespace) count by (namespace) (%s))", limits, killed), limitsExportedFigure))
}
