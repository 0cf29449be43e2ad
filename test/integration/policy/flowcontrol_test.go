// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestFlowControl checks that the API server queues requests of Crane's controllers apart from those of service accounts of tenants, and their
// Leases with those of Kubernetes.
func TestFlowControl(t *testing.T) {
	_, namespace := newTenant(t)
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}})
	const (
		pods         = "/api/v1/pods"
		cranedLease  = "/apis/coordination.k8s.io/v1/namespaces/crane-system/leases/craned"
		foreignLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/craned"
	)

	for name, c := range map[string]struct{ namespace, account, path, schema, level string }{
		"craned":                     {"crane-system", "craned", pods, "crane-controllers", "crane-controllers"},
		"crane-scheduler":            {"crane-system", "crane-scheduler", pods, "crane-controllers", "crane-controllers"},
		"metric-adapter":             {"crane-system", "metric-adapter", pods, "crane-controllers", "crane-controllers"},
		"discovery by craned":        {"crane-system", "craned", "/apis", "crane-controllers", "crane-controllers"},
		"lease of craned":            {"crane-system", "craned", cranedLease, "crane-leader-election", "leader-election"},
		"lease of crane-scheduler":   {"crane-system", "crane-scheduler", cranedLease, "crane-leader-election", "leader-election"},
		"lease outside crane-system": {"crane-system", "craned", foreignLease, "crane-controllers", "crane-controllers"},
		"crane-agent":                {"crane-system", "crane-agent", pods, "crane-agents", "crane-agents"},
		"tenant":                     {namespace, "tenant", pods, "service-accounts", "workload-low"},
		"tenant, lease of craned":    {namespace, "tenant", cranedLease, "service-accounts", "workload-low"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount(c.namespace, c.account))
			if err != nil {
				t.Fatal(err)
			}

			// A FlowSchema takes effect some time after its creation.
			harness.Eventually(t.Context(), t, waitTimeout, "the level of "+name, func(ctx context.Context) error {
				return checkFlow(ctx, config, c.path, c.schema, c.level)
			})
		})
	}
}

// checkFlow sends a request and compares the FlowSchema and the PriorityLevelConfiguration that the API server chose, whatever it answers.
func checkFlow(ctx context.Context, config *rest.Config, path, schema, level string) error {
	var wantSchema flowcontrolv1.FlowSchema
	var wantLevel flowcontrolv1.PriorityLevelConfiguration

	if err := admin.Get(ctx, client.ObjectKey{Name: schema}, &wantSchema); err != nil {
		return err
	}

	if err := admin.Get(ctx, client.ObjectKey{Name: level}, &wantLevel); err != nil {
		return err
	}

	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return err
	}

	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	gotSchema := response.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
	gotLevel := response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID")
	if gotSchema != string(wantSchema.UID) || gotLevel != string(wantLevel.UID) {
		return fmt.Errorf("the API server used FlowSchema %s and level %s, want %s (%s) and %s (%s)", gotSchema, gotLevel, schema, wantSchema.UID, level, wantLevel.UID)
	}

	return nil
}
