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
	// shrinkTime bounds the search for a smaller case, and shrinkWidth the candidates that run at once.
	shrinkTime  = 5 * time.Minute
	shrinkWidth = 24
)

// settings are those of a run of the test.
type settings struct {
	// length is the time in which batches start; at least one runs.
	length time.Duration
	// seed is that of the first batch.
	seed uint64
	// only is the index of the only case to run; negative for all.
	only int
}

// readSettings reads CRANE_MESSY, the time, CRANE_MESSY_SEED, and CRANE_MESSY_CASE.
func readSettings(t *testing.T) settings {
	t.Helper()

	out := settings{length: time.Second, seed: 1, only: -1}
	var err error
	if text := os.Getenv("CRANE_MESSY"); text != "" {
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
	if os.Getenv("CRANE_MESSY") == "" {
		t.Skip("CRANE_MESSY is not set; make messy sets it")
	}

	s := readSettings(t)
	f := newFixture(t)
	began := time.Now()
	var total counts
	cases, restarts, failures := 0, 0, 0
	for seed := s.seed; seed == s.seed || time.Since(began) < s.length; seed++ {
		b, err := f.runBatch(t.Context(), seed, drawCases(seed, s.only))
		if err != nil {
			t.Fatalf("batch %d: %v", seed, err)
		}

		for _, r := range b.runs {
			total.add(r.counts)
		}

		cases += len(b.runs)
		restarts += b.restarts
		failed := b.failed()
		failures += len(failed)
		t.Logf("seed %d: %d cases, %d failed; in all %d cases, %d events, adoption acted after %d, %d refusals, %d lowered requests, %d restarts of craned (%d in cases), %s",
			seed, len(b.runs), len(failed), cases, total.events, total.acted, total.refused, total.lowered, restarts, total.restarts, time.Since(began).Round(time.Second))
		f.report(seed, failed)
		if failures > 10 {
			break
		}
	}
}

// drawCases returns the cases of a batch.
func drawCases(seed uint64, only int) []messy.Case {
	var out []messy.Case
	for i := range caseCount {
		if only < 0 || only == i {
			out = append(out, messy.Draw(seed*caseCount+uint64(i), eventCount))
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
