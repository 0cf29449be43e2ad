// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/playground/chart"
	"crane.io/crane/internal/testbed/playground/demo"
)

// chartFile is the name of the SVG chart in the data directory, or in the directory of temporary files without
// --data-dir.
const chartFile = "crane-playground-chart.svg"

// Chart implements demo.Executor: it samples load and pods for a while, prints a line per sample and a summary, and
// writes an SVG chart.
func (e executor) Chart(ctx context.Context, c demo.Chart) error {
	if e.externalLoad == nil {
		return errors.New("chart: no load: --only excludes prometheus")
	}

	scale := chart.Scale{PodCapacity: c.PodCapacity, MaxLoad: 1.5 * e.externalLoad.High}
	e.console.resultf("▒ load   │ capacity of the ready pods, %.0f each", c.PodCapacity)

	start := time.Now()
	tick := time.NewTicker(c.Every.Duration)
	defer tick.Stop()

	// The chart ends some time after the load rose, at the latest after its configured duration.
	var points []chart.Point

	end := min(c.For.Duration, time.Until(e.externalLoad.RiseTime(e.externalLoad.end))+c.After.Duration)
	for time.Since(start) < max(end, c.Every.Duration) {
		point, err := e.samplePoint(ctx, c)
		if err != nil {
			return err
		}

		point.After = time.Since(start)
		points = append(points, point)
		e.console.resultf("%s", scale.Row(point))

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}

	e.console.resultf("%s", scale.Summary(points, e.externalLoad.IsHigh))

	return e.writeChart(scale, c, points)
}

// samplePoint reads the current load and pods.
func (e executor) samplePoint(ctx context.Context, c demo.Chart) (chart.Point, error) {
	var d appsv1.Deployment
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Deployment}, &d); err != nil {
		return chart.Point{}, fmt.Errorf("chart: reading the Deployment: %w", err)
	}

	out := chart.Point{Load: e.externalLoad.at(time.Now()), Desired: 1, Ready: d.Status.ReadyReplicas}
	if d.Spec.Replicas != nil {
		out.Desired = *d.Spec.Replicas
	}

	return out, nil
}

// writeChart writes the chart to a file that outlives the playground.
func (e executor) writeChart(scale chart.Scale, c demo.Chart, points []chart.Point) (err error) {
	dir := e.options.DataDir
	if dir == "" {
		dir = os.TempDir()
	}

	path := filepath.Join(dir, chartFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	if err := scale.SVG(file, fmt.Sprintf("%s and the pods of %s/%s", e.externalLoad.Metric, c.Namespace, c.Deployment), points); err != nil {
		return err
	}

	e.console.resultf("chart written to %s", path)
	return nil
}
