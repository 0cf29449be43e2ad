// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package unused

import (
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
)

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

// fixture returns a workload of three idle pods.
func fixture(change ...func(*Input)) Input {
	in := Input{Replicas: 3, Ready: 3, Scales: true, CPU: flat(168, 0.002), Receive: flat(168, 80), Transmit: flat(168, 1500)}
	for _, c := range change {
		c(&in)
	}

	return in
}

func standard(t *testing.T) Settings {
	t.Helper()

	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		in    Input
		state recommend.State
		says  string
	}{
		"forgotten":            {fixture(), recommend.Ready, "the most of received traffic of a pod by the hour over 7d 80 bytes/s (limit 500)"},
		"computes":             {fixture(func(in *Input) { in.CPU[100] = 0.5 }), recommend.Clear, "cpu use of a pod reaches 0.5 cores"},
		"is asked once a week": {fixture(func(in *Input) { in.Receive[1] = 501 }), recommend.Clear, "received traffic"},
		"sends":                {fixture(func(in *Input) { in.Transmit = flat(168, 9000) }), recommend.Clear, "sent traffic"},
		"scaled to zero":       {fixture(func(in *Input) { in.Replicas = 0 }), recommend.Clear, "scaled to zero"},
		"out of order":         {fixture(func(in *Input) { in.Ready = 0 }), recommend.Clear, "out of order"},
		"host network":         {fixture(func(in *Input) { in.HostPods = 1 }), recommend.Clear, "network of their node"},
		"a DaemonSet":          {fixture(func(in *Input) { in.Scales = false }), recommend.Clear, "do not scale"},
		"young": {fixture(func(in *Input) {
			in.CPU = flat(50, 0)
			in.Receive = flat(50, 0)
			in.Transmit = flat(50, 0)
		}), recommend.Learning, "50 of the last 168"},
		"no network": {fixture(func(in *Input) {
			in.Receive = nil
			in.Transmit = nil
		}), recommend.NoData, "No received traffic is known"},
		"no network, and young": {fixture(func(in *Input) {
			in.CPU = flat(50, 0)
			in.Receive = nil
		}), recommend.NoData, "No received traffic is known"},
		"no network, computes": {fixture(func(in *Input) {
			in.CPU = flat(168, 2)
			in.Receive = nil
			in.Transmit = nil
		}), recommend.Clear, "cpu use"},
		"stale":    {fixture(func(in *Input) { in.Receive = append(flat(160, 0), observation.Unknown(8)...) }), recommend.NoData, "8h old"},
		"nan":      {fixture(func(in *Input) { in.CPU = flat(168, math.NaN()) }), recommend.NoData, "No cpu use"},
		"infinite": {fixture(func(in *Input) { in.Receive = flat(168, math.Inf(1)) }), recommend.NoData, "No received traffic"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, standard(t))
			if plan.State != c.state || !strings.Contains(plan.Explain(), c.says) || (plan.Action == recommend.Patch) != (c.state == recommend.Ready) {
				t.Errorf("Decide = %+v, want %s and a text with %q", plan, c.state, c.says)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if s := standard(t); s != (Settings{CPU: 0.02, Receive: 500, Transmit: 5000, Percentile: 1, Hours: 168}) {
		t.Errorf("ParseSettings(nil) = %+v, want the defaults", s)
	}

	for key, config := range map[string]map[string]string{
		"net-receive-bytes": {"net-receive-bytes": "0", "net-transfer-bytes": "0"},
		"percentile":        {"percentile": "2"},
		"history-length":    {"history-length": "0s"},
		"cpu":               {"cpu": "1"},
	} {
		if _, err := ParseSettings(config); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%v): %v, want an error that names %s", config, err, key)
		}
	}
}

// TestDecide_Monotone: whatever grows, a workload that is used stays so.
func TestDecide_Monotone(t *testing.T) {
	for name, set := range map[string]func(*Input, float64){
		"cpu":      func(in *Input, v float64) { in.CPU = flat(168, v/1e4) },
		"receive":  func(in *Input, v float64) { in.Receive = flat(168, v) },
		"transmit": func(in *Input, v float64) { in.Transmit = flat(168, v*10) },
	} {
		unused := true
		for v := 0.0; v < 1000; v += 25 {
			in := fixture()
			set(&in, v)

			now := Decide(in, standard(t)).Action == recommend.Patch
			if now && !unused {
				t.Errorf("%s: Decide at %g is unused again, want used from the first used value on", name, v)
			}

			unused = now
		}

		if unused {
			t.Errorf("%s: unused at every value, want used at the largest", name)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(1, 1, 168, 0.0, 0.0, 0.0)
	f.Add(-1, 0, 3, math.NaN(), math.Inf(1), -1.0)
	f.Fuzz(func(t *testing.T, replicas, ready, hours int, cpu, receive, transmit float64) {
		if hours < 0 || hours > 1000 {
			return
		}

		in := Input{Replicas: replicas, Ready: ready, Scales: true, CPU: flat(hours, cpu), Receive: flat(hours, receive), Transmit: flat(hours, transmit)}
		plan := Decide(in, Settings{CPU: 0.02, Receive: 500, Transmit: 5000, Percentile: 1, Hours: 168})
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}

		still := cpu >= 0 && cpu <= 0.02 && receive >= 0 && receive <= 500 && transmit >= 0 && transmit <= 5000
		if plan.Action == recommend.Patch && (!still || hours < 152 || ready <= 0 || replicas <= 0) {
			t.Errorf("Decide(%+v) = %+v, want unused only with enough data and low values", in, plan)
		}
	})
}
