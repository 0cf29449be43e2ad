// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// collector computes the recommendations of workloads from their history.
type collector struct {
	// prometheus has the history. from is a directory of CSV files that is read instead, of one resource.
	prometheus     *prometheusFlags
	cache          cacheFlags
	from, resource string
	// kubernetes has the workloads, the nodes and the autoscalers of the namespaces; all without any.
	kubernetes *kubernetesFlags
	namespaces []string
	// selectWorkloads returns the workloads whose history is read.
	selectWorkloads func([]workload.Workload) ([]workload.Workload, error)

	policies      rightsize.PolicySet
	historyLength time.Duration
	prices        *cost.PriceBook
	// reaction calibrates for workloads whose pods craned raises within the day.
	reaction bool
	// forPatches ignores autoscalers, because the patch of a request cannot change their targets.
	forPatches bool
	// readTemplates locates the pod templates of custom kinds; nil if they are not needed.
	readTemplates func(context.Context, *clusterState, *sizeReport) error
	// needsRequests rejects sources without the current requests.
	needsRequests bool
	// withReplays replays each recommendation; keepInputs keeps the inputs of the decisions.
	withReplays, keepInputs bool

	// output gets the progress and the warnings.
	output io.Writer
}

// collect computes the recommendations from Prometheus or from files.
func (c *collector) collect(ctx context.Context) (*sizeReport, error) {
	if c.from != "" {
		return c.collectFromFiles(ctx)
	}

	return c.collectFromPrometheus(ctx)
}

// collectFromPrometheus reads workloads and history and computes the recommendations.
func (c *collector) collectFromPrometheus(ctx context.Context) (*sizeReport, error) {
	if err := c.prometheus.discoverServer(ctx, c.kubernetes, func(text string) { fmt.Fprintln(c.output, text) }); err != nil {
		return nil, err
	}

	source, err := c.prometheus.open()
	if err != nil {
		return nil, err
	}

	progress := newProgress(c.output, "checking Prometheus", source.Stats)
	defer progress.stop()

	if err := c.probe(ctx, source, progress); err != nil {
		return nil, err
	}

	progress.setPhase("listing workloads")
	state := newClusterState(c.kubernetes, c.namespaces, source, c.prometheus.serverName(), func(text string) { fmt.Fprintln(progress, text) })
	workloads, err := state.workloads(ctx)
	if err != nil {
		return nil, err
	}

	now := time.Now()
	deserted := state.emptyNamespaces(ctx, workloads)
	if len(workloads) == 0 {
		out := c.newReport(now)
		out.sources = state.reportSources()
		out.emptyNamespaces = deserted

		return out, nil
	}

	for _, d := range deserted {
		fmt.Fprintln(progress, "Warning: "+d)
	}

	if state.sources.requestsUnknown && c.needsRequests {
		return nil, errors.New("--fail-on and --only compare with the current requests, which are unknown: " +
			"there is neither a Kubernetes API nor the metric kube_pod_container_resource_requests in Prometheus")
	}

	if workloads, err = c.selectWorkloads(workloads); err != nil {
		return nil, err
	}

	progress.setPhase("listing nodes and autoscalers")
	limits, err := state.constraints(ctx)
	if err != nil {
		return nil, err
	}

	progress.setPhase("reading the history of " + series.FormatCount(len(workloads), "workload"))
	usage, err := c.collectUsage(ctx, source, progress, profile.Request{
		Workloads:  workloads,
		End:        now.Truncate(time.Minute),
		Length:     c.historyLength,
		NodeGroups: limits.Nodes.Of,
		Reaction:   c.reaction,
	})

	if err != nil {
		return nil, err
	}

	usage.SetConstraints(limits)
	out := c.newReport(now)
	action := "computing"
	if out.withReplays {
		action = "computing and replaying"
	}

	for i, w := range workloads {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		progress.setPhase(fmt.Sprintf("%s %d of %d workloads", action, i+1, len(workloads)))
		in := c.decisionInput(w, usage, now)
		out.add(w, resource.Decide(in), usage, in)
	}

	out.sortByName()
	progress.setPhase("pricing nodes")

	if err := c.priceReport(ctx, out, state, limits.Nodes.Of); err != nil {
		return nil, err
	}

	if c.readTemplates != nil {
		progress.setPhase("reading pod templates")
		if err := c.readTemplates(ctx, state, out); err != nil {
			return nil, err
		}
	}

	out.sources = state.reportSources()
	return out, nil
}

// collectUsage reads the history, and finished days from the cache if available.
func (c *collector) collectUsage(
	ctx context.Context, source *prometheus.Source, progress *progress, req profile.Request,
) (*profile.Usage, error) {
	note := func(text string) { fmt.Fprintln(progress, "Warning: "+text) }
	cache := c.cache.open(note)
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
func (c *collector) probe(ctx context.Context, source *prometheus.Source, progress *progress) error {
	found, err := source.ProbeWithoutHistory(ctx)
	if err != nil {
		return err
	}

	for _, w := range found.Warnings {
		fmt.Fprintln(progress, "Warning: "+w)
	}

	missing, none := missingRequired(found)
	if none {
		return fmt.Errorf("%s responds, but required metrics are missing: %s", c.prometheus.serverName(), strings.Join(missing, "; "))
	}

	for _, m := range missing {
		fmt.Fprintln(progress, "Warning: missing "+m)
	}

	return nil
}

// collectFromFiles reads each CSV file as a workload with one container and computes its recommendation at its last
// sample.
func (c *collector) collectFromFiles(ctx context.Context) (*sizeReport, error) {
	progress := newProgress(c.output, "reading the files", nil)
	defer progress.stop()

	files, skipped, err := csv.ReadDir(c.from)
	for _, f := range skipped {
		fmt.Fprintln(progress, f)
	}

	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}

	source := csv.NewSource(files, metrics.UsageKind(c.resource))
	start, end, ok := source.Span()
	out := c.newReport(end)

	out.resources = []metrics.UsageKind{metrics.UsageKind(c.resource)}
	out.sources = sources{history: c.from}
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

	if workloads, err = c.selectWorkloads(workloads); err != nil {
		return nil, err
	}

	usage, err := profile.Collect(ctx, profile.Source{Capabilities: source.Capabilities()}, profile.Request{
		Workloads: workloads,
		End:       end,
		Length:    end.Sub(start),
		Reaction:  c.reaction,
	})
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", c.from, err)
	}

	for i, w := range workloads {
		progress.setPhase(fmt.Sprintf("sizing %d of %d workloads", i+1, len(workloads)))
		now := ends[w.Name]
		in := c.decisionInput(w, usage, now)
		in.Containers[0].Raisable = true // Files have no requests or limits.
		plan := resource.Decide(in)
		plan.Description = c.fileDescription(plan)
		out.add(w, plan, usage, in)
	}

	return out, nil
}

// fileDescription returns the message of the one resource of a file.
func (c *collector) fileDescription(plan resource.Plan) string {
	only := plan.Containers[0]
	if c.resource == string(metrics.Memory) {
		return "memory: " + only.Memory.Message
	}

	return "cpu: " + only.CPU.Message
}
