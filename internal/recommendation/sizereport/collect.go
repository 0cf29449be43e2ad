// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizereport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Collector computes the recommendations of workloads from their history.
type Collector struct {
	// Prometheus has the history. from is a directory of CSV files that is read instead, of one resource.
	Prometheus     *historyserver.Server
	Cache          profile.CacheConfig
	From, Resource string
	// Kubernetes has the workloads, the nodes and the autoscalers of the namespaces; all without any.
	Kubernetes *clusteraccess.Access
	Namespaces []string
	// SelectWorkloads returns the workloads whose history is read.
	SelectWorkloads func([]workload.Workload) ([]workload.Workload, error)

	Policies      rightsize.PolicySet
	HistoryLength time.Duration
	Prices        *cost.PriceBook
	// Reaction calibrates for workloads whose pods craned raises within the day.
	Reaction bool
	// ForPatches ignores autoscalers, because the patch of a request cannot change their targets.
	ForPatches bool
	// ReadTemplates locates the pod templates of custom kinds, and what the rules of namespaces refuse; nil if neither is needed.
	ReadTemplates func(context.Context, *clusterstate.State, *Report) error
	// NeedsRequests rejects sources without the current requests.
	NeedsRequests bool
	// NeedsAllNamespaces rejects sources that leave out a selected namespace, because its series are of several clusters.
	NeedsAllNamespaces bool
	// WithReplays replays each recommendation; keepInputs keeps the inputs of the decisions.
	WithReplays, KeepInputs bool

	// Output gets the progress and the warnings.
	Output io.Writer
	// Now returns the current time; nil is time.Now.
	Now func() time.Time
}

// Collect computes the recommendations from Prometheus or from files.
func (c *Collector) Collect(ctx context.Context) (*Report, error) {
	if c.From != "" {
		return c.collectFromFiles(ctx)
	}

	return c.collectFromPrometheus(ctx)
}

func (c *Collector) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}

	return c.Now()
}

// collectFromPrometheus reads workloads and history and computes the recommendations.
func (c *Collector) collectFromPrometheus(ctx context.Context) (*Report, error) {
	if err := c.Prometheus.Discover(ctx, c.Kubernetes, func(text string) { termtext.Fprintln(c.Output, text) }); err != nil {
		return nil, err
	}

	source, err := c.Prometheus.Open()
	if err != nil {
		return nil, err
	}

	progress := progressline.New(c.Output, "checking Prometheus", source.Stats)
	defer progress.Stop()

	if err := c.probe(ctx, source, progress); err != nil {
		return nil, err
	}

	progress.SetPhase("listing workloads")
	state := clusterstate.New(c.Kubernetes, c.Namespaces, source, c.Prometheus.Name(), func(text string) { termtext.Fprintln(progress, text) })
	workloads, err := state.Workloads(ctx)
	if err != nil {
		return nil, err
	}

	now := c.now()
	deserted := state.EmptyNamespaces(ctx, workloads)
	if len(workloads) == 0 {
		out := c.NewReport(now)
		out.Sources = state.ReportSources()
		out.EmptyNamespaces = deserted

		return out, nil
	}

	for _, d := range deserted {
		termtext.Fprintln(progress, "Warning: "+d)
	}

	// Without current requests there is nothing to compare with.
	if state.Sources.RequestsUnknown && c.NeedsRequests {
		return nil, errors.New("--fail-on and --only compare with the current requests, which are unknown: " +
			"there is neither a Kubernetes API nor the metric kube_pod_container_resource_requests in Prometheus")
	}

	workloads, err = c.SelectWorkloads(workloads)
	if err != nil {
		return nil, err
	}

	return c.compute(ctx, source, state, progress, workloads, now)
}

// compute reads the history of the workloads, and computes and prices their recommendations.
func (c *Collector) compute(
	ctx context.Context, source *prometheus.Source, state *clusterstate.State, progress *progressline.Line, workloads []workload.Workload, now time.Time,
) (*Report, error) {
	progress.SetPhase("listing nodes and autoscalers")
	limits, err := state.Constraints(ctx)
	if err != nil {
		return nil, err
	}

	progress.SetPhase("reading the history of " + units.FormatCount(len(workloads), "workload"))
	usage, err := c.collectUsage(ctx, source, progress, profile.Request{
		Workloads:  workloads,
		End:        now.Truncate(time.Minute),
		Length:     c.HistoryLength,
		NodeGroups: limits.Nodes.Of,
		Reaction:   c.Reaction,
	})
	if err != nil {
		return nil, err
	}

	usage.SetConstraints(limits)
	out := c.NewReport(now)

	// Replays take much longer than the recommendations, so the progress names them.
	action := "computing"
	if out.WithReplays {
		action = "computing and replaying"
	}

	for i, w := range workloads {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		progress.SetPhase(fmt.Sprintf("%s %d of %d workloads", action, i+1, len(workloads)))
		in := c.decisionInput(w, usage, now)
		out.add(w, resource.Decide(in), usage, in)
	}

	out.sortByName()
	progress.SetPhase("pricing nodes")

	if err := c.priceReport(ctx, out, state, limits.Nodes.Of); err != nil {
		return nil, err
	}

	if c.ReadTemplates != nil {
		progress.SetPhase("reading pod templates")
		if err := c.ReadTemplates(ctx, state, out); err != nil {
			return nil, err
		}
	}

	out.Sources = state.ReportSources()
	return out, nil
}

// collectUsage reads the history, and finished days from the cache if available.
func (c *Collector) collectUsage(
	ctx context.Context, source *prometheus.Source, progress *progressline.Line, req profile.Request,
) (*profile.Usage, error) {
	note := func(text string) { termtext.Fprintln(progress, "Warning: "+text) }
	cache := c.Cache.Open(note)
	usage, err := profile.Collect(ctx, profile.Source{Capabilities: source.Capabilities(), Cache: cache}, req)

	if cache != nil && ctx.Err() != nil {
		termtext.Fprintln(progress, "Finished days are cached in "+cache.Dir+"; the next run continues from them.")
	}

	if cache != nil {
		if err := cache.Prune(); err != nil {
			note(err.Error())
		}
	}

	return usage, err
}

// probe reports missing metrics before the history is read.
func (c *Collector) probe(ctx context.Context, source *prometheus.Source, progress *progressline.Line) error {
	found, err := source.ProbeWithoutHistory(ctx)
	if err != nil {
		return err
	}

	if err := source.CheckClusters(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Prometheus.Name(), err)
	}

	leftOut, err := source.LeftOut(ctx, c.Namespaces)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Prometheus.Name(), err)
	}

	// A check must not pass for what it has not seen.
	if c.NeedsAllNamespaces && len(leftOut) > 0 {
		return fmt.Errorf("--fail-on checks each selected namespace, of which some cannot be read; select others with --namespace: %s", strings.Join(leftOut, "; "))
	}

	for _, w := range append(found.Warnings, leftOut...) {
		termtext.Fprintln(progress, "Warning: "+w)
	}

	missing, none := historyserver.MissingRequired(found)
	if none {
		lack := "responds, but required metrics are missing: " + strings.Join(missing, "; ")
		return metrics.WithPublicMessage(errors.New(c.Prometheus.Name()+" "+lack), "Prometheus "+lack)
	}

	for _, m := range missing {
		termtext.Fprintln(progress, "Warning: missing "+m)
	}

	return nil
}

// collectFromFiles reads each CSV file as a workload with one container and computes its recommendation at its last
// sample.
func (c *Collector) collectFromFiles(ctx context.Context) (*Report, error) {
	progress := progressline.New(c.Output, "reading the files", nil)
	defer progress.Stop()

	files, skipped, err := csv.ReadDir(c.From)
	for _, f := range skipped {
		termtext.Fprintln(progress, f)
	}

	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}

	source := csv.NewSource(files, metrics.UsageKind(c.Resource))
	start, end, ok := source.Span()
	out := c.NewReport(end)

	out.Resources = []metrics.UsageKind{metrics.UsageKind(c.Resource)}
	out.Sources = clusterstate.Sources{History: c.From}
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

	if workloads, err = c.SelectWorkloads(workloads); err != nil {
		return nil, err
	}

	usage, err := profile.Collect(ctx, profile.Source{Capabilities: source.Capabilities()}, profile.Request{
		Workloads: workloads,
		End:       end,
		Length:    end.Sub(start),
		Reaction:  c.Reaction,
	})
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", c.From, err)
	}

	for i, w := range workloads {
		progress.SetPhase(fmt.Sprintf("sizing %d of %d workloads", i+1, len(workloads)))
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
func (c *Collector) fileDescription(plan resource.Plan) string {
	only := plan.Containers[0]
	if c.Resource == string(metrics.Memory) {
		return "memory: " + only.Memory.Message
	}

	return "cpu: " + only.CPU.Message
}
