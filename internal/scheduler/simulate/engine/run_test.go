// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/scheduler/simulate/engine"
	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/internal/scheduler/simulate/quality"
	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
	"crane.io/crane/pkg/nodeload"
)

// smallScenario is half an hour of twenty nodes.
func smallScenario(t *testing.T, name string) *simscenario.Scenario {
	t.Helper()

	s, err := simscenario.Named(name)
	if err != nil {
		t.Fatalf("Named(%q): %v, want no error", name, err)
	}

	s.Nodes.Count = 20
	s.Time.WarmUp = metav1.Duration{Duration: 20 * time.Minute}
	s.Time.Measure = metav1.Duration{Duration: 20 * time.Minute}

	return s
}

// policyOf reads a policy file of the repository.
func policyOf(t *testing.T, relative string) (string, *nodeload.Policy) {
	t.Helper()

	path, err := filepath.Abs(filepath.Join("../../../..", relative))
	if err != nil {
		t.Fatalf("resolving %s: %v", relative, err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}

	policy, err := policyfile.Decode(content)
	if err != nil {
		t.Fatalf("Decode of %s: %v, want no error", path, err)
	}

	return path, policy
}

func ours(t *testing.T, change func(*engine.Ours)) func(peer.Env) peer.Policy {
	t.Helper()

	path, policy := policyOf(t, "internal/nodeload/policyfile/default.yaml")
	o := engine.Ours{PolicyPath: path, Policy: policy, Strategy: "Spread", Weight: 5, History: true}
	if change != nil {
		change(&o)
	}

	return o.Build
}

// gocranePolicy configures the plugin with gocrane's metrics, limits and weights.
func gocranePolicy(t *testing.T, o *engine.Ours) {
	t.Helper()
	o.PolicyPath, o.Policy = policyOf(t, "examples/dynamic-scheduler-policy.yaml")
}

func run(t *testing.T, s *simscenario.Scenario, seed uint64, p func(peer.Env) peer.Policy) quality.Run {
	t.Helper()

	w, err := simcluster.Generate(s, seed)
	if err != nil {
		t.Fatalf("Generate(%s, %d): %v, want no error", s.Name, seed, err)
	}

	r, err := engine.Run(t.Context(), s, w, seed, p)
	if err != nil {
		t.Fatalf("Run of %s with seed %d: %v, want no error", s.Name, seed, err)
	}

	return r
}

// TestRunsRepeat checks for every policy that one seed gives one result and another seed another. Run itself fails if
// a pod is placed twice or beyond capacity.
func TestRunsRepeat(t *testing.T) {
	s := smallScenario(t, "faults")
	for name, p := range map[string]func(peer.Env) peer.Policy{
		"default": peer.Default, "gocrane": peer.Gocrane, "koordinator": peer.Koordinator, "random": peer.Random,
		"best-of-two": peer.BestOfTwo, "oracle": peer.Oracle, "ours": ours(t, nil),
		"rebalanced": ours(t, func(o *engine.Ours) { o.Rebalance = true }),
	} {
		first := run(t, s, 1, p)
		second := run(t, s, 1, p)
		other := run(t, s, 2, p)

		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s: seed 1 gives %+v, then %+v, want the same", name, first, second)
		}
		if first.Placements == other.Placements {
			t.Errorf("%s: seeds 1 and 2 give placements %s, want different ones", name, first.Placements)
		}
		if first.Placed < 200 || !(first.Sigma > 0 && first.Sigma < 0.5) || !(first.Mean > 0.2 && first.Mean < 0.7) || len(first.Course) != 20 {
			t.Errorf("%s: Run = %+v, want 200 or more pods, sigma up to 0.5, mean 0.2 to 0.7 and 20 minutes", name, first)
		}
	}
}

// TestOutage checks that the plugin abstains without metrics and places every pod as the default profile does.
func TestOutage(t *testing.T) {
	s := smallScenario(t, "outage")
	for _, strategy := range []string{"Spread", "Pack", "Risk"} {
		got := run(t, s, 1, ours(t, func(o *engine.Ours) { o.Strategy = strategy }))
		want := run(t, s, 1, peer.Default)
		if got.Placements != want.Placements {
			t.Errorf("%s: without metrics the placements are %s, want those of the default profile, %s", strategy, got.Placements, want.Placements)
		}
	}

	s.Metrics.Outages = nil
	if got, want := run(t, s, 1, ours(t, nil)), run(t, s, 1, peer.Default); got.Placements == want.Placements {
		t.Errorf("with metrics the placements are %s, want others than those of the default profile", got.Placements)
	}
}

// TestLoadEvensOut checks that load makes nodes more even than requests alone, and that the oracle does best. Twenty
// nodes and one seed are enough because the differences are large.
func TestLoadEvensOut(t *testing.T) {
	s := smallScenario(t, "steady")
	random := run(t, s, 1, peer.Random)

	normal := run(t, s, 1, peer.Default)
	spread := run(t, s, 1, ours(t, nil))
	oracle := run(t, s, 1, peer.Oracle)
	if !(random.Sigma > normal.Sigma && normal.Sigma > spread.Sigma && normal.Sigma > oracle.Sigma) {
		t.Errorf("sigma: random %.4f, default %.4f, spread %.4f, oracle %.4f, want random above default, and default above both others",
			random.Sigma, normal.Sigma, spread.Sigma, oracle.Sigma)
	}
}

// broken is a plugin that returns an error.
type broken struct{ stop context.CancelFunc }

func (broken) Name() string { return "Broken" }

func (b broken) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	if b.stop != nil {
		b.stop()
		return nil
	}

	return fwk.AsStatus(errors.New("a fault"))
}

func TestRunFails(t *testing.T) {
	s := smallScenario(t, "steady")
	w, err := simcluster.Generate(s, 1)
	if err != nil {
		t.Fatalf("Generate: %v, want no error", err)
	}

	with := func(b broken) func(peer.Env) peer.Policy {
		return func(peer.Env) peer.Policy {
			return peer.Policy{Plugin: "Broken", Weight: 1, New: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return b, nil }}
		}
	}

	if _, err := engine.Run(t.Context(), s, w, 1, with(broken{})); err == nil {
		t.Error("Run with a failing plugin returned no error, want one")
	}

	ctx, cancel := context.WithCancel(t.Context())
	if _, err := engine.Run(ctx, s, w, 1, with(broken{stop: cancel})); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a canceled context: %v, want context.Canceled", err)
	}
}
