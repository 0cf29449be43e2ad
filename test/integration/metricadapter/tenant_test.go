// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"fmt"
	"testing"

	"crane.io/crane/test/integration/harness"
)

// TestPrometheusTenantHeader checks that the adapter sends the headers that a server requires.
func TestPrometheusTenantHeader(t *testing.T) {
	ns := namespaceFor(t)
	p := openPrometheus(t, ns)
	p.put(t, map[string]float64{"queue_len_mail{queue=a}": 3})
	address := harness.RequireHeader(t, p.URL(), "X-Scope-OrgID", func() string { return "team-a" })
	startWithRules(t, p, rulesText, "--prometheus-address="+address, "--prometheus-header=X-Scope-OrgID: team-a")

	eventually(t, "the metric is served", func(ctx context.Context) error {
		values, err := readExternal(ctx, externalPath(ns, "queue_len_of_mail", ""))
		if err == nil && len(values) != 1 {
			err = fmt.Errorf("%d values", len(values))
		}

		return err
	})
}
