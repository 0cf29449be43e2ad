// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/playground/clusterseries"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode"
)

// liveInterval is the interval at which samples are appended while the playground runs.
const liveInterval = 15 * time.Second

// startPrometheus opens Prometheus, writes the history of the current pods and keeps it up to date.
func (p *playground) startPrometheus(ctx context.Context, fail context.CancelCauseFunc) error {
	objects, err := p.watch(ctx, fail)
	if err != nil {
		return err
	}

	p.exporter = clusterseries.New(p.source)
	rules, err := alertRules(p.options.AlertSpeed, p.options.scrapeInterval())
	if err != nil {
		return err
	}

	scraper, err := newScraper(p.control.Config())
	if err != nil {
		return err
	}

	p.prometheus, err = promserver.Open(promserver.Options{
		Dir:    filepath.Join(p.dir, "prometheus"),
		Listen: fmt.Sprintf("127.0.0.1:%d", p.options.port(portPrometheus)),
		// The coarser of the two intervals, so that clients that derive rate windows from it cover the history as well.
		ScrapeInterval: p.options.Step,
		Targets:        clusterseries.Targets(nodeNames(p.fleet)),
		Rules:          rules,
		Retention:      time.Duration(p.options.Days+7) * 24 * time.Hour,
	})
	if err != nil {
		return err
	}

	p.onStop(func(context.Context) error { return p.prometheus.Close() })

	// The history is complete before live samples follow, because Prometheus drops samples that are out of order.
	written := history{p, objects}
	if err := written.backfill(ctx); err != nil {
		return err
	}

	p.background.Go(func() {
		if err := written.keepUpToDate(ctx); err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("exporting metrics: %w", err))
		}
	})

	p.background.Go(func() { scraper.run(ctx, p.options.scrapeInterval(), &p.scrapeTargets, p.prometheus, p.console) })
	p.console.progressf("Prometheus serves at %s", p.prometheus.URL())
	return nil
}

// watch returns a cached reader of the objects that kube-state-metrics watches.
func (p *playground) watch(ctx context.Context, fail context.CancelCauseFunc) (client.Reader, error) {
	watched, err := cache.New(p.control.Config(), cache.Options{Scheme: p.client.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, err
	}

	p.background.Go(func() {
		if err := watched.Start(ctx); err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("watching objects: %w", err))
		}
	})

	if !watched.WaitForCacheSync(ctx) {
		return nil, errors.New("watching objects: the caches did not sync")
	}

	return watched, nil
}

// history writes the series of the objects to Prometheus.
type history struct {
	*playground
	objects client.Reader
}

// backfill writes the past use of the current pods up to the last whole step. After a restart with the same data
// directory it writes only the time since the last sample.
func (h history) backfill(ctx context.Context) error {
	end := time.Now().Truncate(h.options.Step)
	past, err := h.past(end)
	if err != nil {
		return err
	}

	h.setExternalLoad(past)

	// Earlier samples exist already: blocks that overlap them would be refused or merged.
	grid := promserver.Grid{Start: past.Start, End: end, Step: h.options.Step}
	if last, ok := h.prometheus.LastSample(); ok && last.After(grid.Start) {
		grid.Start = last.Truncate(h.options.Step).Add(h.options.Step)
	}

	if !grid.Start.Before(end) {
		return nil
	}

	snapshot, err := h.snapshot(ctx)
	if err != nil {
		return err
	}

	series, err := h.exporter.Backfill(snapshot.Objects, past, grid)
	if err != nil {
		return err
	}

	stats, err := h.prometheus.Backfill(ctx, grid, append(series.Series, h.externalLoad.history(grid)...))
	if err != nil {
		return err
	}

	// From here on live counters continue at the values that were written.
	series.Commit()
	h.console.progressf("%.1f days of history: %d series, %d samples, %d MiB, written in %s", grid.End.Sub(grid.Start).Hours()/24,
		stats.Series, stats.Samples, stats.Bytes>>20, stats.Took.Round(10*time.Millisecond))

	return nil
}

// past returns the period that the history of this data directory covers. Its start is stored at the first start, so
// that the load continues unchanged after a restart.
func (h history) past(end time.Time) (load.Past, error) {
	file := filepath.Join(h.dir, "history-begins")
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		start := end.AddDate(0, 0, -h.options.Days)
		return load.Past{Start: start, End: end}, os.WriteFile(file, []byte(start.Format(time.RFC3339)), 0o600)
	}
	if err != nil {
		return load.Past{}, err
	}

	start, err := time.Parse(time.RFC3339, string(content))
	if err != nil {
		return load.Past{}, fmt.Errorf("parsing %s: %w", file, err)
	}

	return load.Past{Start: start, End: end}, nil
}

// keepUpToDate appends the exporters' samples at each interval until ctx ends. The server counts failed appends (a
// scenario may have stopped it); only a failed snapshot is an error.
func (h history) keepUpToDate(ctx context.Context) error {
	ticker := time.NewTicker(liveInterval)
	defer ticker.Stop()

	for {
		snapshot, err := h.snapshot(ctx)
		if err != nil {
			return err
		}

		if err := h.append(ctx, snapshot); err != nil && ctx.Err() == nil {
			h.console.progressf("appending samples: %v", err)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h history) append(ctx context.Context, snapshot clusterseries.Snapshot) error {
	return h.prometheus.Append(ctx, "exporters", snapshot.At, append(h.exporter.Samples(snapshot), h.externalLoad.samples(snapshot.At)...))
}

// snapshot collects the current input of the exporters.
func (h history) snapshot(ctx context.Context) (clusterseries.Snapshot, error) {
	s := clusterseries.Snapshot{At: time.Now(), Containers: h.fleet.Snapshot(), Nodes: h.fleet.Nodes()}
	var err error
	s.Objects, err = clusterseries.ReadObjects(ctx, h.objects)

	return s, err
}

func nodeNames(fleet *simnode.Fleet) []string {
	var names []string
	for _, n := range fleet.Nodes() {
		names = append(names, n.Spec.Name)
	}

	return names
}
