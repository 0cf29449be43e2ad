// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/pki"
	"crane.io/crane/internal/testbed/controlplane"
)

// get sends a request to the adapter itself, like a kubelet.
func (a adapter) get(ctx context.Context, path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.address+path, http.NoBody)
	if err != nil {
		return "", err
	}

	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}

	return string(body), err
}

// writeServedForecast writes a forecast that is served as 500m, and returns its path.
func writeServedForecast(t *testing.T, ns string) string {
	t.Helper()

	f := newForecast(ns, "web", valuesWithPeak(9, "0.5")...)
	f.write(t, newClient(t))
	return forecastPath(autoscalingv1alpha1.MetricPrediction, f.key())
}

func want500m(ctx context.Context, path string) error {
	values, err := readExternal(ctx, path)
	if err == nil && (len(values) != 1 || values[0].Value.String() != "500m") {
		err = fmt.Errorf("got %v", values)
	}

	return err
}

// TestBadForecasts checks that each unusable forecast is an error with a reason.
func TestBadForecasts(t *testing.T) {
	start(t)
	c := newClient(t)
	ns := namespaceFor(t)

	long := func(v string) []string {
		out := make([]string, 30)
		for i := range out {
			out[i] = v
		}

		return out
	}

	for name, bad := range map[string]struct {
		change func(*forecast)
		code   int32
		say    string
	}{
		"stale":          {func(f *forecast) { f.from = f.from.Add(-2 * time.Hour) }, http.StatusServiceUnavailable, "out of date"},
		"nan":            {func(f *forecast) { f.values = long("NaN") }, http.StatusServiceUnavailable, "NaN"},
		"no-number":      {func(f *forecast) { f.values = long("many") }, http.StatusServiceUnavailable, "many"},
		"no-skill":       {func(f *forecast) { f.skill = "0.01" }, http.StatusServiceUnavailable, "no skill"},
		"several-series": {func(f *forecast) { f.series = 2 }, http.StatusUnprocessableEntity, "several series (2)"},
		"no-series":      {func(f *forecast) { f.series = 0 }, http.StatusServiceUnavailable, "no forecast yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForecast(ns, name, long("1")...)
			bad.change(&f)
			f.write(t, c)
			eventually(t, "the error that says so", func(ctx context.Context) error {
				_, err := raw(ctx, forecastPath(autoscalingv1alpha1.MetricPrediction, f.key()))
				return checkStatus(err, bad.code, bad.say, "ehpa-"+name)
			})
		})
	}
}

// TestCron checks the cron metric: the floor of an open window, and the errors for no autoscaler and for two.
func TestCron(t *testing.T) {
	start(t)
	c := newClient(t)
	ns := namespaceFor(t)

	ehpa := func(name, target string) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
		e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		e.Spec.ScaleTargetRef.APIVersion = "apps/v1"
		e.Spec.ScaleTargetRef.Kind = "Deployment"
		e.Spec.ScaleTargetRef.Name = target
		e.Spec.MinReplicas = new(int32(2))
		e.Spec.MaxReplicas = 20

		// One window is open from the first minute of each day on, the other opens in half a year.
		e.Spec.Crons = []autoscalingv1alpha1.CronSpec{
			{CronName: "open", Start: "0 0 * * *", End: "0 0 1 1 *", TargetReplicas: 7},
			{CronName: "closed", Start: autoscalingv1alpha1.CronExpression(fmt.Sprintf("0 0 1 %d *", (time.Now().Month()+5)%12+1)), End: "* * * * *", TargetReplicas: 19},
		}

		return e
	}

	for _, e := range []*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ehpa("one", "web"), ehpa("two", "twice"), ehpa("three", "twice")} {
		if err := c.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}

	path := func(target string) string {
		key := newForecast(ns, target).key()
		key.Identifier = "cron"
		return forecastPath(autoscalingv1alpha1.MetricCron, key)
	}

	eventually(t, "the floor is served", func(ctx context.Context) error {
		values, err := readExternal(ctx, path("web"))
		if err == nil && (len(values) != 1 || values[0].Value.String() != "7" || time.Since(values[0].Timestamp.Time) > waitTimeout) {
			err = fmt.Errorf("got %v", values)
		}

		return err
	})

	eventually(t, "two autoscalers of one target are an error", func(ctx context.Context) error {
		_, err := raw(ctx, path("twice"))
		return checkStatus(err, http.StatusUnprocessableEntity, "there are 2", "two", "three")
	})

	_, err := raw(t.Context(), path("missing"))
	if err := checkStatus(err, http.StatusNotFound, "no EffectiveHorizontalPodAutoscaler with crons"); err != nil {
		t.Error(err)
	}
}

// TestMetricsRequirePermission checks that metrics require permission, that a permission in one namespace is limited to it, and that requests for
// metrics cause no requests to the Kubernetes API.
func TestMetricsRequirePermission(t *testing.T) {
	a := start(t)
	ns := namespaceFor(t)
	elsewhere := namespaceFor(t)
	path := writeServedForecast(t, ns)
	eventually(t, "the forecast is served", func(ctx context.Context) error { return want500m(ctx, path) })

	reader, err := control.ConfigFor(t.Context(), controlplane.CertificateUser("reader"))
	if err != nil {
		t.Fatal(err)
	}

	_, err = rawAs(t.Context(), reader, path)
	if err := checkStatus(err, http.StatusForbidden, "reader"); err != nil {
		t.Error(err)
	}

	rbac := clientset().RbacV1()
	meta := metav1.ObjectMeta{Name: "read-metrics"}
	if _, err := rbac.Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"external.metrics.k8s.io"}, Resources: []string{autoscalingv1alpha1.MetricPrediction}, Verbs: []string{"list"},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if _, err := rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "reader"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the reader reads", func(ctx context.Context) error {
		_, err := rawAs(ctx, reader, path)
		return err
	})

	_, err = rawAs(t.Context(), reader, strings.Replace(path, "/namespaces/"+ns, "/namespaces/"+elsewhere, 1))
	if err := checkStatus(err, http.StatusForbidden, elsewhere); err != nil {
		t.Error(err)
	}
	// Requests that bypass the API server are rejected.
	if body, err := a.get(t.Context(), path); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an anonymous request to the adapter: %q, %v, want 403", body, err)
	}

	// The requests come from the user of the HPA controller, for metrics that were not requested before.
	controller, err := control.ConfigFor(t.Context(), controlplane.CertificateUser("system:serviceaccount:kube-system:horizontal-pod-autoscaler"))
	if err != nil {
		t.Fatal(err)
	}

	before := a.kubernetesRequests(t)
	const asked = 300
	for i := range asked {
		other := strings.Replace(path, "/namespaces/"+ns, fmt.Sprintf("/namespaces/none-%d", i), 1)
		_, err := rawAs(t.Context(), controller, other)
		if err := checkStatus(err, http.StatusBadRequest, "targetNamespace"); err != nil {
			t.Fatal(err)
		}
	}

	if cost := a.kubernetesRequests(t) - before; cost > asked/10 {
		t.Errorf("%d requests for a metric cost %v requests to the Kubernetes API, want at most a tenth", asked, cost)
	}
}

// metrics reads the metrics of the adapter as an administrator.
func (a adapter) metrics(ctx context.Context) (string, error) {
	as := control.Config()
	as.Host = "https://" + a.address
	as.TLSClientConfig.Insecure = true
	as.TLSClientConfig.CAData = nil
	body, err := rawAs(ctx, as, "/metrics")

	return string(body), err
}

// kubernetesRequests returns the number of requests of the adapter to the API server.
func (a adapter) kubernetesRequests(t *testing.T) float64 {
	t.Helper()

	text, err := a.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	sum := 0.0
	found := false
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "crane_metric_adapter_kubernetes_requests_total{"); ok {
			var v float64
			_, value, _ := strings.Cut(rest, "} ")
			if _, err := fmt.Sscan(value, &v); err != nil {
				t.Fatal(err)
			}

			sum += v
			found = true
		}
	}

	if !found {
		t.Fatal("the adapter's metrics lack its requests, want a count of them")
	}

	return sum
}

// TestExpiredCertificate checks that an expired certificate is replaced before serving, and also while the adapter runs, with the CA
// bundles of the APIServices.
func TestExpiredCertificate(t *testing.T) {
	secrets := clientset().CoreV1().Secrets(systemNamespace)
	past := func() time.Time { return time.Now().Add(-800 * 24 * time.Hour) }
	authority, err := pki.NewAuthority("crane", 365*24*time.Hour, past)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := authority.IssueServing("metric-adapter.crane-system.svc")
	if err != nil {
		t.Fatal(err)
	}

	old := map[string][]byte{"ca.crt": authority.CertPEM(), "ca.key": authority.KeyPEM(), "tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM}
	const name = "metric-adapter-certificate"
	err = secrets.Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: old}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	start(t)
	path := writeServedForecast(t, namespaceFor(t))
	eventually(t, "the forecast is served", func(ctx context.Context) error { return want500m(ctx, path) })

	secret, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	secret.Data = old
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "another certificate is made and served", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if string(secret.Data["tls.crt"]) == string(pair.CertPEM) {
			return fmt.Errorf("the Secret still holds the old one")
		}

		return want500m(ctx, path)
	})
}

// TestSecondReplicaTakesOver checks that a second replica shares the certificate and serves after the first has stopped.
func TestSecondReplicaTakesOver(t *testing.T) {
	first := start(t)
	path := writeServedForecast(t, namespaceFor(t))
	eventually(t, "the first serves", func(ctx context.Context) error { return want500m(ctx, path) })
	second := startUnregistered(t)
	eventually(t, "the second is ready", func(ctx context.Context) error { return second.readyz(ctx, "") })
	pointAPIServices(t, second.address)
	first.Stop(t)
	eventually(t, "the second serves", func(ctx context.Context) error { return want500m(ctx, path) })
}

// TestAPIServerRestarted checks that the adapter survives an outage of the API server and then follows changes.
func TestAPIServerRestarted(t *testing.T) {
	a := start(t)
	ns := namespaceFor(t)
	path := writeServedForecast(t, ns)
	eventually(t, "the forecast is served", func(ctx context.Context) error { return want500m(ctx, path) })

	if err := control.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	if err := a.readyz(t.Context(), ""); err != nil {
		t.Errorf("readiness without an API server: %v", err)
	}
	if err := control.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the forecast is served again", func(ctx context.Context) error { return want500m(ctx, path) })
	newForecast(ns, "web", valuesWithPeak(9, "2")...).write(t, newClient(t))
	eventually(t, "a new forecast is served", func(ctx context.Context) error {
		values, err := readExternal(ctx, path)
		if err == nil && values[0].Value.String() != "2" {
			err = fmt.Errorf("got %s", values[0].Value.String())
		}

		return err
	})

	select {
	case <-a.Done():
		t.Errorf("the adapter ended: %v, want it running", a.Err())
	default:
	}
}

// TestRemoteAdapter checks that requests are forwarded to another adapter with a verified certificate and the permissions of this
// one.
func TestRemoteAdapter(t *testing.T) {
	ns := namespaceFor(t)
	p := openPrometheus(t, ns)
	p.put(t, map[string]float64{"queue_len_mail{queue=a}": 4.5, "http_requests_total{namespace=" + ns + ",pod=web-0}": 1.25})
	createPod(t, ns, "web-0")
	dir := t.TempDir()

	certPEM, keyPEM, err := control.IssueServing("other.monitoring.svc")
	if err != nil {
		t.Fatal(err)
	}

	rulesFile := filepath.Join(dir, "rules.yaml")
	certFile := filepath.Join(dir, "tls.crt")
	keyFile := filepath.Join(dir, "tls.key")
	for file, content := range map[string][]byte{rulesFile: []byte(rulesText), certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	other := startUnregistered(t, "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile,
		"--prometheus-adapter-config="+rulesFile, "--prometheus-address="+p.URL(), "--metrics-relist-interval=1s",
		"--authorization-webhook-cache-unauthorized-ttl=1s")
	remote := []string{
		"--remote-adapter", "--remote-adapter-service-namespace=monitoring", "--remote-adapter-service-name=other",
		"--remote-adapter-address=" + other.address, "--discovery-interval=1s",
	}
	mail := externalPath(ns, "queue_len_of_mail", "queue=a")

	t.Run("with an unverified certificate", func(t *testing.T) {
		a := start(t, remote...)
		eventually(t, "the certificate is refused", func(ctx context.Context) error {
			_, err := raw(ctx, mail)
			if log := a.Log.String(); !strings.Contains(log, "failed to verify certificate") {
				return errors.New("the log does not name the certificate")
			}

			return checkStatus(err, http.StatusServiceUnavailable, "remote adapter: it cannot be reached; the log of metric-adapter has the reason")
		})
	})

	a := start(t, append(remote, "--remote-adapter-ca-file="+control.CAFile())...)
	eventually(t, "it denies this adapter access", func(ctx context.Context) error {
		_, err := raw(ctx, mail)
		return checkStatus(err, http.StatusServiceUnavailable, "denies this adapter access")
	})
	allowMetricsOfRemote(t)

	eventually(t, "the external metric is passed on", func(ctx context.Context) error {
		values, err := readExternal(ctx, mail)
		if err == nil && (len(values) != 1 || values[0].Value.String() != "4500m" || values[0].MetricLabels["queue"] != "a") {
			err = fmt.Errorf("got %v", values)
		}

		return err
	})

	eventually(t, "the custom metric is passed on", func(ctx context.Context) error {
		values, err := readCustom(ctx, "/namespaces/"+ns+"/pods/*/http_requests_sum?labelSelector=app%3Dweb")
		if err == nil && (len(values) != 1 || values[0].Value.String() != "1250m") {
			err = fmt.Errorf("got %v", values)
		}

		return err
	})

	eventually(t, "its metrics are listed, and the adapter is ready", func(ctx context.Context) error {
		body, err := raw(ctx, "/apis/external.metrics.k8s.io/v1beta1")
		var list metav1.APIResourceList
		if err == nil {
			err = json.Unmarshal(body, &list)
		}

		if err == nil && !strings.Contains(string(body), "queue_len_of_mail") {
			err = fmt.Errorf("got %s", body)
		}
		if err == nil {
			err = a.readyz(ctx, "")
		}

		return err
	})

	_, err = raw(t.Context(), externalPath(ns, "nowhere", ""))
	if err := checkStatus(err, http.StatusNotFound, "remote adapter", "nowhere"); err != nil {
		t.Error(err)
	}
}
