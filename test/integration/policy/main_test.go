// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy_test tries writes that the ValidatingAdmissionPolicies of config/policy refuse, against a real API server, as tenants and
// with the tokens of Crane's own components. No webhook runs.
package policy_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait.
const waitTimeout = 2 * time.Minute

// Shared by all tests.
var (
	control *controlplane.ControlPlane
	admin   client.Client
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "policy",
		Ready: func(_ context.Context, c *controlplane.ControlPlane, _ string) error {
			control = c
			var err error
			admin, err = newClient(c.Config())

			return err
		},
	}))
}

func newClient(config *rest.Config) (client.Client, error) {
	return harness.NewClient(config, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, predictionv1alpha1.AddToScheme, apiregistrationv1.AddToScheme)
}

// newTenant returns a new namespace and the client of a user who may do everything with Crane's kinds in this namespace, and nothing else.
func newTenant(t *testing.T) (tenant client.Client, namespace string) {
	t.Helper()

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	create(t, ns)
	user := "user-of-" + ns.Name
	create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tenant"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"analysis.crane.io", "autoscaling.crane.io", "prediction.crane.io"}, Resources: []string{"*"}, Verbs: []string{"*"},
		}},
	})

	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})

	config := control.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	tenant, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}

	return tenant, ns.Name
}

// newCraned returns a client with the token of craned's service account.
func newCraned(t *testing.T) client.Client {
	t.Helper()
	return newAccount(t, "craned")
}

// newAccount returns a client with the token of a service account of crane-system.
func newAccount(t *testing.T, name string) client.Client {
	t.Helper()

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", name))
	if err != nil {
		t.Fatal(err)
	}

	account, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}

	return account
}

func create(t *testing.T, o client.Object) {
	t.Helper()

	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// checkRefused returns an error unless err is a refusal by a policy.
func checkRefused(err error, policy string) error {
	if err == nil || !strings.Contains(err.Error(), "'"+policy+"'") {
		return fmt.Errorf("got %w, want a refusal by policy %s", fmt.Errorf("%v", err), policy)
	}

	return nil
}

// awaitRefused waits until a policy is in force: a new one takes effect some time after its creation, and rights of a new namespace too.
func awaitRefused(t *testing.T, policy string, write func(context.Context) error) {
	t.Helper()

	harness.Eventually(t.Context(), t, waitTimeout, "policy "+policy+" is in force", func(ctx context.Context) error {
		return checkRefused(write(ctx), policy)
	})
}
