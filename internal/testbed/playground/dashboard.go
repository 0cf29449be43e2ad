// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"crane.io/crane/internal/testbed/process"
)

// dashboardBound limits the wait for the dashboard's address.
const dashboardBound = 30 * time.Second

// servesDashboard reports whether the dashboard is started: where the playground keeps running after its start.
func (o *Options) servesDashboard() bool {
	return o.runs(componentDashboard) && o.runs(componentPrometheus) && !o.ends()
}

// startDashboard starts `crane dashboard` with the administrator's kubeconfig, as on a laptop, and reads its address.
func (p *playground) startDashboard(ctx context.Context) error {
	spec := process.Spec{
		Name: componentDashboard,
		Path: filepath.Join(p.options.BinDir, "crane"),
		Args: []string{
			"dashboard", "--kubeconfig", p.control.Kubeconfig(), "--prometheus", p.prometheus.URL(), "--open=false",
			"--cache-dir", filepath.Join(p.dir, "dashboard"),
		},
		LogFile: filepath.Join(p.dir, "logs", "dashboard.log"),
		Restart: process.Always,
		OnExit:  p.reportExit,
	}

	if p.explainAddress != "" {
		spec.Args = append(spec.Args, "--scheduler", "http://"+p.explainAddress)
	}

	if err := p.startChild(spec); err != nil {
		return err
	}

	// The dashboard prints its address, which contains a random port and token.
	address := regexp.MustCompile(`http://\S+token=\S+`)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, dashboardBound, true, func(context.Context) (bool, error) {
		started, _ := p.childOf(componentDashboard)
		for _, line := range started.process.LastLines() {
			if found := address.FindString(line); found != "" {
				p.dashboard = found
			}
		}

		return p.dashboard != "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the dashboard's address in %s: %w", spec.LogFile, err)
	}

	return nil
}
