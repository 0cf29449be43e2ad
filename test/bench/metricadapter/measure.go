// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/test/bench/measure"
)

// hpaController is the user of the HPA controller.
const hpaController = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"

// startBound bounds the time until the adapter is synced and registered.
const startBound = 5 * time.Minute

type adapter struct {
	*cluster
	process *process.Process
	address string
}

// measure requests every metric in rounds, directly from the adapter and through the API server, and prints the figures.
func (a *adapter) measure(ctx context.Context, o options) error {
	config, err := a.control.ConfigFor(ctx, controlplane.CertificateUser(hpaController))
	if err != nil {
		return err
	}

	through := route{"through the API server", config.Host, config}
	// The certificate of the adapter is self-signed; only the aggregation layer trusts it.
	itself := rest.CopyConfig(config)
	itself.Host = a.address
	itself.TLSClientConfig.Insecure = true
	itself.TLSClientConfig.CAData = nil
	straight := route{"of the adapter itself", a.address, itself}
	began := time.Now()

	for _, w := range []route{straight, through} {
		if err := w.await(ctx, o); err != nil {
			return err
		}
	}

	fmt.Printf("served %v after the start\n", time.Since(began).Round(100*time.Millisecond))
	for _, w := range []route{straight, through} {
		if err := a.measureRoute(ctx, o, w); err != nil {
			return err
		}
	}

	resident, err := measure.Memory(a.process.PID(), "VmRSS")
	if err != nil {
		return err
	}

	peak, err := measure.Memory(a.process.PID(), "VmHWM")
	if err != nil {
		return err
	}

	fmt.Printf("memory: %d MiB, at most %d MiB\n", resident>>20, peak>>20)
	return nil
}

// route is a way to request metrics.
type route struct {
	name, host string
	config     *rest.Config
}

// paths returns the paths of all metrics of an autoscaler.
func paths(i int, o options) []string {
	out := make([]string, 0, 3)
	add := func(metric, identifier string) {
		key := keyOf(i, o, identifier)
		out = append(out, "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+key.TargetNamespace+"/"+metric+
			"?labelSelector="+url.QueryEscape(labels.Set(key.MatchLabels()).String()))
	}

	for _, identifier := range identifiers() {
		add(autoscalingv1alpha1.MetricPrediction, identifier)
	}

	add(autoscalingv1alpha1.MetricCron, "cron")
	return out
}

func (w route) await(ctx context.Context, o options) error {
	client, err := rest.HTTPClientFor(w.config)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()

	for {
		err := w.ask(ctx, client, paths(o.autoscalers-1, o)[0])
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("not served %s: %w", w.name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w route) ask(ctx context.Context, client *http.Client, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.host+path, http.NoBody)
	if err != nil {
		return err
	}

	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}

	return err
}

// measureRoute requests all metrics, and prints the figures of the client and of the adapter.
func (a *adapter) measureRoute(ctx context.Context, o options, w route) error {
	before, err := a.readFigures(ctx)
	if err != nil {
		return err
	}

	used, err := measure.CPU(a.process.PID())
	if err != nil {
		return err
	}

	client, err := rest.HTTPClientFor(w.config)
	if err != nil {
		return err
	}

	began := time.Now()
	// Each worker has a slice of its own, so that no lock distorts the latencies.
	took := make([][]time.Duration, o.workers)
	var next atomic.Int64

	group, gctx := errgroup.WithContext(ctx)
	for worker := range o.workers {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < o.autoscalers*o.rounds; i = int(next.Add(1)) - 1 {
				for _, path := range paths(i%o.autoscalers, o) {
					start := time.Now()
					if err := w.ask(gctx, client, path); err != nil {
						return err
					}

					took[worker] = append(took[worker], time.Since(start))
				}
			}

			return nil
		})
	}

	if err := group.Wait(); err != nil {
		return err
	}

	elapsed := time.Since(began)
	after, err := a.readFigures(ctx)
	if err != nil {
		return err
	}

	usedAfter, err := measure.CPU(a.process.PID())
	if err != nil {
		return err
	}

	all := slices.Concat(took...)
	slices.Sort(all)
	fmt.Printf("%s: %d requests in %v (%.0f/s), %.0f µs of CPU each\n", w.name, len(all), elapsed.Round(time.Second),
		float64(len(all))/elapsed.Seconds(), float64((usedAfter-used).Microseconds())/float64(len(all)))
	fmt.Printf("  seen by the client: p50 %v, p99 %v\n", all[len(all)/2], all[len(all)*99/100])
	fmt.Printf("  in the handler: p50 at most %v, p99 at most %v, of %d\n",
		quantileBound(before.handler, after.handler, 0.5), quantileBound(before.handler, after.handler, 0.99), after.handler.GetSampleCount()-before.handler.GetSampleCount())
	fmt.Printf("  requests of the adapter to the Kubernetes API: %.0f\n", after.requests-before.requests)

	return nil
}

// adapterFigures are figures from the metrics of the adapter.
type adapterFigures struct {
	handler  *dto.Histogram // of responses with a value
	requests float64
}

func (a *adapter) readFigures(ctx context.Context) (adapterFigures, error) {
	admin := a.control.Config()
	admin.TLSClientConfig.Insecure = true

	admin.TLSClientConfig.CAData = nil
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return adapterFigures{}, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.address+"/metrics", http.NoBody)
	if err != nil {
		return adapterFigures{}, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return adapterFigures{}, err
	}
	defer resp.Body.Close()

	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return adapterFigures{}, err
	}

	var out adapterFigures
	for _, m := range families["crane_metric_adapter_request_duration_seconds"].GetMetric() {
		if strings.Contains(m.String(), `"crane"`) && strings.Contains(m.String(), `"200"`) {
			out.handler = m.GetHistogram()
		}
	}

	if out.handler == nil {
		return adapterFigures{}, errors.New("the adapter has no metrics of its handler")
	}

	for _, m := range families["crane_metric_adapter_kubernetes_requests_total"].GetMetric() {
		out.requests += m.GetCounter().GetValue()
	}

	return out, nil
}

// quantileBound returns the bound of the bucket with a quantile of the observations between two readings.
func quantileBound(before, after *dto.Histogram, quantile float64) time.Duration {
	total := float64(after.GetSampleCount() - before.GetSampleCount())
	earlier := map[float64]uint64{}
	for _, b := range before.GetBucket() {
		earlier[b.GetUpperBound()] = b.GetCumulativeCount()
	}

	for _, b := range after.GetBucket() {
		if float64(b.GetCumulativeCount()-earlier[b.GetUpperBound()]) >= quantile*total {
			return time.Duration(b.GetUpperBound() * float64(time.Second))
		}
	}

	return time.Hour
}
