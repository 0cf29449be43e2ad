// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/grpc/datasourcepb"
)

var now = time.Date(2026, 3, 2, 0, 10, 0, 0, time.UTC)

// server answers requests over a real connection.
type server struct {
	mu     sync.Mutex
	asked  []string
	answer func(request string) ([]timeSeries, error)
	// options are those of the gRPC server, and caFile is the one of the source.
	options []grpc.ServerOption
	caFile  string
}

// timeSeries and sample are the series of a response.
type timeSeries struct {
	labels  map[string]string
	samples []sample
}

type sample struct {
	seconds int64
	value   float64
}

// response returns series as a message.
func response(list []timeSeries) *datasourcepb.QueryTimeSeriesResponse {
	out := &datasourcepb.QueryTimeSeriesResponse{}
	for _, one := range list {
		s := &datasourcepb.TimeSeries{}
		for name, value := range one.labels {
			s.Labels = append(s.Labels, &datasourcepb.Label{Name: name, Value: value})
		}

		for _, p := range one.samples {
			s.Samples = append(s.Samples, &datasourcepb.Sample{Timestamp: p.seconds, Value: p.value})
		}
		out.TimeSeriesList = append(out.TimeSeriesList, s)
	}

	return out
}

type inventory []workload.Workload

func (i inventory) Inventory(context.Context, []string) ([]workload.Workload, error) { return i, nil }

// serve starts a server with the given methods, and returns a source that reads from it.
func serve(t *testing.T, s *server, methods ...string) *Source {
	t.Helper()

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	g := grpc.NewServer(append(s.options, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if !slices.Contains(methods, method) {
			return status.Error(codes.Unimplemented, method)
		}

		var message datasourcepb.QueryTimeSeriesRequest // Also reads a QueryLatestTimeSeriesRequest, which has the same first field.
		if err := stream.RecvMsg(&message); err != nil {
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

		return stream.SendMsg(response(list))
	}))...)

	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)

	ref := workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	source, err := New(Config{
		Address: listener.Addr().String(), Timeout: 20 * time.Second, Clock: clocktesting.NewFakePassiveClock(now),
		Inventory: inventory{{Ref: ref, Containers: []workload.Container{{Name: "app"}}}}, CAFile: s.caFile,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = source.conn.Close() })
	return source
}

// usageError returns the error of a request, which must be its only element.
func usageError(t *testing.T, s *Source, req metrics.UsageRequest) error {
	t.Helper()

	for c, err := range s.Usage(t.Context(), req) {
		if err == nil {
			t.Errorf("Usage(%+v) yielded the chunk %+v, want an error alone", req, c)
		}

		return err
	}

	return nil
}

// TestUsage checks that the history of containers is on a grid and split at midnight, with gaps for invalid values.
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
	for c, err := range source.Usage(t.Context(), metrics.UsageRequest{Resource: metrics.CPU, Start: begin, End: now.Add(time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, fmt.Sprint(c.Key.Workload.Name, "/", c.Key.Pod, "/", c.Key.Container, "@", c.Key.Node, " ",
			c.Series.Start.Format("15:04"), " ", c.Series.Step, " ", c.Series.Values))
	}

	want := []string{
		"web/web-1/app@n1 23:50 5m0s [1]",
		"web/web-1/app@n1 00:00 5m0s [2 3]",
		"web/web-1/app@ 00:00 5m0s [4]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("Usage yielded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	question := fmt.Sprintf(`metric:{metricName:"cpu" container:{namespace:"shop" workloadKind:"Deployment" workloadName:"web" apiVersion:"apps/v1" name:"app"}} startTime:%d endTime:%d step:300`,
		begin.Unix(), now.Add(-5*time.Minute).Unix())
	if len(s.asked) != 1 || s.asked[0] != question {
		t.Errorf("requests of the server: %q, want only %q", s.asked, question)
	}
}

// TestTotals checks that the series of a workload are summed and that an unknown workload is absent.
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
		t.Errorf("WorkloadUsage = %v, %v, want the values [2 4] of web alone", got, err)
	}
	if nodes, err := source.NodeUsage(t.Context(), metrics.NodesRequest{Resource: metrics.Memory, Names: []string{"n1"}, Window: w}); err != nil || len(nodes) != 1 {
		t.Errorf("NodeUsage = %v, %v, want one node", nodes, err)
	}
}

// TestTotals_Implausible checks that a sample that cannot be a measurement leaves a gap in the sum, instead of thousands of cores or the sum of the
// other series.
func TestTotals_Implausible(t *testing.T) {
	w := metrics.Window{Start: now.Add(-20 * time.Minute), End: now, Step: time.Minute}
	usage := func(bogus int) timeSeries {
		var out timeSeries
		for i := range 20 {
			value := 0.5
			if i == bogus {
				value = 3000
			}

			out.samples = append(out.samples, sample{w.Start.Add(time.Duration(i) * time.Minute).Unix(), value})
		}

		return out
	}
	s := &server{answer: func(string) ([]timeSeries, error) { return []timeSeries{usage(-1), usage(7)}, nil }}

	got, err := serve(t, s, methodHistory).WorkloadUsage(t.Context(), metrics.WorkloadsRequest{
		Resource: metrics.CPU, Namespace: "shop", Kind: "Deployment", Names: []string{"web"}, Window: w,
	})
	if err != nil {
		t.Fatal(err)
	}

	for i, v := range got["web"].Values {
		if i == 7 && !math.IsNaN(v) || i != 7 && v != 1 {
			t.Errorf("WorkloadUsage: value %d is %v, want 1 and a gap at 7", i, v)
		}
	}
}

// TestRealtimeOptional checks servers with only one of the services History and Realtime.
func TestRealtimeOptional(t *testing.T) {
	answer := func(string) ([]timeSeries, error) {
		return []timeSeries{{map[string]string{"pod": "p"}, []sample{{now.Unix() - 60, 1}, {now.Unix(), 2}}}, {nil, nil}}, nil
	}
	read := func(s *Source) ([]float64, error) {
		var got []float64
		for r, err := range s.CurrentUsage(t.Context(), metrics.CPU, nil) {
			if err != nil {
				return got, err
			}

			got = append(got, r.Value)
		}

		return got, nil
	}

	if got, err := read(serve(t, &server{answer: answer}, methodRealtime)); err != nil || fmt.Sprint(got) != "[2]" {
		t.Errorf("CurrentUsage = %v, %v, want [2]", got, err)
	}

	historic := serve(t, &server{answer: answer}, methodHistory)
	if _, err := read(historic); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("CurrentUsage of a server without it: error %v, want ErrUnsupported", err)
	}

	err := usageError(t, historic, metrics.UsageRequest{Resource: metrics.UnreclaimableMemory, Start: now.Add(-time.Hour)})
	if !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("Usage of an unsupported resource: error %v, want ErrUnsupported", err)
	}
	if err := historic.Check(t.Context()); err != nil {
		t.Errorf("Check of a server that answers: error %v, want none", err)
	}
}

// TestErrorsNameNoAddress checks that errors for readers of a namespace contain no address.
func TestErrorsNameNoAddress(t *testing.T) {
	failing := serve(t, &server{answer: func(string) ([]timeSeries, error) {
		return nil, status.Error(codes.Unavailable, "dial tcp 10.1.2.3:9090: connection refused")
	}}, methodHistory)

	gone, err := New(Config{
		Address: "127.0.0.1:1", Timeout: 20 * time.Second, Clock: failing.config.Clock, Inventory: failing.config.Inventory,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = gone.conn.Close() })
	for name, source := range map[string]*Source{"the server's error": failing, "no server": gone} {
		err := usageError(t, source, metrics.UsageRequest{Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now})
		text := metrics.PublicMessage(err)
		if text != "data source grpc: /History/QueryTimeSeries: Unavailable" {
			t.Errorf("%s: public message %s, want the method and Unavailable, without an address", name, text)
		}
		if !strings.Contains(err.Error(), "dial tcp") || status.Code(err) != codes.Unavailable {
			t.Errorf("%s: error %v, want one with code Unavailable that contains dial tcp", name, err)
		}
	}
}

// TestFailures checks that failures are returned as errors and that a window that does not fit into memory is
// rejected.
func TestFailures(t *testing.T) {
	source := serve(t, &server{answer: func(string) ([]timeSeries, error) {
		return nil, status.Error(codes.Unavailable, "no disk")
	}}, methodHistory)
	for name, req := range map[string]metrics.UsageRequest{
		"server fails":     {Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now},
		"a broken step":    {Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now, Step: time.Millisecond},
		"a window of ages": {Resource: metrics.CPU, Start: now.AddDate(-100, 0, 0), End: now, Step: time.Second},
	} {
		if err := usageError(t, source, req); err == nil || errors.Is(err, metrics.ErrUnsupported) {
			t.Errorf("%s: Usage: error %v, want one other than ErrUnsupported", name, err)
		}
	}

	if _, err := New(Config{Address: "localhost:1"}); err == nil {
		t.Error("New with an incomplete configuration: no error, want one")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	gone, err := New(Config{Address: "127.0.0.1:1", Timeout: time.Second, Inventory: inventory{}, Clock: clocktesting.NewFakePassiveClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.conn.Close()

	if err := gone.Check(ctx); err == nil {
		t.Error("Check without a server: no error, want one")
	}
}

// TestTransport checks that samples and workload names leave the host without TLS only with Insecure.
func TestTransport(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:50051": "insecure", "127.0.0.1:1": "insecure", "[::1]:1": "insecure", "unix:/run/source.sock": "insecure",
		"history.shop:50051": "tls", "10.0.0.7:1": "tls", "localhost.example.com:1": "tls", "dns:///history:1": "tls", "0.0.0.0:1": "tls",
	} {
		transport, err := Config{Address: address}.transport()
		if err != nil || transport.Info().SecurityProtocol != want {
			t.Errorf("transport of %s: %s, %v, want %s", address, transport.Info().SecurityProtocol, err, want)
		}
		if transport, err = (Config{Address: address, Insecure: true}).transport(); err != nil || transport.Info().SecurityProtocol != "insecure" {
			t.Errorf("transport of %s with Insecure: %s, %v, want insecure", address, transport.Info().SecurityProtocol, err)
		}
	}
}

// TestTLS checks that a source reads from a server with a certificate of the given authority, and from no other.
func TestTLS(t *testing.T) {
	issuer := httptest.NewTLSServer(nil)
	defer issuer.Close()

	authority := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}

	answer := func(string) ([]timeSeries, error) { return nil, nil }
	trusted := []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&issuer.TLS.Certificates[0]))}
	request := metrics.UsageRequest{Resource: metrics.CPU, Start: now.Add(-time.Hour), End: now}
	if err := usageError(t, serve(t, &server{answer: answer, options: trusted, caFile: authority}, methodHistory), request); err != nil {
		t.Error(err)
	}
	if err := usageError(t, serve(t, &server{answer: answer, caFile: authority}, methodHistory), request); err == nil {
		t.Error("Usage of a server without TLS: no error, want one")
	}

	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	foreign, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign}), 0o600); err != nil {
		t.Fatal(err)
	}

	err = usageError(t, serve(t, &server{answer: answer, options: trusted, caFile: authority}, methodHistory), request)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Usage of a server with a certificate of another authority: error %v, want one about the certificate", err)
	}
	if err := os.WriteFile(authority, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, file := range []string{authority, authority + ".none"} {
		if _, err := (Config{Address: "history:1", CAFile: file}).transport(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("transport with CA file %s: error %v, want one that names the file", file, err)
		}
	}
}
