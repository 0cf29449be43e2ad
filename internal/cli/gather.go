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
)

// fromPrometheus reads inventory and history and decides.
func (o *recommendOptions) fromPrometheus(ctx context.Context, s Streams) (*report, error) {
	if err := o.prometheus.locate(ctx, o.kubernetes, func(text string) { fmt.Fprintln(s.Err, text) }); err != nil {
		return nil, err
	}
	source, err := o.prometheus.open()
	if err != nil {
		return nil, err
	}
	progress := newProgress(s.Err, source.Stats)
	defer progress.stop()

	progress.phase("looking at Prometheus")
	if err := o.probe(ctx, s, source, progress); err != nil {
		return nil, err
	}
	progress.phase("listing workloads")
	around := newSurroundings(o.kubernetes, o.namespaces, source, o.prometheus.server(), func(text string) { progress.note(s.Err, text) })
	workloads, err := around.workloads(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	deserted := around.deserted(ctx, workloads)
	if len(workloads) == 0 {
		out := o.newReport(now)
		out.sources, out.deserted = around.sources(), deserted
		return out, nil
	}
	for _, d := range deserted {
		progress.note(s.Err, "Warning: "+d)
	}
	if around.from.requestsUnknown && o.needsRequests() {
		return nil, errors.New("--fail-on and --only compare with the requests of today, and nobody's are known: " +
			"there is no Kubernetes API, and no kube_pod_container_resource_requests in Prometheus")
	}
	if workloads, err = o.narrow(workloads); err != nil {
		return nil, err
	}
	progress.phase("looking at nodes and autoscalers")
	limits, err := around.constraints(ctx)
	if err != nil {
		return nil, err
	}
	progress.phase(fmt.Sprintf("reading the history of %d workloads", len(workloads)))
	usage, err := o.collect(ctx, s, source, progress, profile.Request{
		Workloads: workloads, End: now.Truncate(time.Minute), Length: o.length, NodeGroups: limits.Nodes.Of,
	})
	if err != nil {
		return nil, err
	}
	usage.SetConstraints(limits)
	out := o.newReport(now)
	doing := "deciding for"
	if out.replays {
		doing = "deciding and replaying"
	}
	for i, w := range workloads {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		progress.phase(fmt.Sprintf("%s %d of %d workloads", doing, i+1, len(workloads)))
		in := o.inputOf(w, usage, now)
		out.add(w, resource.Decide(in), usage, in)
	}
	out.sort()
	progress.phase("pricing the nodes")
	if err := o.price(ctx, out, around); err != nil {
		return nil, err
	}
	if isPatch(o.output) && o.output != outputHelmValues {
		progress.phase("looking for pod templates")
		if err := around.findTemplates(ctx, out); err != nil {
			return nil, err
		}
	}
	out.sources = around.sources()
	return out, nil
}

// needsRequests reports whether the flags ask for a comparison with what is requested today.
func (o *recommendOptions) needsRequests() bool {
	return len(o.failRules) > 0 || slices.ContainsFunc(o.view.only, func(only string) bool { return only != onlyLearning })
}

// collect reads the history, finished days from the cache where they are there.
func (o *recommendOptions) collect(
	ctx context.Context, s Streams, source *prometheus.Source, progress *progress, req profile.Request,
) (*profile.Usage, error) {
	note := func(text string) { progress.note(s.Err, "Warning: "+text) }
	cache := o.cache.open(note)
	usage, err := profile.Collect(ctx, profile.Source{Usage: source, OOMs: source, Cache: cache}, req)
	if cache != nil && ctx.Err() != nil {
		progress.note(s.Err, "Finished days are kept in "+cache.Dir+": the next run goes on from there.")
	}
	if cache != nil {
		if err := cache.Prune(); err != nil {
			note(err.Error())
		}
	}
	return usage, err
}

// probe says at once what the server lacks, rather than after a long reading.
func (o *recommendOptions) probe(ctx context.Context, s Streams, source *prometheus.Source, progress *progress) error {
	found, err := source.ProbeWithoutHistory(ctx)
	if err != nil {
		return err
	}
	for _, w := range found.Warnings {
		progress.note(s.Err, "Warning: "+w)
	}
	missing, none := lacks(found)
	if none {
		return fmt.Errorf("%s answers and lacks what is needed: %s", o.prometheus.server(), strings.Join(missing, "; "))
	}
	for _, m := range missing {
		progress.note(s.Err, "Warning: missing "+m)
	}
	return nil
}

// fromFiles takes each CSV file as a workload with one container, and its last sample as now.
func (o *recommendOptions) fromFiles(ctx context.Context, s Streams) (*report, error) {
	files, skipped, err := csv.ReadDir(o.from)
	for _, f := range skipped {
		fmt.Fprintln(s.Err, f)
	}
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	source := csv.NewSource(files, metrics.Resource(o.resource))
	start, end, ok := source.Span()
	out := o.newReport(end)
	out.resources = []metrics.Resource{metrics.Resource(o.resource)}
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
	if workloads, err = o.narrow(workloads); err != nil {
		return nil, err
	}
	usage, err := profile.Collect(ctx, profile.Source{Usage: source}, profile.Request{
		Workloads: workloads, End: end, Length: end.Sub(start),
	})
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", o.from, err)
	}
	for _, w := range workloads {
		now := ends[w.Name]
		in := o.inputOf(w, usage, now)
		plan := resource.Decide(in)
		plan.Description = o.describeFile(plan)
		out.add(w, plan, usage, in)
	}
	return out, nil
}

// describeFile speaks of the one resource that a file is about.
func (o *recommendOptions) describeFile(plan resource.Plan) string {
	c := plan.Containers[0]
	if o.resource == string(metrics.Memory) {
		return "memory: " + c.Memory.Message
	}
	return "cpu: " + c.CPU.Message
}
