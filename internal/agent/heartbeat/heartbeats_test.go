// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestHeartbeats(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := New(clk)
	beat := p.Register("qos")
	p.Register("cluster")

	if got := p.NotStarted(); len(got) != 2 || got[0] != "cluster has not begun" {
		t.Errorf("NotStarted() = %v, want cluster and qos", got)
	}

	clk.SetTime(time.Unix(1060, 0))
	beat("tick")

	select {
	case <-p.Started("qos"):
	default:
		t.Error("Started(qos) is open after a beat, want it closed")
	}

	if p.Started("unknown") != nil {
		t.Error("Started of an unknown part is a channel, want nil")
	}
	if got := p.Overdue(30 * time.Second); len(got) != 1 || got[0] != "cluster was not seen for 1m0s" {
		t.Errorf("Overdue(30s) = %v, want cluster for a minute", got)
	}

	p.Remove("cluster")
	clk.SetTime(time.Unix(1100, 500e6))

	if got := p.Overdue(time.Minute); len(got) != 0 {
		t.Errorf("Overdue(1m) = %v, want none", got)
	}
	if got := p.Overdue(30 * time.Second); len(got) != 1 {
		t.Errorf("Overdue(30s) = %v, want qos", got)
	}

	// A clock set back makes no part overdue.
	clk.SetTime(time.Unix(0, 0))

	if got := p.Overdue(time.Second); len(got) != 0 {
		t.Errorf("Overdue(1s) after the clock was set back = %v, want none", got)
	}
}

func TestMetrics(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 250e6))
	p := New(clk)
	beat := p.Register("qos")
	beat("look")
	beat("look")
	beat("tick")
	p.Register("node-resource")("update")
	p.ObserveStep("qos", "look", 12*time.Millisecond)

	r := prometheus.NewPedanticRegistry()
	if err := r.Register(p); err != nil {
		t.Fatal(err)
	}

	want := `# HELP crane_craneAgent_last_activity Time of the last completed step of a part of the agent, in seconds since 1970.
# TYPE crane_craneAgent_last_activity gauge
crane_craneAgent_last_activity{module="ModuleNodeResourceManager",step="update",subcomponent=""} 1000.25
crane_craneAgent_last_activity{module="StateCollector",step="look",subcomponent=""} 1000.25
crane_craneAgent_last_activity{module="qos",step="tick",subcomponent=""} 1000.25
`

	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "crane_craneAgent_last_activity"); err != nil {
		t.Error(err)
	}

	for _, name := range []string{"crane_craneAgent_step_duration_seconds", "crane_craneAgent_step_duration_quantile_summary"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n != 1 {
			t.Errorf("%s has %d series, %v, want 1", name, n, err)
		}
	}
}
