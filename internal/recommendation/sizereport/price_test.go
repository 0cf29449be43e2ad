// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizereport

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
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

	book, err := pricebook.Load("")
	if err != nil {
		t.Fatalf("loading the built-in prices: %v", err)
	}

	var stderr bytes.Buffer
	o := &Collector{Kubernetes: &clusteraccess.Access{Kubeconfig: kubeconfig}, Prices: book, Prometheus: historyserver.NewServer()}

	o.Prometheus.Address = server.URL // It refuses queries as well.
	source, err := o.Prometheus.Open()
	if err != nil {
		t.Fatal(err)
	}

	web := workload.Workload{Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Replicas: 3}
	plan := resource.Plan{State: recommend.Ready, Action: recommend.Patch, Containers: []rightsize.Recommendation{{
		Container: "app",
		CPU:       rightsize.Sizing{Status: rightsize.Ready},
		Memory:    rightsize.Sizing{Status: rightsize.Ready},
		Current:   rightsize.Resources{CPURequest: new(units.MilliCPU(100)), MemoryRequest: new(units.Bytes(128 << 20))},
		Target:    rightsize.Resources{CPURequest: new(units.MilliCPU(200)), MemoryRequest: new(units.Bytes(64 << 20))},
	}}}

	r := &Report{Items: []Item{{Workload: web, Plan: plan}}}
	state := clusterstate.New(o.Kubernetes, nil, source, server.URL, func(text string) { fmt.Fprintln(&stderr, text) })
	if err := o.priceReport(t.Context(), r, state, nil); err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(stderr.String(), "Warning: API server "+server.URL+": listing Node") || !strings.Contains(r.Prices.Description(), "cannot be listed") {
		t.Errorf("priceReport printed %q and describes the prices as %q, want a warning and that nodes cannot be listed", stderr.String(), r.Prices.Description())
	}
	if s := r.Items[0].Saving; s.Price.From != cost.FromPriceBook || s.Counted != 2 || s.Hourly.Total() == 0 {
		t.Errorf("saving = %+v, want 2 resources at the prices of the book", s)
	}
}
