// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import "crane.io/crane/internal/component/deprecatedflags"

// retiredFlags are gocrane's that have lost their meaning in craned. A flag that gets a meaning leaves this table and is added where its
// meaning is.
func retiredFlags() []deprecatedflags.Flag {
	const dashboard = "there is no dashboard yet; the read routes of the web API are served without Grafana"
	return append([]deprecatedflags.Flag{
		{Name: "prometheus-bratelimit", Default: "false", Instead: "--prometheus-query-concurrency always holds"},
		{Name: "seed-file", Instead: "there is no mock data source; use --datasource=csv with --csv-dir"},
		{Name: "recommendation-config-file", Instead: "use --recommendation-configuration-file"},
		{Name: "recommendation-monitor-interval", Default: "1h", Instead: "the age of recommendations is worked out at each scrape"},
		{Name: "cache-unstructured", Default: "true", Instead: "workloads of custom kinds are read from the API server page by page and not cached"},
		{Name: "server-enable-profiling", Default: "false", Instead: "use --pprof-bind-address"},
		{Name: "server-enable-metrics", Default: "false", Instead: "requests to the web API are always counted at --metrics-bind-address"},
		{Name: "server-mode", Default: "release", Instead: "use -v for more to read in the log"},
		{Name: "server-enable-grafana", Default: "false", Instead: dashboard},
		{Name: "server-grafana-config", Instead: dashboard},
		{Name: "server-store", Default: "secret", Instead: dashboard},
	}, deprecatedflags.LogFlags()...)
}
