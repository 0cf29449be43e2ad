// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/test/integration/harness"
)

// TestNotifications checks that a rollback, and the circuit breaker that it opens, are sent to both endpoints, once.
func TestNotifications(t *testing.T) {
	var mu sync.Mutex
	bodies := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		mu.Lock()
		defer mu.Unlock()

		bodies[r.URL.Path] += string(body)
	}))

	t.Cleanup(server.Close)
	file := func(path string) string {
		name := filepath.Join(t.TempDir(), "url")
		if err := os.WriteFile(name, []byte(server.URL+path), 0o600); err != nil {
			t.Fatal(err)
		}

		return name
	}

	// The breaker of a namespace that is being deleted opens too.
	harness.Eventually(t.Context(), t, waitTimeout, "no workloads of earlier tests are left", func(ctx context.Context) error {
		var list appsv1.DeploymentList
		if err := admin.List(ctx, &list); err != nil {
			return err
		}

		if len(list.Items) > 0 {
			return fmt.Errorf("%d are left, such as %s", len(list.Items), client.ObjectKeyFromObject(&list.Items[0]))
		}

		return nil
	})

	startCraned(t, "--adoption-breaker-least=1", "--notification-webhook-url-file="+file("/webhook"), "--notification-slack-url-file="+file("/slack"))
	testRollback(t)
	harness.Eventually(t.Context(), t, waitTimeout, "both endpoints have both events", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()

		for path, wants := range map[string][]string{
			"/webhook": {`"reason":"AdoptionRolledBack","object":"Deployment adopt-`, `"reason":"AdoptionBreakerOpen","message":"1 of 1 workloads lowered within 24h0m0s got worse`},
			"/slack":   {`{"text":"*AdoptionRolledBack* Deployment adopt-`, "*AdoptionBreakerOpen*\\n1 of 1 workloads"},
		} {
			for _, want := range wants {
				if !strings.Contains(bodies[path], want) {
					return fmt.Errorf("%s lacks %s: %s", path, want, bodies[path])
				}
			}

			if n := strings.Count(bodies[path], "AdoptionBreakerOpen"); n != 1 {
				return fmt.Errorf("the breaker opened %d times in %s", n, bodies[path])
			}
		}

		return nil
	})
}
