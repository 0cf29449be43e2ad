// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/recommend/resource"
)

// errNoHourlyData means that no data source has hourly figures.
var errNoHourlyData = errors.New("no data source has hourly figures: this recommender needs Prometheus")

// runData reads the data of one batch of a run. All recommenders of a rule share it, so that each figure is read once, when it is
// first needed. It is not safe for concurrent use.
type runData struct {
	now time.Time
	// historyEnd is the start of the current minute, whose samples are not complete.
	historyEnd time.Time
	// reader reads watched kinds from the cache; live reads the API server, lists page by page.
	reader, live client.Reader
	lister       *workload.Lister

	history        profile.Source
	historyTimeout time.Duration
	listTimeout    time.Duration
	pricer         Pricer

	// namespaces are those of the targets, from which namespaced objects are read; empty for all, if they are many or a recommender needs the
	// whole cluster.
	namespaces []string
	// usageTargets are the workloads whose usage is needed, window is the length of the history, and totals is set if a
	// recommender needs the sum over the pods of a workload.
	usageTargets []workload.Workload
	window       time.Duration
	totals       bool
	// reacting are the targets of the Resource recommender whose pods are raised within the day.
	reacting map[workload.Ref]bool

	read struct {
		usage       *profile.Usage
		constraints *workload.Constraints
		prices      *priceData
		priced      bool
	}
	objects clusterObjects
	// verticalAutoscalers are those of the cluster by target; nil before they are read.
	verticalAutoscalers map[workloadKey][]*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler
	// plans are those of the Resource recommender.
	plans map[workload.Ref]resource.Plan
}

// newRunData returns data that has read nothing yet.
func (r *RuleReconciler) newRunData(now time.Time, tasks []task) *runData {
	d := &runData{
		now:            now,
		historyEnd:     now.Truncate(time.Minute),
		reader:         r.Client,
		live:           r.Live,
		lister:         r.Lister,
		history:        r.History,
		historyTimeout: r.HistoryTimeout,
		listTimeout:    r.ListTimeout,
		pricer:         r.Pricer,
		plans:          map[workload.Ref]resource.Plan{},
		reacting:       map[workload.Ref]bool{},
	}

	d.history.Capabilities = d.history.WithCache()
	d.namespaces = scopeOf(tasks)
	// Usage is read once for all recommenders: for each target once, over the longest of their windows.
	seen := map[identity]bool{}
	for _, t := range tasks {
		reader, uses := t.recommender.evaluator.(usageConsumer)
		if !uses {
			continue
		}

		d.window = max(d.window, reader.usageWindow())
		if consumer, asks := t.recommender.evaluator.(totalsConsumer); asks {
			d.totals = d.totals || consumer.needsTotals()
		}
		if e, sizes := t.recommender.evaluator.(*resourceEvaluator); sizes && r.Reaction && e.reacts(t, r.Namespace) {
			d.reacting[t.target.Ref] = true
		}

		if id := identityOf(t.target.Ref, ""); !seen[id] {
			seen[id] = true
			d.usageTargets = append(d.usageTargets, t.target)
		}
	}

	return d
}

// maxScopes is the number of namespaces from which objects are read one by one.
const maxScopes = 8

// scopeOf returns the namespaces from which the recommenders of tasks read objects; nil for all.
func scopeOf(tasks []task) []string {
	distinct := map[string]bool{}
	for _, t := range tasks {
		if _, packs := t.recommender.evaluator.(*packingEvaluator); packs {
			return nil // Pods of all namespaces use the capacity of nodes.
		}

		distinct[t.target.Namespace] = true
	}

	if distinct[""] || len(distinct) > maxScopes {
		return nil
	}

	return slices.Sorted(maps.Keys(distinct))
}

// scopes returns the namespaces from which objects are read, the empty one for all.
func (d *runData) scopes() []string {
	if len(d.namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}

	return d.namespaces
}

// usage returns the usage of the containers of usageTargets.
func (d *runData) usage(ctx context.Context) (*profile.Usage, error) {
	if d.read.usage != nil {
		return d.read.usage, nil
	}

	limits, err := d.constraints(ctx)
	if err != nil {
		return nil, err
	}

	readCtx, cancel := context.WithTimeout(ctx, d.historyTimeout)
	defer cancel()

	usage, err := profile.Collect(readCtx, d.history, profile.Request{
		Workloads:  d.usageTargets,
		End:        d.historyEnd,
		Length:     d.window,
		NodeGroups: limits.Nodes.Of,
		Totals:     d.totals,
		Reaction:   len(d.reacting) > 0,
	})
	if err != nil {
		return nil, &sourceError{err}
	}

	usage.SetConstraints(limits)
	d.read.usage = usage
	return usage, nil
}

// constraints returns nodes and autoscalers. A batch fails without them, since a changed request changes the behavior of an
// autoscaler.
func (d *runData) constraints(ctx context.Context) (workload.Constraints, error) {
	if d.read.constraints != nil {
		return *d.read.constraints, nil
	}

	listCtx, cancel := context.WithTimeout(ctx, d.listTimeout)
	defer cancel()

	limits, err := d.lister.Constraints(listCtx, d.namespaces)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("reading nodes and autoscalers: %w", err)
	}

	d.read.constraints = &limits
	return limits, nil
}

// sourceError is an error of the source of history, as opposed to the API server.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// wrapSourceError returns an error of the source of history as a sourceError; nil for nil.
func wrapSourceError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, metrics.ErrUnsupported):
		return &sourceError{errNoHourlyData}
	}

	return &sourceError{err}
}
