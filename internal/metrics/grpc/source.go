// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

const (
	methodHistory  = "/History/QueryTimeSeries"
	methodRealtime = "/Realtime/QueryLatestTimeSeries"

	// maxAnswer bounds an answer: a week of minutes of a hundred pods is 20 MB.
	maxAnswer = 32 << 20
	// defaultStep is that of gocrane's documents for two weeks, and what sizing needs.
	defaultStep = 5 * time.Minute
	// maxCells bounds a series: a year of minutes.
	maxCells = 366 * 24 * 60
	// latestWindow is what a newest sample is taken to stand for; the protocol does not say.
	latestWindow = time.Minute
)

// Config is what a Source needs.
type Config struct {
	// Address is host:port, without TLS: the protocol has always run beside craned, in its pod or its network.
	Address string
	// Timeout bounds one question.
	Timeout time.Duration
	// Inventory says which workloads there are.
	Inventory metrics.Inventory
	Clock     clock.PassiveClock
}

// Source asks a server. It is safe for concurrent use.
type Source struct {
	config Config
	conn   *grpc.ClientConn
}

var (
	_ metrics.UsageReader     = (*Source)(nil)
	_ metrics.RealtimeReader  = (*Source)(nil)
	_ metrics.AggregateReader = (*Source)(nil)
)

// New returns a source. It connects with the first question.
func New(config Config) (*Source, error) {
	if config.Address == "" || config.Timeout <= 0 || config.Inventory == nil || config.Clock == nil {
		return nil, errors.New("a grpc source needs an address, a time limit, an inventory and a clock")
	}
	conn, err := grpc.NewClient(config.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("data source grpc at %s: %w", config.Address, err)
	}
	return &Source{config: config, conn: conn}, nil
}

// Close ends the connection.
func (s *Source) Close() error { return s.conn.Close() }

// Check tells whether the server can be connected to: the protocol has no cheaper question.
func (s *Source) Check(ctx context.Context) error {
	s.conn.Connect()
	for state := s.conn.GetState(); state != connectivity.Ready; state = s.conn.GetState() {
		if !s.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("data source grpc at %s: no connection, state %s", s.config.Address, state)
		}
		s.conn.Connect() // A connection that fails is idle until it is asked again.
	}
	return nil
}

func (s *Source) call(ctx context.Context, method string, r request) ([]timeSeries, error) {
	asking, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var out response
	err := s.conn.Invoke(asking, method, &r, &out)
	if status.Code(err) == codes.Unimplemented {
		return nil, fmt.Errorf("data source grpc: %s: %w", method, metrics.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("data source grpc: %s: %w", method, err)
	}
	return out.list, nil
}

func checkResource(resource metrics.Resource) error {
	if resource != metrics.CPU && resource != metrics.Memory {
		return fmt.Errorf("resource %s of data source grpc: %w", resource, metrics.ErrUnsupported)
	}
	return nil
}

// eachContainer calls visit with each container of the inventory.
func (s *Source) eachContainer(ctx context.Context, namespaces []string, visit func(workload.Ref, string) error) error {
	all, err := s.config.Inventory.Inventory(ctx, namespaces)
	if err != nil {
		return fmt.Errorf("listing workloads for data source grpc: %w", err)
	}
	for i := range all {
		for _, c := range all[i].Containers {
			if err := visit(all[i].Ref, c.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func containerTarget(ref workload.Ref, name string) target {
	return target{fieldContainer, []string{ref.Namespace, ref.Kind, ref.Name, ref.APIVersion, name}}
}

// Usage implements metrics.UsageReader: a question for each container of the inventory. Series without the label pod are
// taken to be of one pod with the name of the workload, each.
func (s *Source) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	if err := checkResource(req.Resource); err != nil {
		return err
	}
	w := metrics.Window{Start: req.Start, End: req.End, Step: req.Step}
	if w.Step == 0 {
		w.Step = defaultStep
	}
	if now := s.config.Clock.Now(); w.End.IsZero() || w.End.After(now) {
		w.End = now
	}
	w, err := grid(w)
	if err != nil || !w.Start.Before(w.End) {
		return err
	}
	return s.eachContainer(ctx, req.Namespaces, func(ref workload.Ref, name string) error {
		list, err := s.history(ctx, req.Resource, containerTarget(ref, name), w)
		if err != nil {
			return err
		}
		for i, one := range list {
			key := metrics.ContainerKey{Workload: ref, Pod: podOf(one, ref, i), Container: name, Node: one.labels["node"]}
			if err := metrics.VisitDays(ctx, key, onGrid(one, w), visit); err != nil {
				return err
			}
		}
		return nil
	})
}

func podOf(one timeSeries, ref workload.Ref, i int) string {
	if pod := one.labels["pod"]; pod != "" {
		return pod
	}
	return fmt.Sprintf("%s-%d", ref.Name, i)
}

// CurrentUsage implements metrics.RealtimeReader.
func (s *Source) CurrentUsage(
	ctx context.Context, resource metrics.Resource, namespaces []string, visit func(metrics.Reading) error,
) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	return s.eachContainer(ctx, namespaces, func(ref workload.Ref, name string) error {
		list, err := s.call(ctx, methodRealtime, request{metric: string(resource), of: containerTarget(ref, name)})
		if err != nil {
			return err
		}
		for i, one := range list {
			if len(one.samples) == 0 {
				continue
			}
			last := one.samples[len(one.samples)-1]
			if !isValid(last.value) {
				continue
			}
			err := visit(metrics.Reading{
				Key:  metrics.ContainerKey{Workload: ref, Pod: podOf(one, ref, i), Container: name, Node: one.labels["node"]},
				Time: time.Unix(last.seconds, 0).UTC(), Window: latestWindow, Value: last.value,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// WorkloadUsage implements metrics.AggregateReader: a question for each workload. Several series are added up.
func (s *Source) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return s.totals(ctx, req.Resource, req.Names, req.Window, func(name string) target {
		return target{fieldWorkload, []string{req.Namespace, req.Kind, name, ""}}
	})
}

// NodeUsage implements metrics.AggregateReader: a question for each node.
func (s *Source) NodeUsage(ctx context.Context, req metrics.NodesRequest) (map[string]series.Series, error) {
	return s.totals(ctx, req.Resource, req.Names, req.Window, func(name string) target {
		return target{fieldNode, []string{name}}
	})
}

func (s *Source) totals(
	ctx context.Context, resource metrics.Resource, names []string, w metrics.Window, of func(string) target,
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
		list, err := s.history(ctx, resource, of(name), w)
		if err != nil {
			return nil, err
		}
		if total := sum(list, w); len(total.Values) > 0 {
			out[name] = total
		}
	}
	return out, nil
}

func (s *Source) history(ctx context.Context, resource metrics.Resource, of target, w metrics.Window) ([]timeSeries, error) {
	return s.call(ctx, methodHistory, request{
		metric: string(resource), of: of, start: w.Start.Unix(), end: w.End.Add(-w.Step).Unix(), step: int64(w.Step / time.Second),
	})
}

// grid puts a window on whole steps, and refuses one that would not fit into memory.
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

// onGrid places samples: the last one of a place wins, what is no use (negative, not a number) is a gap.
func onGrid(one timeSeries, w metrics.Window) series.Series {
	out := series.Series{Start: w.Start, Step: w.Step, Values: make([]float64, max(0, w.End.Sub(w.Start)/w.Step))}
	for i := range out.Values {
		out.Values[i] = series.Gap()
	}
	for _, s := range one.samples {
		at := time.Unix(s.seconds, 0)
		if at.Before(w.Start) || !at.Before(w.End) {
			continue
		}
		if i := int(at.Sub(w.Start) / w.Step); i < len(out.Values) {
			out.Values[i] = series.Gap()
			if isValid(s.value) {
				out.Values[i] = s.value
			}
		}
	}
	return out
}

// sum adds series up place by place; a place of which none knows anything is a gap. It is empty where there is nothing.
func sum(list []timeSeries, w metrics.Window) series.Series {
	var out series.Series
	for _, one := range list {
		next := onGrid(one, w)
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
	return out
}

func isValid(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }
