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

// TestCurrentUsage checks that one value is returned per container and resource.
func TestCurrentUsage(t *testing.T) {
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
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

	read := func(resource metrics.UsageKind, namespaces ...string) (string, error) {
		var got []string
		for r, err := range source.CurrentUsage(t.Context(), resource, namespaces) {
			if err != nil {
				return strings.Join(got, "; "), err
			}

			got = append(got, fmt.Sprint(r.Key.Workload, "/", r.Key.Container, "=", r.Value, " ", r.Time.UTC().Format("15:04"), " ", r.Window))
		}

		return strings.Join(got, "; "), nil
	}

	const want = "shop/Pod/web-1/app=0.25 12:00 15s; shop/Pod/web-1/quiet=0 12:00 15s"
	if got, err := read(metrics.CPU, "shop"); err != nil || got != want {
		t.Errorf("CurrentUsage of CPU in shop = %s, %v, want %s", got, err, want)
	}
	if got, err := read(metrics.Memory); err != nil || got != "shop/Pod/web-1/app=6.7108864e+07 12:00 15s; shop/Pod/web-1/odd=1024 12:00 15s" {
		t.Errorf("CurrentUsage of memory = %s, %v, want 64 MiB of app and 1024 bytes of odd", got, err)
	}
	if _, err := read(metrics.CPU, "broken"); err == nil {
		t.Error("CurrentUsage of a server that fails: no error, want one")
	}

	if _, err := read(metrics.UnreclaimableMemory); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("CurrentUsage of an unsupported resource: error %v, want ErrUnsupported", err)
	}
	if err := source.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Contains(paths, "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods") || !slices.Contains(paths, "/apis/metrics.k8s.io/v1beta1/pods") {
		t.Errorf("requested paths %v, want the pods of shop and those of all namespaces", paths)
	}
}
