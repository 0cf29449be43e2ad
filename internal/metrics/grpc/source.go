// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/grpc/datasourcepb"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

const (
	methodHistory  = "/History/QueryTimeSeries"
	methodRealtime = "/Realtime/QueryLatestTimeSeries"

	// maxAnswer bounds a response, in bytes: a week of minutes of a hundred pods is 20 MB.
	maxAnswer = 32 << 20
	// defaultStep is the step in gocrane's documentation for two weeks, and sufficient for sizing.
	defaultStep = 5 * time.Minute
	// maxCells bounds a series: a year of minutes.
	maxCells = 366 * 24 * 60
	// latestWindow is the time that a latest sample is assumed to cover; the protocol does not define it.
	latestWindow = time.Minute
)

// Config configures a Source.
type Config struct {
	// Address is host:port or unix:PATH.
	Address string
	// CAFile contains the authorities that verify the server's certificate, in PEM; empty for the system's.
	CAFile string
	// Insecure connects without TLS. Servers on the loopback interface and on a Unix socket need no TLS unless CAFile is set.
	Insecure bool
	// Timeout bounds one request.
	Timeout time.Duration
	// Inventory lists the workloads.
	Inventory metrics.Inventory
	Clock     clock.PassiveClock
}

// Source reads from a server. It is safe for concurrent use.
type Source struct {
	config Config
	conn   *grpc.ClientConn
}

// New returns a source. It connects with the first request.
func New(config Config) (*Source, error) {
	if config.Address == "" || config.Timeout <= 0 || config.Inventory == nil || config.Clock == nil {
		return nil, errors.New("a grpc source needs an address, a time limit, an inventory and a clock")
	}

	transport, err := config.transport()
	if err != nil {
		return nil, err
	}

	conn, err := grpc.NewClient(config.Address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(limitingCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("data source grpc at %s: %w", config.Address, err)
	}

	return &Source{config: config, conn: conn}, nil
}

// transport returns the credentials of the connection: TLS unless the server is local or Insecure is set.
func (c Config) transport() (credentials.TransportCredentials, error) {
	if c.CAFile == "" && (c.Insecure || isLocal(c.Address)) {
		return insecure.NewCredentials(), nil
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("data source grpc: reading authorities: %w", err)
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("data source grpc: %s contains no certificate in PEM", c.CAFile)
		}
	}

	return credentials.NewTLS(config), nil
}

// isLocal reports whether connections to an address stay in the network namespace of the process.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}

	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}

	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Capabilities returns the readers of the server's data.
func (s *Source) Capabilities() metrics.Capabilities {
	return metrics.Capabilities{Usage: s, Realtime: s, Aggregates: s}
}

// Check returns an error if the server cannot be connected to. The protocol has no cheaper request.
func (s *Source) Check(ctx context.Context) error {
	s.conn.Connect()
	for state := s.conn.GetState(); state != connectivity.Ready; state = s.conn.GetState() {
		if !s.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("data source grpc at %s: no connection, state %s", s.config.Address, state)
		}

		s.conn.Connect() // A failed connection stays idle until the next attempt.
	}

	return nil
}

// call sends a request and returns the series of the response.
func (s *Source) call(ctx context.Context, method string, request proto.Message) ([]*datasourcepb.TimeSeries, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()

	var out datasourcepb.QueryTimeSeriesResponse
	err := s.conn.Invoke(ctx, method, request, &out)
	switch code := status.Code(err); code {
	case codes.OK:
		return out.GetTimeSeriesList(), nil
	case codes.Unimplemented:
		return nil, fmt.Errorf("data source grpc: %s: %w", method, metrics.ErrUnsupported)
	default: // The text may contain the address, also if it is the server's.
		return nil, metrics.WithPublicMessage(fmt.Errorf("data source grpc: %s: %w", method, err), fmt.Sprintf("data source grpc: %s: %s", method, code))
	}
}

// history requests the series of a metric on the grid of a window.
func (s *Source) history(ctx context.Context, metric *datasourcepb.Metric, w metrics.Window) ([]*datasourcepb.TimeSeries, error) {
	return s.call(ctx, methodHistory, &datasourcepb.QueryTimeSeriesRequest{
		Metric:    metric,
		StartTime: w.Start.Unix(),
		EndTime:   w.End.Add(-w.Step).Unix(),
		Step:      int64(w.Step / time.Second),
	})
}

// checkResource rejects resources that the protocol does not define.
func checkResource(resource metrics.UsageKind) error {
	if resource != metrics.CPU && resource != metrics.Memory {
		return fmt.Errorf("resource %s of data source grpc: %w", resource, metrics.ErrUnsupported)
	}

	return nil
}

// containers lists the containers of the inventory, without pods.
func (s *Source) containers(ctx context.Context, namespaces []string) ([]metrics.ContainerKey, error) {
	all, err := s.config.Inventory.Inventory(ctx, namespaces)
	if err != nil {
		return nil, metrics.WithPublicMessage(fmt.Errorf("listing workloads for data source grpc: %w", err), "the workloads for data source grpc cannot be listed")
	}

	var out []metrics.ContainerKey
	for i := range all {
		for _, c := range all[i].Containers {
			out = append(out, metrics.ContainerKey{Workload: all[i].Ref, Container: c.Name})
		}
	}

	return out, nil
}

// containerMetric returns the metric of a container in the protocol.
func containerMetric(resource metrics.UsageKind, key metrics.ContainerKey) *datasourcepb.Metric {
	ref := key.Workload
	return &datasourcepb.Metric{MetricName: string(resource), Info: &datasourcepb.Metric_Container{Container: &datasourcepb.Container{
		Namespace:    ref.Namespace,
		WorkloadKind: ref.Kind,
		WorkloadName: ref.Name,
		ApiVersion:   ref.APIVersion,
		Name:         key.Container,
	}}}
}

// withPod adds the pod and node of the i-th series. Without the label pod, each series belongs to a pod named after the workload.
func withPod(key metrics.ContainerKey, timeSeries *datasourcepb.TimeSeries, i int) metrics.ContainerKey {
	key.Pod = fmt.Sprintf("%s-%d", key.Workload.Name, i)
	for _, l := range timeSeries.GetLabels() {
		switch {
		case l.GetName() == "pod" && l.GetValue() != "":
			key.Pod = l.GetValue()
		case l.GetName() == "node":
			key.Node = l.GetValue()
		}
	}

	return key
}

// Usage implements metrics.UsageReader with one request for each container of the inventory.
func (s *Source) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		w, err := s.window(req)
		if err != nil {
			yield(metrics.Chunk{}, err)
			return
		}

		if !w.Start.Before(w.End) {
			return
		}

		keys, err := s.containers(ctx, req.Namespaces)
		if err != nil {
			yield(metrics.Chunk{}, err)
			return
		}

		for _, key := range keys {
			list, err := s.history(ctx, containerMetric(req.Resource, key), w)
			if err != nil {
				yield(metrics.Chunk{}, err)
				return
			}

			for i, timeSeries := range list {
				for chunk, err := range metrics.SplitDays(ctx, withPod(key, timeSeries, i), onGrid(timeSeries, w)) {
					if !yield(chunk, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// window returns the grid of a usage request.
func (s *Source) window(req metrics.UsageRequest) (metrics.Window, error) {
	if err := checkResource(req.Resource); err != nil {
		return metrics.Window{}, err
	}

	w := metrics.Window{Start: req.Start, End: req.End, Step: req.Step}
	if w.Step == 0 {
		w.Step = defaultStep
	}
	if now := s.config.Clock.Now(); w.End.IsZero() || w.End.After(now) {
		w.End = now
	}

	return grid(w)
}

// CurrentUsage implements metrics.RealtimeReader.
func (s *Source) CurrentUsage(ctx context.Context, resource metrics.UsageKind, namespaces []string) iter.Seq2[metrics.Reading, error] {
	return func(yield func(metrics.Reading, error) bool) {
		if err := checkResource(resource); err != nil {
			yield(metrics.Reading{}, err)
			return
		}

		keys, err := s.containers(ctx, namespaces)
		if err != nil {
			yield(metrics.Reading{}, err)
			return
		}

		for _, key := range keys {
			list, err := s.call(ctx, methodRealtime, &datasourcepb.QueryLatestTimeSeriesRequest{Metric: containerMetric(resource, key)})
			if err != nil {
				yield(metrics.Reading{}, err)
				return
			}

			// Only the last sample of each series is current.
			for i, timeSeries := range list {
				samples := timeSeries.GetSamples()
				if len(samples) == 0 || !isValid(samples[len(samples)-1].GetValue()) {
					continue
				}

				last := samples[len(samples)-1]
				if !yield(metrics.Reading{
					Key:    withPod(key, timeSeries, i),
					Time:   time.Unix(last.GetTimestamp(), 0).UTC(),
					Window: latestWindow,
					Value:  last.GetValue(),
				}, nil) {
					return
				}
			}
		}
	}
}

// WorkloadUsage implements metrics.AggregateReader with one request for each workload, whose series are summed.
func (s *Source) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return s.totals(ctx, req.Resource, req.Names, req.Window, func(name string) *datasourcepb.Metric {
		return &datasourcepb.Metric{MetricName: string(req.Resource), Info: &datasourcepb.Metric_Workload{Workload: &datasourcepb.Workload{
			Namespace: req.Namespace, Kind: req.Kind, Name: name,
		}}}
	})
}

// NodeUsage implements metrics.AggregateReader with one request for each node.
func (s *Source) NodeUsage(ctx context.Context, req metrics.NodesRequest) (map[string]series.Series, error) {
	return s.totals(ctx, req.Resource, req.Names, req.Window, func(name string) *datasourcepb.Metric {
		return &datasourcepb.Metric{MetricName: string(req.Resource), Info: &datasourcepb.Metric_Node{Node: &datasourcepb.Node{Name: name}}}
	})
}

// totals requests a metric for each name and sums its series.
func (s *Source) totals(
	ctx context.Context, resource metrics.UsageKind, names []string, w metrics.Window, metricOf func(string) *datasourcepb.Metric,
) (map[string]series.Series, error) {
	if err := checkResource(resource); err != nil {
		return nil, err
	}

	w, err := grid(w)
	if err != nil {
		return nil, err
	}

	out := map[string]series.Series{}
	for _, name := range names {
		list, err := s.history(ctx, metricOf(name), w)
		if err != nil {
			return nil, err
		}

		if total := sum(list, w, resource); len(total.Values) > 0 {
			out[name] = total
		}
	}

	return out, nil
}

// grid aligns a window to whole steps, and rejects one whose series would not fit into memory.
func grid(w metrics.Window) (metrics.Window, error) {
	if w.Step < time.Second || w.Step%time.Second != 0 {
		return w, fmt.Errorf("step %s of data source grpc: must be whole seconds", w.Step)
	}

	w.Start = w.Start.Truncate(w.Step)
	if cells := int64(w.End.Sub(w.Start) / w.Step); cells > maxCells {
		return w, fmt.Errorf("%d steps of %s: more than %d", cells, w.Step, maxCells)
	}

	return w, nil
}

// onGrid places samples on the grid. The last sample of a cell wins; an invalid one is a gap.
func onGrid(timeSeries *datasourcepb.TimeSeries, w metrics.Window) series.Series {
	out := series.Series{Start: w.Start, Step: w.Step, Values: make([]float64, max(0, w.End.Sub(w.Start)/w.Step))}
	for i := range out.Values {
		out.Values[i] = series.Gap()
	}

	for _, s := range timeSeries.GetSamples() {
		at := time.Unix(s.GetTimestamp(), 0)
		if at.Before(w.Start) || !at.Before(w.End) {
			continue
		}

		if i := int(at.Sub(w.Start) / w.Step); i < len(out.Values) {
			out.Values[i] = series.Gap()
			if isValid(s.GetValue()) {
				out.Values[i] = s.GetValue()
			}
		}
	}

	return out
}

// sum adds series by cell. A cell is a gap where all series have a gap, or where one has a sample that cannot be a measurement: the sum of the
// others is less than the usage. The sum of no series is empty.
func sum(list []*datasourcepb.TimeSeries, w metrics.Window, resource metrics.UsageKind) series.Series {
	unit := rightsize.BytesUnit
	if resource == metrics.CPU {
		unit = rightsize.Cores
	}

	var out series.Series
	implausible := map[int]bool{}
	for _, timeSeries := range list {
		measured := onGrid(timeSeries, w)
		next, _ := rightsize.Plausible(measured, unit, 0)
		for i, v := range measured.Values {
			if !series.IsGap(v) && series.IsGap(next.Values[i]) {
				implausible[i] = true
			}
		}

		if out.Values == nil {
			out = next
			continue
		}

		for i, v := range next.Values {
			switch {
			case series.IsGap(v):
			case series.IsGap(out.Values[i]):
				out.Values[i] = v
			default:
				out.Values[i] += v
			}
		}
	}

	for i := range implausible {
		out.Values[i] = series.Gap()
	}

	return out
}

// isValid reports whether a usage value is finite and not negative.
func isValid(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }
