// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
)

// gocrane sends a request to a route of gocrane's web API and returns the status, the error and the data of the answer.
func (p *person) gocrane(method, path string, body any) (status int, problem string, data json.RawMessage) {
	p.t.Helper()

	content, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}

	r, err := http.NewRequestWithContext(p.t.Context(), method, p.address+"/api/v1"+path, bytes.NewReader(content))
	if err != nil {
		p.t.Fatal(err)
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(contract.CSRFHeader, p.csrf)

	response, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()

	var answer struct {
		Error string          `json:"error"`
		Data  json.RawMessage `json:"data"`
	}

	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		p.t.Fatalf("%s %s: status %d: %v", method, path, response.StatusCode, err)
	}

	return response.StatusCode, answer.Error, answer.Data
}

// TestGocraneRoutes checks gocrane's routes of clusters, namespaces, rules and adoption: their form, and that each has the rights of the person.
func TestGocraneRoutes(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	root := f.login("shop", "root")
	var clusters struct {
		TotalCount int
		Items      []struct{ ID, CraneURL string }
	}

	_, problem, data := ann.gocrane(http.MethodGet, "/cluster", nil)
	if err := json.Unmarshal(data, &clusters); err != nil || problem != "" || clusters.TotalCount != 1 || clusters.Items[0].ID != "cluster" || clusters.Items[0].CraneURL != f.address {
		t.Errorf("clusters: %q %s %v, want one cluster with the address of the server", problem, data, err)
	}
	if status, problem, _ := root.gocrane(http.MethodPost, "/cluster", map[string]any{"clusters": []any{}}); status != http.StatusOK || !strings.Contains(problem, "clusters are not stored") {
		t.Errorf("adding a cluster: status %d, %q, want 200 and that clusters are not stored", status, problem)
	}

	var namespaces struct{ Items []string }
	_, _, data = root.gocrane(http.MethodGet, "/namespaces/cluster", nil)
	if err := json.Unmarshal(data, &namespaces); err != nil || !slices.Contains(namespaces.Items, "shop") || !slices.Contains(namespaces.Items, "pay") {
		t.Errorf("namespaces: %s, want shop and pay", data)
	}
	if status, problem, data := ann.gocrane(http.MethodGet, "/namespaces/cluster", nil); status != http.StatusForbidden || problem == "" || string(data) != "null" {
		t.Errorf("namespaces for ann: status %d, %q %s, want 403", status, problem, data)
	}

	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	rule.Spec.ResourceSelectors = []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}}

	rule.Spec.NamespaceSelector.Any = true
	rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Resource"}}
	if status, _, _ := ann.gocrane(http.MethodPost, "/recommendationRule", rule); status != http.StatusForbidden {
		t.Errorf("ann creates a rule: status %d, want 403", status)
	}
	if _, problem, _ := root.gocrane(http.MethodPost, "/recommendationRule", rule); problem != "" {
		t.Fatalf("creating a rule: %q, want no problem", problem)
	}

	rule.Spec.RunInterval = "12h"
	if _, problem, _ := root.gocrane(http.MethodPut, "/recommendationRule/other", rule); !strings.Contains(problem, `the rule of the body is "old"`) {
		t.Errorf("a rule of another name: %q, want the name of the body", problem)
	}
	if _, problem, _ := root.gocrane(http.MethodPut, "/recommendationRule/old", rule); problem != "" {
		t.Errorf("changing a rule: %q, want no problem", problem)
	}

	_, _, data = root.gocrane(http.MethodGet, "/recommendationRule", nil)
	var list analysisv1alpha1.RecommendationRuleList
	if err := json.Unmarshal(data, &list); err != nil || len(list.Items) != 1 || list.Items[0].Spec.RunInterval != "12h" {
		t.Errorf("rules: %s, want one with the interval 12h", data)
	}
	if _, problem, _ := root.gocrane(http.MethodDelete, "/recommendationRule/old", nil); problem != "" {
		t.Errorf("deleting a rule: %q, want no problem", problem)
	}

	if status, _, _ := ann.gocrane(http.MethodPost, "/recommendation/adopt/pay/web-resource-1", nil); status != http.StatusForbidden {
		t.Errorf("ann adopts in pay: status %d, want 403", status)
	}

	rec := &analysisv1alpha1.Recommendation{}
	if _, problem, data := ann.gocrane(http.MethodPost, "/recommendation/adopt/shop/web-resource-1", nil); problem != "" || string(data) != "null" {
		t.Errorf("adopt: %q %s, want no problem", problem, data)
	}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-resource-1"}, rec); err != nil || rec.Spec.AdoptionType != analysisv1alpha1.AdoptionTypeAuto {
		t.Errorf("adoption type %q, %v, want Auto", rec.Spec.AdoptionType, err)
	}

	t.Cleanup(func() {
		rec.Spec.AdoptionType = ""
		_ = admin.Update(context.WithoutCancel(t.Context()), rec)
	})

	ann.csrf = "wrong"
	if status, problem, _ := ann.gocrane(http.MethodPost, "/recommendation/adopt/shop/web-resource-1", nil); status != http.StatusForbidden || !strings.Contains(problem, "token of the session") {
		t.Errorf("without the CSRF token: status %d, %q, want 403", status, problem)
	}
	if status, problem, _ := f.browser().gocrane(http.MethodGet, "/cluster", nil); status != http.StatusUnauthorized || problem == "" {
		t.Errorf("without a session: status %d, want 401", status)
	}
	if log := f.logged(); !strings.Contains(log, "/api/v1/recommendation/adopt/shop/web-resource-1") || !strings.Contains(log, "DELETE /api/v1/recommendationRule/old") {
		t.Errorf("audit log: %s, want the adoption and the deletion", log)
	}
}
