// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/testbed/redirect"
)

// externalMetrics is the aggregated API that HPAs read forecasts from; externalBound limits the wait until it is
// served.
const (
	externalMetrics = "external.metrics.k8s.io/v1beta1"
	externalBound   = 2 * time.Minute
)

// startMetricAdapter starts metric-adapter as a child process with a token of its own ServiceAccount, and so with the
// RBAC rules of config/rbac, and routes the aggregation layer to it.
func (p *playground) startMetricAdapter(ctx context.Context) error {
	d, err := newDeployment(ctx, p.control, componentMetricAdapter)
	if err != nil {
		return err
	}

	addresses, err := p.freeAddresses(ctx, 1)
	if err != nil {
		return err
	}

	_, text, err := splitAddress(addresses[0])
	if err != nil {
		return err
	}

	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("parsing the port of %s: %w", d.name, err)
	}

	// The rules of the scenario replace those of config/.
	rules, err := configMapText(d.objects, d.name, "config.yaml")
	if err != nil {
		return err
	}

	if s := p.options.scenario; s != nil && s.MetricRules != "" {
		rules = s.MetricRules
	}

	flags := map[string]string{
		"lister-kubeconfig": d.kubeconfig, "bind-address": "127.0.0.1", "secure-port": text,
		"prometheus-adapter-config": filepath.Join(p.dir, "metric-adapter.yaml"),
		// Without Prometheus nothing listens at this address, and the rules report the error.
		"prometheus-address": "http://127.0.0.1:1",
	}

	if p.prometheus != nil {
		flags["prometheus-address"] = p.prometheus.URL()
	}

	// Users of --data-dir may have changed the rules.
	if _, err := os.Stat(flags["prometheus-adapter-config"]); err != nil {
		if err := os.WriteFile(flags["prometheus-adapter-config"], []byte(rules), 0o600); err != nil {
			return err
		}
	}

	// No Service routes to a child process: the API server is pointed to its port on loopback.
	redirected, err := redirect.MetricAdapter(d.objects, port)
	if err != nil {
		return err
	}

	if err := p.applier.Apply(ctx, redirected...); err != nil {
		return err
	}

	if err := p.startChild(p.childSpec(d.binarySpec, flags)); err != nil {
		return err
	}

	p.addScrapeTarget(componentMetricAdapter, "https://"+addresses[0]+"/metrics")
	if err := awaitExternalMetrics(ctx, p.control.Config()); err != nil {
		return err
	}

	p.console.progressf("metric-adapter serves %s", externalMetrics)
	return nil
}

// awaitExternalMetrics waits until the API server serves the adapter's API.
func awaitExternalMetrics(ctx context.Context, config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating the discovery client: %w", err)
	}

	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, externalBound, true, func(context.Context) (bool, error) {
		_, last = client.ServerResourcesForGroupVersion(externalMetrics)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", externalMetrics, last)
	}

	return nil
}
