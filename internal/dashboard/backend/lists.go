// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
)

const (
	// costWindow is the window of the mean usage of costs.
	costWindow = time.Hour
	// loadAge is the age up to which a load of a node is shown: gocrane's longest expiry, 3 days, is too old to act on today.
	loadAge = time.Hour
)

// Rules implements dashboard.Backend.
func (v *ruleView) Rules(ctx context.Context) (contract.RuleList, error) {
	if v.fromFiles() {
		return contract.RuleList{}, dashboard.NotServed("files have no rules", "")
	}

	return valueOf(ctx, v.rules, func(out *contract.RuleList, stale string) { out.Stale = stale })
}

// valueOf returns a copy of a shared value with the reason why it is stale.
func valueOf[T any](ctx context.Context, source *dashboard.Shared[T], setStale func(out *T, stale string)) (out T, err error) {
	found, _, stale, err := source.Get(ctx)
	if err != nil {
		return out, err
	}

	out = *found
	setStale(&out, stale)
	return out, nil
}

func (v *ruleView) readRules(ctx context.Context) (*contract.RuleList, error) {
	out := &contract.RuleList{Origin: v.origin(), Rules: []contract.Rule{}, Recommenders: recommenderNames()}
	c, err := v.Access.ObjectClient()
	if err != nil {
		return nil, err
	}

	var list analysisv1alpha1.RecommendationRuleList
	if err := c.List(ctx, &list); err != nil {
		return nil, unavailable(err)
	}

	for i := range list.Items {
		rule := &list.Items[i]
		// The YAML is what a user would write: without status and managed fields.
		rule.ManagedFields = nil
		text, err := documents.YAML(map[string]any{
			"apiVersion": analysisv1alpha1.GroupVersion.String(), "kind": "RecommendationRule", "metadata": map[string]any{"name": rule.Name}, "spec": rule.Spec,
		})
		if err != nil {
			return nil, fmt.Errorf("encoding rule %s: %w", rule.Name, err)
		}

		entry := contract.Rule{
			Name:       rule.Name,
			Interval:   rule.Spec.RunInterval,
			RunNumber:  int64(rule.Status.RunNumber),
			Conditions: conditionsOf(rule.Status.Conditions),
			YAML:       string(text),
		}

		for _, r := range rule.Spec.Recommenders {
			entry.Recommenders = append(entry.Recommenders, r.Name)
		}

		for _, s := range rule.Spec.ResourceSelectors {
			entry.Kinds = append(entry.Kinds, s.Kind)
		}

		if !rule.Spec.NamespaceSelector.Any {
			entry.Namespaces = rule.Spec.NamespaceSelector.MatchNames
		}

		if rule.Status.Targets != nil {
			n := int64(*rule.Status.Targets)
			entry.Targets = &n
		}

		if at := rule.Status.LastUpdateTime; at != nil {
			entry.LastRun = at.Unix()
		}
		out.Rules = append(out.Rules, entry)
	}

	return out, nil
}

// recommenderNames are the built-in recommenders, for a new rule.
func recommenderNames() []string {
	return []string{
		string(analysisv1alpha1.AnalysisTypeResource), string(analysisv1alpha1.AnalysisTypeReplicas), string(analysisv1alpha1.AnalysisTypeHPA),
		string(analysisv1alpha1.AnalysisTypeIdleNode), string(analysisv1alpha1.AnalysisTypeVolume), string(analysisv1alpha1.AnalysisTypeService),
		string(analysisv1alpha1.AnalysisTypeUnused), string(analysisv1alpha1.AnalysisTypePacking), string(analysisv1alpha1.AnalysisTypeThrottle),
		string(analysisv1alpha1.AnalysisTypeGPU),
	}
}

func conditionsOf(all []metav1.Condition) []contract.Condition {
	out := []contract.Condition{}
	for _, c := range all {
		out = append(out, contract.Condition{
			Type:    c.Type,
			Status:  string(c.Status),
			Reason:  c.Reason,
			Message: c.Message,
			At:      dashboard.Unix(c.LastTransitionTime.Time),
		})
	}

	return out
}

func int64Of(v *int32) *int64 {
	if v == nil {
		return nil
	}

	n := int64(*v)
	return &n
}

// Autoscaling implements dashboard.Backend.
func (v *autoscalingView) Autoscaling(ctx context.Context) (contract.Autoscaling, error) {
	if v.fromFiles() {
		return contract.Autoscaling{}, dashboard.NotServed("files have no autoscalers", "")
	}

	return valueOf(ctx, v.autoscalers, func(out *contract.Autoscaling, stale string) { out.Stale = stale })
}

func (v *autoscalingView) readAutoscalers(ctx context.Context) (*contract.Autoscaling, error) {
	out := &contract.Autoscaling{Origin: v.origin(), Horizontal: []contract.HorizontalAutoscaler{}, Vertical: []contract.VerticalAutoscaler{}}
	c, err := v.Access.ObjectClient()
	if err != nil {
		return nil, err
	}

	scope, err := v.namespaces(ctx)
	if err != nil {
		return nil, err
	}

	// The scope is one empty name for all namespaces, or each namespace that the user may list.
	for _, namespace := range scope {
		var horizontal autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
		if err := c.List(ctx, &horizontal, client.InNamespace(namespace)); err != nil {
			return nil, unavailable(err)
		}

		for i := range horizontal.Items {
			out.Horizontal = append(out.Horizontal, horizontalOf(v.ClusterName, &horizontal.Items[i]))
		}

		var vertical autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
		if err := c.List(ctx, &vertical, client.InNamespace(namespace)); err != nil {
			return nil, unavailable(err)
		}

		for i := range vertical.Items {
			out.Vertical = append(out.Vertical, verticalOf(v.ClusterName, &vertical.Items[i]))
		}
	}

	return out, nil
}

func verticalOf(cluster string, o *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) contract.VerticalAutoscaler {
	autoscaler := contract.VerticalAutoscaler{
		Cluster:    cluster,
		Namespace:  o.Namespace,
		Name:       o.Name,
		Decisions:  []contract.VerticalDecision{},
		Conditions: conditionsOf(o.Status.Conditions),
		Target: contract.Target{
			Cluster:   cluster,
			Namespace: o.Namespace,
			Kind:      o.Spec.TargetRef.Kind,
			Name:      o.Spec.TargetRef.Name,
		},
	}

	if o.Spec.UpdatePolicy != nil && o.Spec.UpdatePolicy.UpdateMode != nil {
		autoscaler.UpdateMode = string(*o.Spec.UpdatePolicy.UpdateMode)
	}

	// A decision without a request keeps the present one.
	for _, d := range o.Status.Decisions {
		decision := contract.VerticalDecision{
			Container: d.ContainerName,
			Resource:  string(d.Resource),
			Action:    string(d.Action),
			Estimator: d.Estimator,
			Message:   d.Reason,
		}

		if d.Request != nil {
			decision.Target = d.Request.String()
		}
		autoscaler.Decisions = append(autoscaler.Decisions, decision)
	}

	return autoscaler
}

func horizontalOf(cluster string, o *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) contract.HorizontalAutoscaler {
	out := contract.HorizontalAutoscaler{
		Cluster:     cluster,
		Namespace:   o.Namespace,
		Name:        o.Name,
		Strategy:    string(o.Spec.ScaleStrategy),
		MinReplicas: 1,
		MaxReplicas: int64(o.Spec.MaxReplicas),
		Target: contract.Target{
			Cluster:   cluster,
			Namespace: o.Namespace,
			Kind:      o.Spec.ScaleTargetRef.Kind,
			Name:      o.Spec.ScaleTargetRef.Name,
		},
		CurrentReplicas: int64Of(o.Status.CurrentReplicas),
		DesiredReplicas: int64Of(o.Status.ExpectReplicas),
		Autoscaler:      o.Status.Autoscaler,
		Winner:          o.Status.Winner,
		Why:             o.Status.Why,
		Proposals:       []contract.Proposal{},
		Conditions:      conditionsOf(o.Status.Conditions),
	}

	if o.Spec.MinReplicas != nil {
		out.MinReplicas = int64(*o.Spec.MinReplicas)
	}
	if at := o.Status.LastScaleTime; at != nil {
		out.LastScale = at.Unix()
	}

	for _, p := range o.Status.Proposals {
		proposal := contract.Proposal{
			Name:     p.Name,
			Kind:     "metric",
			Replicas: int64Of(p.Replicas),
			Current:  p.Current,
			Target:   p.Target,
			Message:  p.Message,
		}

		// Proposals have no kind of their own: their names tell forecasts and schedules from measured metrics.
		switch {
		case strings.HasPrefix(p.Name, "prediction of "):
			proposal.Kind = "forecast"
		case strings.HasPrefix(p.Name, "cron "):
			proposal.Kind = "cron"
		case proposal.Replicas != nil && (out.WithoutForecast == nil || *proposal.Replicas > *out.WithoutForecast):
			out.WithoutForecast = proposal.Replicas
		}

		out.Proposals = append(out.Proposals, proposal)
	}

	out.Crons = cronsOf(o)
	if p := o.Spec.Prediction; p != nil {
		out.Prediction = &contract.PredictionInfo{Algorithm: "auto"}
		if p.PredictionAlgorithm != nil && p.PredictionAlgorithm.AlgorithmType != "" {
			out.Prediction.Algorithm = string(p.PredictionAlgorithm.AlgorithmType)
		}
		if p.PredictionWindowSeconds != nil {
			out.Prediction.WindowSeconds = int64(*p.PredictionWindowSeconds)
		}
	}

	return out
}

// cronsOf returns the schedules of an autoscaler with the state that its status has of them.
func cronsOf(o *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []contract.Cron {
	var out []contract.Cron
	for _, spec := range o.Spec.Crons {
		schedule := contract.Cron{
			Name:     spec.CronName,
			Start:    string(spec.Start),
			End:      string(spec.End),
			Replicas: int64(spec.TargetReplicas),
		}

		if spec.TimeZone != nil {
			schedule.TimeZone = *spec.TimeZone
		}

		for _, s := range o.Status.Crons {
			if s.Name == spec.CronName {
				schedule.Active, schedule.Message = s.Active, s.Message
				if s.NextStart != nil {
					schedule.NextStart = s.NextStart.Unix()
				}
				if s.NextEnd != nil {
					schedule.NextEnd = s.NextEnd.Unix()
				}
			}
		}

		out = append(out, schedule)
	}

	return out
}
