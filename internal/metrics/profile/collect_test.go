// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// reader returns the given chunks and OOM kills, then the error.
type reader struct {
	chunks []metrics.Chunk
	kills  []metrics.OOMKill
	asked  []metrics.UsageRequest
	err    error
}

func (r *reader) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		r.asked = append(r.asked, req)
		for _, c := range r.chunks {
			if !yield(c, nil) {
				return
			}
		}

		if r.err != nil {
			yield(metrics.Chunk{}, r.err)
		}
	}
}

func (r *reader) OOMKills(context.Context, metrics.Window, []string) iter.Seq2[metrics.OOMKill, error] {
	return func(yield func(metrics.OOMKill, error) bool) {
		for _, k := range r.kills {
			if !yield(k, nil) {
				return
			}
		}

		if r.err != nil {
			yield(metrics.OOMKill{}, r.err)
		}
	}
}

func key(namespace, kind, name, pod, container string) metrics.ContainerKey {
	return metrics.ContainerKey{Workload: workload.Ref{Namespace: namespace, Kind: kind, Name: name}, Pod: pod, Container: container}
}

func web() workload.Workload {
	return workload.Workload{
		Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Containers: []workload.Container{
			{Name: "migrate", Role: workload.Init},
			{Name: "app", Role: workload.App, Requests: workload.Resources{CPU: 500}, Limits: workload.Resources{Memory: 1 << 30}},
		},
	}
}

func TestCollect(t *testing.T) {
	end := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	part := series.Series{Start: end.Add(-time.Hour), Step: 10 * time.Minute, Values: []float64{1, 2, series.Gap(), 4}}
	r := &reader{
		chunks: []metrics.Chunk{
			{Key: key("shop", "Deployment", "web", "web-1", "app"), Series: part},
			{Key: key("shop", "Deployment", "web", "web-2", "app"), Series: part},
			{Key: key("shop", "Deployment", "web", "web-1", "injected"), Series: part},
			{Key: key("shop", "StatefulSet", "web", "web-0", "app"), Series: part}, // Another workload of the same name.
			{Key: key("bank", "Deployment", "web", "web-9", "app"), Series: part},
		},
		kills: []metrics.OOMKill{
			{Key: key("shop", "Deployment", "web", "web-1", "app"), Time: end.Add(-time.Hour)},
			{Key: key("shop", "Deployment", "other", "o-1", "app"), Time: end.Add(-time.Hour)},
		},
	}

	db := workload.Workload{Ref: workload.Ref{Namespace: "data", Kind: "StatefulSet", Name: "db"}}
	u, err := Collect(t.Context(), Source{Capabilities: metrics.Capabilities{Usage: r, OOM: r}}, Request{Workloads: []workload.Workload{web(), db, web()}, End: end, Length: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}

	if len(r.asked) != 2 || !slices.Equal(r.asked[0].Namespaces, []string{"data", "shop"}) || !r.asked[0].Start.Equal(end.Add(-48*time.Hour)) {
		t.Errorf("Collect requested %+v, want 2 resources in data and shop from %v", r.asked, end.Add(-48*time.Hour))
	}
	if len(u.profiles) != 2 || u.Profile(web().Ref, "app") == nil || u.Profile(web().Ref, "injected") == nil {
		t.Errorf("%d profiles, want those of the containers app and injected", len(u.profiles))
	}

	day := u.Profile(web().Ref, "app").Days()[0]
	if day.CPU.Total() != 6 || day.Memory.Total() != 6 {
		t.Errorf("%d samples of CPU and %d of memory, want 6 each: 3 of each of two pods", day.CPU.Total(), day.Memory.Total())
	}
	if u.Profile(db.Ref, "postgres") != nil {
		t.Error("Collect returned a profile of a container without samples, want none")
	}

	in := u.ResourceInput(web(), rightsize.Policy{Name: "p"}, end)
	if len(in.Containers) != 2 || !in.Containers[0].Init || in.Containers[1].Init || in.Containers[1].Profile == nil {
		t.Fatalf("ResourceInput = %+v, want 2 containers, the init container first", in)
	}

	app := in.Containers[1]
	if app.Current.CPULimit != nil || *app.Current.CPURequest != 500 || *app.Current.MemoryLimit != 1<<30 {
		t.Errorf("current resources %+v, want 500m CPU, no CPU limit and 1 GiB memory limit", app.Current)
	}
	// The peak on the day of the kill is 4 bytes, far below the current limit.
	if len(app.OOMs) != 1 || app.OOMs[0].Memory != 4 {
		t.Errorf("OOM kills %+v, want one at 4 bytes", app.OOMs)
	}
}

func TestOOMMemory(t *testing.T) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	u := &Usage{
		profiles: map[container]*rightsize.Profile{},
		kills:    map[container][]rightsize.OOM{{identity: identityOf(web().Ref), name: "app"}: {{At: at}}},
	}

	for name, c := range map[string]struct {
		c    workload.Container
		want units.Bytes
	}{
		"limit":   {workload.Container{Name: "app", Requests: workload.Resources{Memory: 1}, Limits: workload.Resources{Memory: 2}}, 2},
		"request": {workload.Container{Name: "app", Requests: workload.Resources{Memory: 1}}, 1},
		"neither": {workload.Container{Name: "app"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := u.oomKills(web().Ref, c.c)
			if len(got) != 1 || got[0].Memory != c.want || !got[0].LimitUnknown {
				t.Errorf("oomKills = %+v, want one at %d bytes with an unknown limit", got, c.want)
			}
		})
	}
}

// TestOOMMemoryKnown checks that the memory of a kill that the source reports is used instead of the current limit.
func TestOOMMemoryKnown(t *testing.T) {
	kill := rightsize.OOM{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Memory: 7}
	u := &Usage{requested: map[identity]bool{identityOf(web().Ref): true}, kills: map[container][]rightsize.OOM{}}
	r := &reader{kills: []metrics.OOMKill{{Key: key("shop", "Deployment", "web", "web-1", "app"), Time: kill.At, Memory: kill.Memory}}}
	if err := u.readEvents(t.Context(), metrics.Capabilities{OOM: r}, metrics.Window{}, nil); err != nil {
		t.Fatal(err)
	}

	c := workload.Container{Name: "app", Limits: workload.Resources{Memory: 2}}
	if got := u.oomKills(web().Ref, c); len(got) != 1 || got[0] != kill {
		t.Errorf("oomKills = %+v, want only %+v", got, kill)
	}
}

func TestCollectFails(t *testing.T) {
	boom := errors.New("boom")
	r := &reader{err: boom, chunks: []metrics.Chunk{{Key: key("shop", "Deployment", "web", "web-1", "app")}}}

	u, err := Collect(t.Context(), Source{Capabilities: metrics.Capabilities{Usage: r}}, Request{Workloads: []workload.Workload{web()}, End: time.Now(), Length: time.Hour})
	if u != nil || !errors.Is(err, boom) {
		t.Errorf("Collect with a read that fails = %v, %v, want no usage and %v", u, err, boom)
	}
	if u, err = Collect(t.Context(), Source{Capabilities: metrics.Capabilities{Usage: r}}, Request{End: time.Now(), Length: time.Hour}); err != nil || len(u.profiles) != 0 || len(r.asked) != 1 {
		t.Errorf("Collect without workloads = %v, %v after %d requests, want empty usage after 1", u, err, len(r.asked))
	}
}
