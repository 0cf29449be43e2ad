// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
)

const week = 7 * 24 * time.Hour

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

func settingsOf(t *testing.T, pairs ...string) Settings {
	t.Helper()

	config := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		config[pairs[i]] = pairs[i+1]
	}

	s, err := ParseSettings(config)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// orphaned returns a load balancer whose selector has matched no pod for a week.
func orphaned(change ...func(*Input)) Input {
	in := Input{Type: LoadBalancer, Selects: true, Age: 2 * week, Addresses: flat(168, 0)}
	for _, c := range change {
		c(&in)
	}

	return in
}

// silent returns a load balancer with two pods that receive 10 bytes per second.
func silent(change ...func(*Input)) Input {
	in := Input{Type: LoadBalancer, Selects: true, Age: 2 * week, Pods: 2, Ready: 2, Addresses: flat(168, 2), Receive: flat(168, 10), Transmit: flat(168, 20)}
	for _, c := range change {
		c(&in)
	}

	return in
}

func TestDecide(t *testing.T) {
	standard := settingsOf(t)
	traffic := settingsOf(t, "net-receive-bytes", "100", "net-transfer-bytes", "100")
	for name, c := range map[string]struct {
		in     Input
		s      Settings
		state  recommend.State
		reason string
		says   string
	}{
		"orphan":      {orphaned(), standard, recommend.Ready, ReasonNoPods, "For 7d this LoadBalancer has had no backend: its selector chooses no pod"},
		"no selector": {orphaned(func(in *Input) { in.Selects = false }), standard, recommend.Ready, ReasonNoPods, "no selector"},
		"endpoints by hand": {orphaned(func(in *Input) {
			in.Selects = false
			in.Endpoints = 3
		}), standard, recommend.Clear, "", "3 endpoints"},
		"scaled down":             {orphaned(func(in *Input) { in.MatchingWorkloads = []string{"Deployment web"} }), standard, recommend.Clear, "", "Deployment web"},
		"pods an hour ago":        {orphaned(func(in *Input) { in.Addresses[166] = 1 }), standard, recommend.Clear, "", "but had one within 7d"},
		"young":                   {orphaned(func(in *Input) { in.Age = time.Hour }), standard, recommend.Learning, "", "1h0m0s old"},
		"not watched":             {orphaned(func(in *Input) { in.Addresses = nil }), standard, recommend.NoData, "", "No number of addresses"},
		"watched since yesterday": {orphaned(func(in *Input) { in.Addresses = flat(30, 0) }), standard, recommend.Learning, "", "30 of the last 168"},
		"cluster IP":              {orphaned(func(in *Input) { in.Type = ClusterIP }), standard, recommend.Clear, "", "ClusterIP"},
		"cluster IP asked for":    {orphaned(func(in *Input) { in.Type = ClusterIP }), settingsOf(t, "service-types", "LoadBalancer,ClusterIP"), recommend.Ready, ReasonNoPods, "ClusterIP"},
		"external name":           {orphaned(func(in *Input) { in.Type = "ExternalName" }), standard, recommend.Clear, "", "ExternalName"},
		"pods":                    {silent(), standard, recommend.Clear, "", "It selects 2 pods."},
		"silent":                  {silent(), traffic, recommend.Ready, ReasonNoTraffic, "p95 of received traffic over 7d 10 bytes/s (limit 100)"},
		"heard":                   {silent(func(in *Input) { in.Receive = flat(168, 1000) }), traffic, recommend.Clear, "", "received traffic of its pods reaches 1000"},
		"sends":                   {silent(func(in *Input) { in.Transmit = flat(168, 1000) }), traffic, recommend.Clear, "", "sent traffic"},
		"sends, not looked at":    {silent(func(in *Input) { in.Transmit = nil }), settingsOf(t, "net-receive-bytes", "100"), recommend.Ready, ReasonNoTraffic, "received"},
		"heard, sent not known": {silent(func(in *Input) {
			in.Receive = flat(168, 1000)
			in.Transmit = nil
		}), traffic, recommend.Clear, "", "received"},
		"traffic not known":       {silent(func(in *Input) { in.Transmit = flat(168, math.Inf(1)) }), traffic, recommend.NoData, "", "No sent traffic"},
		"not ready":               {silent(func(in *Input) { in.Ready = 0 }), traffic, recommend.Clear, "", "out of order"},
		"host network":            {silent(func(in *Input) { in.HostPods = 1 }), traffic, recommend.Clear, "", "network of their node"},
		"one busy hour in twenty": {silent(func(in *Input) { copy(in.Receive, flat(12, 1e6)) }), traffic, recommend.Clear, "", "received"},
		"one busy hour":           {silent(func(in *Input) { in.Receive[9] = 1e6 }), traffic, recommend.Ready, ReasonNoTraffic, "next to nothing"},
		"nothing known":           {Input{Type: LoadBalancer, Age: week}, standard, recommend.NoData, "", "No number"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, c.s)
			if plan.State != c.state || plan.Reason != c.reason || !strings.Contains(plan.Explain(), c.says) || (plan.Action == recommend.Delete) != (c.state == recommend.Ready) {
				t.Errorf("Decide = %+v, want %s, reason %q and a text with %q", plan, c.state, c.reason, c.says)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if s := settingsOf(t); s.Receive != 0 || s.ReceivePercentile != 0.95 || !slices.Equal(s.Types, []string{LoadBalancer}) || s.Hours != 168 {
		t.Errorf("ParseSettings(nil) = %+v, want the defaults", s)
	}

	for key, value := range map[string]string{"net-receive-bytes": "-1", "net-receive-percentile": "95", "service-types": "ExternalName", "selector": "x"} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%s): %v, want an error that names the key", key, value, err)
		}
	}
}

// FuzzDecide checks that a Service is only deleted if it is known to have no pods or pods without traffic.
func FuzzDecide(f *testing.F) {
	f.Add(0, 0, 168, 0.0, 0.0, int64(week))
	f.Add(1, 1, 3, math.NaN(), math.Inf(1), int64(-1))
	f.Fuzz(func(t *testing.T, pods, ready, hours int, addresses, bytes float64, age int64) {
		if hours < 0 || hours > 1000 {
			return
		}

		in := Input{
			Type: LoadBalancer, Selects: true, Age: time.Duration(age), Pods: pods, Ready: ready,
			Addresses: flat(hours, addresses), Receive: flat(hours, bytes), Transmit: flat(hours, bytes),
		}
		s := Settings{Types: []string{LoadBalancer}, Receive: 100, Transmit: 100, ReceivePercentile: 0.95, TransmitPercentile: 0.95, Hours: 168}

		plan := Decide(in, s)
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}
		if plan.Action == recommend.Delete && (hours < 152 || pods == 0 && (addresses != 0 || in.Age < week) || pods > 0 && !(bytes >= 0 && bytes <= 100)) {
			t.Errorf("Decide(%+v) = %+v, want Delete only with enough data and no traffic", in, plan)
		}
	})
}
