// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"os"
	"testing"

	"crane.io/crane/test/integration/harness"
)

// TestPrometheusTenantHeader checks that a rule fails with the reason at a server that requires a tenant, and completes as soon as the file with
// headers has the right one, without a restart.
func TestPrometheusTenantHeader(t *testing.T) {
	c := newClient(t)
	create(t, c, deployment("shop", "web"))
	address := harness.RequireHeader(t, servePrometheus(t).URL(), "X-Scope-OrgID", func() string { return "team-a" })
	path := write(t, "headers", "X-Scope-OrgID: team-b\n")
	startCraned(t, address, "--prometheus-headers-file="+path)
	create(t, c, rule("tenant", "24h", "shop"))
	awaitRule(t, c, "tenant", "DataSourceFailed")

	if err := os.WriteFile(path, []byte("X-Scope-OrgID: team-a\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	awaitRule(t, c, "tenant", "RoundCompleted")
	found, err := recommendations(t.Context(), c, "tenant")
	if err != nil || found["shop/web"].Status.RecommendedInfo == "" {
		t.Errorf("recommendations %+v, %v, want one of shop/web", found, err)
	}
}
