// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli_test runs the commands of crane against a real API server and a real Prometheus, which is given by its
// URL or discovered in the cluster.
package cli_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode/tunnel"
	"crane.io/crane/test/integration/harness"
)

// Shared by all tests, because the start takes longer than a test.
var (
	control *controlplane.ControlPlane
	client  kubernetes.Interface
	// history is the directory of the history, written once; each test opens its own server on a copy.
	history string
)

func TestMain(m *testing.M) {
	// The API server does not proxy to loopback addresses of pods: the tunnel forwards other addresses to loopback.
	var pods *tunnel.Tunnel
	plane := controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager}, ExtraArgs: map[controlplane.Component][]string{},
	}

	os.Exit(harness.Main(m, harness.Suite{
		Name: "cli", Plane: plane, Kinds: harness.Nothing,
		Before: func(ctx context.Context, dir string) (err error) {
			if pods, err = tunnel.Open(ctx, dir); err != nil {
				return err
			}

			plane.ExtraArgs[controlplane.APIServer] = pods.APIServerArgs()
			history = filepath.Join(dir, "history")
			return errors.Join(writeHistory(ctx, history),
				os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")), os.Setenv("KUBECONFIG", ""), os.Setenv("HOME", dir))
		},
		Beside: func(ctx context.Context, c *controlplane.ControlPlane) (stop func() error, err error) {
			control = c
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				pods.Serve(ctx)
				close(ended)
			}()
			client, err = kubernetes.NewForConfig(c.Config())

			return func() error {
				cancel()
				<-ended
				return nil
			}, err
		},
	}))
}

const (
	scrape      = time.Minute
	historyDays = 9
	mib         = 1 << 20
)

// writeHistory writes the series that cAdvisor and kube-state-metrics export for Deployment shop/web.
func writeHistory(ctx context.Context, dir string) error {
	// The series extend beyond the duration of the tests.
	now := time.Now().Truncate(scrape)
	grid := promserver.Grid{Start: now.Add(-historyDays * 24 * time.Hour), End: now.Add(time.Hour), Step: scrape}
	var all []promserver.Series

	add := func(value func(i int) float64, pairs ...string) {
		all = append(all, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
			for i := range dst {
				dst[i] = value(at + i)
			}
		}})
	}

	one := func(int) float64 { return 1 }
	const replicaSet = "web-6d4cf56db6"
	add(one, "__name__", "kube_replicaset_owner", "namespace", "shop", "replicaset", replicaSet,
		"owner_kind", "Deployment", "owner_name", "web", "owner_is_controller", "true")

	for k, suffix := range []string{"-aaaaa", "-bbbbb"} {
		pod := replicaSet + suffix
		add(func(i int) float64 { return float64(i) * scrape.Seconds() * 0.2 },
			"__name__", "container_cpu_usage_seconds_total", "namespace", "shop", "pod", pod, "container", "app", "image", "i")
		add(func(i int) float64 { return 300*mib + 20*mib*math.Sin(float64(i+k)/200) },
			"__name__", "container_memory_working_set_bytes", "namespace", "shop", "pod", pod, "container", "app", "image", "i")
		add(one, "__name__", "kube_pod_owner", "namespace", "shop", "pod", pod,
			"owner_kind", "ReplicaSet", "owner_name", replicaSet, "owner_is_controller", "true")
	}

	_, err := promserver.WriteBlocks(ctx, dir, grid, all)
	return err
}

// prometheus serves the shared history and counts requests by method.
type prometheus struct {
	*promserver.Server
	gets, posts atomic.Int64
}

func servePrometheus(t *testing.T, from string) *prometheus {
	t.Helper()

	if from == "" {
		from = t.TempDir()
	}

	p := &prometheus{}
	p.Server = harness.ServeHistory(t, from, promserver.Options{Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				p.posts.Add(1)
			} else {
				p.gets.Add(1)
			}

			next.ServeHTTP(w, r)
		})
	}})

	return p
}

// crane runs the command line.
func crane(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()

	var stdout, stderr bytes.Buffer
	code = cli.Main(append([]string{"crane"}, args...), strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}
