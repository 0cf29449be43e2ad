// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestSecureMetrics: with --metrics-secure metrics are served over TLS to clients with the right to get them, and health to all.
func TestSecureMetrics(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("secure"))
	account := func(name string) string {
		harness.Create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name}})
		config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", name))
		if err != nil {
			t.Fatal(err)
		}

		return config.BearerToken
	}

	stranger := account("stranger")
	scraper := account("scraper")
	harness.Create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "craned-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "crane-system", Name: "scraper"}},
	})

	address := harness.FreeAddress(t)
	a := harness.Start(t, waitTimeout, binary, "--hostname-override=secure", "--bind-address="+address, "--dry-run", "--metrics-secure",
		"--kubeconfig="+kubeconfig(t), "--host-root="+recordedHost(t), "--state-dir="+t.TempDir(), "--enable-profiling")
	t.Cleanup(func() { a.Stop(t) })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

	get := func(ctx context.Context, path, token string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, http.NoBody)
		if err != nil {
			return 0, err
		}

		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}

		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}

		return resp.StatusCode, resp.Body.Close()
	}

	eventually(t, "the agent is ready without a token", func(ctx context.Context) error {
		status, err := get(ctx, "/readyz", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}

		return err
	})

	for name, test := range map[string]struct {
		path, token string
		want        int
	}{
		"no token":            {"/metrics", "", http.StatusUnauthorized},
		"nonsense":            {"/metrics", "nonsense", http.StatusUnauthorized},
		"no right":            {"/metrics", stranger, http.StatusForbidden},
		"scraper":             {"/metrics", scraper, http.StatusOK},
		"profile, no token":   {"/debug/pprof/heap", "", http.StatusUnauthorized},
		"profile, by scraper": {"/debug/pprof/heap", scraper, http.StatusForbidden},
	} {
		if status, err := get(t.Context(), test.path, test.token); err != nil || status != test.want {
			t.Errorf("%s: status %d, %v, want %d", name, status, err, test.want)
		}
	}

	if resp, err := http.Get("http://" + address + "/metrics"); err == nil {
		resp.Body.Close()

		if resp.StatusCode == http.StatusOK {
			t.Error("metrics are served without TLS, want a refusal")
		}
	}
}
