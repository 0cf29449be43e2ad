// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/checksum"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// cluster is a source that reads day by day. Its data depend on its name only, so that repeated reads are equal.
type cluster struct {
	name     string
	asked    []metrics.UsageRequest
	warnings []string
	// failOn is a day whose read fails halfway; 0 for none.
	failOn series.Day
	// backwards violates the order of days.
	backwards bool
	step      time.Duration
}

var errBroken = errors.New("the server broke off")

func (c *cluster) capabilities() metrics.Capabilities { return metrics.Capabilities{Usage: c, Days: c} }

func (c *cluster) Identity() string { return "url=http://localhost:9090" }

func (c *cluster) Stats() metrics.Stats { return metrics.Stats{Warnings: c.warnings} }

func (c *cluster) Step(context.Context, metrics.UsageKind, time.Time) (time.Duration, error) {
	return c.step, nil
}

func (c *cluster) CountPods(_ context.Context, pods []string, _, _ time.Time) (n int, err error) {
	for _, p := range pods {
		if strings.HasSuffix(p, c.name) {
			n++
		}
	}

	return n, nil
}

func (c *cluster) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		c.asked = append(c.asked, req)
		first := series.DayOf(req.Start)
		last := series.DayOf(req.End.Add(-1))
		for i := range int(last-first) + 1 {
			d := first + series.Day(i)
			if c.backwards {
				d = last - series.Day(i)
			}

			for _, ns := range req.Namespaces {
				for _, chunk := range c.day(d, ns, req) {
					if !yield(chunk, nil) {
						return
					}
				}

				if d == c.failOn {
					yield(metrics.Chunk{}, errBroken)
					return
				}
			}
		}
	}
}

// day returns the usage of two Deployments of two pods and one container in a namespace.
func (c *cluster) day(d series.Day, ns string, req metrics.UsageRequest) (out []metrics.Chunk) {
	for w := range 2 {
		for p := range 2 {
			random := rand.New(rand.NewPCG(uint64(d), uint64(len(c.name)+len(ns)*100+w*10+p)))
			values := make([]float64, 0, 48)
			var from time.Time
			for at := d.Start(); at.Before(d.End()); at = at.Add(30 * time.Minute) {
				v := random.Float64() * (1 + float64(p))
				if random.IntN(10) == 0 {
					v = series.Gap()
				}

				if at.Before(req.Start) || !at.Before(req.End) {
					continue
				}

				if from.IsZero() {
					from = at
				}
				if req.Resource == metrics.Memory {
					v *= 1 << 30
				}

				values = append(values, v)
			}

			out = append(out, metrics.Chunk{
				Key:    key(ns, "Deployment", fmt.Sprintf("w%d", w), fmt.Sprintf("w%d-%d-%v-%s", w, p, d, c.name), "app"),
				Series: series.Series{Start: from, Step: 30 * time.Minute, Values: values},
			})
		}
	}

	return out
}

func deployments(names ...string) (out []workload.Workload) {
	for _, n := range names {
		ns, name, _ := strings.Cut(n, "/")
		out = append(out, workload.Workload{Ref: workload.Ref{Namespace: ns, Kind: "Deployment", Name: name}})
	}

	return out
}

// fixture contains the cache and the clock of a test.
type fixture struct {
	t     *testing.T
	now   time.Time
	cache *Cache
	notes []string
	// reaction is that of the request.
	reaction bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()

	d := &fixture{t: t, now: time.Date(2026, 3, 10, 15, 30, 0, 0, time.UTC)}
	d.cache = &Cache{
		Dir: t.TempDir(), MaxAge: DefaultCacheAge, MaxBytes: DefaultCacheBytes,
		Now: func() time.Time { return d.now }, Warn: func(text string) { d.notes = append(d.notes, text) },
	}

	return d
}

// collect reads five days with the cache and returns the requests to the source.
func (d *fixture) collect(c *cluster, workloads []workload.Workload) (*Usage, []string, error) {
	d.t.Helper()

	c.asked = nil
	u, err := Collect(d.t.Context(), Source{Capabilities: c.capabilities(), Cache: d.cache}, Request{Workloads: workloads, End: d.now, Length: 5 * 24 * time.Hour, Reaction: d.reaction})

	var asked []string
	for _, r := range c.asked {
		asked = append(asked, fmt.Sprintf("%s %s..%s %s", r.Resource, r.Start.Format("01-02"), r.End.Format("01-02T15:04"), strings.Join(r.Namespaces, "+")))
	}

	return u, asked, err
}

// check compares the result with that of a read without the cache, and the requests with the expected ones.
func (d *fixture) check(c *cluster, workloads []workload.Workload, want ...string) {
	d.t.Helper()

	got, asked, err := d.collect(c, workloads)
	if err != nil {
		d.t.Fatal(err)
	}

	if !slices.Equal(asked, want) {
		d.t.Errorf("Collect requested\n  %s\nwant\n  %s", strings.Join(asked, "\n  "), strings.Join(want, "\n  "))
	}

	plain, err := Collect(d.t.Context(), Source{Capabilities: (&cluster{name: c.name, step: c.step}).capabilities()}, Request{Workloads: workloads, End: d.now, Length: 5 * 24 * time.Hour, Reaction: d.reaction})
	if err != nil {
		d.t.Fatal(err)
	}

	if len(got.profiles) != len(plain.profiles) || len(got.profiles) != len(workloads) {
		d.t.Fatalf("Collect returned %d containers with the cache and %d without, want %d", len(got.profiles), len(plain.profiles), len(workloads))
	}

	for key, profile := range plain.profiles {
		if !bytes.Equal(marshalProfile(d.t, profile), marshalProfile(d.t, got.profiles[key])) {
			d.t.Errorf("profile of %v differs with and without the cache, want the same", key)
		}
	}
}

func marshalProfile(t *testing.T, p *rightsize.Profile) []byte {
	t.Helper()

	raw, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	return raw
}

// TestCacheOfReactions checks that days that were cached without the effect of the reaction are read again where it is needed, and that days
// with it also serve others.
func TestCacheOfReactions(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}
	shop := deployments("shop/w0")
	d.check(c, shop, "cpu 03-05..03-10T15:30 shop", "memory 03-05..03-10T15:30 shop")
	d.reaction = true
	d.check(c, shop, "cpu 03-05..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")
	d.check(c, shop, "cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")
	other := &cluster{name: "a", step: 30 * time.Minute}
	bank := deployments("bank/w0")
	d.check(other, bank, "cpu 03-05..03-10T15:30 bank", "memory 03-05..03-10T15:30 bank")

	d.reaction = false
	if _, asked, err := d.collect(other, bank); err != nil || len(asked) != 2 || !strings.HasPrefix(asked[0], "cpu 03-10..") {
		t.Errorf("Collect requested %q, error %v, want 2 requests, the first for CPU of 03-10", asked, err)
	}
	if len(d.notes) > 0 {
		t.Errorf("notes %q, want none", d.notes)
	}
}

func TestCacheAsksForWhatIsMissing(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}
	shop := deployments("shop/w0")
	d.check(c, shop, "cpu 03-05..03-10T15:30 shop", "memory 03-05..03-10T15:30 shop")
	d.check(c, shop, "cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")

	// Another workload of a cached namespace needs no request; another namespace is read alone.
	d.check(c, deployments("shop/w0", "shop/w1"), "cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")
	d.check(c, deployments("bank/w0", "shop/w1"),
		"cpu 03-05..03-10T00:00 bank", "cpu 03-10..03-10T15:30 bank+shop",
		"memory 03-05..03-10T00:00 bank", "memory 03-10..03-10T15:30 bank+shop")

	// The previous day is not final one hour after midnight; four hours after midnight it is final and cached.
	d.now = time.Date(2026, 3, 11, 1, 0, 0, 0, time.UTC)
	d.check(c, shop, "cpu 03-10..03-11T01:00 shop", "memory 03-10..03-11T01:00 shop")
	d.now = time.Date(2026, 3, 11, 4, 0, 0, 0, time.UTC)
	d.check(c, shop, "cpu 03-10..03-11T04:00 shop", "memory 03-10..03-11T04:00 shop")
	d.check(c, shop, "cpu 03-11..03-11T04:00 shop", "memory 03-11..03-11T04:00 shop")

	// Another step is a different history.
	c.step = time.Hour
	d.check(c, shop, "cpu 03-06..03-11T04:00 shop", "memory 03-06..03-11T04:00 shop")

	if len(d.notes) > 0 {
		t.Errorf("notes %q, want none", d.notes)
	}
}

// capacityWindows records the windows whose capacities are read.
type capacityWindows []metrics.Window

func (c *capacityWindows) Capacities(_ context.Context, w metrics.Window, _ []string) (*metrics.Capacities, error) {
	*c = append(*c, w)
	out := metrics.NewCapacities()
	out.AddNode("n1", metrics.CPU, 1.5)
	return out, nil
}

// TestCacheNeedsNoCapacities checks that the limits of cached days are not read again, and that both ways give the same profiles.
func TestCacheNeedsNoCapacities(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}
	shop := deployments("shop/w0")
	var profiles [][]byte
	for _, want := range []string{"03-05", "03-10"} {
		var read capacityWindows
		capabilities := c.capabilities()
		capabilities.Capacity = &read
		usage, err := Collect(t.Context(), Source{Capabilities: capabilities, Cache: d.cache}, Request{Workloads: shop, End: d.now, Length: 5 * 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}

		if len(read) != 1 || read[0].Start.Format("01-02") != want || !read[0].End.Equal(d.now) {
			t.Errorf("Collect reads the capacities of %v, want one window from %s to %v", read, want, d.now)
		}

		profile := usage.Profile(shop[0].Ref, "app")
		if day := profile.Days()[0]; day.ImplausibleCPU.Count == 0 {
			t.Errorf("the first day has no implausible samples, want those above the node")
		}

		profiles = append(profiles, marshalProfile(t, profile))
	}

	if !bytes.Equal(profiles[0], profiles[1]) {
		t.Error("the profile differs with cached days, want the same")
	}
}

func TestCacheKeepsWhatAnInterruptedRunHasRead(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute, failOn: series.DayOf(time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC))}
	if u, _, err := d.collect(c, deployments("shop/w0")); u != nil || !errors.Is(err, errBroken) {
		t.Fatalf("Collect with a read that fails = %v, %v, want no usage and %v", u, err, errBroken)
	}

	c.failOn = 0
	d.check(c, deployments("shop/w0"), "cpu 03-08..03-10T15:30 shop", "memory 03-05..03-10T15:30 shop")
}

// files returns the days in the cache.
func (d *fixture) files(suffix string) (out []string) {
	d.t.Helper()

	err := filepath.WalkDir(d.cache.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, suffix) {
			out = append(out, path)
		}

		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}

	return out
}

func TestCacheReadsDamagedDaysAnew(t *testing.T) {
	damage := map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"torn":    func(raw []byte) []byte { return raw[:len(raw)/2] },
		"flipped": func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw },
		"longer":  func(raw []byte) []byte { return append(raw, 0) },
		"foreign": func([]byte) []byte { return []byte("a letter to a friend") },
	}

	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			c := &cluster{name: "a", step: 30 * time.Minute}
			if _, _, err := d.collect(c, deployments("shop/w0")); err != nil {
				t.Fatal(err)
			}

			for _, path := range d.files(daySuffix) {
				if !strings.Contains(path, "2026-03-07"+string(filepath.Separator)+"cpu-") {
					continue
				}

				raw, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(path, spoil(raw), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			d.check(c, deployments("shop/w0"), "cpu 03-07..03-08T00:00 shop", "cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")
			if len(d.notes) != 1 || !strings.Contains(d.notes[0], "2026-03-07") {
				t.Errorf("notes %q, want one about 2026-03-07", d.notes)
			}

			d.check(c, deployments("shop/w0"), "cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop")
		})
	}
}

// TestCacheRejectsRenamedDays checks that a renamed file is not used.
func TestCacheRejectsRenamedDays(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}
	if _, _, err := d.collect(c, deployments("shop/w0")); err != nil {
		t.Fatal(err)
	}

	for _, path := range d.files(daySuffix) {
		if strings.Contains(path, "2026-03-07") {
			if err := os.Rename(path, strings.Replace(path, "2026-03-07", "2026-03-08", 1)); err != nil {
				t.Fatal(err)
			}
		}
	}

	d.check(c, deployments("shop/w0"), "cpu 03-07..03-09T00:00 shop", "cpu 03-10..03-10T15:30 shop",
		"memory 03-07..03-09T00:00 shop", "memory 03-10..03-10T15:30 shop")
}

// TestCacheDistinguishesServers checks that another cluster behind the same forwarded port has its own cache.
func TestCacheDistinguishesServers(t *testing.T) {
	d := newFixture(t)
	a := &cluster{name: "a", step: 30 * time.Minute}
	b := &cluster{name: "other", step: 30 * time.Minute}
	all := []string{"cpu 03-05..03-10T15:30 shop", "memory 03-05..03-10T15:30 shop"}
	today := []string{"cpu 03-10..03-10T15:30 shop", "memory 03-10..03-10T15:30 shop"}
	d.check(a, deployments("shop/w0"), all...)
	d.check(b, deployments("shop/w0"), all...)

	if len(d.notes) != 1 {
		t.Errorf("notes %q, want one", d.notes)
	}

	d.check(a, deployments("shop/w0"), today...)
	d.check(b, deployments("shop/w0"), today...)
}

func TestCacheKeepsNothingOfPartialAnswers(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute, warnings: []string{"a store is out of reach"}}
	if _, _, err := d.collect(c, deployments("shop/w0")); err != nil {
		t.Fatal(err)
	}

	if files := d.files(""); len(files) > 0 || len(d.notes) != 1 {
		t.Errorf("files %v and notes %q after a partial answer, want no file and one note", files, d.notes)
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}

	if err := os.WriteFile(filepath.Join(d.cache.Dir, formatDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	d.check(c, deployments("shop/w0"), "cpu 03-05..03-10T15:30 shop", "memory 03-05..03-10T15:30 shop")
	if len(d.notes) == 0 {
		t.Error("no note about a cache that cannot be written, want one")
	}
}

func TestSourceThatBreaksItsOrder(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute, backwards: true}
	if _, _, err := d.collect(c, deployments("shop/w0")); err == nil || !strings.Contains(err.Error(), "day by day") {
		t.Errorf("Collect of a source out of order: error %v, want one that requires chunks day by day", err)
	}
}

func TestPrune(t *testing.T) {
	d := newFixture(t)
	c := &cluster{name: "a", step: 30 * time.Minute}

	if err := d.cache.Prune(); err != nil {
		t.Fatalf("Prune of a cache that was never used: error %v, want none", err)
	}

	if _, _, err := d.collect(c, deployments("shop/w0")); err != nil {
		t.Fatal(err)
	}

	foreign := filepath.Join(d.cache.Dir, formatDir, "notes.txt")
	torn := filepath.Join(d.cache.Dir, formatDir, "day.1.tmp")

	days := d.files(daySuffix)
	if len(days) != 10 {
		t.Fatalf("%d files, want 5 days of 2 resources", len(days))
	}

	var size int64
	for i, path := range slices.Concat(days, d.files(fingerprintFile), []string{foreign, torn}) {
		if i >= len(days)+1 {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		age := 2 * time.Hour
		if strings.Contains(path, "2026-03-05") {
			age = 101 * 24 * time.Hour
		} else if strings.Contains(path, "2026-03-06") {
			age = 3 * time.Hour
		} else if info, err := os.Stat(path); err == nil && path != foreign && path != torn {
			size += info.Size()
		}

		if err := os.Chtimes(path, d.now.Add(-age), d.now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}

	before := filepath.Join(d.cache.Dir, oldFormats()[0], "server", "cpu-60s-1"+daySuffix)
	if err := os.MkdirAll(filepath.Dir(before), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(before, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	d.cache.MaxBytes = size
	if err := d.cache.Prune(); err != nil {
		t.Fatal(err)
	}

	if left := d.files(daySuffix); len(left) != 6 || strings.Contains(strings.Join(left, " "), "2026-03-06") {
		t.Errorf("files after Prune: %v, want 6, without 2026-03-06", left)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("Prune: reading a foreign file: %v, want it kept", err)
	}
	if _, err := os.Stat(torn); err == nil {
		t.Error("Prune keeps a torn file, want it removed")
	}

	if _, err := os.Stat(filepath.Dir(filepath.Dir(before))); err == nil {
		t.Error("Prune keeps a day of a format that is no longer read, want it removed")
	}
}

func FuzzDecodeDay(f *testing.F) {
	h := dayHeader{identity: "url", resource: metrics.CPU, step: time.Minute, day: 20000}
	profile := rightsize.NewProfile()
	profile.AddCPU(rightsize.Usage{Pod: "p", Series: series.Series{Start: h.day.Start(), Step: time.Minute, Values: []float64{1, 2}}})

	good, err := encodeDay(h, []string{"bank", "shop"}, map[container]*rightsize.Profile{{identity{"shop", "Deployment", "web"}, "app", ""}: profile})
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good[:len(good)-4])
	f.Add([]byte(dayFileMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is valid, so that the content has to be checked.
		raw := checksum.Append(slices.Clone(body), 0)

		days, covered, err := decodeDay(raw, h, []string{"shop"})
		if err != nil && (len(days) > 0 || covered != nil) {
			t.Errorf("decodeDay returned %d containers of a rejected file (%v), want none", len(days), err)
		}
	})
}
