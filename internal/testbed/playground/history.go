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
	scraper, err := p.newScraper()
	if err != nil {
		return err
	}
	p.prometheus, err = promserver.Open(promserver.Options{
		Dir:    filepath.Join(p.dir, "prometheus"),
		Listen: fmt.Sprintf("127.0.0.1:%d", p.port(portPrometheus)),
		// The coarser of the two intervals, so that clients that derive rate windows from it cover the history as well.
		ScrapeInterval: p.options.Step,
		Targets:        clusterseries.Targets(p.nodeNames()),
		Rules:          rules,
		Retention:      time.Duration(p.options.Days+7) * 24 * time.Hour,
	})
	if err != nil {
		return err
	}
	p.onStop(func(context.Context) error { return p.prometheus.Close() })
	if err := p.backfill(ctx, objects); err != nil {
		return err
	}
	p.background.Go(func() {
		if err := p.keepUpToDate(ctx, objects); err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("exporting metrics: %w", err))
		}
	})
	p.background.Go(func() { p.scrapeComponents(ctx, scraper) })
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

// backfill writes the past use of the current pods up to the last whole step. After a restart with the same data
// directory it writes only the time since the last sample.
func (p *playground) backfill(ctx context.Context, objects client.Reader) error {
	end := time.Now().Truncate(p.options.Step)
	past, err := p.past(end)
	if err != nil {
		return err
	}
	p.setExternalLoad(past)
	grid := promserver.Grid{Start: past.Start, End: end, Step: p.options.Step}
	if last, ok := p.prometheus.LastSample(); ok && last.After(grid.Start) {
		grid.Start = last.Truncate(p.options.Step).Add(p.options.Step)
	}
	if !grid.Start.Before(end) {
		return nil
	}
	snapshot, err := p.snapshot(ctx, objects)
	if err != nil {
		return err
	}
	history, err := p.exporter.Backfill(snapshot.Objects, past, grid)
	if err != nil {
		return err
	}
	stats, err := p.prometheus.Backfill(ctx, grid, append(history.Series, p.externalLoadHistory(grid)...))
	if err != nil {
		return err
	}
	history.Commit()
	p.console.progressf("%.1f days of history: %d series, %d samples, %d MiB, written in %s", grid.End.Sub(grid.Start).Hours()/24,
		stats.Series, stats.Samples, stats.Bytes>>20, stats.Took.Round(10*time.Millisecond))
	return nil
}

// past returns the period that the history of this data directory covers. Its start is stored at the first start, so
// that the load continues unchanged after a restart.
func (p *playground) past(end time.Time) (load.Past, error) {
	file := filepath.Join(p.dir, "history-begins")
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		start := end.AddDate(0, 0, -p.options.Days)
		return load.Past{Start: start, End: end}, os.WriteFile(file, []byte(start.Format(time.RFC3339)), 0o600)
	}
	if err != nil {
		return load.Past{}, err
	}
	start, err := time.Parse(time.RFC3339, string(content))
	if err != nil {
		return load.Past{}, fmt.Errorf("%s: %w", file, err)
	}
	return load.Past{Start: start, End: end}, nil
}

// keepUpToDate appends the exporters' samples at each interval until ctx ends. The server counts failed appends (a
// scenario may have stopped it); only a failed snapshot is an error.
func (p *playground) keepUpToDate(ctx context.Context, objects client.Reader) error {
	ticker := time.NewTicker(liveInterval)
	defer ticker.Stop()
	for {
		snapshot, err := p.snapshot(ctx, objects)
		if err != nil {
			return err
		}
		if err := p.append(ctx, snapshot); err != nil && ctx.Err() == nil {
			p.console.progressf("appending samples: %v", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (p *playground) append(ctx context.Context, snapshot clusterseries.Snapshot) error {
	return p.prometheus.Append(ctx, "exporters", snapshot.At, append(p.exporter.Samples(snapshot), p.externalLoadSamples(snapshot.At)...))
}

// snapshot collects the current input of the exporters.
func (p *playground) snapshot(ctx context.Context, objects client.Reader) (clusterseries.Snapshot, error) {
	s := clusterseries.Snapshot{At: time.Now(), Containers: p.fleet.Snapshot(), Nodes: p.fleet.Nodes()}
	var err error
	s.Objects, err = clusterseries.ReadObjects(ctx, objects)
	return s, err
}

func (p *playground) nodeNames() []string {
	var names []string
	for _, n := range p.fleet.Nodes() {
		names = append(names, n.Spec.Name)
	}
	return names
}
