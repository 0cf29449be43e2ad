// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// Types of the estimators that Crane has. Any other is somebody else's.
const (
	TypePercentile = "Percentile"
	TypeOOM        = "OOM"
	TypeForecast   = "Forecast"
	TypeExternal   = "External"
)

// policyKey names one of Crane's policies in place of gocrane's settings.
const policyKey = "policy"

// PercentileEstimator estimates from what containers used, by a policy of package rightsize.
type PercentileEstimator struct{ policies rightsize.PolicySet }

// ParsePercentileEstimator reads the settings of the percentile estimator: none, which is Crane's own policy, or that of the class that a
// workload is annotated with; "policy", the name of one; or those of gocrane's estimator:
//
//	cpu-request-percentile 0.99, cpu-request-margin-fraction 0.15, cpu-model-history-length 24h
//	mem-request-percentile 0.99, mem-request-margin-fraction 0.15, mem-model-history-length 48h
//
// with the meaning that rightsize.GocranePolicy gives them. cpu-model-init-mode and mem-model-init-mode are accepted and have
// no effect: history is always read.
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
	for key, value := range map[string]string{"cpu-model-history-length": "24h", "mem-model-history-length": "48h"} {
		if _, given := rest[key]; !given {
			rest[key] = value
		}
	}
	policy, err := rightsize.GocranePolicy(rest)
	if err != nil {
		return PercentileEstimator{}, fmt.Errorf("config: %w", err)
	}
	return PercentileEstimator{rightsize.PolicySet{Default: policy, IgnoreClasses: true}}, nil
}

// Window is how far back it looks.
func (p PercentileEstimator) Window() time.Duration { return p.policies.Window() }

// Policy is the one that a workload is sized by. Kills are the OOM estimator's.
func (p PercentileEstimator) Policy(of rightsize.Subject) rightsize.Policy {
	policy, _ := p.policies.For(of)
	policy.Memory.OOM.Enabled = false
	return policy
}

// Estimate says what each container of a workload needs. in is the workload's, with the policy that Policy returns.
func (p PercentileEstimator) Estimate(in resource.Input, priority int) map[string]map[Resource]Estimate {
	in.MaxCPU, in.MaxMemory, in.Autoscaler = 0, 0, nil // Bounds and autoscalers are looked at once, with all estimates.
	containers := make([]resource.Container, len(in.Containers))
	for i, c := range in.Containers {
		c.HPA, c.OOMs = nil, nil
		containers[i] = c
	}
	in.Containers = containers
	low, high := in, in
	low.Policy, high.Policy = quantilePolicy(in.Policy, 0.5, 0), quantilePolicy(in.Policy, 0.95, vpaMargin)
	lower, upper := recommendations(low), recommendations(high)
	out := map[string]map[Resource]Estimate{}
	for _, r := range resource.Decide(in).Containers {
		l, u := lower[r.Container], upper[r.Container]
		cpu := newEstimate(r.CPU, amountOrZero(r.Target.CPURequest), amountOrZero(l.Target.CPURequest), amountOrZero(u.Target.CPURequest))
		memory := newEstimate(r.Memory, amountOrZero(r.Target.MemoryRequest), amountOrZero(l.Target.MemoryRequest), amountOrZero(u.Target.MemoryRequest))
		cpu.Priority, memory.Priority = priority, priority
		out[r.Container] = map[Resource]Estimate{CPU: cpu, Memory: memory}
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

// vpaMargin is what the bounds of VerticalPodAutoscaler have on top.
const vpaMargin = 0.15

// quantilePolicy is a policy that takes a plain quantile of what was used in the same window.
func quantilePolicy(p rightsize.Policy, q, margin float64) rightsize.Policy {
	cpu, memory := &p.CPU, &p.Memory
	cpu.Method, cpu.Envelope = rightsize.Percentile, rightsize.EnvelopePolicy{}
	setRatio(&cpu.Percentile, q)
	setRatio(&memory.Percentile, q)
	setRatio(&cpu.Margin, margin)
	setRatio(&memory.Margin, margin)
	memory.TailMargin, memory.MaxMargin = 0, 0
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

// newEstimate is a sizing as an estimate. Its bounds are those of VerticalPodAutoscaler: the median and the 95th percentile, the
// further away the fewer days were observed. Source: k8s.io/autoscaler, vertical-pod-autoscaler/docs/components.md, with
// confidence = observed days: upper * (1 + 1/c), lower * (1 + 0.001/c)^-2.
func newEstimate(s rightsize.Sizing, value, lower, upper float64) Estimate {
	out := Estimate{Estimator: TypePercentile, Reason: s.Message}
	if s.Status != rightsize.Ready || value <= 0 {
		out.Pending = s.Message
		return out
	}
	out.Value = value
	// In whole days, so that the bounds do not move by the hour.
	days := math.Max(1, math.Floor(s.Days))
	out.Lower = min(value, lower*math.Pow(1+0.001/days, -2))
	out.Upper = max(value, upper*(1+1/days))
	return out
}
