// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"crane.io/crane/test/integration/harness"
)

// mostMemory is the most resident memory of an agent on a node of 110 pods, in bytes.
const mostMemory = 64 << 20

// TestFootprint measures an agent with all parts on a node of 110 pods. CPU is only printed, because the machine is shared.
// CRANE_FOOTPRINT is the duration if it should exceed a few seconds.
func TestFootprint(t *testing.T) {
	const pods = 110
	c := newClient(t)
	node := newNode("footprint")
	harness.Create(t, c, node, nodeQOS("footprint", "footprint", halfUsed, "40"), avoidance("footprint"))

	f := newHostFixture(t, c, hostMemory/2)
	ns := namespace(t, c, "footprint")
	for i := range pods {
		f.run(node.Name, newPod(ns, fmt.Sprintf("pod-%d", i)), 10)
	}

	span := 2 * time.Second
	interval := "--collect-interval=200ms"
	if text := os.Getenv("CRANE_FOOTPRINT"); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}

		interval = "--collect-interval=1s"
	}

	a := startAgent(t, node.Name, "--host-root="+f.dir, interval, "--enforce=cpu-throttle,evict,taint,pod-resource", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true")
	a.awaitLog(t, "phase=firing", "footprint/memory")
	number := func(ctx context.Context, series string) (v float64) {
		eventually(t, series, func(context.Context) error {
			text, err := a.metric(ctx, series)
			if err == nil {
				v, err = strconv.ParseFloat(text, 64)
			}

			return err
		})

		return v
	}

	seen := number(t.Context(), "crane_agent_observed_pods")
	if seen != pods {
		t.Errorf("%g pods are seen, want %d", seen, pods)
	}

	ticks := func() float64 {
		return number(t.Context(), `crane_craneAgent_step_duration_seconds_count{module="ActionExecutor",step="act",subcomponent=""}`)
	}
	cpu := number(t.Context(), "process_cpu_seconds_total")
	began := time.Now()
	before := ticks()

	eventually(t, "the span is over", func(context.Context) error {
		if time.Since(began) < span {
			return fmt.Errorf("%s of %s", time.Since(began), span)
		}

		return nil
	})

	used := number(t.Context(), "process_cpu_seconds_total") - cpu
	took := time.Since(began)
	ran := ticks() - before
	memory := number(t.Context(), "process_resident_memory_bytes")
	t.Logf("%.0f ticks in %.1fs: %.4f cores, %.1f ms a tick, %.1f MiB resident, %.0f open files", ran, took.Seconds(), used/took.Seconds(), 1000*used/ran, memory/(1<<20),
		number(t.Context(), "process_open_fds"))

	// A peak is released after a while; the remaining memory counts.
	eventually(t, "resident memory", func(ctx context.Context) error {
		if memory := number(ctx, "process_resident_memory_bytes"); memory > mostMemory {
			return fmt.Errorf("%.1f MiB, want %d at most", memory/(1<<20), mostMemory>>20)
		}

		return nil
	})
}
