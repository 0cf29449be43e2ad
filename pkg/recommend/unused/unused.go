// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unused finds workloads that run and that nobody uses: for the whole of a window their pods compute nothing to speak
// of, and hear and say no more than health checks do. It must not know where pods and their use are read.
package unused

import (
	"fmt"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// ReasonUnused of plans: nobody uses the workload.
const ReasonUnused = "Unused"

// Settings say when a workload counts as unused.
type Settings struct {
	// CPU is cores, Receive and Transmit are bytes per second, each for one pod, the mean over the pods and an hour, up to
	// which the workload is unused. 0 does not look at it; at least one of Receive and Transmit is not 0.
	CPU, Receive, Transmit float64
	// Percentile says which of the hours is held against them; 1 is the busiest.
	Percentile series.Ratio
	// Hours is the length of the window.
	Hours int
}

// ParseSettings reads
//
//	cpu-usage-cores 0.02, net-receive-bytes 500, net-transfer-bytes 5000 (a pod and second), percentile 1, history-length 168h
//
// 500 bytes a second is what OpenCost's abandoned workloads are measured by; health checks and scrapes stay below it. What a
// scrape answers is more than it asks, hence ten times as much for what is sent.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		CPU: r.Number("cpu-usage-cores", 0.02, 0, 1e4), Receive: r.Number("net-receive-bytes", 500, 0, 1e12),
		Transmit: r.Number("net-transfer-bytes", 5000, 0, 1e12), Percentile: r.Share("percentile", 1),
		Hours: r.Hours("history-length", 168, 1, 90*24),
	}
	if err := r.Err(); err != nil {
		return s, err
	}
	if s.Receive == 0 && s.Transmit == 0 {
		return s, &settings.FieldError{
			Path: "net-receive-bytes", Value: "0", Allowed: "must be above 0 where net-transfer-bytes is 0: CPU alone does not tell who is used",
		}
	}
	return s, nil
}

// Input is what is known of one workload.
type Input struct {
	// Replicas is how many pods it wants, Ready how many are, HostPods how many use the network of their node.
	Replicas, Ready, HostPods int
	// Scales tells that it can be scaled to zero. A DaemonSet or a job cannot, and is not looked at.
	Scales bool
	// CPU is cores, Receive and Transmit are bytes per second, each the mean over the pods that ran in the hour.
	CPU, Receive, Transmit observation.Hours
}

// Decide says whether anybody uses the workload. Somebody does for want of data.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case !in.Scales:
		return clearOf("Workloads of this kind do not scale to zero.")
	case in.Replicas <= 0:
		return clearOf("It is scaled to zero.")
	case in.Ready <= 0:
		return clearOf("None of its pods is ready: it is out of order rather than unused.")
	case in.HostPods > 0:
		return clearOf("Its pods use the network of their node, whose traffic is not theirs alone.")
	}
	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Patch, Reason: ReasonUnused}
	var missing *recommend.Plan
	for _, c := range []struct {
		what, unit string
		of         observation.Hours
		limit      float64
	}{{"cpu use", "cores", in.CPU, s.CPU}, {"received traffic", "bytes/s", in.Receive, s.Receive}, {"sent traffic", "bytes/s", in.Transmit, s.Transmit}} {
		if c.limit <= 0 {
			continue
		}
		v := need.Quantile(c.of, s.Percentile)
		if v > c.limit {
			return clearOf(fmt.Sprintf("The %s of a pod reaches %.4g %s.", c.what, v, c.unit))
		}
		if state, why := need.Check(c.what, c.of); state != recommend.Ready {
			// What was not seen at all tells less than what was not seen for long.
			if missing == nil || state == recommend.NoData && missing.State != recommend.NoData {
				missing = &recommend.Plan{State: state, Description: why}
			}
			continue
		}
		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name:  fmt.Sprintf("%s of %s of a pod by the hour over %s", observation.FormatPercentile(s.Percentile), c.what, observation.FormatHours(s.Hours)),
			Value: v, Unit: c.unit, Limit: &c.limit,
		})
	}
	if missing != nil {
		return *missing
	}
	plan.Description = fmt.Sprintf("Nobody has used it for %s. Scaled to zero it can come back as it is (replicas: %d); whoever needs it less often is not seen here.",
		observation.FormatHours(s.Hours), in.Replicas)
	return plan
}

func clearOf(why string) recommend.Plan {
	return recommend.Plan{State: recommend.Clear, Description: why}
}
