// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// TestRunsOfOneTemplate checks that bare pods with a new name each run are sized by all their runs, by no pod of another namespace, and that
// long-lived pods of such names are not taken for runs.
func TestRunsOfOneTemplate(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	var chunks []metrics.Chunk
	add := func(namespace, pod string, start time.Time, cores float64) {
		values := make([]float64, 6)
		for i := range values {
			values[i] = cores
		}

		chunks = append(chunks, metrics.Chunk{
			Key:    key(namespace, "Pod", pod, pod, "app"),
			Series: series.Series{Start: start, Step: 5 * time.Minute, Values: values},
		})
	}

	for i := range 8 {
		at := now.Add(-time.Duration(8-i) * 20 * time.Hour)
		add("ci", fmt.Sprintf("build-%08x", 0x8f3a2b1c+i*0x01030507), at, 0.5)
		add("other", fmt.Sprintf("build-%08x", 0x1a2b3c4d+i*0x01030507), at, 7)
		add("ci", "cache-x8k2p", at, 0.2)
	}

	workloads := []workload.Workload{
		{Ref: workload.Ref{Namespace: "ci", Kind: "Pod", Name: "build-*"}},
		{Ref: workload.Ref{Namespace: "ci", Kind: "Pod", Name: "cache-*"}},
	}
	for i := range workloads {
		workloads[i].Containers = []workload.Container{{Name: "app"}}
	}

	usage, err := Collect(t.Context(), Source{Capabilities: metrics.Capabilities{Usage: &reader{chunks: chunks}}}, Request{
		Workloads: workloads, End: now, Length: 14 * 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	for i, want := range []bool{true, false} {
		in := usage.ResourceInput(workloads[i], policy, now).Containers[0]
		if in.Job != want {
			t.Errorf("container of %s counts runs: %v, want %v", workloads[i].Ref, in.Job, want)
		}
	}

	build := usage.ResourceInput(workloads[0], policy, now).Containers[0]
	got := rightsize.Recommend(rightsize.Input{Container: "app", Profile: build.Profile, Now: now, RunsToCompletion: build.Job}, policy)
	if request := got.Target.CPURequest; request == nil || *request < 500 || *request > 700 {
		t.Errorf("CPU request of eight runs of 0.5 cores = %v (%s), want 500m to 700m", request, got.CPU.Message)
	}
}
