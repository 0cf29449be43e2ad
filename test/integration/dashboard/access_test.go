// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

func workloadOf(path, namespace string) string {
	return path + "?namespace=" + namespace + "&kind=Deployment&name=web"
}

// TestReads_RightsOfEachPerson checks that each person gets what the API server allows: two of different namespaces, one without rights, and one with all.
func TestReads_RightsOfEachPerson(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	bob := f.login("pay", "bob")
	eve := f.login("shop", "eve")
	root := f.login("shop", "root")

	for _, c := range []struct {
		name string
		*person
		want []string
	}{{"ann", ann, []string{"shop"}}, {"bob", bob, []string{"pay"}}, {"root", root, []string{"pay", "shop"}}} {
		if got := c.namespaces(); !slices.Equal(got, c.want) {
			t.Errorf("%s sees the rows of %v, want %v", c.name, got, c.want)
		}

		var overview contract.Overview
		if status := c.get(contract.PathOverview, &overview); status != http.StatusOK || overview.Coverage.Workloads != len(c.want) {
			t.Errorf("overview of %s: status %d, %+v, want 200 and %d workloads", c.name, status, overview.Coverage, len(c.want))
		}
	}

	var refused contract.ErrorBody
	if status := eve.get(contract.PathWorklist, &refused); status != http.StatusForbidden || refused.Error.Right != "list recommendations.analysis.crane.io in all namespaces" {
		t.Errorf("worklist of eve: status %d, %+v, want 403 and the missing right", status, refused)
	}

	var session contract.Session
	ann.get(contract.PathSession, &session)

	if !slices.Equal(session.Clusters[0].Rights.Namespaces, []string{"shop"}) || !session.Clusters[0].Rights.Adopt || session.Clusters[0].Rights.ClusterTotals {
		t.Errorf("rights of ann: %+v, want adoption in shop alone", session.Clusters[0].Rights)
	}

	for path, want := range map[string][4]int{ // ann, bob, eve, root
		workloadOf(contract.PathWorkload, "shop"):                   {200, 403, 403, 200},
		workloadOf(contract.PathWorkload, "pay"):                    {403, 200, 403, 200},
		workloadOf(contract.PathSeries, "shop"):                     {200, 403, 403, 200},
		workloadOf(contract.PathSeries, "pay"):                      {403, 200, 403, 200},
		workloadOf(contract.PathSeries, ""):                         {400, 400, 400, 400},
		workloadOf(contract.PathWhatIf, "pay") + "&container=app":   {403, 200, 403, 200},
		contract.PathSeries + "?namespace=pay&kind=Secret&name=web": {403, 403, 403, 403},
		contract.PathNodes:                                          {403, 403, 403, 200},
		contract.PathCost:                                           {403, 403, 403, 200},
		contract.PathPlacement + "?namespace=shop&pod=web":          {403, 403, 403, 404}, // no scheduler runs
		contract.PathPlacement + "?namespace=shop":                  {400, 400, 400, 400},
		contract.PathRules:                                          {403, 403, 403, 200},
		contract.PathAutoscaling:                                    {200, 200, 200, 200}, // empty: there are none
	} {
		for i, p := range []*person{ann, bob, eve, root} {
			if status := p.get(path, nil); status != want[i] {
				t.Errorf("%s of person %d: status %d, want %d", path, i, status, want[i])
			}
		}
	}
}

// aboutTheServer matches the queries of the probe: which metrics exist, how often they are scraped, how long the history is, the size of nodes, on which of them
// pods have no usage, and whether several clusters are mixed. Their answers name no object of another namespace to a person.
var aboutTheServer = regexp.MustCompile(`^(count by \(node\) |max by \(node, resource\) |label_replace\(quantile\(|label_replace\(topk by \(namespace\) \(5, |label_replace\(count by \(__name__\) |topk\(5, last_over_time\(|container_memory_working_set_bytes\{[^}]*\}\[3600s\]$|label_replace\(max\(count_over_time\()`)

// TestQueriesStayInTheNamespace checks that what a person causes to be asked of Prometheus names that person's namespace and no other.
func TestQueriesStayInTheNamespace(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	for _, path := range []string{contract.PathWorkload, contract.PathSeries} {
		f.takeQueries()
		if status := ann.get(workloadOf(path, "shop"), nil); status != http.StatusOK {
			t.Fatalf("%s: status %d, want 200", path, status)
		}

		queries := f.takeQueries()
		if len(queries) == 0 {
			t.Errorf("%s sends no query to Prometheus, want some", path)
		}

		for _, query := range queries {
			if !strings.Contains(query, `namespace="shop"`) && !aboutTheServer.MatchString(query) {
				t.Errorf("%s sends the query %s, want the namespace shop in it", path, query)
			}
		}
	}

	// A name is no place for a query.
	hostile := contract.PathSeries + `?namespace=shop&kind=Deployment&name=` + `web%22%7D%20or%20%7Bnamespace%3D%22pay`
	f.takeQueries()
	ann.get(hostile, nil)

	for _, query := range f.takeQueries() {
		if !strings.Contains(query, `namespace="shop"`) || strings.Contains(strings.ReplaceAll(query, `\"`, ""), `"pay"`) {
			t.Errorf("query %s, want the namespace shop alone in it", query)
		}
	}
}

// TestWrites_RightsOfEachPerson checks that writes have the rights of the person, that each is logged, and that a file has no rows of others.
func TestWrites_RightsOfEachPerson(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	item := func(namespace string) contract.Item {
		return contract.Item{Cluster: "cluster", Namespace: namespace, Name: "web-resource-1"}
	}

	adoptionOf := func(namespace string) analysisv1alpha1.AdoptionType {
		rec := &analysisv1alpha1.Recommendation{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web-resource-1"}, rec); err != nil {
			t.Fatal(err)
		}

		return rec.Spec.AdoptionType
	}

	before := adoptionOf("pay")
	var result contract.ActionResult
	adopt := contract.ActionRequest{Action: contract.ActionAdopt, Items: []contract.Item{item("shop"), item("pay")}}
	if status := ann.post(contract.PathAction, adopt, &result); status != http.StatusOK || len(result.Results) != 2 || !result.Results[0].OK {
		t.Fatalf("status %d, %+v, want two results, the first adopted", status, result)
	}

	if e := result.Results[1].Error; e == nil || e.Reason != contract.ReasonForbidden {
		t.Errorf("adoption in another namespace: %+v, want Forbidden", e)
	}
	if adoptionOf("shop") != analysisv1alpha1.AdoptionTypeAuto || adoptionOf("pay") != before {
		t.Errorf("adoption types are %s in shop and %s in pay, want Auto and %s", adoptionOf("shop"), adoptionOf("pay"), before)
	}

	for _, want := range []string{
		`"msg":"login","user":"system:serviceaccount:shop:ann"`,
		`"user":"system:serviceaccount:shop:ann","action":"adopt","cluster":"cluster","namespace":"shop","recommendation":"web-resource-1","result":"ok"`,
	} {
		if !strings.Contains(f.logged(), want) {
			t.Errorf("the log %s lacks a record, want %s", f.logged(), want)
		}
	}

	export := contract.ExportRequest{Format: "csv", Items: []contract.Item{item("shop")}}
	if status := ann.post(contract.PathExport, export, nil); status != http.StatusOK {
		t.Errorf("export: status %d, want 200", status)
	}

	export.Items = append(export.Items, item("pay"))
	if status := ann.post(contract.PathExport, export, nil); status != http.StatusForbidden {
		t.Errorf("export of another namespace: status %d, want 403", status)
	}

	rollback := contract.ActionRequest{Action: contract.ActionRollback, Items: []contract.Item{item("shop")}}
	for name, headers := range map[string][]string{"without the token": {contract.CSRFHeader, ""}, "from another site": {"Sec-Fetch-Site", "cross-site"}} {
		if status := ann.do(http.MethodPost, contract.PathAction, rollback, nil, headers...); status != http.StatusForbidden {
			t.Errorf("a write %s: status %d, want 403", name, status)
		}
	}

	if adoptionOf("shop") != analysisv1alpha1.AdoptionTypeAuto {
		t.Error("a refused write changed the adoption type, want Auto")
	}
}

// TestLogin checks refused tokens, the cookie, the logout, and the token of a proxy.
func TestLogin(t *testing.T) {
	f := serve(t)
	expired := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1}`)) + ".e30"
	for _, bad := range []string{"", "nonsense", expired, strings.Repeat("x", 17<<10)} {
		p := f.browser()
		if status := p.post(contract.PathLogin, contract.LoginRequest{Token: bad}, nil); status != http.StatusUnauthorized {
			t.Errorf("login with %.20q: status %d, want 401", bad, status)
		}
		if status := p.get(contract.PathWorklist, nil); status != http.StatusUnauthorized {
			t.Errorf("worklist after a refused login: status %d, want 401", status)
		}
	}

	ann := f.login("shop", "ann")
	if status := ann.post(contract.PathLogout, nil, nil); status != http.StatusOK {
		t.Errorf("logout: status %d, want 200", status)
	}
	if status := ann.get(contract.PathWorklist, nil); status != http.StatusUnauthorized {
		t.Errorf("worklist after the logout: status %d, want 401", status)
	}

	proxied := f.browser()
	proxied.bearer = token(t, "shop", "ann")
	var session contract.Session
	proxied.get(contract.PathSession, &session)

	if !session.Authenticated || session.User != "system:serviceaccount:shop:ann" || session.CSRFToken == "" {
		t.Fatalf("session of a proxy: %+v, want the user of the token", session)
	}

	if got := proxied.namespaces(); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("namespaces through a proxy: %v, want shop", got)
	}

	pause := contract.ActionRequest{Action: contract.ActionPause, DryRun: true, Items: []contract.Item{{Cluster: "cluster", Namespace: "shop", Name: "web-resource-1"}}}
	if status := proxied.post(contract.PathAction, pause, nil); status != http.StatusForbidden {
		t.Errorf("a write through a proxy without the token of the session: status %d, want 403", status)
	}

	renewed := f.browser()
	renewed.bearer = token(t, "shop", "ann")
	renewed.csrf = session.CSRFToken
	if status := renewed.post(contract.PathAction, pause, nil); status != http.StatusOK {
		t.Errorf("a write after the proxy renewed its token: status %d, want 200", status)
	}
}

// TestRevokedToken checks that a session ends when the API server does not accept its token any more.
func TestRevokedToken(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "guest"}}
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}

	f := serve(t)
	guest := f.login("shop", "guest")
	if status := guest.get(contract.PathHealth, nil); status != http.StatusOK {
		t.Fatalf("health: status %d, want 200", status)
	}

	if err := admin.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}

	harness.Eventually(t.Context(), t, time.Minute, "the end of the session", func(context.Context) error {
		if status := guest.get(contract.PathHealth, nil); status != http.StatusUnauthorized {
			return fmt.Errorf("status %d", status)
		}

		return nil
	})

	var session contract.Session
	guest.get(contract.PathSession, &session)

	if session.Authenticated {
		t.Error("the session of a deleted account continues, want its end")
	}
}

// TestAPIServerRestarts checks that pages say that the API server does not answer, and that sessions go on when it is back.
func TestAPIServerRestarts(t *testing.T) {
	f := serve(t)
	ann := f.login("shop", "ann")
	if status := ann.get(contract.PathHealth, nil); status != http.StatusOK {
		t.Fatalf("health: status %d, want 200", status)
	}

	if got := ann.namespaces(); len(got) != 1 {
		t.Fatalf("rows %v, want one", got)
	}

	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	var refused contract.ErrorBody
	if status := ann.get(contract.PathHealth, &refused); status != http.StatusServiceUnavailable || refused.Error.Reason != contract.ReasonAPIServerUnavailable {
		t.Errorf("health without an API server: status %d, %+v, want 503", status, refused)
	}
	if got := ann.namespaces(); len(got) != 1 {
		t.Errorf("rows without an API server: %v, want one", got)
	}
	if status := f.browser().post(contract.PathLogin, contract.LoginRequest{Token: "other"}, nil); status != http.StatusServiceUnavailable {
		t.Errorf("a login without an API server: status %d, want 503", status)
	}

	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	harness.Eventually(t.Context(), t, time.Minute, "an answer after the restart", func(context.Context) error {
		if status := ann.get(contract.PathHealth, nil); status != http.StatusOK {
			return errors.New(http.StatusText(status))
		}

		return nil
	})
}
