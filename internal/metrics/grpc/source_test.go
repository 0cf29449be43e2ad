// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

var now = time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)

// server answers on a real connection, with messages of Google's library.
type server struct {
	mu     sync.Mutex
	asked  []string
	answer func(request string) ([]timeSeries, error)
}

// bytesCodec hands bytes through.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T", v)
	}
	return b, nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T", v)
	}
	*b = append((*b)[:0], data...)
	return nil
}

type inventory []workload.Workload

func (i inventory) Inventory(context.Context, []string) ([]workload.Workload, error) { return i, nil }

// serve starts a server that knows the given methods, and returns a source of it.
func serve(t *testing.T, s *server, methods ...string) *Source {
	t.Helper()
	file := described(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if !slices.Contains(methods, method) {
			return status.Error(codes.Unimplemented, method)
		}
		var data []byte
		if err := stream.RecvMsg(&data); err != nil {
			return err
		}
		message := dynamicpb.NewMessage(file.Messages().ByName("QueryTimeSeriesRequest"))
		if err := proto.Unmarshal(data, message); err != nil {
			return err
		}
		asked := strings.Join(strings.Fields(message.String()), " ")
		s.mu.Lock()
		s.asked = append(s.asked, asked)
		s.mu.Unlock()
		list, err := s.answer(asked)
		if err != nil {
			return err
		}
		return stream.SendMsg(answerOf(t, file, list))
	}))
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	ref := workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	source, err := New(Config{
		Address: listener.Addr().String(), Timeout: 20 * time.Second, Clock: clocktesting.NewFakePassiveClock(now),
		Inventory: inventory{{Ref: ref, Containers: []workload.Container{{Name: "app"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// TestUsage: history of containers comes over a real connection, on a grid, cut at midnight, with gaps for what is no use.
func TestUsage(t *testing.T) {
	begin := time.Date(2026, 3, 1, 23, 50, 0, 0, time.UTC)
	at := func(minutes int64, v float64) sample { return sample{begin.Unix() + 60*minutes, v} }
	s := &server{answer: func(string) ([]timeSeries, error) {
		return []timeSeries{
			{map[string]string{"pod": "web-1", "node": "n1"}, []sample{
				at(0, 0.5), at(0, 1), at(5, math.NaN()), at(10, 2), at(15, -1), at(19, 3), at(-60, 9), at(600, 9),
			}},
			{nil, []sample{at(10, 4)}},
		}, nil
	}}
	source := serve(t, s, methodHistory)
	var got []string
	err := source.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU, Start: begin, End: now.Add(time.Hour)}, func(c metrics.Chunk) error {
		got = append(got, fmt.Sprint(c.Key.Workload.Name, "/", c.Key.Pod, "/", c.Key.Container, "@", c.Key.Node, " ",
			c.Series.Start.Format("15:04"), " ", c.Series.Step, " ", c.Series.Values))
		return nil
	})
	want := []string{
		"web/web-1/app@n1 23:50 5m0s [1]",
		"web/web-1/app@n1 00:00 5m0s [2 3]",
		"web/web-1/app@ 00:00 5m0s [4]",
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	question := fmt.Sprintf(`metric:{metricName:"cpu" container:{namespace:"shop" workloadKind:"Deployment" workloadName:"web" apiVersion:"apps/v1" name:"app"}} startTime:%d endTime:%d step:300`,
		begin.Unix(), now.Add(-5*time.Minute).Unix())
	if len(s.asked) != 1 || s.asked[0] != question {
		t.Errorf("asked %q, want %q", s.asked, question)
	}
}

// TestTotals: several series of a workload are added up, and one that the server does not know is absent.
func TestTotals(t *testing.T) {
	w := metrics.Window{Start: now.Add(-10 * time.Minute), End: now, Step: 5 * time.Minute}
	s := &server{answer: func(asked string) ([]timeSeries, error) {
		if strings.Contains(asked, `name:"gone"`) {
			return nil, nil
		}
		one := timeSeries{nil, []sample{{w.Start.Unix(), 1}, {w.Start.Unix() + 300, 2}}}
		return []timeSeries{one, one, {nil, []sample{{w.Start.Unix(), math.Inf(1)}}}}, nil
	}}
	source := serve(t, s, methodHistory)
	got, err := source.WorkloadUsage(t.Context(), metrics.WorkloadsRequest{
		Resource: metrics.CPU, Namespace: "shop", Kind: "Deployment", Names: []string{"web", "gone"}, Window: w,
	})
	if err != nil || len(got) != 1 || fmt.Sprint(got["web"].Values) != "[2 4]" {
		t.Errorf("%v, %v", got, err)
	}
	if nodes, err := source.NodeUsage(t.Context(), metrics.NodesRequest{Resource: metrics.Memory, Names: []string{"n1"}, Window: w}); err != nil || len(nodes) != 1 {
		t.Errorf("%v, %v", nodes, err)
	}
}

// TestRealtimeApart: a server without the service Realtime is one of history alone, and the other way round.
func TestRealtimeApart(t *testing.T) {
	answer := func(string) ([]timeSeries, error) {
		return []timeSeries{{map[string]string{"pod": "p"}, []sample{{now.Unix() - 60, 1}, {now.Unix(), 2}}}, {nil, nil}}, nil
	}
	read := func(s *Source) ([]float64, error) {
		var got []float64
		err := s.CurrentUsage(t.Context(), metrics.CPU, nil, func(r metrics.Reading) error {
			got = append(got, r.Value)
			return nil
		})
		return got, err
	}
	if got, err := read(serve(t, &server{answer: answer}, methodRealtime)); err != nil || fmt.Sprint(got) != "[2]" {
		t.Errorf("%v, %v", got, err)
	}
	historic := serve(t, &server{answer: answer}, methodHistory)
	if _, err := read(historic); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("realtime of a server that has none: %v", err)
	}
	ignore := func(metrics.Chunk) error { return nil }
	err := historic.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.HeldMemory, Start: now.Add(-time.Hour)}, ignore)
	if !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("a resource that the protocol does not know: %v", err)
	}
	if err := historic.Check(t.Context()); err != nil {
		t.Errorf("asked whether it answers: %v", err)
	}
}

// TestFailures: what fails is an error and no zero, and a window that would not fit into memory is refused.
func TestFailures(t *testing.T) {
	source := serve(t, &server{answer: func(string) ([]timeSeries, error) {
		return nil, status.Error(codes.Unavailable, "no disk")
	}}, methodHistory)
	none := func(metrics.Chunk) error { t.Error("a chunk"); return nil }
	for name, req := range map[string]metrics.UsageRequest{
		"server fails":     {Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now},
		"a broken step":    {Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now, Step: time.Millisecond},
		"a window of ages": {Resource: metrics.CPU, Start: now.AddDate(-100, 0, 0), End: now, Step: time.Second},
	} {
		if err := source.Usage(t.Context(), req, none); err == nil || errors.Is(err, metrics.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Address: "localhost:1"}); err == nil {
		t.Error("half a configuration is accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone, err := New(Config{Address: "127.0.0.1:1", Timeout: time.Second, Inventory: inventory{}, Clock: clocktesting.NewFakePassiveClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if err := gone.Check(ctx); err == nil {
		t.Error("a server that is not there answers")
	}
}
