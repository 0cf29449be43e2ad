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
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

// TestKilledInAStep: a craned that is killed while pods are being lowered leaves nothing half done and nothing done twice.
func TestKilledInAStep(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 6)
	recommend(t, ns, "web", auto, "700m", "512Mi")
	first := startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=1m")
	podsUntil(t, ns, "web", "partly lowered", func(pods []corev1.Pod) error {
		if sized("1", "512Mi")(pods) == nil {
			return errors.New("none is")
		}
		return nil
	})
	first.Kill()
	before := state(t, ns, "web")
	if before.Steps != 1 {
		t.Fatalf("state %+v", before)
	}
	startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=1m")
	pods := podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	phase(t, ns, "web", adoption.Resting)
	for _, p := range pods {
		if p.Generation != 2 {
			t.Errorf("pod %s has generation %d, want 2: it was resized twice", p.Name, p.Generation)
		}
	}
	if s := state(t, ns, "web"); s.Steps != 1 || !s.Original.Equal(before.Original) || !s.StepAt.Equal(before.StepAt) {
		t.Errorf("state %+v, it was %+v", s, before)
	}
}

// TestDryRun: what would be sent is in the status, word by word, and nothing is sent.
func TestDryRun(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1)
	recommend(t, ns, "web", auto, "2", "512Mi")
	startCraned(t, "--adoption-dry-run")
	recommendationUntil(t, ns, "web", "says what would be sent", func(rec *analysisv1alpha1.Recommendation) error {
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
	if pods, err := podsOf(t.Context(), ns, "web"); err != nil || len(pods) != 1 || pods[0].Generation != 1 {
		t.Errorf("touched: %v, %v", pods, err)
	}
	if s := state(t, ns, "web"); s.Phase != adoption.Untouched {
		t.Errorf("written down: %+v", s)
	}
}

// TestBudget: no more workloads are lowered at once than may be; and when too many got worse, nothing new is begun.
func TestBudget(t *testing.T) {
	ns := namespaceFor(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		deploy(t, ns, name, 1)
		recommend(t, ns, name, auto, "700m", "512Mi")
	}
	startCraned(t, "--adoption-max-per-namespace=1", "--adoption-breaker-least=1", "--adoption-breaker-share=0.01")
	var steps []time.Time
	eventually(t, "all three are lowered", func(ctx context.Context) error {
		steps = nil
		for _, name := range names {
			s, err := stateOf(ctx, ns, name)
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
	// A place is handed on when the watch is over.
	slices.SortFunc(steps, time.Time.Compare)
	for i, at := range steps[1:] {
		if after := at.Sub(steps[i]); after < watch {
			t.Errorf("a step was begun %s after the one before, which was watched then", after)
		}
	}
	// One is killed for lack of memory: its step is taken back, and the breaker opens for the others.
	pods, err := podsOf(t.Context(), ns, "a")
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	killed(t, &pods[0])
	phase(t, ns, "a", adoption.Held)
	rec := &analysisv1alpha1.Recommendation{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "b"}, rec); err != nil {
		t.Fatal(err)
	}
	value(t, rec, "2", "512Mi")
	message(t, ns, "b", "circuit breaker is open")
	podsUntil(t, ns, "b", "as it was", sized("700m", "512Mi"))
}

// killed lets a pod's status say that its container was killed for lack of memory just now, as a kubelet does.
func killed(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	load.turn(pod.Namespace+"/"+pod.Name, 1<<40) // More than its node has: the kubelet evicts it, and says why.
}
