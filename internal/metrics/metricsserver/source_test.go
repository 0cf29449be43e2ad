// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"crane.io/crane/internal/metrics"
)

const podsOfShop = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[
{"metadata":{"name":"web-1","namespace":"shop"},"timestamp":"2026-03-01T12:00:00Z","window":"15s","containers":[
 {"name":"app","usage":{"cpu":"250m","memory":"64Mi"}},{"name":"quiet","usage":{"cpu":"0"}},{"name":"odd","usage":{"cpu":"-1","memory":"1Ki"}}]}]}`

// TestNow: a container is read for each resource that the server knows of it, each alone and not added to the ones before.
func TestNow(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			fmt.Fprint(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[]}`)
		case strings.Contains(r.URL.Path, "/broken/"):
			http.Error(w, "no metrics yet", http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, podsOfShop)
		}
	}))
	defer server.Close()
	source, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	read := func(resource metrics.Resource, namespaces ...string) (string, error) {
		var got []string
		err := source.CurrentUsage(t.Context(), resource, namespaces, func(r metrics.Reading) error {
			got = append(got, fmt.Sprint(r.Key.Workload, "/", r.Key.Container, "=", r.Value, " ", r.Time.UTC().Format("15:04"), " ", r.Window))
			return nil
		})
		return strings.Join(got, "; "), err
	}
	const want = "shop/Pod/web-1/app=0.25 12:00 15s; shop/Pod/web-1/quiet=0 12:00 15s"
	if got, err := read(metrics.CPU, "shop"); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := read(metrics.Memory); err != nil || got != "shop/Pod/web-1/app=6.7108864e+07 12:00 15s; shop/Pod/web-1/odd=1024 12:00 15s" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := read(metrics.CPU, "broken"); err == nil {
		t.Error("a server that fails has an answer")
	}
	if _, err := read(metrics.HeldMemory); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("a resource that it does not know: %v", err)
	}
	if err := source.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Contains(asked, "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods") || !slices.Contains(asked, "/apis/metrics.k8s.io/v1beta1/pods") {
		t.Errorf("asked %v", asked)
	}
}
