// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast/dsp"
	"crane.io/crane/pkg/forecast/percentile"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
)

// TestCallersOfOneSeriesShareIt expects one history read for two callers and two spellings, and one refresh for a
// whole namespace.
func TestCallersOfOneSeriesShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave}
		p := newPredictor(t, source, nil)
		spelled := cpuOf("web")
		spelled.Algorithm = registry.Auto
		spelled.Query.Target.APIVersion = "apps/v1"
		spelled.Options.DSP.SampleInterval = "30s" // a setting of another algorithm, which has no effect
		first := p.Set("a", []Request{cpuOf("web")})
		second := p.Set("b", []Request{spelled, cpuOf("api")})
		run(t, p) // After both calls: a scheduler that runs between them reads one workload alone.

		if first[0].Err != nil || first[0].Key != second[0].Key || second[0].Key == second[1].Key {
			t.Fatalf("Set = %v and %v, want one key for both spellings and another one for api", first, second)
		}

		if s := p.Status(first[0].Key); s.State != Pending {
			t.Errorf("Status before anything was read is %s, want Pending", s.State)
		}

		time.Sleep(time.Second)
		synctest.Wait()

		if h, r := source.reads(); h != 1 || r != 0 {
			t.Errorf("%d histories, %d refreshes: want the two workloads in one", h, r)
		}

		time.Sleep(20 * time.Minute)
		synctest.Wait()

		if h, r := source.reads(); h != 1 || r < 8 || r > 11 {
			t.Errorf("%d histories, %d refreshes in 20 minutes, want about 10", h, r)
		}

		checkDaily(t, p, first[0].Key)
		p.Forget("a")

		if s := p.Status(first[0].Key); s.State != Ready {
			t.Errorf("state %s while b still wants it", s.State)
		}

		p.Set("b", nil)
		if s := p.Status(first[0].Key); !errors.Is(s.Err, ErrUnknown) {
			t.Errorf("Status after all callers have left = %+v, want ErrUnknown", s)
		}
		if c := p.Counts(); c.Entries != 0 || c.Models != 0 {
			t.Errorf("Counts after all callers have left = %+v, want none", c)
		}
	})
}

// checkDaily compares a forecast of two hours with the wave.
func checkDaily(t *testing.T, p *Predictor, key Key) {
	t.Helper()

	all, err := p.Forecast(key, 2*time.Hour)
	if err != nil || len(all) != 1 {
		t.Fatalf("Forecast has %d series, %v, want 1", len(all), err)
	}

	now := time.Now()
	if f := all[0]; f.Start.After(now) || f.End().Before(now.Add(2*time.Hour)) || now.Sub(f.LastSample) > 6*time.Minute {
		t.Errorf("Forecast is from %s to %s at %s with last sample %s, want two hours from now and a sample of the last 6 minutes", f.Start, f.End(), now, f.LastSample)
	}

	for i, q := range all[0].Values {
		at := all[0].Start.Add(time.Duration(i) * all[0].Step)
		want := dailyWave("", at)
		if math.Abs(q.At(0.5)-want) > 0.15*want {
			t.Fatalf("at %s: %v, want about %v", at, q, want)
		}

		if v := all[0].Published(q); v != q.At(0.95) {
			t.Fatalf("Published = %v of %v, want the 0.95 quantile", v, q)
		}
	}
}

// TestFailingSource checks that forecasts are served and marked stale, that the source is queried less often, and
// that all recovers.
func TestFailingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave}
		p := start(t, source, nil)

		var requests []Request
		for i := range 40 {
			r := cpuOf(fmt.Sprintf("web-%d", i))
			r.Query.Target.Namespace = fmt.Sprintf("ns-%d", i)
			requests = append(requests, r)
		}

		tickets := p.Set("a", requests)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		source.set(errors.New("connection refused"))
		_, before := source.reads()
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		_, after := source.reads()
		if n := after - before; n < 5 || n > 25 {
			t.Errorf("asked %d times in 10 minutes of failure, want about one a minute", n)
		}

		for _, ticket := range tickets {
			s := p.Status(ticket.Key)
			if s.State != Ready || !s.Stale || s.Err == nil || s.Age < 10*time.Minute {
				t.Fatalf("Status = %+v, want Ready and stale with an error", s)
			}
		}

		all, err := p.Forecast(tickets[3].Key, time.Hour)
		if err != nil || len(all) != 1 || all[0].End().Before(time.Now().Add(time.Hour)) {
			t.Fatalf("Forecast while the source fails = %v, want one up to an hour from now", err)
		}

		source.set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		for i, ticket := range tickets {
			if s := p.Status(ticket.Key); s.Stale || s.Err != nil {
				t.Errorf("Status of request %d after the source is back = %+v, want no error and not stale", i, s)
			}
		}

		if h, _ := source.reads(); h != 40 {
			t.Errorf("%d histories were read, want one for each namespace", h)
		}
	})
}

// TestFailureFromTheStart has a source that becomes available late.
func TestFailureFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave, fail: errors.New("no route to host")}
		p := start(t, source, nil)
		key := p.Set("a", []Request{cpuOf("web")})[0].Key
		time.Sleep(time.Minute)

		if s := p.Status(key); s.State != Failed || s.Err == nil {
			t.Errorf("Status = %+v, want Failed with an error", s)
		}
		if all, err := p.Forecast(key, time.Hour); err != nil || len(all) != 0 {
			t.Errorf("Forecast has %d series, %v, want none", len(all), err)
		}

		source.set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		if s := p.Status(key); s.State != Ready {
			t.Errorf("Status = %+v, want Ready", s)
		}
	})
}

// TestRefusedQuery checks that a rejected query does not slow down the others and is retried rarely.
func TestRefusedQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("parse error")
		source := &refusing{fakeSource: fakeSource{use: dailyWave}, err: refused}
		p := start(t, source, func(c *Config) { c.IsQueryError = func(err error) bool { return errors.Is(err, refused) } })
		tickets := p.Set("a", []Request{{Query: Query{Expression: "sum("}}, cpuOf("web")})
		time.Sleep(time.Hour)
		synctest.Wait()

		if s := p.Status(tickets[0].Key); s.State != Failed || !errors.Is(s.Err, refused) {
			t.Errorf("Status of the refused query = %+v, want Failed with %v", s, refused)
		}
		if s := p.Status(tickets[1].Key); s.State != Ready || s.Stale {
			t.Errorf("Status of the other query = %+v, want Ready and not stale", s)
		}
		if source.asked > 9 {
			t.Errorf("a refused query was sent %d times in an hour, want 9 or less", source.asked)
		}
	})
}

type refusing struct {
	fakeSource
	err   error
	asked int
}

func (r *refusing) Range(context.Context, string, metrics.Window) ([]metrics.LabeledSeries, error) {
	r.asked++
	return nil, r.err
}

// TestHistoriesDoNotHoldUpRefreshes checks that calls return and live series are refreshed while histories take
// minutes.
func TestHistoriesDoNotHoldUpRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave}
		p := start(t, source, func(c *Config) { c.Workers = 4 })
		key := p.Set("a", []Request{cpuOf("web")})[0].Key
		time.Sleep(3 * time.Minute)
		slow := &source.delay
		source.mu.Lock()
		*slow = 30 * time.Second
		source.mu.Unlock()
		began := time.Now()

		var many []Request
		for i := range 100 {
			r := cpuOf("x")
			r.Query.Target.Namespace = fmt.Sprintf("ns-%d", i)
			many = append(many, r)
		}

		tickets := p.Set("b", many)
		if s := p.Status(tickets[0].Key); s.State != Pending || time.Since(began) > 0 {
			t.Errorf("Status = %+v after %s, want Pending at once", s, time.Since(began))
		}

		time.Sleep(10 * time.Minute)
		synctest.Wait()

		if s := p.Status(key); s.Stale || s.Age > 5*time.Minute {
			t.Errorf("Status of a live series beside histories = %+v, want a sample of the last 5 minutes", s)
		}
		if h, _ := source.reads(); h > 1+3*21 {
			t.Errorf("%d histories were read in ten minutes, want at most three at once", h)
		}
	})
}

// TestHistoriesOfOneNamespaceLeaveAWorker checks that another namespace gets its first histories while one namespace requests those of many
// kinds, each of which is a read of its own that takes a minute and a half.
func TestHistoriesOfOneNamespaceLeaveAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, &fakeSource{use: dailyWave, delay: 90 * time.Second}, nil)
		var many []Request
		for i := range 100 {
			r := cpuOf("x")
			r.Namespace = "tenant"
			r.Query.Target.Namespace = "tenant"
			r.Query.Target.Kind = fmt.Sprintf("Kind%d", i)
			many = append(many, r)
		}

		p.Set("tenant/many", many)
		time.Sleep(10 * time.Second)
		honest := cpuOf("web")
		honest.Namespace = "shop"
		key := p.Set("shop/web", []Request{honest})[0].Key
		time.Sleep(100 * time.Second)
		synctest.Wait()

		if s := p.Status(key); s.State != Ready {
			t.Errorf("Status after 100 s = %+v, want Ready", s)
		}
	})
}

// TestNewAndVanishedWorkloads covers a new workload, one that does not exist and one that stops.
func TestNewAndVanishedWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born := time.Now().Add(-10 * time.Minute)
		end := time.Now().Add(30 * time.Minute)
		source := &fakeSource{use: func(name string, at time.Time) float64 {
			if name == "none" || name == "new" && at.Before(born) || name == "old" && at.After(end) {
				return series.Gap()
			}

			return dailyWave(name, at)
		}}

		p := start(t, source, nil)
		tickets := p.Set("a", []Request{cpuOf("new"), cpuOf("none"), cpuOf("old")})
		time.Sleep(time.Minute)
		synctest.Wait()

		all, err := p.Forecast(tickets[0].Key, time.Hour)
		if err != nil || len(all) != 1 || all[0].Reason == "" {
			t.Errorf("Forecast of a new workload = %v, %v, want one with a reason", all, err)
		}
		if s := p.Status(tickets[1].Key); s.State != Empty {
			t.Errorf("Status = %+v, want Empty", s)
		}

		time.Sleep(time.Hour)
		synctest.Wait()

		if s := p.Status(tickets[2].Key); s.State != Ready || !s.Stale || s.Err != nil {
			t.Errorf("Status of a workload that stopped = %+v, want Ready and stale without an error", s)
		}
	})
}

// TestCheckpoints checks that a restart reads only new samples, and that damaged and foreign files are ignored.
func TestCheckpoints(t *testing.T) {
	for _, algorithm := range []string{registry.Auto, registry.Percentile, registry.DSP} {
		t.Run(algorithm, func(t *testing.T) {
			dir := t.TempDir()
			request := cpuOf("web")
			request.Algorithm = algorithm
			var key Key
			runs := 0

			run := func(name string, histories int, restored, warnings int64) {
				t.Helper()

				synctest.Test(t, func(t *testing.T) {
					// Each bubble starts at the same time; each run starts after the one before.
					time.Sleep(time.Duration(runs) * time.Hour)
					runs++
					source := &fakeSource{use: dailyWave}
					c := DefaultConfig()
					c.Source = source
					c.StateDir = dir

					var messages atomic.Int64
					c.Log = funcr.New(func(_, args string) {
						if strings.Contains(args, "newer version") {
							messages.Add(1)
						}
					}, funcr.Options{})

					p, err := New(c)
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if messages.Load() != warnings {
							t.Errorf("%s: %d messages on newer files, want %d", name, messages.Load(), warnings)
						}
					}()

					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { _ = p.Start(ctx); close(done) }()
					key = p.Set("a", []Request{request})[0].Key
					time.Sleep(31 * time.Minute)
					synctest.Wait()

					if h, _ := source.reads(); h != histories || p.Counts().Restored != restored {
						t.Errorf("%s: %d histories read, %d restored; want %d and %d", name, h, p.Counts().Restored, histories, restored)
					}
					if s := p.Status(key); s.State != Ready || s.Stale || s.Series != 1 {
						t.Errorf("%s: Status = %+v, want one series, Ready and not stale", name, s)
					}
					if all, err := p.Forecast(key, time.Hour); err != nil || len(all) != 1 {
						t.Errorf("%s: Forecast = %d series, %v, want one", name, len(all), err)
					}

					cancel()
					<-done
				})
			}

			run("first", 1, 0, 0)
			run("restart", 0, 1, 0)

			file := filepath.Join(dir, key.String()+storeSuffix)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			if algorithm == registry.Auto && len(content) > 40<<10 {
				t.Errorf("the checkpoint has %d bytes, want at most 40 KiB", len(content))
			}

			t.Logf("checkpoint: %d bytes", len(content))
			content[len(content)/2] ^= 0xff
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}

			header := func(version uint32) string {
				return string(binary.LittleEndian.AppendUint32([]byte(storeMagic), version))
			}

			// Beside the file of this version are those of others, of this key and of another.
			foreign := map[string]string{
				"0123.v0.ckpt": "old", key.String() + ".v2.ckpt": "without a header", key.String() + ".v9.ckpt": "long enough for a header, but none",
				"0123.v8.ckpt": header(storeVersion - 1), "0124.v9.ckpt": header(storeVersion + 1)[:headerSize-1],
			}

			newer := map[string]string{key.String() + ".v5.ckpt": header(storeVersion+1) + "unknown", "0123.v9.ckpt": header(storeVersion + 6)}
			for _, files := range []map[string]string{foreign, newer} {
				for name, content := range files {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}

			run("damaged", 1, 0, 1)
			for name := range foreign {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					t.Errorf("%s is still there, want it removed", name)
				}
			}

			run("repaired", 0, 1, 1)
			for name, want := range newer {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
					t.Errorf("%s of a newer version has %q, %v, want %q", name, got, err, want)
				}
			}

			p, err := New(Config{Source: &fakeSource{}, StateDir: dir, Clock: DefaultConfig().Clock, Refresh: 1, StaleAfter: 1, ModelUpdate: 1, Checkpoint: 1, Workers: 1, MaxSeries: 1, MaxSeriesPerQuery: 1, MaxBytes: 1 << 20, MaxNamespaceBytes: 1 << 20, ReadTimeout: 1})
			if err != nil {
				t.Fatal(err)
			}

			p.Set("a", []Request{request})
			p.Forget("a")

			if _, err := os.Stat(file); err == nil {
				t.Error("the checkpoint of a forgotten series is still there, want it removed")
			}
		})
	}
}

// TestAccuracy compares forecasts with samples: a steady wave scores well, a jump does not.
func TestAccuracy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jump := time.Now().Add(30 * time.Hour)
		source := &fakeSource{use: func(name string, at time.Time) float64 {
			v := dailyWave(name, at) * (1 + 0.05*math.Sin(float64(at.Unix())))
			if !at.Before(jump) {
				v *= 3
			}

			return v
		}}

		p := start(t, source, nil)
		key := p.Set("a", []Request{cpuOf("web")})[0].Key
		time.Sleep(time.Minute)

		if a := p.Accuracy(key); a.Samples != 0 || !math.IsNaN(a.WAPE) {
			t.Errorf("Accuracy before the first sample = %+v, want no samples", a)
		}

		publish := func(until time.Time) {
			for time.Now().Before(until) {
				if _, err := p.Forecast(key, 4*time.Hour); err != nil {
					t.Fatal(err)
				}

				time.Sleep(time.Hour)
			}

			synctest.Wait()
		}

		publish(jump)
		before := p.Accuracy(key)
		if before.Samples < 300 || before.WAPE > 0.1 || before.Coverage < 0.8 || math.IsNaN(before.Skill) {
			t.Errorf("Accuracy before the jump = %+v, want 300 samples or more, a WAPE of at most 0.1, a coverage of at least 0.8 and a skill", before)
		}

		publish(jump.Add(3 * time.Hour))
		if after := p.Accuracy(key); after.WAPE < 2*before.WAPE || after.Coverage > before.Coverage {
			t.Errorf("Accuracy after a jump = %+v, before %+v, want a larger error and less coverage", after, before)
		}
		if o := p.Overall(); o != p.Accuracy(key) {
			t.Errorf("Overall = %+v, want the accuracy of the only series", o)
		}
	})
}

// TestExpressions covers several series, vanishing ones, too many, and the pooled distribution.
func TestExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []metrics.Labels
		for i := range 60 {
			pods = append(pods, metrics.Labels{"pod": fmt.Sprintf("web-%d", i)})
		}

		gone := time.Now().Add(30 * time.Minute)
		source := &fakeSource{
			expressions: map[string][]metrics.Labels{"few": pods[:3], "many": pods},
			use: func(name string, at time.Time) float64 {
				if name == "web-1" && at.After(gone) {
					return series.Gap()
				}

				return map[string]float64{"web-0": 1, "web-1": 2, "web-2": 3}[name]
			},
		}

		p := start(t, source, func(c *Config) { c.MaxSeriesPerQuery = 10 })
		aggregated := Request{Query: Query{Expression: "few"}, Algorithm: registry.Percentile, Aggregated: true}
		aggregated.Options.Percentile = percentile.Options{Percentile: "0.6", MarginFraction: "0.5"}
		tickets := p.Set("a", []Request{{Query: Query{Expression: "few"}}, {Query: Query{Expression: "many"}}, aggregated})
		time.Sleep(time.Minute)
		synctest.Wait()

		if h, _ := source.reads(); h != 3 {
			t.Errorf("%d histories were read, want 3", h)
		}
		if all, err := p.Forecast(tickets[0].Key, time.Hour); err != nil || len(all) != 3 || all[1].Labels["pod"] != "web-1" {
			t.Errorf("Forecast has %d series, %v, want 3, the second of pod web-1", len(all), err)
		}
		if s := p.Status(tickets[1].Key); s.Series != 10 || s.Dropped != 50 {
			t.Errorf("Status = %+v, want 10 series and 50 dropped", s)
		}

		all, err := p.Forecast(tickets[2].Key, time.Hour)
		if err != nil || len(all) != 1 || len(all[0].Values) < 60 {
			t.Fatalf("Forecast has %d series, %v, want 1 with 60 values or more", len(all), err)
		}

		if v := all[0].Published(all[0].Values[0]); v != 3 {
			t.Errorf("the 0.6 quantile of 1, 2 and 3 with half as much again is %v, want 3", v)
		}

		time.Sleep(time.Hour)
		synctest.Wait()

		if all, err := p.Forecast(tickets[0].Key, time.Hour); err != nil || len(all) != 2 {
			t.Errorf("%d series after one vanished, %v, want 2", len(all), err)
		}
	})
}

func TestBadRequests(t *testing.T) {
	p, err := New(func() Config {
		c := DefaultConfig()
		c.Source = &fakeSource{}
		c.MaxSeries = 2

		return c
	}())
	if err != nil {
		t.Fatal(err)
	}

	bad := cpuOf("web")
	bad.Algorithm = registry.DSP
	bad.Options.DSP = dsp.Options{SampleInterval: "soon"}
	unknown := cpuOf("web")

	unknown.Algorithm = "crystal-ball"
	disk := cpuOf("web")
	disk.Query.Resource = "disk"
	for i, ticket := range p.Set("a", []Request{{}, bad, unknown, disk, {Query: Query{Resource: metrics.CPU}}}) {
		if ticket.Err == nil {
			t.Errorf("Set accepts request %d, want an error", i)
		}
	}

	for i, ticket := range p.Set("a", []Request{cpuOf("a"), cpuOf("b"), cpuOf("c")}) {
		if (ticket.Err != nil) != (i == 2) {
			t.Errorf("Set beyond the limit of two: request %d has error %v, want one for request 2 alone", i, ticket.Err)
		}
	}

	if _, err := New(Config{}); err == nil {
		t.Error("New accepts an empty configuration, want an error")
	}
}
