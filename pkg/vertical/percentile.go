// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Types of the estimators that Crane runs.
const (
	TypePercentile = "Percentile"
	TypeOOM        = "OOM"
	TypeForecast   = "Forecast"
	TypeExternal   = "External"
)

// policyKey selects one of Crane's policies instead of gocrane's settings.
const policyKey = "policy"

// PercentileEstimator estimates from the usage of containers by a policy of package rightsize.
type PercentileEstimator struct{ policies rightsize.PolicySet }

// ParsePercentileEstimator parses the settings of the percentile estimator: none for the policy of Crane, or that of the class in the
// annotation of a workload; "policy" for a named policy; or those of gocrane's estimator:
//
//	cpu-request-percentile 0.99, cpu-request-margin-fraction 0.15, cpu-model-history-length 24h
//	mem-request-percentile 0.99, mem-request-margin-fraction 0.15, mem-model-history-length 48h
//
// as rightsize.GocranePolicy defines them. cpu-model-init-mode and mem-model-init-mode are accepted and have no effect: history is always
// read.
func ParsePercentileEstimator(config map[string]string) (PercentileEstimator, error) {
	rest := maps.Clone(config)
	for _, key := range []string{"cpu-model-init-mode", "mem-model-init-mode"} {
		delete(rest, key)
	}

	name, named := rest[policyKey]
	switch {
	case named && len(rest) > 1:
		return PercentileEstimator{}, errors.New("config[policy] cannot be combined with other settings")

	case named || len(rest) == 0:
		if !named {
			name = rightsize.DefaultPolicy
		}

		policy, err := rightsize.PolicyByName(strings.TrimSpace(name))
		if err != nil {
			return PercentileEstimator{}, fmt.Errorf("config[policy]: %w", err)
		}

		return PercentileEstimator{rightsize.PolicySet{Default: policy, IgnoreClasses: named}}, nil
	}

	// The defaults of gocrane's estimator.
	for key, value := range map[string]string{"cpu-model-history-length": "24h", "mem-model-history-length": "48h"} {
		if _, ok := rest[key]; !ok {
			rest[key] = value
		}
	}

	policy, err := rightsize.GocranePolicy(rest)
	if err != nil {
		return PercentileEstimator{}, fmt.Errorf("config: %w", err)
	}

	return PercentileEstimator{rightsize.PolicySet{Default: policy, IgnoreClasses: true}}, nil
}

// Window returns how far back the history is read.
func (p PercentileEstimator) Window() time.Duration { return p.policies.Window() }

// Policy returns the policy of a workload.
func (p PercentileEstimator) Policy(subject rightsize.Subject) rightsize.Policy {
	policy, _ := p.policies.For(subject)
	return policy
}

// Estimate returns the answers for each container of a workload, without OOM kills, which the OOM estimator covers. in must have the policy that Policy returns.
func (p PercentileEstimator) Estimate(in resource.Input, priority int) map[string]map[units.Resource]Estimate {
	in = withoutKills(withoutBounds(in))

	low := in
	low.Autoscaler = nil
	low.Containers = slices.Clone(in.Containers)
	for i := range low.Containers {
		low.Containers[i].HPA = nil // An autoscaler moves the request, not the need.
	}

	high := low
	low.Policy = quantilePolicy(in.Policy, 0.5, 0)
	high.Policy = quantilePolicy(in.Policy, 0.95, vpaMargin)

	lower := recommendations(low)
	upper := recommendations(high)
	out := map[string]map[units.Resource]Estimate{}
	for _, r := range resource.Decide(in).Containers {
		l := lower[r.Container]
		u := upper[r.Container]
		cpu := newEstimate(r.CPU, amountOrZero(r.Target.CPURequest), amountOrZero(l.Target.CPURequest), amountOrZero(u.Target.CPURequest))
		memory := newEstimate(r.Memory, amountOrZero(r.Target.MemoryRequest), amountOrZero(l.Target.MemoryRequest), amountOrZero(u.Target.MemoryRequest))
		cpu.Priority = priority
		memory.Priority = priority
		out[r.Container] = map[units.Resource]Estimate{units.CPU: cpu, units.Memory: memory}
	}

	return out
}

func recommendations(in resource.Input) map[string]rightsize.Recommendation {
	out := map[string]rightsize.Recommendation{}
	for _, r := range resource.Decide(in).Containers {
		out[r.Container] = r
	}

	return out
}

// vpaMargin is the margin of the bounds of VerticalPodAutoscaler.
const vpaMargin = 0.15

// quantilePolicy returns a policy that requests a plain quantile of the usage in the same window.
func quantilePolicy(p rightsize.Policy, q, margin float64) rightsize.Policy {
	cpu := &p.CPU
	memory := &p.Memory
	cpu.Method = rightsize.Percentile
	cpu.Envelope = rightsize.EnvelopePolicy{}
	setRatio(&cpu.Percentile, q)

	setRatio(&memory.Percentile, q)
	setRatio(&cpu.Margin, margin)
	setRatio(&memory.Margin, margin)
	memory.TailMargin = 0
	memory.MaxMargin = 0
	p.Specifications = nil

	return p
}

func setRatio[T ~float64](to *T, v float64) { *to = T(v) }

func amountOrZero[T ~int64](v *T) float64 {
	if v == nil {
		return 0
	}

	return float64(*v)
}

// newEstimate converts a sizing to an estimate. Its bounds are those of VerticalPodAutoscaler: the median and the 95th percentile,
// wider after fewer observed days. Source: k8s.io/autoscaler, vertical-pod-autoscaler/docs/components.md, with confidence = observed
// days: upper * (1 + 1/c), lower * (1 + 0.001/c)^-2.
func newEstimate(s rightsize.Sizing, value, lower, upper float64) Estimate {
	out := Estimate{Estimator: TypePercentile, Reason: s.Message}
	if s.Status != rightsize.Ready || value <= 0 {
		out.Pending = s.Message
		return out
	}

	out.Value = value
	// Whole days keep the bounds constant between hours.
	days := math.Max(1, math.Floor(s.Days))
	out.Lower = min(value, lower*math.Pow(1+0.001/days, -2))
	out.Upper = max(value, upper*(1+1/days))

	return out
}
