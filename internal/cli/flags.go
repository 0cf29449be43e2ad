// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/installation"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/units"
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
		d, err := units.ParseDuration(f.text)
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
func addKubernetesFlags(fs *pflag.FlagSet, k *clusteraccess.Access) {
	fs.StringVar(&k.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&k.Context, "context", "", "context of the kubeconfig")
}

// addCranedNamespaceFlag adds the flag of the namespace whose objects are Crane's.
func addCranedNamespaceFlag(fs *pflag.FlagSet, namespace *string) {
	fs.StringVar(namespace, "craned-namespace", installation.DefaultNamespace, "namespace of Crane; similar objects in other namespaces are ignored")
}

// addPrometheusFlags adds the flags of the address and the credentials of Prometheus.
func addPrometheusFlags(fs *pflag.FlagSet, p *historyserver.Server) {
	fs.StringVar(&p.Address, "prometheus", "", "URL of Prometheus, or of Thanos, Mimir or VictoriaMetrics ($"+historyserver.EnvAddress+"; default: discovered in the cluster)")
	fs.StringVar(&p.Service, "prometheus-service", "", "service NAMESPACE/NAME[:PORT][/PATH] to reach through the API server (default: discovered by labels, in namespaces for monitoring)")
	fs.StringVar(&p.Username, "prometheus-username", "", "user for basic authentication ($"+historyserver.EnvUsername+")")
	fs.StringVar(&p.PasswordFile, "prometheus-password-file", "", "file with the password for basic authentication (default: $"+historyserver.EnvPassword+")")
	fs.StringVar(&p.TokenFile, "prometheus-token-file", "", "file with the bearer token (default: $"+historyserver.EnvToken+")")
	fs.StringVar(&p.CAFile, "prometheus-ca-file", "", "PEM file with additional certificate authorities")

	fs.StringVar(&p.CertFile, "prometheus-cert-file", "", "PEM file with a client certificate")
	fs.StringVar(&p.KeyFile, "prometheus-key-file", "", "PEM file with the key of the client certificate")
	fs.BoolVar(&p.Insecure, "prometheus-insecure-skip-verify", false, "do not verify the certificate of Prometheus")
	fs.StringArrayVar(&p.Headers, "prometheus-header", nil, "header of each request as 'Name: value'; may be repeated; requires --prometheus or --prometheus-service")
	fs.StringVar(&p.Labels, "prometheus-labels", "", "label matchers of each query, for example cluster=eu,tier=~a|b")
	fs.IntVar(&p.Concurrency, "prometheus-concurrency", p.Concurrency, "maximum number of concurrent queries")
	fs.DurationVar(&p.Timeout, "prometheus-timeout", p.Timeout, "timeout of one query")
}

// addCacheFlags adds the flags of the cache of history.
func addCacheFlags(fs *pflag.FlagSet, c *profile.CacheConfig) {
	fs.StringVar(&c.Dir, "cache-dir", "", "directory of the cache of finished days of history (default: crane in the user's cache directory)")
	fs.BoolVar(&c.Off, "no-cache", false, "read the whole history from the source and do not cache it")
}
