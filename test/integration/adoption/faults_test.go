// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// TestEverySecondWriteRefused checks that each pod is resized once for each step, that each step has one event, and that
// requests and replicas are restored, while every second write fails with 429 or a conflict.
func TestEverySecondWriteRefused(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 4)
	f.Deploy("scaled", 1)
	rec := f.recommend("web", auto, "700m", "512Mi")
	replicas := f.recommendReplicas("scaled", "scaled", 3)

	api := harness.ServeUnfriendly(t, control)
	startCraned(t, "--kubeconfig="+api.Kubeconfig(t, "craned", controlplane.ServiceAccount("crane-system", "craned")), "--adoption-settle=1m")
	pods := f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))
	f.AwaitReady("scaled", 3)
	f.awaitPhase("web", adoption.Resting)
	checkGeneration(t, pods, 2)

	if s := f.state("web"); s.Steps != 1 || s.Original.String() != "app: cpu 1, memory 512Mi" {
		t.Errorf("state %+v, want one step from 1 CPU and 512Mi", s)
	}

	f.awaitEvent("web", "AdoptionStep")
	if n, err := f.countEvents(t.Context(), "web", "AdoptionStep"); err != nil || n != 1 {
		t.Errorf("%d events AdoptionStep, %v, want one", n, err)
	}

	setAdoptionType(t, rec, analysisv1alpha1.AdoptionTypeStatus)
	setAdoptionType(t, replicas, analysisv1alpha1.AdoptionTypeStatus)
	pods = f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.AwaitReady("scaled", 1)
	f.awaitStateRemoved()
	checkGeneration(t, pods, 3)
	api.Check(t)
}

// TestAPIServerRestarts checks that a step is completed, and no pod resized twice, when the API server restarts during the step.
func TestAPIServerRestarts(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 6)
	f.recommend("web", auto, "700m", "512Mi")

	// Nodes cannot report the state of pods during the outage, so that pods count as not ready for longer than a step allows.
	startCraned(t, "--adoption-pods-at-once=0.1", "--adoption-settle=5m", "--adoption-ready-grace=30m")
	f.AwaitPods("web", "are partly resized", func(pods []corev1.Pod) error {
		if checkRequests("1", "512Mi")(pods) == nil {
			return errors.New("no pod is resized")
		}

		return nil
	})

	before := f.state("web")
	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	checkGeneration(t, f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi")), 2)
	f.awaitPhase("web", adoption.Resting)

	if s := f.state("web"); s.Steps != 1 || !s.Original.Equal(before.Original) || !s.StepAt.Equal(before.StepAt) {
		t.Errorf("state %+v, want the state before the restart, %+v", s, before)
	}
	f.AwaitReady("web", 6)
}

// TestMaintenanceWindow checks that requests are raised at any time, but lowered only in a maintenance window.
func TestMaintenanceWindow(t *testing.T) {
	f := newFixture(t)
	f.Deploy("down", 1)
	f.Deploy("up", 1)
	f.recommend("down", auto, "700m", "512Mi")
	f.recommend("up", auto, "2", "512Mi")
	first := startCraned(t, "--adoption-window=0 0 29 2 *;1 0 29 2 *")
	f.AwaitPods("up", "have the raised requests", checkRequests("2", "512Mi"))
	f.awaitMessage("down", "no maintenance window is open; the next opens at ")
	f.checkUntouched("down")
	first.Stop(t)

	// Together the two windows cover the whole day in every time zone.
	startCraned(t, "--adoption-window=0 0 * * *;0 13 * * *", "--adoption-window=0 12 * * *;0 1 * * *", "--adoption-time-zone=Asia/Tokyo")
	f.AwaitPods("down", "have the lowered requests", checkRequests("700m", "512Mi"))
}

// TestTargetRecreated checks that the adoption of a workload starts again after the workload was deleted during a step and
// recreated.
func TestTargetRecreated(t *testing.T) {
	f := newFixture(t)
	d := f.Deploy("web", 4)
	f.recommend("web", auto, "100m", "512Mi")
	startCraned(t)
	f.awaitFirstStep("web")

	if err := admin.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}

	f.AwaitReady("web", 0)
	f.Deploy("web", 1)
	f.awaitFirstStep("web")

	if s := f.state("web"); s.Original.String() != "app: cpu 1, memory 512Mi" {
		t.Errorf("original requests %s, want app: cpu 1, memory 512Mi", s.Original)
	}
}
