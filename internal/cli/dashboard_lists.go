// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/nodeload"
)

const (
	// costWindow is the window of the mean usage of costs.
	costWindow = time.Hour
	// loadAge is the age up to which a load of a node is shown: gocrane's longest expiry, 3 days, is too old to act on today.
	loadAge = time.Hour
)

// origin names the API server as the source.
func (v *clusterView) origin() contract.Origin {
	return contract.Origin{AsOf: v.clock.Now().Unix(), Source: v.personal.serverName()}
}

// Health implements dashboard.Backend.
func (v *clusterView) Health(ctx context.Context) (contract.Health, error) {
	out := contract.Health{Origin: v.origin(), Checks: []contract.Check{}, Server: []contract.Check{}}
	if v.fromFiles() {
		return out, dashboard.NotServed("files have no cluster", "")
	}
	c, err := v.personal.objectClient()
	if err != nil {
		return out, err
	}
	found, err := readStatus(ctx, c, v.clock.Now())
	if err != nil {
		return out, unavailable(v.personal.serverName(), err)
	}
	for _, c := range found.checks {
		out.Checks = append(out.Checks, contract.Check{Name: c.Name, Status: string(c.Status), Detail: c.Detail, Next: c.Advice})
	}
	_, at, stale, err := v.objects.Get(ctx)
	switch {
	case err != nil:
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(statusWarn), Detail: err.Error()})
	case stale != "":
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(statusWarn), Detail: stale})
	default:
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(statusOK), Detail: "read at " + at.UTC().Format("15:04:05") + " UTC, shared by all pages for " + rowsTTL.String()})
	}
	return out, nil
}

// readCosts allocates the cost of the nodes, as crane cost does.
func (v *clusterView) readCosts(ctx context.Context) (*costReport, error) {
	o := &costOptions{prometheus: v.server(), kubernetes: v.personal, by: byWorkload, window: "1h", windowLength: costWindow, prices: v.prices}
	found, err := o.gather(ctx, Streams{Out: io.Discard, Err: io.Discard})
	if err != nil {
		return nil, historyFailure(err)
	}
	return found, nil
}

// Cost implements dashboard.Backend.
func (v *clusterView) Cost(ctx context.Context, of dashboard.CostQuery) (contract.Cost, error) {
	if v.fromFiles() {
		return contract.Cost{}, dashboard.NotServed("files have no cost", "")
	}
	if !slices.Contains([]string{byNamespace, byWorkload, byNode, "pool"}, of.By) || of.Window != costWindow {
		return contract.Cost{}, dashboard.NotServed("costs are served by namespace, workload, node and pool, with the usage of the last hour", "crane cost --window has other windows")
	}
	found, at, stale, err := v.costs.Get(ctx)
	if err != nil {
		return contract.Cost{}, err
	}
	share := func(s cost.Shares) contract.CostShare {
		out := contract.CostShare{RequestPerMonth: s.Request.Total().PerMonth(), MaxPerMonth: s.Max.Total().PerMonth()}
		if found.withUsage {
			used := s.Usage.Total().PerMonth()
			out.UsagePerMonth = &used
		}
		return out
	}
	whole, idle := found.Allocation.Cluster.Total().PerMonth(), share(found.Idle)
	out := contract.Cost{
		Origin:   contract.Origin{AsOf: at.Unix(), WindowSeconds: int64(costWindow.Seconds()), Source: strings.Join([]string{found.sources.nodes, found.sources.history}, ", "), Stale: stale},
		Currency: v.prices.Currency, By: of.By, Rows: []contract.CostRow{}, ClusterPerMonth: &whole, Idle: &idle, WithUsage: found.withUsage,
	}
	switch of.By {
	case byNamespace:
		for _, n := range found.Namespaces {
			out.Rows = append(out.Rows, contract.CostRow{Name: n.Namespace, Pods: n.Pods, CostShare: share(n.Cost)})
		}
	case byWorkload:
		for _, w := range found.Workloads {
			out.Rows = append(out.Rows, contract.CostRow{Name: w.String(), Pods: w.Pods, CostShare: share(w.Cost)})
		}
	default:
		out.Rows = nodeCosts(found, of.By == "pool")
	}
	return out, nil
}

// nodeCosts returns the price of each node, or of each group of nodes: by each measure, the part that pods pay.
func nodeCosts(r *costReport, byPool bool) []contract.CostRow {
	rows := []contract.CostRow{}
	index := map[string]int{}
	for _, n := range r.Nodes {
		name := n.Node
		if byPool {
			name = n.Group
		}
		i, ok := index[name]
		if !ok {
			i = len(rows)
			index[name] = i
			rows = append(rows, contract.CostRow{Name: name})
		}
		row := &rows[i]
		row.Pods += n.Pods
		price := n.Cost.Total().PerMonth()
		row.RequestPerMonth += price - n.Idle.Request.Total().PerMonth()
		row.MaxPerMonth += price - n.Idle.Max.Total().PerMonth()
		if r.withUsage {
			used := price - n.Idle.Usage.Total().PerMonth()
			if row.UsagePerMonth != nil {
				used += *row.UsagePerMonth
			}
			row.UsagePerMonth = &used
		}
	}
	return rows
}

// Rules implements dashboard.Backend.
func (v *clusterView) Rules(ctx context.Context) (contract.RuleList, error) {
	if v.fromFiles() {
		return contract.RuleList{}, dashboard.NotServed("files have no rules", "")
	}
	return valueOf(ctx, v.rules, func(out *contract.RuleList, stale string) { out.Stale = stale })
}

// valueOf returns a copy of a shared value with the reason why it is stale.
func valueOf[T any](ctx context.Context, of *dashboard.Shared[T], setStale func(out *T, stale string)) (out T, err error) {
	found, _, stale, err := of.Get(ctx)
	if err != nil {
		return out, err
	}
	out = *found
	setStale(&out, stale)
	return out, nil
}

func (v *clusterView) readRules(ctx context.Context) (*contract.RuleList, error) {
	out := &contract.RuleList{Origin: v.origin(), Rules: []contract.Rule{}}
	c, err := v.access.objectClient()
	if err != nil {
		return nil, err
	}
	var list analysisv1alpha1.RecommendationRuleList
	if err := c.List(ctx, &list); err != nil {
		return nil, unavailable(v.access.serverName(), err)
	}
	for i := range list.Items {
		rule := &list.Items[i]
		rule.ManagedFields = nil
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": analysisv1alpha1.GroupVersion.String(), "kind": "RecommendationRule", "metadata": map[string]any{"name": rule.Name}, "spec": rule.Spec,
		})
		if err != nil {
			return nil, fmt.Errorf("failed to encode rule %s: %w", rule.Name, err)
		}
		one := contract.Rule{Name: rule.Name, Interval: rule.Spec.RunInterval, RunNumber: int64(rule.Status.RunNumber), Conditions: conditionsOf(rule.Status.Conditions), YAML: string(text)}
		for _, r := range rule.Spec.Recommenders {
			one.Recommenders = append(one.Recommenders, r.Name)
		}
		for _, s := range rule.Spec.ResourceSelectors {
			one.Kinds = append(one.Kinds, s.Kind)
		}
		if !rule.Spec.NamespaceSelector.Any {
			one.Namespaces = rule.Spec.NamespaceSelector.MatchNames
		}
		if rule.Status.Targets != nil {
			n := int64(*rule.Status.Targets)
			one.Targets = &n
		}
		if at := rule.Status.LastUpdateTime; at != nil {
			one.LastRun = at.Unix()
		}
		out.Rules = append(out.Rules, one)
	}
	return out, nil
}

func conditionsOf(all []metav1.Condition) []contract.Condition {
	out := []contract.Condition{}
	for _, c := range all {
		out = append(out, contract.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, At: dashboard.Unix(c.LastTransitionTime.Time)})
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
func (v *clusterView) Autoscaling(ctx context.Context) (contract.Autoscaling, error) {
	if v.fromFiles() {
		return contract.Autoscaling{}, dashboard.NotServed("files have no autoscalers", "")
	}
	return valueOf(ctx, v.autoscalers, func(out *contract.Autoscaling, stale string) { out.Stale = stale })
}

func (v *clusterView) readAutoscalers(ctx context.Context) (*contract.Autoscaling, error) {
	out := &contract.Autoscaling{Origin: v.origin(), Horizontal: []contract.HorizontalAutoscaler{}, Vertical: []contract.VerticalAutoscaler{}}
	c, err := v.access.objectClient()
	if err != nil {
		return nil, err
	}
	scope, err := v.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, namespace := range scope {
		var horizontal autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
		if err := c.List(ctx, &horizontal, client.InNamespace(namespace)); err != nil {
			return nil, unavailable(v.access.serverName(), err)
		}
		for i := range horizontal.Items {
			out.Horizontal = append(out.Horizontal, v.horizontal(&horizontal.Items[i]))
		}
		var vertical autoscalingv1alpha1.EffectiveVerticalPodAutoscalerList
		if err := c.List(ctx, &vertical, client.InNamespace(namespace)); err != nil {
			return nil, unavailable(v.access.serverName(), err)
		}
		for i := range vertical.Items {
			out.Vertical = append(out.Vertical, v.vertical(&vertical.Items[i]))
		}
	}
	return out, nil
}

func (v *clusterView) vertical(o *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) contract.VerticalAutoscaler {
	one := contract.VerticalAutoscaler{
		Cluster: v.name, Namespace: o.Namespace, Name: o.Name, Decisions: []contract.VerticalDecision{}, Conditions: conditionsOf(o.Status.Conditions),
		Target: contract.Target{Cluster: v.name, Namespace: o.Namespace, Kind: o.Spec.TargetRef.Kind, Name: o.Spec.TargetRef.Name},
	}
	if o.Spec.UpdatePolicy != nil && o.Spec.UpdatePolicy.UpdateMode != nil {
		one.UpdateMode = string(*o.Spec.UpdatePolicy.UpdateMode)
	}
	for _, d := range o.Status.Decisions {
		decision := contract.VerticalDecision{Container: d.ContainerName, Resource: string(d.Resource), Action: string(d.Action), Estimator: d.Estimator, Message: d.Reason}
		if d.Request != nil {
			decision.Target = d.Request.String()
		}
		one.Decisions = append(one.Decisions, decision)
	}
	return one
}

func (v *clusterView) horizontal(o *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) contract.HorizontalAutoscaler {
	out := contract.HorizontalAutoscaler{
		Cluster: v.name, Namespace: o.Namespace, Name: o.Name, Strategy: string(o.Spec.ScaleStrategy), MinReplicas: 1, MaxReplicas: int64(o.Spec.MaxReplicas),
		Target:          contract.Target{Cluster: v.name, Namespace: o.Namespace, Kind: o.Spec.ScaleTargetRef.Kind, Name: o.Spec.ScaleTargetRef.Name},
		CurrentReplicas: int64Of(o.Status.CurrentReplicas), DesiredReplicas: int64Of(o.Status.ExpectReplicas), Autoscaler: o.Status.Autoscaler,
		Winner: o.Status.Winner, Why: o.Status.Why, Proposals: []contract.Proposal{}, Conditions: conditionsOf(o.Status.Conditions),
	}
	if o.Spec.MinReplicas != nil {
		out.MinReplicas = int64(*o.Spec.MinReplicas)
	}
	if at := o.Status.LastScaleTime; at != nil {
		out.LastScale = at.Unix()
	}
	for _, p := range o.Status.Proposals {
		one := contract.Proposal{Name: p.Name, Kind: "metric", Replicas: int64Of(p.Replicas), Current: p.Current, Target: p.Target, Message: p.Message}
		switch {
		case strings.HasPrefix(p.Name, "prediction of "):
			one.Kind = "forecast"
		case strings.HasPrefix(p.Name, "cron "):
			one.Kind = "cron"
		case one.Replicas != nil && (out.WithoutForecast == nil || *one.Replicas > *out.WithoutForecast):
			out.WithoutForecast = one.Replicas
		}
		out.Proposals = append(out.Proposals, one)
	}
	for _, spec := range o.Spec.Crons {
		one := contract.Cron{Name: spec.CronName, Start: string(spec.Start), End: string(spec.End), Replicas: int64(spec.TargetReplicas)}
		if spec.TimeZone != nil {
			one.TimeZone = *spec.TimeZone
		}
		for _, s := range o.Status.Crons {
			if s.Name == spec.CronName {
				one.Active, one.Message = s.Active, s.Message
				if s.NextStart != nil {
					one.NextStart = s.NextStart.Unix()
				}
				if s.NextEnd != nil {
					one.NextEnd = s.NextEnd.Unix()
				}
			}
		}
		out.Crons = append(out.Crons, one)
	}
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

// Nodes implements dashboard.Backend.
func (v *clusterView) Nodes(ctx context.Context) (contract.NodeList, error) {
	if v.fromFiles() {
		return contract.NodeList{}, dashboard.NotServed("files have no nodes", "")
	}
	return valueOf(ctx, v.nodes, func(out *contract.NodeList, stale string) { out.Stale = stale })
}

func (v *clusterView) readNodes(ctx context.Context) (*contract.NodeList, error) {
	out := &contract.NodeList{Origin: v.origin(), Currency: v.prices.Currency, Nodes: []contract.Node{}}
	lister, host, err := v.personal.lister()
	if err != nil {
		return nil, err
	}
	if err := lister.EachNode(ctx, func(n *corev1.Node) error {
		out.Nodes = append(out.Nodes, nodeOf(n, v.clock.Now()))
		return nil
	}); err != nil {
		return nil, unavailable(host, err)
	}
	cluster, err := lister.Cluster(ctx, nil)
	if err != nil {
		return nil, unavailable(host, err)
	}
	index := map[string]*contract.Node{}
	for i := range out.Nodes {
		index[out.Nodes[i].Name] = &out.Nodes[i]
	}
	for _, p := range cluster.Pods {
		if n := index[p.Node]; n != nil {
			n.Pods++
			n.CPURequested += int64(p.Requests.CPU)
			n.MemRequested += int64(p.Requests.Memory)
		}
	}
	return out, v.priceNodes(cluster.Nodes, index)
}

func (v *clusterView) priceNodes(nodes []cost.Node, index map[string]*contract.Node) error {
	tariff, err := cost.NewTariff(v.prices, nodes)
	if err != nil {
		return fmt.Errorf("failed to price the nodes: %w", err)
	}
	for _, q := range cost.Allocate(tariff, nil).Nodes {
		if n := index[q.Node]; n != nil {
			month := q.Cost.Total().PerMonth()
			n.PricePerMonth, n.Pool = &month, q.Group
		}
	}
	return nil
}

// nodeOf returns a node with its loads, without those that are older than loadAge.
func nodeOf(n *corev1.Node, now time.Time) contract.Node {
	out := contract.Node{
		Name: n.Name, Ready: workload.NodeReady(n), Unschedulable: n.Spec.Unschedulable,
		CPUMilli: n.Status.Allocatable.Cpu().MilliValue(), MemoryBytes: n.Status.Allocatable.Memory().Value(),
	}
	for key, text := range n.Annotations {
		if !strings.Contains(key, "_usage_") {
			continue
		}
		sample, err := nodeload.Format{}.ParseLoad(text)
		if err != nil || now.Sub(sample.Time) > loadAge {
			continue
		}
		if out.Loads == nil {
			out.Loads = map[string]float64{}
		}
		out.Loads[key] = float64(sample.Value)
		if at := sample.Time.Unix(); out.LoadAt == 0 || at < out.LoadAt {
			out.LoadAt = at
		}
	}
	if hot, err := (nodeload.Format{}).ParseHot(n.Annotations[nodeload.HotValueKey]); err == nil && now.Sub(hot.Time) <= loadAge {
		v := float64(hot.Value)
		out.HotValue = &v
	}
	for _, t := range n.Spec.Taints {
		if strings.Contains(t.Key, "crane.io") {
			out.Taints = append(out.Taints, t.Key+":"+string(t.Effect))
		}
	}
	return out
}
