// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/pkg/series"
)

// maxInputFileBytes limits the size of policy files and files of dates, which have about one kilobyte.
const maxInputFileBytes = 1 << 20

// readInputFile reads a regular file of limited size.
func readInputFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() || info.Size() > maxInputFileBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxInputFileBytes)
	}

	return os.ReadFile(path)
}

// durationFlag is the text of a flag and the variable for its value.
type durationFlag struct {
	name, text string
	value      *time.Duration
}

// parseDurations parses flags of at least one second.
func parseDurations(flags ...durationFlag) error {
	var errs []error
	for _, f := range flags {
		d, err := series.ParseDuration(f.text)
		if err == nil && d < time.Second {
			err = fmt.Errorf("%q: must be at least 1s", f.text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}

		*f.value = d
	}

	return errors.Join(errs...)
}

// addKubernetesFlags adds the flags that select the cluster.
func addKubernetesFlags(fs *pflag.FlagSet, k *kubernetesFlags) {
	fs.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&k.context, "context", "", "context of the kubeconfig")
}

// addPrometheusFlags adds the flags of the address and the credentials of Prometheus.
func addPrometheusFlags(fs *pflag.FlagSet, p *prometheusFlags) {
	fs.StringVar(&p.address, "prometheus", "", "URL of Prometheus, or of Thanos, Mimir or VictoriaMetrics ($"+envAddress+"; default: discovered in the cluster)")
	fs.StringVar(&p.service, "prometheus-service", "", "service NAMESPACE/NAME[:PORT][/PATH] to reach through the API server (default: discovered by labels)")
	fs.StringVar(&p.username, "prometheus-username", "", "user for basic authentication ($"+envUsername+")")
	fs.StringVar(&p.passwordFile, "prometheus-password-file", "", "file with the password for basic authentication (default: $"+envPassword+")")
	fs.StringVar(&p.tokenFile, "prometheus-token-file", "", "file with the bearer token (default: $"+envToken+")")
	fs.StringVar(&p.caFile, "prometheus-ca-file", "", "PEM file with additional certificate authorities")

	fs.StringVar(&p.certFile, "prometheus-cert-file", "", "PEM file with a client certificate")
	fs.StringVar(&p.keyFile, "prometheus-key-file", "", "PEM file with the key of the client certificate")
	fs.BoolVar(&p.insecure, "prometheus-insecure-skip-verify", false, "do not verify the certificate of Prometheus")
	fs.StringArrayVar(&p.headers, "prometheus-header", nil, "header of each request as 'Name: value'; may be repeated")
	fs.StringVar(&p.labels, "prometheus-labels", "", "label matchers of each query, for example cluster=eu,tier=~a|b")
	fs.IntVar(&p.concurrency, "prometheus-concurrency", p.concurrency, "maximum number of concurrent queries")
	fs.DurationVar(&p.timeout, "prometheus-timeout", p.timeout, "timeout of one query")
}

// addCacheFlags adds the flags of the cache of history.
func addCacheFlags(fs *pflag.FlagSet, c *cacheFlags) {
	fs.StringVar(&c.dir, "cache-dir", "", "directory of the cache of finished days of history (default: crane in the user's cache directory)")
	fs.BoolVar(&c.off, "no-cache", false, "read the whole history from the source and do not cache it")
}
