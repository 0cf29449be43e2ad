// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/series"
)

// collectFromPrometheus reads workloads and history and computes the recommendations.
func (o *recommendOptions) collectFromPrometheus(ctx context.Context, s Streams) (*report, error) {
	if err := o.prometheus.discoverServer(ctx, o.kubernetes, func(text string) { fmt.Fprintln(s.Err, text) }); err != nil {
		return nil, err
	}

	source, err := o.prometheus.open()
	if err != nil {
		return nil, err
	}

	progress := newProgress(s.Err, "checking Prometheus", source.Stats)
	defer progress.stop()

	if err := o.probe(ctx, source, progress); err != nil {
		return nil, err
	}

	progress.setPhase("listing workloads")
	state := newClusterState(o.kubernetes, o.namespaces, source, o.prometheus.serverName(), func(text string) { fmt.Fprintln(progress, text) })
	workloads, err := state.workloads(ctx)
	if err != nil {
		return nil, err
	}

	now := time.Now()
	deserted := state.emptyNamespaces(ctx, workloads)
	if len(workloads) == 0 {
		out := o.newReport(now)
		out.sources = state.reportSources()
		out.emptyNamespaces = deserted

		return out, nil
	}

	for _, d := range deserted {
		fmt.Fprintln(progress, "Warning: "+d)
	}

	if state.sources.requestsUnknown && o.needsRequests() {
		return nil, errors.New("--fail-on and --only compare with the current requests, which are unknown: " +
			"there is neither a Kubernetes API nor the metric kube_pod_container_resource_requests in Prometheus")
	}

	if workloads, err = o.selectWorkloads(workloads); err != nil {
		return nil, err
	}

	progress.setPhase("listing nodes and autoscalers")
	limits, err := state.constraints(ctx)
	if err != nil {
		return nil, err
	}

	progress.setPhase("reading the history of " + series.FormatCount(len(workloads), "workload"))
	usage, err := o.collectUsage(ctx, source, progress, profile.Request{
		Workloads:  workloads,
		End:        now.Truncate(time.Minute),
		Length:     o.historyLength,
		NodeGroups: limits.Nodes.Of,
		Reaction:   o.reaction,
	})

	if err != nil {
		return nil, err
	}

	usage.SetConstraints(limits)
	out := o.newReport(now)
	action := "computing"
	if out.withReplays {
		action = "computing and replaying"
	}

	for i, w := range workloads {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		progress.setPhase(fmt.Sprintf("%s %d of %d workloads", action, i+1, len(workloads)))
		in := o.decisionInput(w, usage, now)
		out.add(w, resource.Decide(in), usage, in)
	}

	out.sortByName()
	progress.setPhase("pricing nodes")

	if err := o.priceReport(ctx, out, state, limits.Nodes.Of); err != nil {
		return nil, err
	}

	if isPatch(o.output) && o.output != outputHelmValues {
		progress.setPhase("reading pod templates")
		if err := state.findTemplates(ctx, out); err != nil {
			return nil, err
		}
	}

	out.sources = state.reportSources()
	return out, nil
}

// needsRequests reports whether the flags compare with the current requests.
func (o *recommendOptions) needsRequests() bool {
	return len(o.failRules) > 0 || slices.ContainsFunc(o.view.only, func(only string) bool { return only != onlyLearning })
}

// collectUsage reads the history, and finished days from the cache if available.
func (o *recommendOptions) collectUsage(
	ctx context.Context, source *prometheus.Source, progress *progress, req profile.Request,
) (*profile.Usage, error) {
	note := func(text string) { fmt.Fprintln(progress, "Warning: "+text) }
	cache := o.cache.open(note)
	usage, err := profile.Collect(ctx, profile.Source{Capabilities: source.Capabilities(), Cache: cache}, req)

	if cache != nil && ctx.Err() != nil {
		fmt.Fprintln(progress, "Finished days are cached in "+cache.Dir+"; the next run continues from them.")
	}

	if cache != nil {
		if err := cache.Prune(); err != nil {
			note(err.Error())
		}
	}

	return usage, err
}

// probe reports missing metrics before the history is read.
func (o *recommendOptions) probe(ctx context.Context, source *prometheus.Source, progress *progress) error {
	found, err := source.ProbeWithoutHistory(ctx)
	if err != nil {
		return err
	}

	for _, w := range found.Warnings {
		fmt.Fprintln(progress, "Warning: "+w)
	}

	missing, none := missingRequired(found)
	if none {
		return fmt.Errorf("%s responds, but required metrics are missing: %s", o.prometheus.serverName(), strings.Join(missing, "; "))
	}

	for _, m := range missing {
		fmt.Fprintln(progress, "Warning: missing "+m)
	}

	return nil
}

// collectFromFiles reads each CSV file as a workload with one container and computes its recommendation at its last
// sample.
func (o *recommendOptions) collectFromFiles(ctx context.Context, s Streams) (*report, error) {
	progress := newProgress(s.Err, "reading the files", nil)
	defer progress.stop()

	files, skipped, err := csv.ReadDir(o.from)
	for _, f := range skipped {
		fmt.Fprintln(progress, f)
	}

	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}

	source := csv.NewSource(files, metrics.UsageKind(o.resource))
	start, end, ok := source.Span()
	out := o.newReport(end)

	out.resources = []metrics.UsageKind{metrics.UsageKind(o.resource)}
	out.sources = sources{history: o.from}
	if !ok {
		return out, nil
	}

	workloads := make([]workload.Workload, len(files))
	ends := make(map[string]time.Time, len(files))
	for i, f := range files {
		ends[f.Name] = f.Series.End()
		workloads[i] = workload.Workload{
			Ref:        workload.Ref{Kind: csv.Kind, Name: f.Name},
			Replicas:   1,
			Containers: []workload.Container{{Name: f.Name, Role: workload.App}},
		}
	}

	if workloads, err = o.selectWorkloads(workloads); err != nil {
		return nil, err
	}

	usage, err := profile.Collect(ctx, profile.Source{Capabilities: source.Capabilities()}, profile.Request{
		Workloads: workloads,
		End:       end,
		Length:    end.Sub(start),
		Reaction:  o.reaction,
	})
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", o.from, err)
	}

	for i, w := range workloads {
		progress.setPhase(fmt.Sprintf("sizing %d of %d workloads", i+1, len(workloads)))
		now := ends[w.Name]
		in := o.decisionInput(w, usage, now)
		in.Containers[0].Raisable = true // Files have no requests or limits.
		plan := resource.Decide(in)
		plan.Description = o.fileDescription(plan)
		out.add(w, plan, usage, in)
	}

	return out, nil
}

// fileDescription returns the message of the one resource of a file.
func (o *recommendOptions) fileDescription(plan resource.Plan) string {
	c := plan.Containers[0]
	if o.resource == string(metrics.Memory) {
		return "memory: " + c.Memory.Message
	}

	return "cpu: " + c.CPU.Message
}
