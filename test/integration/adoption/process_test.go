// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// TestKilledDuringStep checks that a step is completed, and no pod resized twice, when craned is killed during the step.
func TestKilledDuringStep(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 6)
	f.recommend("web", auto, "700m", "512Mi")
	first := startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=1m")

	f.AwaitPods("web", "are partly resized", func(pods []corev1.Pod) error {
		if checkRequests("1", "512Mi")(pods) == nil {
			return errors.New("no pod is resized")
		}

		return nil
	})

	first.Kill()
	before := f.state("web")
	if before.Steps != 1 {
		t.Fatalf("state %+v, want one step", before)
	}

	startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=1m")
	pods := f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)
	checkGeneration(t, pods, 2)

	if s := f.state("web"); s.Steps != 1 || !s.Original.Equal(before.Original) || !s.StepAt.Equal(before.StepAt) {
		t.Errorf("state %+v, want the state before the restart, %+v", s, before)
	}
}

// TestDryRun checks that --adoption-dry-run writes the requests to the status instead of sending them.
func TestDryRun(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1)
	f.recommend("web", auto, "2", "512Mi")
	startCraned(t, "--adoption-dry-run")

	f.awaitRecommendation("web", "contains the request", func(rec *analysisv1alpha1.Recommendation) error {
		a := rec.Status.Adoption
		if a == nil || len(a.DryRun) != 1 {
			return fmt.Errorf("adoption %+v", a)
		}

		var body struct {
			Metadata struct{ UID, ResourceVersion string }
			Spec     corev1.PodSpec
		}

		if err := json.Unmarshal([]byte(a.DryRun[0].Patch), &body); err != nil {
			return err
		}

		if !strings.HasSuffix(a.DryRun[0].Object, "/resize") || body.Metadata.UID == "" || body.Metadata.ResourceVersion == "" ||
			body.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
			return fmt.Errorf("%+v", a.DryRun)
		}

		return nil
	})

	f.checkUntouched("web")
}

// TestBudget checks that at most --adoption-max-per-namespace workloads are lowered at once, and that no step starts while the
// circuit breaker is open.
func TestBudget(t *testing.T) {
	f := newFixture(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		f.Deploy(name, 1)
		f.recommend(name, auto, "700m", "512Mi")
	}

	startCraned(t, "--adoption-max-per-namespace=1", "--adoption-breaker-least=1", "--adoption-breaker-share=0.01")
	var steps []time.Time
	f.Eventually("all three have completed a step", func(ctx context.Context) error {
		steps = nil
		for _, name := range names {
			s, err := f.readState(ctx, name)
			if err == nil && (s.Steps != 1 || s.Phase != adoption.Resting) {
				err = fmt.Errorf("%s: %+v", name, s)
			}

			if err != nil {
				return err
			}

			steps = append(steps, s.StepAt)
		}

		return nil
	})

	// The next step starts when the watch of the previous one has ended.
	slices.SortFunc(steps, time.Time.Compare)

	for i, at := range steps[1:] {
		if after := at.Sub(steps[i]); after < watchPeriod {
			t.Errorf("a step started %s after the previous one, want at least %s", after, watchPeriod)
		}
	}

	// The kubelet evicts a pod that uses more memory than its node has. Its step is reverted and the circuit breaker opens.
	pods := f.Pods("a")
	if len(pods) != 1 {
		t.Fatalf("pods %v, want one", pods)
	}

	load.set(f.Name+"/"+pods[0].Name, 1<<40)
	f.awaitPhase("a", adoption.Held)

	rec := &analysisv1alpha1.Recommendation{}
	if err := admin.Get(t.Context(), f.Key("b"), rec); err != nil {
		t.Fatal(err)
	}

	setRequests(t, rec, "2", "512Mi")
	f.awaitMessage("b", "circuit breaker is open")
	f.AwaitPods("b", "has unchanged requests", checkRequests("700m", "512Mi"))
}
