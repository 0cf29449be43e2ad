// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// finding is a line of `crane doctor -o json`.
type finding struct{ Check, Status, Detail, Advice string }

func doctor(t *testing.T, args ...string) (findings []finding, errOut string, code int) {
	t.Helper()

	out, errOut, code := crane(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct{ Checks []finding }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("parsing the report of crane doctor: %v: %s\n%s", err, out, errOut)
	}

	return report.Checks, errOut, code
}

// line returns the findings of a check and fails the test if there are none.
func line(t *testing.T, findings []finding, check string) finding {
	t.Helper()

	for _, f := range findings {
		if f.Check == check {
			return f
		}
	}

	t.Fatalf("no line on %q in %+v, want one", check, findings)
	return finding{}
}

func TestDoctorWithoutPrometheus(t *testing.T) {
	findings, errOut, code := doctor(t, "--kubeconfig", control.Kubeconfig())
	if code != 1 || !strings.Contains(errOut, "missing: Prometheus") {
		t.Errorf("crane doctor: exit %d, want 1 with Prometheus missing: %s", code, errOut)
	}

	for _, check := range []string{"kubeconfig", "API server", "permissions"} {
		if f := line(t, findings, check); f.Status != "ok" {
			t.Errorf("finding %+v, want status ok", f)
		}
	}

	if f := line(t, findings, "API server"); !strings.Contains(f.Detail, control.URL()) || !strings.Contains(f.Detail, "v1.") {
		t.Errorf("finding %+v, want the URL and version of the API server", f)
	}

	f := line(t, findings, "Prometheus")
	for _, want := range []string{"Thanos", "VictoriaMetrics", "Mimir"} {
		if !strings.Contains(f.Detail, want) {
			t.Errorf("the detail %q names what was looked for, want %s in it", f.Detail, want)
		}
	}

	for _, want := range []string{"kube-prometheus-stack", "--prometheus URL", "--prometheus-service"} {
		if !strings.Contains(f.Advice, want) {
			t.Errorf("the advice is %q, want %s in it", f.Advice, want)
		}
	}

	out, _, code := crane(t, "doctor", "--kubeconfig", control.Kubeconfig())
	if code != 1 || !strings.Contains(out, "ADVICE") || !strings.Contains(out, "missing") {
		t.Errorf("crane doctor: exit %d, want 1 and advice:\n%s", code, out)
	}

	t.Logf("\n%s", out)
	if _, errOut, code := crane(t, "recommend", "--kubeconfig", control.Kubeconfig()); code != 1 ||
		!strings.Contains(errOut, "no Prometheus found") || !strings.Contains(errOut, "--prometheus URL") {
		t.Errorf("crane recommend: exit %d, want 1 and the flag --prometheus: %s", code, errOut)
	}
}

func TestDoctorWithPrometheus(t *testing.T) {
	prom := servePrometheus(t, history)
	findings, errOut, code := doctor(t, "--kubeconfig", control.Kubeconfig(), "--prometheus", prom.URL())
	if code != 0 || errOut != "" {
		t.Errorf("crane doctor: exit %d, want 0: %s", code, errOut)
	}

	for check, want := range map[string]string{
		"Prometheus": prom.URL(), "history": "uses 14 days", "scrape interval": "1m", "clock": "differs", "metrics-server": "not installed",
	} {
		if f := line(t, findings, check); !strings.Contains(f.Detail, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}

	if f := line(t, findings, "history"); f.Status != "warn" || !strings.HasPrefix(f.Detail, "9 days") {
		t.Errorf("finding %+v, want a warning about 9 days", f)
	}
	if f := line(t, findings, "node_cpu_seconds_total"); f.Status != "warn" || !strings.Contains(f.Advice, "node-exporter") {
		t.Errorf("finding %+v, want a warning with node-exporter as advice", f)
	}
}

// TestDoctorWithoutCluster: Prometheus alone is sufficient only if kube-state-metrics provides the containers.
func TestDoctorWithoutCluster(t *testing.T) {
	prom := servePrometheus(t, history)
	findings, _, code := doctor(t, "--prometheus", prom.URL())
	if f := line(t, findings, "kubeconfig"); code != 1 || f.Status != "warn" {
		t.Errorf("exit %d, finding %+v, want 1 and a warning", code, f)
	}
	if f := line(t, findings, "kube_pod_container_info"); f.Status != "missing" {
		t.Errorf("finding %+v, want status missing", f)
	}
}

func TestDoctorOfAnEmptyPrometheus(t *testing.T) {
	prom := servePrometheus(t, "")
	findings, _, code := doctor(t, "--kubeconfig", control.Kubeconfig(), "--prometheus", prom.URL())
	if f := line(t, findings, "metrics"); code != 1 || f.Status != "missing" || !strings.Contains(f.Advice, "cadvisor") {
		t.Errorf("exit %d, finding %+v, want 1 and cadvisor as advice", code, f)
	}
}

func TestDoctorSaysWhichRightsAreMissing(t *testing.T) {
	kubeconfig, err := control.KubeconfigFor(t.Context(), "visitor", controlplane.CertificateUser("visitor"))
	if err != nil {
		t.Fatal(err)
	}

	prom := servePrometheus(t, history)
	findings, errOut, code := doctor(t, "--kubeconfig", kubeconfig, "--prometheus", prom.URL())
	if code != 1 || !strings.Contains(errOut, "permissions") {
		t.Errorf("exit %d, want 1 because of permissions: %s", code, errOut)
	}
	if f := line(t, findings, "permissions"); f.Status != "missing" || !strings.Contains(f.Detail, "list deployments.apps") || !strings.Contains(f.Advice, "ClusterRole view") {
		t.Errorf("finding %+v, want the missing right and the ClusterRole view", f)
	}

	// Following the advice is sufficient.
	bind(t, "visitor", "view")
	awaitAuthorized(t, func() error {
		if findings, errOut, code = doctor(t, "--kubeconfig", kubeconfig, "--prometheus", prom.URL()); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}

		return nil
	})

	if f := line(t, findings, "permissions"); code != 0 || f.Status != "warn" || !strings.Contains(f.Detail, "nodes") {
		t.Errorf("exit %d, want 0: %s; finding %+v, want a warning about nodes", code, errOut, f)
	}
}

// awaitAuthorized waits until the API server's authorizer has processed a binding.
func awaitAuthorized(t *testing.T, check func() error) {
	t.Helper()
	harness.Eventually(t.Context(), t, time.Minute, "the right is known", func(context.Context) error { return check() })
}

// bind grants a ClusterRole to a user for the length of the test.
func bind(t *testing.T, user, role string) {
	t.Helper()

	binding, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestDoctorOfAClusterThatDoesNotAnswer(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	findings, _, code := doctor(t)
	if f := line(t, findings, "kubeconfig"); code != 1 || f.Status != "missing" || !strings.Contains(f.Advice, "KUBECONFIG") {
		t.Errorf("exit %d, finding %+v, want 1 and KUBECONFIG as advice", code, f)
	}
	if f := line(t, findings, "Prometheus"); f.Status != "missing" {
		t.Errorf("finding %+v, want status missing", f)
	}
}
