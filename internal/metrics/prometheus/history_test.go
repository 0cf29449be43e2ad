// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

func TestIdentity(t *testing.T) {
	base := func(c *Config) {}
	identity := func(address string, change func(*Config)) string {
		return newSource(t, address, change).Capabilities().Days.Identity()
	}

	const address = "http://prom.example:9090/base"
	plain := identity(address, base)
	if plain != identity(address+"/", base) || plain != identity("http://prom.example:9090/base/api/v1", base) {
		t.Error("identities of one server with different spellings of its address differ, want one")
	}

	secret := func(c *Config) { c.BearerToken = "hush" }
	if identity(address, secret) != plain {
		t.Error("a new token changes the identity, want the same")
	}

	seen := map[string]string{plain: "plain"}
	for name, change := range map[string]func(*Config){
		"user":     func(c *Config) { c.Username, c.Password = "u", "hush" },
		"tenant":   func(c *Config) { c.Headers = map[string]string{"X-Scope-OrgID": "hush"} },
		"param":    func(c *Config) { c.Params = map[string]string{"dedup": "true"} },
		"matchers": func(c *Config) { c.Matchers = []Matcher{{Label: "cluster", Op: "=", Value: "eu"}} },
	} {
		got := identity(address, change)
		if other, twice := seen[got]; twice {
			t.Errorf("%s and %s have one identity %s, want two", name, other, got)
		}
		if strings.Contains(got, "hush") {
			t.Errorf("%s: identity %s contains a secret, want none", name, got)
		}

		seen[got] = name
	}
}

// TestStepIsWhatUsageChooses checks that Step returns the step of Usage, which identifies cached days.
func TestStepIsWhatUsageChooses(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	w.cpu("shop", "web-1", "app", constant(0.5))
	w.memory("shop", "web-1", "app", constant(1<<20))

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	for _, resource := range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		step, err := s.Capabilities().Days.Step(t.Context(), resource, today)
		if err != nil {
			t.Fatal(err)
		}

		chunks := 0
		for c, err := range s.Capabilities().Usage.Usage(t.Context(), metrics.UsageRequest{Resource: resource, Start: today.Add(-5 * time.Hour), End: today}) {
			if err != nil {
				t.Fatal(err)
			}

			chunks++

			if c.Series.Step != step {
				t.Errorf("%s: step %v, want %v", resource, c.Series.Step, step)
			}
		}

		if chunks == 0 {
			t.Errorf("Usage of %s: no chunks, want some", resource)
		}
	}

	if _, err := s.Capabilities().Days.Step(t.Context(), "disk", today); err == nil {
		t.Error("Step of an unknown resource: no error, want one")
	}
}

func TestCountPods(t *testing.T) {
	w := newFixture(today.AddDate(0, 0, -2), today)
	w.cpu("shop", "early", "app", between(today.AddDate(0, 0, -2), today.AddDate(0, 0, -1), 1))
	w.memory("shop", "late", "app", between(today.AddDate(0, 0, -1), today, 1))
	w.memory("shop", "a.b", "app", constant(1))

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	yesterday := series.DayOf(today) - 1
	for _, c := range []struct {
		day  series.Day
		pods []string
		want int
	}{
		{yesterday, []string{"early", "late", "nobody"}, 1},
		{yesterday - 1, []string{"early", "late"}, 1},
		{yesterday, []string{"axb"}, 0},
		{yesterday, []string{"a.b", "late"}, 2},
	} {
		got, err := s.Capabilities().Days.CountPods(t.Context(), c.pods, c.day.Start(), c.day.End())
		if err != nil || got != c.want {
			t.Errorf("CountPods(%v) on %v = %d, %v, want %d", c.pods, c.day, got, err, c.want)
		}
	}

	if _, err := s.Capabilities().Days.CountPods(t.Context(), nil, yesterday.Start(), yesterday.End()); err == nil {
		t.Error("CountPods without pods: no error, want one")
	}
}

type carrier struct{ methods []string }

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	c.methods = append(c.methods, r.Method)
	return http.DefaultTransport.RoundTrip(r)
}

// TestTransportThatIsGiven checks that a configured transport sends all requests, with GET only if requested.
func TestTransportThatIsGiven(t *testing.T) {
	address, _ := serve(t, answerWith(http.StatusOK, "application/json", `{"status":"success","data":{"resultType":"vector","result":[]}}`))
	c := &carrier{}
	s := newSource(t, address, func(cfg *Config) {
		cfg.Transport = c
		cfg.GetOnly = true
	})

	if _, err := s.Instant(t.Context(), "up", today); err != nil {
		t.Fatal(err)
	}

	if len(c.methods) != 1 || c.methods[0] != http.MethodGet {
		t.Errorf("methods %v, want one GET", c.methods)
	}

	cfg := DefaultConfig()
	cfg.Address = address

	cfg.Transport = c
	cfg.BearerToken = "t"
	if _, err := New(cfg); err == nil {
		t.Error("New with a token and a transport: no error, want one")
	}
}

// TestProbeWithoutHistory checks that the report lacks only the age of the history, with fewer queries.
func TestProbeWithoutHistory(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	w.cpu("shop", "web-1", "app", constant(0.5))
	w.memory("shop", "web-1", "app", constant(1<<20))

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	glance, err := s.ProbeWithoutHistory(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	before := s.Stats().Queries
	probe, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if probe.History == 0 || glance.History != 0 || !glance.Oldest.IsZero() || s.Stats().Queries == before {
		t.Errorf("history %v without it (oldest %v), %v with it, want 0 and more than 0, with queries of its own", glance.History, glance.Oldest, probe.History)
	}
	if len(glance.Missing()) != len(probe.Missing()) || glance.ScrapeInterval != probe.ScrapeInterval || !glance.Newest.Equal(probe.Newest) {
		t.Errorf("ProbeWithoutHistory = %+v, Probe = %+v, want the same missing metrics, interval and newest sample", glance, probe)
	}
}
