// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/pkg/cost"
)

// TestDefaultPricesWithoutNodes checks that recommendations have default prices and a warning is printed if nodes
// cannot be listed.
func TestDefaultPricesWithoutNodes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"nodes is forbidden"}`)
	}))
	defer server.Close()

	kubeconfig := filepath.Join(t.TempDir(), "config")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)

	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	var stderr bytes.Buffer
	o := &collector{kubernetes: &kubernetesFlags{kubeconfig: kubeconfig}, prices: fixturePriceBook(t), prometheus: newPrometheusFlags()}

	o.prometheus.address = server.URL // It refuses queries as well.
	source, err := o.prometheus.open()
	if err != nil {
		t.Fatal(err)
	}

	r := fixtureReport()
	state := newClusterState(o.kubernetes, nil, source, server.URL, func(text string) { fmt.Fprintln(&stderr, text) })
	if err := o.priceReport(t.Context(), r.sizeReport, state, nil); err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(stderr.String(), "Warning: API server "+server.URL+": listing Node") || !strings.Contains(r.prices.description(), "cannot be listed") {
		t.Errorf("%s; %s", stderr.String(), r.prices.description())
	}
	if s := r.items[0].saving; s.Price.From != cost.FromPriceBook || s.Counted != 3 || s.Hourly.Total() == 0 {
		t.Errorf("%+v", s)
	}
}
