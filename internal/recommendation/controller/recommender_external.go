// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/recommend"
)

// newExternalRecommender adapts a recommender of the program that craned was built into.
func newExternalRecommender(r recommend.Recommender) recommender {
	supports := supportsWorkloads
	if r.Supports != nil {
		supports = func(ref workload.Ref) bool { return r.Supports(ref.APIVersion, ref.Kind) }
	}

	return recommender{
		name:     r.Name,
		external: true,
		supports: supports,
		configure: func(settings map[string]string) (evaluator, error) {
			evaluation, err := r.Configure(settings)
			if err != nil {
				return nil, err
			}

			needs := evaluation.Prepare()
			if needs.Usage < 0 || needs.Totals && needs.Usage == 0 {
				return nil, fmt.Errorf("recommender %s: a history of %s cannot be read (totals: %t)", r.Name, needs.Usage, needs.Totals)
			}

			return externalEvaluator{evaluation: evaluation, needs: needs}, nil
		},
	}
}

// externalEvaluator gives an external recommender its observations and encodes what it recommends.
type externalEvaluator struct {
	evaluation recommend.Evaluation
	needs      recommend.Needs
}

func (e externalEvaluator) usageWindow() time.Duration { return e.needs.Usage }
func (e externalEvaluator) needsTotals() bool          { return e.needs.Totals }

func (e externalEvaluator) gather(ctx context.Context, d *runData, _ []workload.Workload) error {
	if e.needs.Usage == 0 {
		_, err := d.constraints(ctx)
		return err
	}

	_, err := d.usage(ctx)

	return err
}

func (e externalEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	recommendation, err := e.evaluation.Recommend(e.observe(d, target))
	if err != nil {
		return decision{}, err
	}

	if err := recommendation.Validate(); err != nil {
		return decision{}, err
	}

	out := decision{plan: recommendation.Plan}
	if recommendation.Recommended != nil {
		current, err := json.Marshal(recommendation.Current)
		if err != nil {
			return decision{}, fmt.Errorf("encoding the current state: %w", err)
		}

		recommended, err := json.Marshal(recommendation.Recommended)
		if err != nil {
			return decision{}, fmt.Errorf("encoding the recommended state: %w", err)
		}

		out.current = string(current)
		out.recommended = string(recommended)
	}

	if recommendation.Value != nil {
		value, err := yaml.Marshal(recommendation.Value)
		if err != nil {
			return decision{}, fmt.Errorf("encoding the recommended value: %w", err)
		}

		out.value = string(value)
	}

	return out, nil
}

// observe returns what the batch knows of a target.
func (e externalEvaluator) observe(d *runData, target workload.Workload) recommend.Observation {
	out := recommend.Observation{
		Now: d.historyEnd,
		Target: recommend.Target{
			APIVersion: target.APIVersion,
			Kind:       target.Kind,
			Namespace:  target.Namespace,
			Name:       target.Name,
			Labels:     target.Labels,
			Replicas:   target.Replicas,
		},
		MaxCPU:    d.read.constraints.MaxCPU,
		MaxMemory: d.read.constraints.MaxMemory,
	}

	for _, c := range target.Containers {
		container := recommend.Container{
			Name:    c.Name,
			Init:    c.Role == workload.Init,
			Sidecar: c.Role == workload.Sidecar,
			Current: profile.CurrentResources(c),
		}

		if e.needs.Usage > 0 {
			container.Usage = d.read.usage.Profile(target.Ref, c.Name)
		}

		out.Target.Containers = append(out.Target.Containers, container)
	}

	if e.needs.Totals {
		out.CPU, out.Memory = d.read.usage.Totals(target.Ref)
	}

	return out
}
