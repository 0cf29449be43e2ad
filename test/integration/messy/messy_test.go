// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/messy"
)

const (
	// caseCount and eventCount are those of a batch.
	caseCount  = 20
	eventCount = 12
	// shortCases and shortEvents are those of the run without CRANE_MESSY: the first cases of a batch, with their first events.
	shortCases  = 10
	shortEvents = 6
	// shrinkTime bounds the search for a smaller case, and shrinkWidth the candidates that run at once.
	shrinkTime  = 5 * time.Minute
	shrinkWidth = 24
)

// settings are those of a run of the test.
type settings struct {
	// length is the time in which batches start; at least one runs. Each has a number of cases with a number of events.
	length        time.Duration
	cases, events int
	// seed is that of the first batch.
	seed uint64
	// only is the index of the only case to run; negative for all.
	only int
}

// readSettings reads CRANE_MESSY, the time, CRANE_MESSY_SEED, and CRANE_MESSY_CASE. Without the first, one short batch runs.
func readSettings(t *testing.T) settings {
	t.Helper()

	out := settings{
		cases:  shortCases,
		events: shortEvents,
		seed:   1,
		only:   -1,
	}
	var err error
	if text := os.Getenv("CRANE_MESSY"); text != "" {
		out.cases = caseCount
		out.events = eventCount
		if out.length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CRANE_MESSY: %v", err)
		}
	}

	if text := os.Getenv("CRANE_MESSY_SEED"); text != "" {
		if out.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CRANE_MESSY_SEED: %v", err)
		}
	}

	if text := os.Getenv("CRANE_MESSY_CASE"); text != "" {
		if out.only, err = strconv.Atoi(text); err != nil {
			t.Fatalf("CRANE_MESSY_CASE: %v", err)
		}
	}

	return out
}

// TestMessy adopts random workloads in random namespaces while random events happen, and checks the invariants of adoption after each.
func TestMessy(t *testing.T) {
	s := readSettings(t)
	f := newFixture(t)
	began := time.Now()
	var total counts
	cases, restarts, failures := 0, 0, 0
	for seed := s.seed; seed == s.seed || time.Since(began) < s.length; seed++ {
		b, err := f.runBatch(t.Context(), seed, s.drawCases(seed))
		if err != nil {
			t.Fatalf("batch %d: %v", seed, err)
		}

		for _, r := range b.runs {
			total.add(r.counts)
		}

		cases += len(b.runs)
		restarts += b.restarts
		failed, err := f.confirm(t.Context(), seed, b.failed())
		if err != nil {
			t.Fatalf("batch %d: %v", seed, err)
		}

		failures += len(failed)
		t.Logf("seed %d: %d cases, %d failed; in all %d cases, %d events, adoption acted after %d, %d refusals, %d lowered requests, %d restarts of craned (%d in cases), %s",
			seed, len(b.runs), len(failed), cases, total.events, total.acted, total.refused, total.lowered, restarts, total.restarts, time.Since(began).Round(time.Second))
		f.report(seed, failed)
		if failures > 10 {
			break
		}
	}

	if s.only < 0 && (total.acted == 0 || total.lowered == 0 || total.refused == 0 || total.restarts == 0) {
		t.Errorf("adoption acted after %d events, with %d lowered requests, %d refusals and %d restarts, want some of each", total.acted, total.lowered, total.refused, total.restarts)
	}
}

// drawCases returns the cases of a batch.
func (s settings) drawCases(seed uint64) []messy.Case {
	var out []messy.Case
	for i := range s.cases {
		if s.only < 0 || s.only == i {
			c := messy.Draw(seed*caseCount+uint64(i), eventCount)
			c.Events = c.Events[:s.events]
			out = append(out, c)
		}
	}

	return out
}

func newFixture(t *testing.T) *fixture {
	t.Helper()

	to, err := control.ConfigFor(t.Context(), controlplane.CertificateUser(withoutCrane, "system:masters"))
	if err != nil {
		t.Fatal(err)
	}

	without, err := client.New(to, client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}

	return &fixture{t: t, world: watchWorld(t), hooks: serveWebhooks(t), without: without, clock: &jumpClock{}}
}

// confirm repeats failed cases and returns those that fail again. On a machine without free CPU the caches of craned and of the checks lag longer
// than the checks wait; such a violation is logged alone.
func (f *fixture) confirm(ctx context.Context, seed uint64, failed []*run) ([]*run, error) {
	const repeats = 2
	var confirmed []*run
	for _, r := range failed {
		f.t.Logf("seed %d, case %d violates, and is repeated:\n%s", seed, r.index, strings.Join(r.violations, "\n"))
	}

	for range repeats {
		if len(failed) == 0 {
			return confirmed, nil
		}

		var cases []messy.Case
		for _, r := range failed {
			cases = append(cases, r.Case)
		}

		b, err := f.runBatch(ctx, seed, cases)
		if err != nil {
			return nil, err
		}

		var passed []*run
		for i, r := range b.runs {
			if len(r.violations) == 0 || r.skipped {
				passed = append(passed, failed[i])
				continue
			}

			r.index = failed[i].index
			confirmed = append(confirmed, r)
		}
		failed = passed
	}

	for _, r := range failed {
		f.t.Logf("seed %d, case %d passed %d times after it failed once", seed, r.index, repeats)
	}

	return confirmed, nil
}

// report fails the test for runs with violations. The first one is made smaller.
func (f *fixture) report(seed uint64, failed []*run) {
	for i, r := range failed {
		text := r.Case.String()
		shrunk := ""
		if i == 0 && os.Getenv("CRANE_MESSY_SHRINK") != "off" {
			smaller, violations := f.shrink(f.t.Context(), seed, r)
			text = smaller.String()
			shrunk = "; the smaller case violates:\n" + strings.Join(violations, "\n")
		}

		f.t.Errorf("make messy SEED=%d, case %d:\n%s%s\n%s", seed, r.index, strings.Join(r.violations, "\n"), shrunk, text)
	}
}

// shrink returns the smallest case that it finds within shrinkTime, with its violations.
func (f *fixture) shrink(ctx context.Context, seed uint64, failed *run) (messy.Case, []string) {
	deadline := time.Now().Add(shrinkTime)
	best := failed.Case
	violations := failed.violations
	for tried := map[string]bool{}; time.Now().Before(deadline); {
		var candidates []messy.Case
		for _, c := range best.Shrink() {
			if text := c.String(); !tried[text] && len(candidates) < shrinkWidth {
				tried[text] = true
				candidates = append(candidates, c)
			}
		}

		if len(candidates) == 0 {
			break
		}

		b, err := f.runBatch(ctx, seed, candidates)
		if err != nil {
			return best, append(violations, fmt.Sprintf("shrinking: %v", err))
		}

		if smaller := b.failed(); len(smaller) > 0 {
			best = smaller[0].Case
			violations = smaller[0].violations
		}
	}

	return best, violations
}
