// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"crane.io/crane/internal/metrics/prometheus"
)

// printSummary requests recommendations and prints them, followed by addresses, memory use and the capability probe.
func (p *playground) printSummary(ctx context.Context) error {
	if p.options.runs(componentCraned) {
		if err := p.recommend(ctx); err != nil {
			return err
		}
	}

	p.console.resultf("")
	p.console.resultf("  %-14s %s", "kubeconfig", p.control.Kubeconfig())
	p.console.resultf("  %-14s %s", "api-server", p.control.URL())

	if p.prometheus != nil {
		p.console.resultf("  %-14s %s", "prometheus", p.prometheus.URL())
	}

	if p.cranedMetrics != "" {
		p.console.resultf("  %-14s http://%s/metrics", "craned", p.cranedMetrics)
		p.console.resultf("  %-14s https://%s/api/ (with a bearer token)", "craned web API", p.cranedWeb)
	}

	if p.dashboard != "" {
		p.console.resultf("  %-14s %s (opens once; `crane dashboard` opens another)", "dashboard", p.dashboard)
	}

	p.console.resultf("  %-14s %s", "logs", filepath.Join(p.dir, "logs")+", "+filepath.Join(p.dir, "controlplane", "logs"))
	p.console.resultf("")

	if all := footprints(p.pids()); len(all) > 0 {
		p.console.resultf("Memory: %s.", describe(all))
	}
	if p.prometheus != nil {
		reportCapabilities(ctx, p.console, p.prometheus.URL())
	}

	if p.options.Once {
		return nil
	}

	// A shell that sources this file talks to the playground.
	path := filepath.Join(p.dir, environmentFile)

	address := ""
	if p.prometheus != nil {
		address = p.prometheus.URL()
	}

	if err := os.WriteFile(path, []byte(environment(p.control.Kubeconfig(), address, p.options.BinDir)), 0o600); err != nil {
		return fmt.Errorf("writing the environment of a shell: %w", err)
	}

	p.console.resultf("In another terminal:\n\n  source %s\n  kubectl get recommendations -A\n  crane recommend\n", quoteArgs([]string{path}))
	return nil
}

// environmentFile is the file in the data directory with the settings of a shell.
const environmentFile = "env"

// environment returns the settings with which kubectl and crane use this playground.
func environment(kubeconfig, prometheus, binDir string) string {
	if absolute, err := filepath.Abs(binDir); err == nil {
		binDir = absolute
	}

	text := "export KUBECONFIG=" + quoteArgs([]string{kubeconfig}) + "\nexport PATH=" + quoteArgs([]string{binDir}) + ":\"$PATH\"\n"
	if prometheus != "" {
		text += "export CRANE_PROMETHEUS_URL=" + prometheus + "\n"
	}

	return text
}

// recommend applies the RecommendationRule, waits for craned and prints the recommendations.
func (p *playground) recommend(ctx context.Context) error {
	if err := applyYAML(ctx, p.applier, ruleManifest); err != nil {
		return err
	}

	// Progress is printed for the first recommendation and then for each hundred.
	printed := 0

	items, err := waitForRecommendations(ctx, p.client, recommendationsBound, func(n int) {
		if n >= printed+100 || (printed == 0 && n > 0) {
			printed = n
			p.console.progressf("craned has written %d recommendations", n)
		}
	})
	if err != nil {
		return err
	}

	table, err := rows(items)
	if err != nil {
		return err
	}

	p.console.progressf("%d recommendations after %s", len(items), p.console.elapsed().Round(100*time.Millisecond))
	p.console.print(func(w io.Writer) { writeTable(w, table) })
	return nil
}

// reportCapabilities runs the capability probe of craned and crane against the playground's Prometheus.
func reportCapabilities(ctx context.Context, c *console, address string) {
	// A failure of the probe is printed and does not end the playground.
	cfg := prometheus.DefaultConfig()

	cfg.Address = address
	source, err := prometheus.New(cfg)
	if err != nil {
		c.progressf("capability probe: %v", err)
		return
	}

	report, err := source.Probe(ctx)
	if err != nil {
		c.progressf("capability probe: %v", err)
		return
	}

	missing := report.Missing()
	c.resultf("Capability probe: %d of %d metrics found, %.1f days of history.",
		len(report.Metrics)-len(missing), len(report.Metrics), report.History.Hours()/24)

	for _, m := range missing {
		c.resultf("  missing %s: %s", m.Metric, m.Impact)
	}
}
