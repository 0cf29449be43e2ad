// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import "crane.io/crane/internal/component/deprecatedflags"

// deprecatedFlags returns gocrane's flags without an effect on craned.
func deprecatedFlags() []deprecatedflags.Flag {
	const dashboard = "there is no dashboard yet; the read routes of the web API are served without Grafana"
	return append([]deprecatedflags.Flag{
		{Name: "prometheus-bratelimit", Default: "false", Replacement: "--prometheus-query-concurrency always holds"},
		{Name: "seed-file", Replacement: "there is no mock data source; use --datasource=csv with --csv-dir"},
		{Name: "recommendation-config-file", Replacement: "use --recommendation-configuration-file"},
		{Name: "recommendation-monitor-interval", Default: "1h", Replacement: "the age of recommendations is computed at each scrape"},
		{Name: "cache-unstructured", Default: "true", Replacement: "workloads of custom kinds are read from the API server page by page and not cached"},
		{Name: "server-enable-profiling", Default: "false", Replacement: "use --pprof-bind-address"},
		{Name: "server-enable-metrics", Default: "false", Replacement: "requests to the web API are always counted at --metrics-bind-address"},
		{Name: "server-mode", Default: "release", Replacement: "use -v for a more detailed log"},
		{Name: "server-enable-grafana", Default: "false", Replacement: dashboard},
		{Name: "server-grafana-config", Replacement: dashboard},
		{Name: "server-store", Default: "secret", Replacement: dashboard},
	}, deprecatedflags.LogFlags()...)
}
