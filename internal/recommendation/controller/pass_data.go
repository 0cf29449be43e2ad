// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/recommend/resource"
)

// errNoHourlyData tells a recommender that reads figures by the hour that no data source has them.
var errNoHourlyData = errors.New("no data source has figures by the hour: this recommender needs Prometheus")

// passData is what one pass reads. All recommenders of a rule share it: whatever two of them ask for is read once, when the
// first asks. It is used by one goroutine.
type passData struct {
	now time.Time
	// historyEnd is now without the running minute, whose samples are not complete.
	historyEnd time.Time
	// reader reads watched kinds from the cache; live reads the API server, which for lists means page by page.
	reader, live client.Reader
	lister       *workload.Lister

	// history keeps what it finds out about pods, where it can, for as long as the pass reads.
	history        profile.Source
	historyTimeout time.Duration
	listTimeout    time.Duration
	pricer         Pricer

	// usageTargets are the workloads of whose use somebody decides, window how far back the furthest of them looks, and totals
	// whether somebody looks at workloads as a whole.
	usageTargets []workload.Workload
	window       time.Duration
	totals       bool

	read struct {
		usage       *profile.Usage
		constraints *workload.Constraints
		prices      *priceData
		priced      bool
	}
	// objects are the objects that several recommenders look at.
	objects clusterObjects
	// plans are those of the Resource recommender, for whoever decides with them.
	plans map[workload.Ref]resource.Plan
}

// newPassData is what a pass over some tasks may read.
func (r *RuleReconciler) newPassData(now time.Time, tasks []task) *passData {
	w := &passData{
		now: now, historyEnd: now.Truncate(time.Minute), reader: r.Client, live: r.Live, lister: r.Lister,
		history: r.History, historyTimeout: r.HistoryTimeout, listTimeout: r.ListTimeout, pricer: r.Pricer,
		plans: map[workload.Ref]resource.Plan{},
	}
	w.history.Capabilities = w.history.WithCache()
	seen := map[identity]bool{}
	for _, t := range tasks {
		reader, uses := t.recommender.evaluator.(usageConsumer)
		if !uses {
			continue
		}
		w.window = max(w.window, reader.usageWindow())
		if whole, asks := t.recommender.evaluator.(totalsConsumer); asks {
			w.totals = w.totals || whole.needsTotals()
		}
		if id := identityOf(t.target.Ref, ""); !seen[id] {
			seen[id] = true
			w.usageTargets = append(w.usageTargets, t.target)
		}
	}
	return w
}

// totalsConsumer is a usageConsumer that looks at the use of a workload as a whole, pod by pod added up.
type totalsConsumer interface{ needsTotals() bool }

// usage is what the containers of the pass's workloads used.
func (w *passData) usage(ctx context.Context) (*profile.Usage, error) {
	if w.read.usage != nil {
		return w.read.usage, nil
	}
	limits, err := w.constraints(ctx)
	if err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, w.historyTimeout)
	defer cancel()
	usage, err := profile.Collect(reading, w.history, profile.Request{
		Workloads: w.usageTargets, End: w.historyEnd, Length: w.window, NodeGroups: limits.Nodes.Of, Totals: w.totals,
	})
	if err != nil {
		return nil, &sourceError{err}
	}
	usage.SetConstraints(limits)
	w.read.usage = usage
	return usage, nil
}

// constraints are nodes and autoscalers. A pass must not go on without: a request that moves alone changes what an
// autoscaler does.
func (w *passData) constraints(ctx context.Context) (workload.Constraints, error) {
	if w.read.constraints != nil {
		return *w.read.constraints, nil
	}
	listing, cancel := context.WithTimeout(ctx, w.listTimeout)
	defer cancel()
	limits, err := w.lister.Constraints(listing, nil)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("reading what the cluster sets to sizes: %w", err)
	}
	w.read.constraints = &limits
	return limits, nil
}

// sourceError tells that the source of history has failed, and not the API server.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// wrapSourceError marks an error of the source; where it has no such figures, that is what is said.
func wrapSourceError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, metrics.ErrUnsupported):
		return &sourceError{errNoHourlyData}
	}
	return &sourceError{err}
}
