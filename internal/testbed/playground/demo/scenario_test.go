// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/manifest"
)

// recorder is an Executor that records its calls and their times.
type recorder struct {
	begin time.Time
	calls []string
	fail  string
}

func (r *recorder) note(call string) error {
	r.calls = append(r.calls, time.Since(r.begin).String()+" "+call)
	if r.fail != "" && strings.HasPrefix(call, r.fail) {
		return errors.New("injected failure")
	}

	return nil
}

func (r *recorder) Stop(_ context.Context, c string) error  { return r.note("stop " + c) }
func (r *recorder) Start(_ context.Context, c string) error { return r.note("start " + c) }
func (r *recorder) Kill(_ context.Context, c string) error  { return r.note("kill " + c) }
func (r *recorder) Apply(_ context.Context, m string) error { return r.note("apply " + m) }
func (r *recorder) Show(_ context.Context, a []string, _ string) error {
	return r.note("show " + strings.Join(a, " "))
}
func (r *recorder) Policy(_ context.Context, c string) error { return r.note("policy " + c) }
func (r *recorder) Crane(_ context.Context, a []string) error {
	return r.note("crane " + strings.Join(a, " "))
}
func (r *recorder) Chart(_ context.Context, c Chart) error { return r.note("chart " + c.Deployment) }
func (r *recorder) Say(string)                             {}

const faults = `
description: Prometheus goes and comes back.
steps:
- {at: 0s, stop: prometheus}
- {at: 90s, say: back, start: prometheus}
- {at: 90s, kill: craned}
- {at: 2m, show: [get, pods]}
- {at: 3m, policy: "spec: {}"}
- {at: 4m, crane: [explain, scheduling, a/b]}
`

func TestPlayKeepsTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Parse([]byte(faults))
		if err != nil {
			t.Fatal(err)
		}

		stage := &recorder{begin: time.Now()}
		if err := s.Play(t.Context(), clock.RealClock{}, stage); err != nil {
			t.Fatal(err)
		}

		want := []string{"0s stop prometheus", "1m30s start prometheus", "1m30s kill craned", "2m0s show get pods", "3m0s policy spec: {}", "4m0s crane explain scheduling a/b"}
		if !slices.Equal(stage.calls, want) {
			t.Errorf("Play called %q, want %q", stage.calls, want)
		}
	})
}

func TestPlayEndsAtTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Parse([]byte(faults))
		if err != nil {
			t.Fatal(err)
		}

		stage := &recorder{begin: time.Now(), fail: "start"}
		if err := s.Play(t.Context(), clock.RealClock{}, stage); err == nil || !strings.Contains(err.Error(), "steps[1]") {
			t.Errorf("Play with a failing start = %v, want an error that names steps[1]", err)
		}
		if len(stage.calls) != 2 {
			t.Errorf("Play with a failing start called %q, want stop and start only", stage.calls)
		}
	})
}

func TestPlayEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Parse([]byte(faults))
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if err := s.Play(ctx, clock.RealClock{}, &recorder{begin: time.Now()}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Play with a context of 1 s = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"nothing":        {"", "at least one"},
		"unknown field":  {"steps: [{at: 0s, explode: node}]", "explode"},
		"no action":      {"steps: [{at: 0s}]", "steps[0]"},
		"two actions":    {"steps: [{at: 0s, stop: a, start: b}]", "steps[0]: only one"},
		"before start":   {"steps: [{at: -1s, say: hi}]", "steps[0]: at"},
		"out of order":   {"steps: [{at: 2s, say: b}, {at: 1s, say: a}]", "order"},
		"not a duration": {"steps: [{at: soon, say: hi}]", "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse(%q) = %v, want an error that names %q", c.file, err, c.want)
			}
		})
	}
}

// awkward matches phrases that newcomers stop at.
var awkward = regexp.MustCompile(`(?i)\b(nobody|somebody|word by word|could go|asks? for|asked for|newcomers|what it found|says why|kept? away|keeps new pods away|not what the|the way back)\b`)

func TestDemosAreSound(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("Names() is empty, want the built-in demos")
	}

	for _, name := range Names() {
		s, err := Demo(name)
		if err != nil {
			t.Errorf("Demo(%s): %v, want a valid scenario", name, err)
			continue
		}

		length := s.Steps[len(s.Steps)-1].At.Duration
		for _, step := range s.Steps {
			if step.Chart != nil {
				length += step.Chart.For.Duration
			}
		}

		longest := 3 * time.Minute
		if name == "all" {
			longest = 10 * time.Minute
		}
		if length > longest {
			t.Errorf("demo %s takes %s, want at most %s", name, length, longest)
		}
		if texts := awkward.FindAllString(fmt.Sprintf("%s %+v", s.Description, s.Steps), -1); len(texts) > 0 {
			t.Errorf("texts of demo %s contain %q, want other words", name, texts)
		}

		for i, step := range s.Steps {
			if _, err := manifest.Parse(bytes.NewBufferString(step.Apply)); err != nil {
				t.Errorf("steps[%d] of demo %s: manifest: %v, want a valid one", i, name, err)
			}
		}
	}

	if _, err := Demo("no-such"); err == nil || !strings.Contains(err.Error(), "faults") {
		t.Errorf("Demo(no-such) = %v, want an error that lists the demos", err)
	}
}
