// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestServiceMonitors checks what Prometheus sends to whom: the token for metrics alone, and to a component with a managed certificate only after
// it has verified it.
func TestServiceMonitors(t *testing.T) {
	managed := func(name, secret string) map[string]any {
		return map[string]any{
			"serverName": name + ".crane-system.svc",
			"ca":         map[string]any{"secret": map[string]any{"name": secret, "key": "ca.crt"}},
		}
	}
	unsigned := map[string]any{"insecureSkipVerify": true}

	for name, test := range map[string]struct {
		args []string
		want map[string]map[string]any
	}{
		"managed by Crane": {nil, map[string]map[string]any{
			"craned":          managed("craned", "craned-certificates"),
			"metric-adapter":  managed("metric-adapter", "metric-adapter-certificate"),
			"crane-scheduler": unsigned,
			"crane-agent":     unsigned,
		}},
		"by cert-manager": {[]string{"--set", "certManager.enabled=true"}, map[string]map[string]any{
			"craned":          managed("craned", "craned-webhook-tls"),
			"metric-adapter":  managed("metric-adapter", "metric-adapter-tls"),
			"crane-scheduler": managed("crane-scheduler", "crane-scheduler-tls"),
			"crane-agent":     unsigned,
		}},
		"without webhooks": {[]string{"--set", "craned.webhooks.enabled=false"}, map[string]map[string]any{
			"craned":          unsigned,
			"metric-adapter":  managed("metric-adapter", "metric-adapter-certificate"),
			"crane-scheduler": unsigned,
			"crane-agent":     unsigned,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]map[string]any{}
			for _, o := range render(t, append([]string{"--set", "monitoring.monitors=true"}, test.args...)...) {
				if o.GetKind() == "ServiceMonitor" {
					got[o.GetName()] = checkCredentials(t, o)
				}
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("TLS of the ServiceMonitors (-want +got):\n%s", diff)
			}
		})
	}
}

// checkCredentials checks the token of a ServiceMonitor and returns its TLS configuration.
func checkCredentials(t *testing.T, monitor *unstructured.Unstructured) map[string]any {
	t.Helper()

	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("ServiceMonitor %s has endpoints %v (%v), want one", monitor.GetName(), endpoints, err)
	}

	endpoint, _ := endpoints[0].(map[string]any)
	want := map[string]any{"credentials": map[string]any{"name": "crane-metrics-client", "key": "token"}}
	if diff := cmp.Diff(want, endpoint["authorization"]); diff != "" || endpoint["bearerTokenFile"] != nil {
		t.Errorf("ServiceMonitor %s sends %v and the file %v, want the token for metrics alone", monitor.GetName(), endpoint["authorization"], endpoint["bearerTokenFile"])
	}

	config, _ := endpoint["tlsConfig"].(map[string]any)
	return config
}
