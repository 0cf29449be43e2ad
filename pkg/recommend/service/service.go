// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service finds Services that cost something and serve nobody: load balancers behind which no pod stands, by the
// Service's own selector, or whose pods hear next to nothing. It must not know where pods and traffic are read.
package service

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Reasons of plans.
const (
	// ReasonNoPods is a Service that selects no pod.
	ReasonNoPods = "NoPods"
	// ReasonNoTraffic is a Service whose pods receive or send next to nothing.
	ReasonNoTraffic = "NoTraffic"
)

// Types of Services, by the names of Kubernetes.
const (
	LoadBalancer = "LoadBalancer"
	NodePort     = "NodePort"
	ClusterIP    = "ClusterIP"
)

// Settings say when a Service counts as unused.
type Settings struct {
	// Types of Services that are looked at.
	Types []string
	// Receive and Transmit are bytes per second of all its pods together, up to which it counts as unused; 0 does not look.
	// All that are not 0 have to hold.
	Receive, Transmit float64
	// ReceivePercentile and TransmitPercentile say which of the hours is held against them.
	ReceivePercentile, TransmitPercentile series.Ratio
	// Hours is the length of the window.
	Hours int
}

// ParseSettings reads gocrane's keys, with its defaults, and two of Crane's own:
//
//	net-receive-bytes 0, net-transfer-bytes 0 (bytes per second; do not look), net-receive-percentile 0.95, net-transfer-percentile 0.95
//	history-length 168h, service-types LoadBalancer (also NodePort and ClusterIP, with commas between)
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	const most = 1e12
	s := Settings{
		Types:   r.Words("service-types", []string{LoadBalancer}, []string{LoadBalancer, NodePort, ClusterIP}),
		Receive: r.Number("net-receive-bytes", 0, 0, most), Transmit: r.Number("net-transfer-bytes", 0, 0, most),
		ReceivePercentile: r.Share("net-receive-percentile", 0.95), TransmitPercentile: r.Share("net-transfer-percentile", 0.95),
		Hours: r.Hours("history-length", 168, 1, 90*24),
	}
	return s, r.Err()
}

// Input is what is known of one Service.
type Input struct {
	// Type is LoadBalancer, NodePort, ClusterIP or ExternalName.
	Type string
	// Selects tells that it has a selector. Without one its endpoints are somebody else's to make.
	Selects bool
	// Age is the time since it was made.
	Age time.Duration
	// Pods that it selects and that have not ended, and those of them that are ready.
	Pods, Ready int
	// HostPods of them use the network of their node, which is not measured for each.
	HostPods int
	// MatchingWorkloads are workloads whose pods it would select if they had any.
	MatchingWorkloads []string
	// Endpoints are addresses that are there all the same: of a Service without a selector.
	Endpoints int
	// Addresses is the number of addresses behind it in each hour in which it was watched; not known in others.
	Addresses observation.Hours
	// Receive and Transmit are bytes per second of all its pods together.
	Receive, Transmit observation.Hours
}

// Decide says whether the Service is of use. It always is for want of data.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case !slices.Contains(s.Types, in.Type):
		return clearOf("Services of type " + in.Type + " are not looked at.")
	case in.Endpoints > 0 && in.Pods == 0:
		return clearOf(fmt.Sprintf("It has %d endpoints.", in.Endpoints))
	case in.Pods == 0 && len(in.MatchingWorkloads) > 0:
		return clearOf("No pod stands behind it now; those of " + strings.Join(in.MatchingWorkloads, ", ") + " would.")
	}
	if in.Pods == 0 {
		return checkEndpoints(in, s)
	}
	return checkTraffic(in, s)
}

// checkEndpoints decides on a Service without pods.
func checkEndpoints(in Input, s Settings) recommend.Plan {
	if least := time.Duration(s.Hours) * time.Hour; in.Age < least {
		return recommend.Plan{State: recommend.Learning, Description: fmt.Sprintf(
			"No pod stands behind it; it is %s old, and has to be %s.", in.Age.Truncate(time.Minute), observation.FormatHours(s.Hours))}
	}
	need := observation.DefaultRequirement(s.Hours)
	if state, why := need.Check("number of addresses behind it", in.Addresses); state != recommend.Ready {
		return recommend.Plan{State: state, Description: "No pod stands behind it now. " + why}
	}
	most := need.Quantile(in.Addresses, 1)
	if most > 0 {
		return clearOf(fmt.Sprintf("No pod stands behind it now, but some did within %s.", observation.FormatHours(s.Hours)))
	}
	limit := 0.0
	why := "its selector chooses no pod, and the template of no workload"
	if !in.Selects {
		why = "it has no selector, and nobody has given it endpoints"
	}
	return recommend.Plan{
		State: recommend.Ready, Action: recommend.Delete, Reason: ReasonNoPods,
		Description: fmt.Sprintf("For %s nothing has stood behind this %s: %s.", observation.FormatHours(s.Hours), in.Type, why),
		Evidence: []recommend.Evidence{
			{Name: "most addresses at once, over " + observation.FormatHours(s.Hours), Value: most, Limit: &limit},
		},
	}
}

// checkTraffic holds the traffic of its pods against the thresholds. One that does not hold is enough, whatever is missing of the
// other.
func checkTraffic(in Input, s Settings) recommend.Plan {
	switch {
	case s.Receive <= 0 && s.Transmit <= 0:
		return clearOf(fmt.Sprintf("%d pods stand behind it.", in.Pods))
	case in.Ready == 0:
		return clearOf(fmt.Sprintf("None of the %d pods behind it is ready: it is out of order rather than unused.", in.Pods))
	case in.HostPods > 0:
		return clearOf(fmt.Sprintf("%d of its pods use the network of their node, whose traffic is not theirs alone.", in.HostPods))
	}
	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Delete, Reason: ReasonNoTraffic}
	var missing *recommend.Plan
	for _, c := range []struct {
		what  string
		of    observation.Hours
		at    series.Ratio
		limit float64
	}{{"received traffic", in.Receive, s.ReceivePercentile, s.Receive}, {"sent traffic", in.Transmit, s.TransmitPercentile, s.Transmit}} {
		if c.limit <= 0 {
			continue
		}
		v := need.Quantile(c.of, c.at)
		if v > c.limit {
			return clearOf(fmt.Sprintf("The %s of its pods reaches %.4g bytes per second.", c.what, v))
		}
		if state, why := need.Check(c.what, c.of); state != recommend.Ready {
			missing = &recommend.Plan{State: state, Description: why}
			continue
		}
		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name: fmt.Sprintf("%s of %s over %s", observation.FormatPercentile(c.at), c.what, observation.FormatHours(s.Hours)), Value: v, Unit: "bytes/s", Limit: &c.limit,
		})
	}
	if missing != nil {
		return *missing
	}
	plan.Description = fmt.Sprintf("The pods behind this %s (%d) hear next to nothing. Health checks and whatever reaches them in other ways are in the figures.", in.Type, in.Pods)
	return plan
}

func clearOf(why string) recommend.Plan {
	return recommend.Plan{State: recommend.Clear, Description: why}
}
