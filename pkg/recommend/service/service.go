// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service finds Services that cost money without serving traffic: load balancers without pods behind their selector,
// or whose pods receive next to nothing. Reading pods and traffic does not belong here.
package service

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Reasons of plans.
const (
	// ReasonNoPods means that a Service selects no pod.
	ReasonNoPods = "NoPods"
	// ReasonNoTraffic means that the pods of a Service receive or send next to nothing.
	ReasonNoTraffic = "NoTraffic"
)

// Types of Services, with the names of Kubernetes.
const (
	LoadBalancer = "LoadBalancer"
	NodePort     = "NodePort"
	ClusterIP    = "ClusterIP"
)

// Settings define when a Service counts as unused.
type Settings struct {
	// Types are the evaluated types of Services.
	Types []string
	// Receive and Transmit are the traffic of all pods together, in bytes per second, up to which a Service counts as
	// unused; 0 disables a limit. All others must hold.
	Receive, Transmit float64
	// ReceivePercentile and TransmitPercentile select the hour that is compared with them.
	ReceivePercentile, TransmitPercentile units.Ratio
	// Hours is the length of the window.
	Hours int
}

// ParseSettings parses gocrane's keys, with its defaults, and two of Crane's own:
//
//	net-receive-bytes 0, net-transfer-bytes 0 (bytes per second; disabled)
//	net-receive-percentile 0.95, net-transfer-percentile 0.95
//	history-length 168h, service-types LoadBalancer (also NodePort and ClusterIP, separated by commas)
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	const maxTraffic = 1e12
	s := Settings{
		Types:              r.Words("service-types", []string{LoadBalancer}, []string{LoadBalancer, NodePort, ClusterIP}),
		Receive:            r.Number("net-receive-bytes", 0, 0, maxTraffic),
		Transmit:           r.Number("net-transfer-bytes", 0, 0, maxTraffic),
		ReceivePercentile:  r.Share("net-receive-percentile", 0.95),
		TransmitPercentile: r.Share("net-transfer-percentile", 0.95),
		Hours:              r.Hours("history-length", 168, 1, 90*24),
	}

	return s, r.Err()
}

// Input describes one Service.
type Input struct {
	// Type is LoadBalancer, NodePort, ClusterIP or ExternalName.
	Type string
	// Selects is set if it has a selector. Without one, its endpoints are created by others.
	Selects bool
	// Age is the time since its creation.
	Age time.Duration
	// Pods is the number of selected pods that have not ended, Ready the number of ready ones.
	Pods, Ready int
	// HostPods is the number of pods in the network of their node, whose traffic is not measured.
	HostPods int
	// MatchingWorkloads are workloads without pods whose pods it would select.
	MatchingWorkloads []string
	// Endpoints is the number of endpoints.
	Endpoints int
	// Addresses is the number of endpoint addresses in each hour.
	Addresses observation.Hours
	// Receive and Transmit are the traffic of all pods together in bytes per second.
	Receive, Transmit observation.Hours
}

// Decide returns whether the Service is unused. Services without data are not.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case !slices.Contains(s.Types, in.Type):
		return recommend.ClearPlan("Services of type " + in.Type + " are not evaluated.")
	case in.Endpoints > 0 && in.Pods == 0:
		return recommend.ClearPlan(fmt.Sprintf("It has %d endpoints.", in.Endpoints))
	case in.Pods == 0 && len(in.MatchingWorkloads) > 0:
		return recommend.ClearPlan("It has no backend now; the pods of " + strings.Join(in.MatchingWorkloads, ", ") + " would be.")
	}

	if in.Pods == 0 {
		return checkEndpoints(in, s)
	}

	return checkTraffic(in, s)
}

// checkEndpoints decides about a Service without pods.
func checkEndpoints(in Input, s Settings) recommend.Plan {
	if minAge := time.Duration(s.Hours) * time.Hour; in.Age < minAge {
		return recommend.Plan{State: recommend.Learning, Description: fmt.Sprintf(
			"It has no backend; it is %s old, and has to be %s.", in.Age.Truncate(time.Minute), units.FormatHours(s.Hours))}
	}

	need := observation.DefaultRequirement(s.Hours)
	if state, why := need.Check("number of addresses behind it", in.Addresses); state != recommend.Ready {
		return recommend.Plan{State: state, Description: "It has no backend now. " + why}
	}

	largest := need.Quantile(in.Addresses, 1)
	// A backend within the window means that the Service is in use from time to time.
	if largest > 0 {
		return recommend.ClearPlan(fmt.Sprintf("It has no backend now, but had one within %s.", units.FormatHours(s.Hours)))
	}

	limit := 0.0
	why := "its selector chooses no pod, and the template of no workload"
	if !in.Selects {
		why = "it has no selector and no endpoints"
	}

	return recommend.Plan{
		State:       recommend.Ready,
		Action:      recommend.Delete,
		Reason:      ReasonNoPods,
		Description: fmt.Sprintf("For %s this %s has had no backend: %s.", units.FormatHours(s.Hours), in.Type, why),
		Evidence: []recommend.Evidence{
			{Name: "most addresses at once, over " + units.FormatHours(s.Hours), Value: largest, Limit: &limit},
		},
	}
}

// checkTraffic compares the traffic of the pods with the limits. One exceeded limit is sufficient, whatever is unknown about
// the other.
func checkTraffic(in Input, s Settings) recommend.Plan {
	switch {
	case s.Receive <= 0 && s.Transmit <= 0:
		return recommend.ClearPlan(fmt.Sprintf("It selects %s.", units.FormatCount(in.Pods, "pod")))
	case in.Ready == 0:
		return recommend.ClearPlan(fmt.Sprintf("It selects %s, of which none is ready: it is out of order rather than unused.", units.FormatCount(in.Pods, "pod")))
	case in.HostPods > 0:
		return recommend.ClearPlan(fmt.Sprintf("%d of its pods use the network of their node, whose traffic is not theirs alone.", in.HostPods))
	}

	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Delete, Reason: ReasonNoTraffic}
	var missing *recommend.Plan
	for _, c := range []struct {
		what       string
		hours      observation.Hours
		percentile units.Ratio
		limit      float64
	}{{"received traffic", in.Receive, s.ReceivePercentile, s.Receive}, {"sent traffic", in.Transmit, s.TransmitPercentile, s.Transmit}} {
		if c.limit <= 0 {
			continue
		}

		// An exceeded limit decides, even if the other quantity is unknown.
		v := need.Quantile(c.hours, c.percentile)
		if v > c.limit {
			return recommend.ClearPlan(fmt.Sprintf("The %s of its pods reaches %.4g bytes per second.", c.what, v))
		}

		if state, why := need.Check(c.what, c.hours); state != recommend.Ready {
			missing = &recommend.Plan{State: state, Description: why}
			continue
		}

		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name:  fmt.Sprintf("%s of %s over %s", units.FormatPercentile(c.percentile), c.what, units.FormatHours(s.Hours)),
			Value: v,
			Unit:  "bytes/s",
			Limit: &c.limit,
		})
	}

	if missing != nil {
		return *missing
	}

	plan.Description = fmt.Sprintf("The pods of this %s (%d) receive next to nothing. The figures include health checks and traffic that does not use the Service.", in.Type, in.Pods)
	return plan
}
