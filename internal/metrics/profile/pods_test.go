// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

// byResource returns different chunks for memory and CPU.
type byResource struct {
	cpu, memory []metrics.Chunk
	err         error
}

func (b *byResource) Usage(_ context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		chunks := b.cpu
		if req.Resource == metrics.Memory {
			chunks = b.memory
		}

		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}

		if b.err != nil {
			yield(metrics.Chunk{}, b.err)
		}
	}
}

func values(pod, container string, v ...float64) metrics.Chunk {
	return metrics.Chunk{Key: key("shop", "Deployment", "web", pod, container), Series: series.Series{Step: time.Minute, Values: v}}
}

func TestReadPodUsage(t *testing.T) {
	source := &byResource{
		cpu: []metrics.Chunk{
			values("a", "app", 1, series.Gap(), 2), values("a", "app", 3), // Two chunks of one container: the mean is 2.
			values("a", "side", 0.0004), // Less than a thousandth of a core is rounded.
			values("b", "app", 1),
			values("c", "app", series.Gap()),
		},
		memory: []metrics.Chunk{values("a", "app", 100, 300), values("a", "side", 50), values("c", "app", 1)},
	}

	got, err := ReadPodUsage(t.Context(), source, nil, nil, time.Unix(0, 0), time.Unix(3600, 0))
	if err != nil {
		t.Fatal(err)
	}

	if use, ok := got.Mean("shop", "a"); !ok || use != (cost.Amounts{CPU: 2000, Memory: 250}) {
		t.Errorf("Mean(shop, a) = %+v, %t, want 2 cores and 250 bytes", use, ok)
	}

	for _, pod := range []string{"b", "c", "none"} { // Without memory, without CPU, without anything.
		if use, ok := got.Mean("shop", pod); ok {
			t.Errorf("Mean(shop, %s) = %+v, want none", pod, use)
		}
	}

	if _, ok := got.Mean("bank", "a"); ok || len(got.pods) != 3 {
		t.Errorf("Mean(bank, a): found %t among %d pods, want none among 3", ok, len(got.pods))
	}

	source.err = errors.New("boom")
	if got, err := ReadPodUsage(t.Context(), source, nil, nil, time.Unix(0, 0), time.Unix(3600, 0)); got != nil || !errors.Is(err, source.err) {
		t.Errorf("ReadPodUsage with a read that fails = %v, %v, want nil and %v", got, err, source.err)
	}
}

// oneNode is a CapacityReader of one node.
type oneNode struct{ cores, bytes float64 }

func (n oneNode) Capacities(context.Context, metrics.Window, []string) (*metrics.Capacities, error) {
	out := metrics.NewCapacities()
	out.AddNode("n1", metrics.CPU, n.cores)
	out.AddNode("n1", metrics.Memory, n.bytes)

	return out, nil
}

// TestReadPodUsage_ImpossibleSamples checks that a sample that no node could give does not enter the mean.
func TestReadPodUsage_ImpossibleSamples(t *testing.T) {
	source := &byResource{
		cpu:    []metrics.Chunk{values("a", "app", 1, 4166, 3)},
		memory: []metrics.Chunk{values("a", "app", 100, 1<<62, 300)},
	}

	got, err := ReadPodUsage(t.Context(), source, oneNode{8, 1 << 35}, nil, time.Unix(0, 0), time.Unix(3600, 0))
	if err != nil {
		t.Fatal(err)
	}

	if use, ok := got.Mean("shop", "a"); !ok || use != (cost.Amounts{CPU: 2000, Memory: 200}) {
		t.Errorf("Mean = %+v, %t, want 2 cores and 200 bytes", use, ok)
	}
}
