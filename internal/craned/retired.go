// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"strings"

	"github.com/spf13/pflag"
)

// retired is a flag of gocrane's craned that has lost its meaning. It is accepted, so that manifests keep working, and
// the log says what to use.
type retired struct {
	name string
	// byDefault is gocrane's default; a flag whose default is a boolean needs no value.
	byDefault string
	// instead says why the flag has no effect, or what has taken its place.
	instead string
}

// retiredFlags are all of them. A flag that gets a meaning leaves this table and is added where its meaning is.
func retiredFlags() []retired {
	const (
		logs      = "logs are lines on standard error; see --log-format and -v"
		dashboard = "there is no dashboard yet; the read routes of the web API are served without Grafana"
	)
	return []retired{
		{"prometheus-bratelimit", "false", "--prometheus-query-concurrency always holds"},
		{"seed-file", "", "there is no mock data source; use --datasource=csv with --csv-dir"},
		{"recommendation-config-file", "", "use --recommendation-configuration-file"},
		{"recommendation-monitor-interval", "1h", "the age of recommendations is worked out at each scrape"},
		{"cache-unstructured", "true", "workloads of custom kinds are read from the API server page by page and not cached"},
		{"server-enable-profiling", "false", "use --pprof-bind-address"},
		{"server-enable-metrics", "false", "requests to the web API are always counted at --metrics-bind-address"},
		{"server-mode", "release", "use -v for more to read in the log"},
		{"server-enable-grafana", "false", dashboard},
		{"server-grafana-config", "", dashboard},
		{"server-store", "secret", dashboard},
		{"add-dir-header", "false", logs},
		{"alsologtostderr", "false", logs},
		{"log-backtrace-at", ":0", logs},
		{"log-dir", "", logs},
		{"log-file", "", logs},
		{"log-file-max-size", "1800", logs},
		{"logtostderr", "true", logs},
		{"one-output", "false", logs},
		{"skip-headers", "false", logs},
		{"skip-log-headers", "false", logs},
		{"stderrthreshold", "2", logs},
		{"vmodule", "", logs},
	}
}

// addRetiredFlags adds those that no part of craned has taken up, out of sight of --help.
func addRetiredFlags(fs *pflag.FlagSet) {
	for _, r := range retiredFlags() {
		if fs.Lookup(r.name) != nil {
			continue
		}
		fs.String(r.name, r.byDefault, "No effect: "+r.instead+".")
		f := fs.Lookup(r.name)
		f.Hidden = true
		f.Annotations = map[string][]string{retiredAnnotation: {r.instead}}
		if r.byDefault == "true" || r.byDefault == "false" {
			f.NoOptDefVal = "true"
		}
	}
}

// retiredAnnotation marks a flag without effect and holds what to use instead.
const retiredAnnotation = "crane.io/retired"

// retiredWarnings names the flags that were set and have no effect.
func retiredWarnings(fs *pflag.FlagSet) []string {
	var out []string
	fs.Visit(func(f *pflag.Flag) {
		if instead, ok := f.Annotations[retiredAnnotation]; ok {
			out = append(out, "--"+f.Name+" has no effect: "+strings.Join(instead, ", "))
		}
	})
	return out
}

// dashes lets flags be written with underscores, as klog's are.
func dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
