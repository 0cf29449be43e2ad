// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unused finds workloads that run without being used: during a whole window their pods use almost no CPU, and
// receive and send no more than health checks do. Reading pods and usage does not belong here.
package unused

import (
	"fmt"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// ReasonUnused means that the workload is not used.
const ReasonUnused = "Unused"

// Settings define when a workload counts as unused.
type Settings struct {
	// CPU (cores), Receive and Transmit (bytes per second) are the values per pod, averaged over the pods and an hour, up to
	// which a workload is unused. 0 disables a limit; one of Receive and Transmit must be above 0.
	CPU, Receive, Transmit float64
	// Percentile selects the hour that is compared with them; 1 is the busiest.
	Percentile units.Ratio
	// Hours is the length of the window.
	Hours int
}

// ParseSettings parses the settings; the defaults are
//
//	cpu-usage-cores 0.02, net-receive-bytes 500, net-transfer-bytes 5000 (per pod and second)
//	percentile 1, history-length 168h
//
// 500 bytes per second is the limit of OpenCost's abandoned workloads; health checks and scrapes stay below it. Responses to
// scrapes are larger than the requests, hence ten times as much for sent traffic.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		CPU:        r.Number("cpu-usage-cores", 0.02, 0, 1e4),
		Receive:    r.Number("net-receive-bytes", 500, 0, 1e12),
		Transmit:   r.Number("net-transfer-bytes", 5000, 0, 1e12),
		Percentile: r.Share("percentile", 1),
		Hours:      r.Hours("history-length", 168, 1, 90*24),
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

// Input describes one workload.
type Input struct {
	// Replicas is the desired number of pods, Ready the number of ready ones, HostPods the number in the network of their
	// node.
	Replicas, Ready, HostPods int
	// Scales is set if the workload can be scaled to zero. DaemonSets and jobs cannot and are not evaluated.
	Scales bool
	// CPU (cores), Receive and Transmit (bytes per second) are means over the pods that ran in the hour.
	CPU, Receive, Transmit observation.Hours
}

// Decide returns whether the workload is unused. Workloads without data are not.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case !in.Scales:
		return recommend.ClearPlan("Workloads of this kind do not scale to zero.")
	case in.Replicas <= 0:
		return recommend.ClearPlan("It is scaled to zero.")
	case in.Ready <= 0:
		return recommend.ClearPlan("None of its pods is ready: it is out of order rather than unused.")
	case in.HostPods > 0:
		return recommend.ClearPlan("Its pods use the network of their node, whose traffic is not theirs alone.")
	}

	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Patch, Reason: ReasonUnused}
	var missing *recommend.Plan
	for _, c := range []struct {
		what, unit string
		hours      observation.Hours
		limit      float64
	}{{"cpu use", "cores", in.CPU, s.CPU}, {"received traffic", "bytes/s", in.Receive, s.Receive}, {"sent traffic", "bytes/s", in.Transmit, s.Transmit}} {
		if c.limit <= 0 {
			continue
		}

		v := need.Quantile(c.hours, s.Percentile)
		if v > c.limit {
			return recommend.ClearPlan(fmt.Sprintf("The %s of a pod reaches %.4g %s.", c.what, v, c.unit))
		}

		if state, why := need.Check(c.what, c.hours); state != recommend.Ready {
			// A quantity without data takes precedence over one with a short history.
			if missing == nil || state == recommend.NoData && missing.State != recommend.NoData {
				missing = &recommend.Plan{State: state, Description: why}
			}

			continue
		}

		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name:  fmt.Sprintf("%s of %s of a pod by the hour over %s", units.FormatPercentile(s.Percentile), c.what, units.FormatHours(s.Hours)),
			Value: v,
			Unit:  c.unit,
			Limit: &c.limit,
		})
	}

	if missing != nil {
		return *missing
	}

	plan.Description = fmt.Sprintf("It has not been used for %s. Scaled to zero it can be restored (replicas: %d); less frequent usage is not detected.",
		units.FormatHours(s.Hours), in.Replicas)
	return plan
}
