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

// chartFile is the picture of a chart, in the data directory, or in that of temporary files where there is none.
const chartFile = "crane-playground-chart.svg"

// Chart implements scenario.Stage: it looks at load and pods for a while, prints a line for each look, says who rose first, and leaves a
// picture.
func (p *playground) Chart(ctx context.Context, c demo.Chart) error {
	if p.demand == nil {
		return errors.New("chart: there is no load: --only leaves prometheus out")
	}
	scale := chart.Scale{PodCapacity: c.PodCapacity, Highest: 1.5 * p.demand.High}
	p.console.resultf("▒ load   │ what the pods that are ready carry, at %.0f each", c.PodCapacity)
	began := time.Now()
	tick := time.NewTicker(c.Every.Duration)
	defer tick.Stop()
	var points []chart.Point
	end := min(c.For.Duration, time.Until(p.demand.Rises(p.demand.end))+c.After.Duration)
	for time.Since(began) < max(end, c.Every.Duration) {
		point, err := p.look(ctx, c)
		if err != nil {
			return err
		}
		point.After = time.Since(began)
		points = append(points, point)
		p.console.resultf("%s", scale.Row(point))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	p.console.resultf("%s", scale.Summary(points, p.demand.Risen))
	return p.picture(scale, c, points)
}

// look is one look at load and pods.
func (p *playground) look(ctx context.Context, c demo.Chart) (chart.Point, error) {
	var d appsv1.Deployment
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Deployment}, &d); err != nil {
		return chart.Point{}, fmt.Errorf("chart: %w", err)
	}
	out := chart.Point{Load: p.demand.at(time.Now()), Wanted: 1, Ready: d.Status.ReadyReplicas}
	if d.Spec.Replicas != nil {
		out.Wanted = *d.Spec.Replicas
	}
	return out, nil
}

// picture writes the chart where it outlives the playground.
func (p *playground) picture(scale chart.Scale, c demo.Chart, points []chart.Point) (err error) {
	dir := p.options.DataDir
	if dir == "" {
		dir = os.TempDir()
	}
	path := filepath.Join(dir, chartFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := scale.SVG(file, fmt.Sprintf("%s and the pods of %s/%s", p.demand.Metric, c.Namespace, c.Deployment), points); err != nil {
		return err
	}
	p.console.resultf("drawn in %s", path)
	return nil
}
