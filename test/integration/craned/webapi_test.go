// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestWebAPI checks the routes that other tools use, over TLS, for users with access to all namespaces, to one, and to none.
func TestWebAPI(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)

	for _, name := range []string{"reader", "namespaced", "unauthorized"} {
		create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}

	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: name}}
	}

	// An agent may write the prediction of its node, whose expression no namespace bounds.
	nodePrediction := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "noderesource-compromised"},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{PredictionWindowSeconds: 3600, TargetRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "compromised"}, PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
			ResourceIdentifier: "cpu", Type: predictionv1alpha1.ExpressionQueryMetricType,
			ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: `sum(rate(container_cpu_usage_seconds_total[5m]))`},
		}}},
	}

	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "craned-web-reader"}
	create(t, c,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: role, Subjects: subject("reader")},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "namespaced"}, RoleRef: role, Subjects: subject("namespaced")},
		nodePrediction, deployment("shop", "web"), deployment("bank", "web"), rule("web-api", "24h", "shop", "bank"), &predictionv1alpha1.TimeSeriesPrediction{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
				PredictionWindowSeconds: 3600, TargetRef: &corev1.ObjectReference{Kind: "Deployment", Name: "web"}, PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
					ResourceIdentifier: "web-cpu", Type: predictionv1alpha1.ExpressionQueryMetricType,
					ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: `sum(rate(container_cpu_usage_seconds_total{namespace="shop"}[5m]))`},
				}},
			},
		})

	address := harness.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	startCraned(t, prom.URL(), "--server-bind-address=127.0.0.1", "--server-bind-port="+port)
	awaitRule(t, c, "web-api", "RoundCompleted")
	tokens := map[string]string{"reader": token(t, "reader"), "namespaced": token(t, "namespaced"), "unauthorized": token(t, "unauthorized"), "": ""}
	ask := func(ctx context.Context, as, path string) (int, string, error) {
		return getAs(ctx, "https://"+address+path, tokens[as])
	}

	eventually(t, "both recommendations are served", func(ctx context.Context) error {
		status, page, err := ask(ctx, "reader", "/api/v1/recommendation")
		if err == nil && (status != http.StatusOK || strings.Count(page, `"recommendedInfo"`) != 2) {
			err = fmt.Errorf("status %d: %.300s", status, page)
		}

		return err
	})

	at := time.Now().Add(-time.Hour).Unix()
	query := url.QueryEscape(`container_memory_working_set_bytes{namespace="bank"}`)
	for _, q := range []struct {
		as, path string
		status   int
		want     string
	}{
		{"reader", "/api/v1/recommendationRule", http.StatusOK, `"name":"web-api"`},
		{"reader", fmt.Sprintf("/api/v1/prometheus/query?time=%d&query=%s", at, query), http.StatusOK, `"524288000"]`},
		{"reader", fmt.Sprintf("/api/v1/prometheus/query_range?start=%d&end=%d&step=5m&query=%s", at-600, at, query), http.StatusOK, `"pod":"web-7f8c9b5d4c-eeeee"`},
		{"reader", "/api/v1/prometheus/query?time=1&query=nonsense(", http.StatusOK, "parse error"},
		{"reader", "/api/prediction/debug/shop/web", http.StatusOK, `class="past" d="M`},
		{"reader", "/api/prediction/debug/shop/none", http.StatusNotFound, ""},
		{"reader", "/api/prediction/debug/crane-system/noderesource-compromised", http.StatusOK, "There is no template in ConfigMap"},
		{"namespaced", "/api/v1/recommendation?namespace=shop", http.StatusOK, `"namespace":"shop"`},
		{"namespaced", "/api/prediction/debug/shop/web", http.StatusOK, "web-cpu"},
		{"namespaced", "/api/v1/recommendation", http.StatusForbidden, ""},
		{"namespaced", "/api/v1/recommendation?namespace=bank", http.StatusForbidden, ""},
		{"namespaced", "/api/v1/prometheus/query?time=1&query=up", http.StatusForbidden, ""},
		{"unauthorized", "/api/v1/recommendation?namespace=shop", http.StatusForbidden, ""},
		{"unauthorized", "/api/v1/recommendationRule", http.StatusForbidden, ""},
		{"", "/api/v1/recommendation", http.StatusUnauthorized, ""},
		{"", "/api/healthz", http.StatusOK, `"status":"ok"`},
	} {
		status, page, err := ask(t.Context(), q.as, q.path)
		if err != nil || status != q.status || !strings.Contains(page, q.want) {
			t.Errorf("%s as user %q: status %d, want %d with %q; %v\n%.400s", q.path, q.as, status, q.status, q.want, err, page)
		}
		if strings.Contains(q.path, "compromised") && strings.Contains(page, `class="past"`) {
			t.Errorf("%s shows series of an expression that the template does not have, want none", q.path)
		}
		if q.status != http.StatusOK && strings.Contains(page, "recommendedInfo") {
			t.Errorf("%s returns recommendations to %q, want none", q.path, q.as)
		}
	}
}

// TestFallsBack checks that the next data source is used while the preferred one fails, and that the log, metrics and readiness
// report it.
func TestFallsBack(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("fallback", "24h", "shop"))

	// No server listens at the address of grpc.
	craned := startCraned(t, prom.URL(), "--datasource=grpc,prom,metricserver", "--grpc-ds-address="+harness.FreeAddress(t), "--grpc-ds-timeout=2s")
	awaitRule(t, c, "fallback", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "fallback")
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}

	near(t, "cpu from the second source", requested(t, recs["shop/web"].Status.RecommendedInfo)["cpu"], 0.2*1.15)
	eventually(t, "the metrics report the failure", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err != nil {
			return err
		}

		for _, want := range []string{
			`crane_data_source_failures_total{question="history",source="grpc"} `, `crane_data_source_answers_total{question="history",source="prom"} `,
			`crane_data_source_up{source="grpc"} 0`, `crane_data_source_up{source="prom"} 1`,
		} {
			if !containsLine(page, want) {
				return errors.New("no line " + want)
			}
		}

		return nil
	})

	if log := craned.Log.String(); !strings.Contains(log, "data source failed; others are preferred during its cooldown") {
		t.Error("the log does not contain the failure, want it with the cooldown")
	}

	eventually(t, "ready with one of two sources", func(ctx context.Context) error {
		_, err := harness.Get(ctx, craned.HealthURL+"/readyz")
		return err
	})
}

// TestHistoryFromFiles checks craned with history from CSV files and without Prometheus.
func TestHistoryFromFiles(t *testing.T) {
	c := newClient(t)
	dir := t.TempDir()
	var cpu, memory strings.Builder
	cpu.WriteString("ts,value\n")
	memory.WriteString("ts,value\n")

	end := time.Now().Truncate(5 * time.Minute)
	for at := end.AddDate(0, 0, -historyDays); at.Before(end); at = at.Add(5 * time.Minute) {
		fmt.Fprintf(&cpu, "%d,0.4\n", at.Unix())
		fmt.Fprintf(&memory, "%d,%d\n", at.Unix(), 400*mib)
	}

	writeIn(t, dir, "shop_Deployment_web_app_cpu.csv", cpu.String())
	writeIn(t, dir, "shop_Deployment_web_app_memory.csv", memory.String())
	create(t, c, deployment("shop", "web"), rule("files", "24h", "shop"))
	craned := startCraned(t, "", "--datasource=csv", "--csv-dir="+dir)
	awaitRule(t, c, "files", "RoundCompleted")

	recs, err := recommendations(t.Context(), c, "files")
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}

	near(t, "cpu from a file", requested(t, recs["shop/web"].Status.RecommendedInfo)["cpu"], 0.4*1.15)
	if log := craned.Log.String(); !strings.Contains(log, "controllers are left out, because --datasource lacks their source") {
		t.Error("the log does not contain the disabled features, want them")
	}
}
