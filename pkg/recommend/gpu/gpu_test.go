// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
)

const gib = 1 << 30

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

// device was used so much for a week, and held so much memory.
func device(use, memory float64) Device {
	return Device{Use: flat(168, use), Memory: flat(168, memory)}
}

func fixture(asks int64, pods ...[]Device) Input {
	return Input{Replicas: len(pods), Containers: []Container{{Name: "train", Resource: "nvidia.com/gpu", Requested: asks, Pods: pods}}}
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
	busy := device(0.9, 20*gib)
	held := device(0, 12*gib)
	free := device(0, 4<<20)

	once := device(0, gib)
	once.Use[17] = 0.5
	young := Device{Use: flat(20, 0), Memory: flat(20, 0)}
	for name, c := range map[string]struct {
		in     Input
		state  recommend.State
		action recommend.Action
		reason string
		to     int64
		says   string
	}{
		"used":                       {fixture(1, []Device{busy}), recommend.Clear, "", "", -1, "no GPU that it does not use"},
		"never opened":               {fixture(2, []Device{free, free}), recommend.Ready, recommend.Patch, ReasonIdle, 0, "train holds 2 GPUs and has not used one for 7d, nor opened one"},
		"open and idle":              {fixture(1, []Device{held}), recommend.Ready, recommend.NoAction, ReasonIdle, -1, "a process keeps 12 GiB of its memory"},
		"memory not known":           {fixture(1, []Device{{Use: flat(168, 0)}}), recommend.Ready, recommend.NoAction, ReasonIdle, -1, "is not known"},
		"half of them":               {fixture(4, []Device{busy, busy, held, free}), recommend.Ready, recommend.Patch, ReasonOversized, 2, "none of its pods has used more than 2"},
		"one pod uses more":          {fixture(2, []Device{busy, free}, []Device{busy, busy}), recommend.Clear, "", "", -1, ""},
		"used once in the window":    {fixture(1, []Device{once}), recommend.Clear, "", "", -1, ""},
		"a pod that is gone used it": {fixture(1, []Device{free}, []Device{{Use: append(flat(100, 0.9), observation.Unknown(68)...)}}), recommend.Clear, "", "", -1, ""},
		"young":                      {fixture(1, []Device{young}), recommend.Learning, "", "", -1, "20 of the last 168"},
		"no data":                    {fixture(1), recommend.Clear, "", "", -1, "scaled to zero"},
		"pods without data":          {fixture(1, nil), recommend.NoData, "", "", -1, "No use of the GPUs of train is known"},
		"not all seen":               {fixture(2, []Device{free}), recommend.NoData, "", "", -1, "of only 1 is known"},
		"nan":                        {fixture(1, []Device{device(math.NaN(), math.NaN())}), recommend.NoData, "", "", -1, "No use"},
		"below zero":                 {fixture(1, []Device{device(-1, 0)}), recommend.NoData, "", "", -1, "No use"},
		"asks for none":              {fixture(0, []Device{free}), recommend.Clear, "", "", -1, ""},
		"nothing":                    {Input{Replicas: 1}, recommend.Clear, "", "", -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, standard(t))
			if plan.State != c.state || plan.Action != c.action || plan.Reason != c.reason || !strings.Contains(plan.Description, c.says) {
				t.Errorf("Decide = %+v, want %s, %q, reason %q and a text with %q", plan, c.state, c.action, c.reason, c.says)
			}
			if c.to < 0 && len(plan.Requests) > 0 || c.to >= 0 && (len(plan.Requests) != 1 || plan.Requests[0].To != c.to) {
				t.Errorf("requests %+v, want %d", plan.Requests, c.to)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if s := standard(t); s != (Settings{Use: 0.02, Memory: 64 << 20, Percentile: 1, Hours: 168}) {
		t.Errorf("ParseSettings(nil) = %+v, want the defaults", s)
	}

	for key, value := range map[string]string{"gpu-usage-utilization": "2", "gpu-memory-bytes": "-1", "history-length": "1y", "gpu": "1"} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%s): %v, want an error that names the key", key, value, err)
		}
	}
}

// FuzzDecide: a request only falls, and only where the use of every GPU is known and low.
func FuzzDecide(f *testing.F) {
	f.Add(int64(2), 168, 0.0, 0.0, 0.0, 1)
	f.Add(int64(-1), 3, math.NaN(), math.Inf(1), -1.0, 0)
	f.Fuzz(func(t *testing.T, asks int64, hours int, first, second, memory float64, replicas int) {
		if hours < 0 || hours > 1000 {
			return
		}

		in := Input{Replicas: replicas, Containers: []Container{{Name: "c", Requested: asks, Pods: [][]Device{{
			{Use: flat(hours, first), Memory: flat(hours, memory)}, {Use: flat(hours, second), Memory: flat(hours, memory)},
		}}}}}

		plan := Decide(in, Settings{Use: 0.02, Memory: 64 << 20, Percentile: 1, Hours: 168})
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}

		for _, r := range plan.Requests {
			if r.To >= r.From || r.To < 0 || hours < 152 || first > 0.02 && second > 0.02 {
				t.Errorf("request %+v with uses %v and %v, want fewer GPUs and only for a long window with an idle one", r, first, second)
			}
		}
	})
}
