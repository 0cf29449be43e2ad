// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
	"crane.io/crane/pkg/vertical"
)

// Answer is the recommendation for the container app of one namespace.
type Answer struct {
	// Rows is the number of workloads with that container.
	Rows int
	// CPU is in cores and Memory in bytes; 0 without a number.
	CPU, Memory float64
	// CPUText and MemoryText are the messages and findings of each resource.
	CPUText, MemoryText string
}

// Answers are those of one server.
type Answers struct {
	// Notes is everything that is printed beside the recommendations, with the error if there is one.
	Notes string
	// Failed is set if there is an error instead of recommendations.
	Failed      bool
	ByNamespace map[string]Answer

	items []sizereport.Item
}

// serve writes series to a new server below a directory.
func serve(ctx context.Context, dir string, all []*Series) (*promserver.Server, error) {
	dir, err := os.MkdirTemp(dir, "store")
	if err != nil {
		return nil, fmt.Errorf("creating a data directory: %w", err)
	}

	grid := promserver.Grid{Start: start(), End: end(), Step: time.Minute}
	if _, err := promserver.WriteBlocks(ctx, dir, grid, store(all)); err != nil {
		return nil, err
	}

	return promserver.Open(promserver.Options{Dir: dir, Now: end})
}

// recommend returns the answers of `crane recommend` without a Kubernetes API. matchers are those of --prometheus-labels.
func recommend(ctx context.Context, server serverURL, policyName, matchers string) (Answers, error) {
	policy, err := rightsize.PolicyByName(policyName)
	if err != nil {
		return Answers{}, err
	}

	prices, err := pricebook.Load("")
	if err != nil {
		return Answers{}, err
	}

	var notes bytes.Buffer
	policies := rightsize.PolicySet{Default: policy}
	prometheus := historyserver.NewServer()
	prometheus.Address = server.URL()
	prometheus.Labels = matchers
	prometheus.Now = end

	collector := &sizereport.Collector{
		Prometheus:      prometheus,
		Kubernetes:      &clusteraccess.Access{},
		SelectWorkloads: func(all []workload.Workload) ([]workload.Workload, error) { return all, nil },
		Policies:        policies,
		HistoryLength:   policies.Window(),
		Prices:          prices,
		Cache:           profile.CacheConfig{Off: true}, // Servers reuse ports.
		Output:          &notes,
		Now:             end,
	}

	report, err := collector.Collect(ctx)
	out := Answers{ByNamespace: map[string]Answer{}}
	if ctx.Err() != nil {
		return out, ctx.Err()
	}

	if err != nil {
		out.Failed = true
		out.Notes = notes.String() + err.Error()
		return out, nil //nolint:nilerr // A refusal is an answer.
	}

	out.Notes = notes.String() + strings.Join(report.Sources.Missing, "\n")
	out.items = report.Items
	for _, item := range report.Items {
		for _, c := range item.Plan.Containers {
			out.add(item.Workload.Namespace, c)
		}
	}

	return out, nil
}

// add adds the recommendation for one container.
func (a *Answers) add(namespace string, c rightsize.Recommendation) {
	if c.Container != "app" {
		return
	}

	answer := a.ByNamespace[namespace]
	answer.Rows++
	answer.CPU = cores(c.Target.CPURequest)
	answer.Memory = amount(c.Target.MemoryRequest)
	answer.CPUText = sizingText(c.CPU)
	answer.MemoryText = sizingText(c.Memory)
	a.ByNamespace[namespace] = answer
}

func cores(v *units.MilliCPU) float64 { return amount(v) / 1000 }

func amount[T units.MilliCPU | units.Bytes](v *T) float64 {
	if v == nil {
		return 0
	}

	return float64(*v)
}

// sizingText returns everything that a reader is shown about one resource.
func sizingText(s rightsize.Sizing) string {
	lines := []string{s.Message}
	for _, f := range s.Flags {
		lines = append(lines, string(f.Code)+": "+f.Detail)
	}

	return strings.Join(lines, "; ")
}

// ruleAndAutoscaler returns the answers for the same workloads as a RecommendationRule and as the estimator of an EffectiveVPA
// compute them: they read the history namespace by namespace, with a cache.
func ruleAndAutoscaler(
	ctx context.Context, server serverURL, policyName, namespace string, from Answers,
) (rule, autoscaler Answer, err error) {
	prometheus := historyserver.NewServer()
	prometheus.Address = server.URL()
	prometheus.Now = end
	source, err := prometheus.Open()
	if err != nil {
		return rule, autoscaler, err
	}

	var workloads []workload.Workload
	for _, item := range from.items {
		if item.Workload.Namespace == namespace {
			workloads = append(workloads, item.Workload)
		}
	}

	estimator, err := vertical.ParsePercentileEstimator(map[string]string{"policy": policyName})
	if err != nil {
		return rule, autoscaler, err
	}

	kills, err := vertical.ParseOOMEstimator(nil)
	if err != nil {
		return rule, autoscaler, err
	}

	history := profile.Source{Capabilities: source.Capabilities().WithCache()}
	usage, err := profile.Collect(ctx, history, profile.Request{Workloads: workloads, End: end(), Length: estimator.Window()})
	if err != nil {
		return rule, autoscaler, err
	}

	usage.SetConstraints(workload.Constraints{MaxCPU: nodeCPU * 1000, MaxMemory: nodeMemory})
	for _, w := range workloads {
		policy, err := rightsize.PolicyByName(policyName)
		if err != nil {
			return rule, autoscaler, err
		}

		answers := Answers{ByNamespace: map[string]Answer{}}
		for _, c := range decide(usage.ResourceInput(w, policy, end())) {
			answers.add(namespace, c)
		}
		rule = answers.ByNamespace[namespace]

		in := usage.ResourceInput(w, estimator.Policy(w.Subject()), end())
		autoscaler = autoscalerAnswer(estimator, kills, w, in)
	}

	return rule, autoscaler, nil
}

// decide returns the recommendations for one workload.
func decide(in resource.Input) []rightsize.Recommendation { return resource.Decide(in).Containers }

// autoscalerAnswer returns the larger of the estimates from usage and from kills.
func autoscalerAnswer(p vertical.PercentileEstimator, o vertical.OOMEstimator, w workload.Workload, in resource.Input) Answer {
	estimates := p.Estimate(in, 0)["app"]
	out := Answer{
		Rows:       1,
		CPU:        min(estimates[units.CPU].Value/1000, nodeCPU),
		Memory:     min(estimates[units.Memory].Value, nodeMemory),
		CPUText:    estimates[units.CPU].Reason,
		MemoryText: estimates[units.Memory].Reason,
	}

	if e, ok := o.Estimate(w.Name, in, 0)["app"]; ok && e.Value > out.Memory {
		out.Memory = min(e.Value, nodeMemory)
		out.MemoryText = e.Reason
	}

	return out
}
