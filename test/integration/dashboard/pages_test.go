// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/savings"
)

// createForecast creates an EffectiveHPA of the workload in shop with a published forecast of 0.3 cores.
func createForecast(t *testing.T) {
	t.Helper()

	ctx := t.Context()
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	ehpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}

	ehpa.Spec.MaxReplicas = 10
	ehpa.Spec.ScaleStrategy = autoscalingv1alpha1.ScaleStrategyPreview
	if err := admin.Create(ctx, ehpa); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), ehpa) })
	tsp := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ehpa-web"}}
	if err := controllerutil.SetControllerReference(ehpa, tsp, admin.Scheme()); err != nil {
		t.Fatal(err)
	}

	cpu := corev1.ResourceCPU
	tsp.Spec.PredictionWindowSeconds = 3600
	tsp.Spec.TargetRef = &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	tsp.Spec.PredictionMetrics = []predictionv1alpha1.PredictionMetric{{
		ResourceIdentifier: "resource.cpu", Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &cpu,
		Scaling: &predictionv1alpha1.ScalingPlant{PodCapacity: "0.1", Target: "0.5", LagSeconds: 60, StabilizationSeconds: 300},
	}}

	if err := admin.Create(ctx, tsp); err != nil {
		t.Fatal(err)
	}

	now := metav1.Now()
	status := predictionv1alpha1.PredictionMetricStatus{
		ResourceIdentifier: "resource.cpu", Ready: true, UpdateTime: &now, LastSampleTime: &now, Skill: "0.4",
		Scaling:    &predictionv1alpha1.ScalingChoice{Use: true, Quantile: "0.9", Fill: "0.5", LeadSeconds: 600},
		Prediction: []predictionv1alpha1.MetricTimeSeries{{}},
	}

	for i := range int64(60) {
		status.Prediction[0].Samples = append(status.Prediction[0].Samples, predictionv1alpha1.Sample{Value: "0.3", Timestamp: now.Truncate(time.Minute).Unix() + i*60})
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{status}
	if err := admin.Status().Update(ctx, tsp); err != nil {
		t.Fatal(err)
	}
}

// create creates objects until the test ends.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()

	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o) })
	}
}

// createScaler creates kim, who may read the autoscalers of shop and not its pods, whose usage is the history of a forecast.
func createScaler(t *testing.T) {
	t.Helper()

	meta := metav1.ObjectMeta{Namespace: "shop", Name: "kim"}
	create(t,
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"autoscaling.crane.io", "prediction.crane.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kim"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "shop", Name: "kim"}},
		})
}

// TestForecast checks history, published forecast, band and replicas of an EffectiveHPA, and the rights to them.
func TestForecast(t *testing.T) {
	createForecast(t)
	createScaler(t)

	f := serve(t)
	path := contract.PathForecast + "?namespace=shop&name=web"
	for name, want := range map[string]int{"eve": http.StatusForbidden, "kim": http.StatusForbidden, "root": http.StatusOK, "ann": http.StatusOK} {
		if status := f.login("shop", name).get(path, nil); status != want {
			t.Errorf("forecast for %s: status %d, want %d", name, status, want)
		}
	}

	f.takeQueries()
	var out contract.Forecast
	f.login("shop", "ann").get(path, &out)

	if len(out.Metrics) != 1 || !out.Metrics[0].Ready || !out.Metrics[0].Used || len(out.Notes) != 0 {
		t.Fatalf("forecast %+v, want one metric that is ready and used", out)
	}

	last := map[string]float64{}
	for _, s := range slices.Concat(out.Metrics[0].Series, out.Replicas) {
		for _, v := range s.V {
			if v != nil {
				last[s.Kind] = *v
			}
		}
	}

	for kind, want := range map[string]float64{"usage": 0.2, "forecast": 0.3, "forecastLow": 0.2, "forecastHigh": 0.2, "replicasAlone": 4, "replicasForecast": 6} {
		if got, ok := last[kind]; !ok || got < 0.95*want || got > 1.05*want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}

	for _, query := range f.takeQueries() {
		if !strings.Contains(query, `namespace="shop"`) && !aboutTheServer.MatchString(query) {
			t.Errorf("the history of a forecast sends the query %s, want the namespace shop in it", query)
		}
	}
}

func ruleOf(name, namespaces string) string {
	return fmt.Sprintf(`apiVersion: analysis.crane.io/v1alpha1
kind: RecommendationRule
metadata: {name: %s}
spec:
  runInterval: 24h
  namespaceSelector: {%s}
  resourceSelectors:
  - {kind: Deployment, apiVersion: apps/v1}
  recommenders:
  - name: Resource
`, name, namespaces)
}

// TestCreateRule checks the dry run of a rule, that it stores nothing, the rights to it, and that a creation is logged.
func TestCreateRule(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	root := f.login("shop", "root")

	var out contract.RuleResult
	request := contract.RuleRequest{YAML: ruleOf("web", "any: true"), DryRun: true}
	if status := root.post(contract.PathRules, request, &out); status != http.StatusOK || out.Created || out.Selected != 2 || len(out.Rows) != 2 {
		t.Fatalf("dry run: status %d, %+v, want two rows and nothing created", status, out)
	}

	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rule), rule); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run stores the rule: %v", err)
	}

	var refused contract.ErrorBody
	if status := ann.post(contract.PathRules, request, &refused); status != http.StatusForbidden {
		t.Errorf("dry run of ann: status %d, %+v, want 403", status, refused)
	}

	for name, text := range map[string]string{
		"an unknown field": ruleOf("web", "some: true"), "no name": strings.Replace(request.YAML, "{name: web}", "{}", 1), "another kind": "apiVersion: v1\nkind: Secret\n",
		"an interval": strings.Replace(request.YAML, "24h", "daily", 1), "no YAML": "{",
	} {
		if status := root.post(contract.PathRules, contract.RuleRequest{YAML: text, DryRun: true}, nil); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: status %d, want 422", name, status)
		}
	}

	request = contract.RuleRequest{YAML: ruleOf("web", "matchNames: [shop]")}
	if status := root.post(contract.PathRules, request, &out); status != http.StatusOK || !out.Created || out.Name != "web" {
		t.Fatalf("creation: status %d, %+v, want web created", status, out)
	}

	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), rule) })
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(rule), rule); err != nil {
		t.Error(err)
	}
	if log := f.logged(); strings.Count(log, `"action":"create rule"`) != 1 || !strings.Contains(log, `"rule":"web"`) {
		t.Errorf("audit log: %s, want one record of the creation", log)
	}

	var list contract.RuleList
	root.get(contract.PathRules, &list)

	if len(list.Rules) != 1 || len(list.Recommenders) != 10 {
		t.Errorf("rules: %+v, want one rule and 10 recommenders", list)
	}
	if status := root.post(contract.PathRules, request, nil); status != http.StatusConflict {
		t.Errorf("the same rule again: status %d, want 409", status)
	}
}

// TestOverview_SavingsAndOOMKills checks that the overview has what craned keeps: savings by day, what was promised and realized, and OOM kills, each with its
// source; and that a record that the person may not read is a note.
func TestOverview_SavingsAndOOMKills(t *testing.T) {
	f := serve(t)
	root := f.login("shop", "root")
	var out contract.Overview
	if status := root.get(contract.PathOverview, &out); status != http.StatusOK || len(out.Trend) != 0 || out.TrendSource != "" || len(out.OOMKills) != 0 {
		t.Errorf("without records: status %d, %+v, want 200 without a trend", status, out)
	}

	record := &savings.Record{}
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	for at := midnight.Add(-2 * 24 * time.Hour); !at.After(midnight); at = at.Add(time.Hour) {
		sample := savings.Sample{Currency: out.Currency, Cluster: 10, Namespaces: map[string]savings.Amounts{"shop": {Cost: 4, Promised: 2, Realized: 1, Available: 3}}}
		if err := record.Add(at, 2*time.Hour, sample); err != nil {
			t.Fatal(err)
		}
	}

	data, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}

	kill := fmt.Sprintf(`[{"Namespace":"shop","Pod":"web-6d4cf56db6-bbbbb","Container":"app","Memory":"1Gi","OOMAt":%q}]`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	for name, data := range map[string]map[string]string{"crane-savings": data, "oom-record": {"data": kill}} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name}, Data: data}
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), object) })
	}

	out = contract.Overview{}
	root.get(contract.PathOverview, &out)

	if out.CostWindowSeconds != 3600 || !strings.HasSuffix(out.CostSource, ", Prometheus") || len(out.Missing) != 0 {
		t.Errorf("cost from %q over %d s, missing %+v, want an hour from Prometheus without its address, and nothing missing", out.CostSource, out.CostWindowSeconds, out.Missing)
	}
	if len(out.Trend) != 2 || out.TrendSource != "ConfigMap crane-system/crane-savings" || *out.Trend[0].ClusterPerMonth != 7300 || *out.Trend[1].RecoverablePerMonth != 3*730 {
		t.Fatalf("trend from %s: %+v, want two days", out.TrendSource, out.Trend)
	}

	if a := out.Adoption; *a.PromisedPerMonth != 2*730 || *a.RealisedPerMonth != 730 || *a.Promised != 2*48 || *a.Realized != 48 || a.Since != midnight.Add(-48*time.Hour).Unix() {
		t.Errorf("adoption: %+v, want half of what was promised", a)
	}
	if len(out.OOMKills) != 1 || out.OOMKills[0].Target != (contract.Target{Cluster: "cluster", Namespace: "shop", Kind: "Deployment", Name: "web"}) || *out.OOMKills[0].MemoryBytes != 1<<30 || out.OOMSource == "" {
		t.Errorf("kills: %+v, want one of Deployment web with 1 GiB", out.OOMKills)
	}
	if !slices.ContainsFunc(out.Attention, func(a contract.Attention) bool { return a.Reason == "OOMKilled" && a.Target.Name == "web" }) {
		t.Errorf("attention: %+v, want OOMKilled of web", out.Attention)
	}

	out = contract.Overview{}
	f.login("shop", "ann").get(contract.PathOverview, &out)

	if len(out.Trend) != 0 || out.OOMKills != nil || out.Money.ClusterPerMonth != nil {
		t.Errorf("ann reads the records of the cluster: %+v, want none", out)
	}

	for part, want := range map[string]string{
		contract.MissingCost:  "list nodes in all namespaces",
		contract.MissingTrend: "get configmaps/crane-savings in namespace crane-system", contract.MissingOOMKills: "get configmaps/oom-record in namespace crane-system",
	} {
		if got := out.Missing[part]; got.Reason != contract.ReasonForbidden || got.Right != want {
			t.Errorf("missing %s of ann: %+v, want the right to %s", part, got, want)
		}
	}

	allowRecords(t)
	out = contract.Overview{}
	f.login("shop", "ann").get(contract.PathOverview, &out)

	if len(out.Trend) != 2 || len(out.OOMKills) != 1 || len(out.Missing) != 1 {
		t.Errorf("ann with the right to the records: %d days, %d kills, missing %+v, want 2, 1 and one missing", len(out.Trend), len(out.OOMKills), out.Missing)
	}
}

// allowRecords lets ann read the records of craned.
func allowRecords(t *testing.T) {
	t.Helper()

	meta := metav1.ObjectMeta{Namespace: "crane-system", Name: "records"}
	create(t,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"crane-savings", "oom-record"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "records"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "shop", Name: "ann"}},
		})
}

// createNode creates a node with two zones, load above its water mark, a pod with two cores of the first zone, and an action of the agent.
func createNode(t *testing.T) {
	t.Helper()

	now := time.Now().UTC()
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi")}
	half := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	zone := func(name string) topologyv1alpha1.Zone {
		return topologyv1alpha1.Zone{Name: name, Type: topologyv1alpha1.ZoneTypeNode, Resources: &topologyv1alpha1.ResourceInfo{Capacity: half, Allocatable: half}}
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Annotations: map[string]string{"cpu_usage_avg_5m": nodeload.Format{}.Load(nodeload.Sample{Value: 0.9, Time: now})}}}
	node.Status.Capacity = amounts
	node.Status.Allocatable = amounts
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pinned", Annotations: map[string]string{
		topologyv1alpha1.AnnotationPodTopologyResult: `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"2"}}}]`,
	}}}

	pod.Spec.NodeName = "worker-1"
	pod.Spec.AutomountServiceAccountToken = new(false)
	pod.Spec.ServiceAccountName = "ann"
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "db", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}}

	topology := &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}, Zones: []topologyv1alpha1.Zone{zone("node0"), zone("node1")}}
	topology.CraneManagerPolicy = topologyv1alpha1.ManagerPolicy{CPUManagerPolicy: topologyv1alpha1.CPUManagerPolicyStatic, TopologyManagerPolicy: topologyv1alpha1.TopologyManagerPolicySingleNUMANodePodLevel}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pinned.1"}, Reason: "CPUThrottled", Message: "limit from 2 to 1: the node is above 80 %",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "pinned"}, Source: corev1.EventSource{Component: "crane-agent", Host: "worker-1"},
		LastTimestamp: metav1.NewTime(now), Type: corev1.EventTypeNormal,
	}

	for _, o := range []client.Object{node, topology, pod, event} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o, client.GracePeriodSeconds(0)) })
	}
}

// TestNodes checks water marks, NUMA zones with pinned pods, and the actions of the agent; and costs by a label.
func TestNodes(t *testing.T) {
	createNode(t)
	f := serve(t)

	root := f.login("shop", "root")
	var out contract.NodeList
	if status := root.get(contract.PathNodes, &out); status != http.StatusOK || len(out.Nodes) != 1 {
		t.Fatalf("nodes: status %d, want 200 and one node: %+v", status, out)
	}

	n := out.Nodes[0]
	if out.WaterMarks["cpu_usage_avg_5m"] != 0.75 || !slices.Equal(n.Above, []string{"cpu_usage_avg_5m"}) || !slices.ContainsFunc(out.Notes, func(s string) bool { return strings.Contains(s, "built-in policy") }) {
		t.Errorf("water marks %v, above %v, loads %v, notes %v, want 0.75 of the built-in policy, which the node exceeds", out.WaterMarks, n.Above, n.Loads, out.Notes)
	}
	if len(n.Zones) != 2 || n.Zones[0].CPUMilli != 4000 || *n.Zones[0].CPUAllocatedMilli != 2000 || !slices.Equal(n.Zones[0].Pods, []string{"shop/pinned"}) || *n.Zones[1].CPUAllocatedMilli != 0 {
		t.Errorf("zones: %+v, want two zones, the first with shop/pinned", n.Zones)
	}
	if len(n.Events) != 1 || n.Events[0].Kind != "throttled" || !strings.HasPrefix(n.Events[0].Text, "shop/pinned: limit from 2 to 1") || n.CPURequested != 2000 || n.Pods != 1 {
		t.Errorf("node %+v, want one throttling of shop/pinned", n)
	}

	var costs contract.Cost
	for _, window := range []string{"1h", "7d"} {
		if status := root.get(contract.PathCost+"?by=label&label=app&window="+window, &costs); status != http.StatusOK || len(costs.Rows) != 1 || costs.Rows[0].Name != "" || costs.Rows[0].Pods != 1 || costs.Rows[0].RequestPerMonth <= 0 {
			t.Errorf("costs by label over %s: status %d, %+v, want 200 and one row", window, status, costs)
		}
	}

	for query, want := range map[string]int{"by=label": 400, "by=pod": 400, "by=pool&window=2h": 400, "by=pool&window=14d": 200} {
		if status := root.get(contract.PathCost+"?"+query, nil); status != want {
			t.Errorf("%s: status %d, want %d", query, status, want)
		}
	}
}
