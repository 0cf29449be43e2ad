// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"crane.io/crane/internal/testbed/promserver"
)

// rulesText is a typical configuration of prometheus-adapter.
const rulesText = `
rules:
- seriesQuery: '{__name__=~"^http_.*_total$",namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_sum"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__=~"^queue_.*"}'
  resources: {namespaced: false}
  name: {matches: "^queue_(len|age)_(.*)$", as: "queue_${1}_of_${2}"}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
`

// prometheus is a server with the samples of a test.
type prometheus struct {
	*promserver.Server
	ns string
}

func openPrometheus(t *testing.T, ns string) prometheus {
	t.Helper()

	p, err := promserver.Open(promserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})

	return prometheus{p, ns}
}

// put writes samples, each as name, labels and value.
func (p prometheus) put(t *testing.T, samples map[string]float64) {
	t.Helper()

	var batch []promserver.Sample
	for text, v := range samples {
		name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		pairs := []string{"__name__", name}
		for pair := range strings.SplitSeq(rest, ",") {
			if k, v, ok := strings.Cut(pair, "="); ok {
				pairs = append(pairs, k, v)
			}
		}

		batch = append(batch, promserver.Sample{Labels: labels.FromStrings(pairs...), Value: v})
	}

	if err := p.Append(t.Context(), "test", time.Now(), batch); err != nil {
		t.Fatal(err)
	}
}

// startWithRules runs an adapter with rules for a server.
func startWithRules(t *testing.T, p prometheus, text string, args ...string) (a adapter, file string) {
	t.Helper()

	file = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return start(t, append([]string{
		"--prometheus-adapter-config=" + file, "--prometheus-address=" + p.URL(), "--metrics-relist-interval=1s",
	}, args...)...), file
}

func readCustom(ctx context.Context, path string) ([]customv1beta2.MetricValue, error) {
	var list customv1beta2.MetricValueList
	body, err := raw(ctx, "/apis/custom.metrics.k8s.io/v1beta2"+path)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}

	return list.Items, err
}

// TestRulesDefineMetrics checks metrics that PromQL rules define, selectors of pods, and an invalid change of the rules.
func TestRulesDefineMetrics(t *testing.T) {
	ns := namespaceFor(t)
	p := openPrometheus(t, ns)
	samples := map[string]float64{
		"http_requests_total{namespace=" + ns + ",pod=web-0}":   1.5,
		"http_requests_total{namespace=" + ns + ",pod=web-1}":   0.25,
		"http_requests_total{namespace=" + ns + ",pod=other-0}": 100,
		"http_requests_total{namespace=elsewhere,pod=web-0}":    1000,
		"http_errors_total{namespace=" + ns + ",pod=web-0}":     math.NaN(),
		"queue_len_mail{queue=a}":                               0.0625,
		"queue_len_mail{queue=b}":                               3,
		"queue_age_mail{queue=a}":                               math.NaN(),
	}

	for i := range 1001 {
		samples[fmt.Sprintf("queue_len_many{queue=q%d}", i)] = 1
	}

	p.put(t, samples)
	for _, pod := range []string{"web-0", "web-1", "web-2", "other-0"} {
		createPod(t, ns, pod)
	}

	a, file := startWithRules(t, p, rulesText)

	t.Run("external metrics keep their precision and their labels", func(t *testing.T) {
		eventually(t, "both series are served", func(ctx context.Context) error {
			values, err := readExternal(ctx, externalPath(ns, "queue_len_of_mail", ""))
			if err != nil {
				return err
			}

			got := map[string]string{}
			for _, v := range values {
				got[v.MetricLabels["queue"]] = v.Value.String()
			}

			if fmt.Sprint(got) != "map[a:63m b:3]" {
				return fmt.Errorf("got %v", got)
			}

			return nil
		})

		values, err := readExternal(t.Context(), externalPath(ns, "queue_len_of_mail", "queue=b"))
		if err != nil || len(values) != 1 || values[0].Value.String() != "3" {
			t.Errorf("with a selector: %v, %v, want 3", values, err)
		}
	})

	t.Run("custom metrics of pods that labels select", func(t *testing.T) {
		path := "/namespaces/" + ns + "/pods/*/http_requests_sum?labelSelector=app%3Dweb"
		eventually(t, "both pods have values", func(ctx context.Context) error {
			values, err := readCustom(ctx, path)
			if err != nil {
				return err
			}

			got := map[string]string{}
			for _, v := range values {
				got[v.DescribedObject.Kind+"/"+v.DescribedObject.Name] = v.Value.String()
			}

			if fmt.Sprint(got) != "map[Pod/web-0:1500m Pod/web-1:250m]" {
				return fmt.Errorf("got %v", got)
			}

			return nil
		})
	})

	for name, c := range map[string]struct{ path, want string }{
		"of one pod":      {"/namespaces/" + ns + "/pods/web-1/http_requests_sum", "250m"},
		"of a namespace":  {"/namespaces/" + ns + "/metrics/http_requests_sum", "101750m"},
		"in the singular": {"/namespaces/" + ns + "/pod/web-1/http_requests_sum", "250m"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := readCustom(t.Context(), c.path)
			if err != nil || len(values) != 1 || values[0].Value.String() != c.want {
				t.Errorf("got %v, %v; want %s", values, err, c.want)
			}
		})
	}

	t.Run("what there is, is listed", func(t *testing.T) {
		for group, want := range map[string][]string{
			"external.metrics.k8s.io/v1beta1": {"crane_autoscaling_cron", "crane_autoscaling_prediction", "queue_len_of_mail"},
			"custom.metrics.k8s.io/v1beta2":   {"pods/http_requests_sum", "namespaces/http_requests_sum"},
			"custom.metrics.k8s.io/v1beta1":   {"pods/http_requests_sum"},
		} {
			body, err := raw(t.Context(), "/apis/"+group)
			if err != nil {
				t.Fatal(err)
			}

			var list metav1.APIResourceList
			if err := json.Unmarshal(body, &list); err != nil {
				t.Fatal(err)
			}

			for _, name := range want {
				if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
					t.Errorf("%s lists %v, want %s", group, list.APIResources, name)
				}
			}
		}
	})

	const customBase = "/apis/custom.metrics.k8s.io/v1beta2"
	for name, bad := range map[string]struct {
		path  string
		code  int32
		parts []string
	}{
		"a value that is no number": {externalPath(ns, "queue_age_of_mail", ""), http.StatusServiceUnavailable, []string{"NaN", "is not a number"}},
		"a selector that matches no series": {
			externalPath(ns, "queue_len_of_mail", "queue=none"), http.StatusNotFound, []string{"no series match", "none"},
		},
		"a selector that matches thousands": {externalPath(ns, "queue_len_of_many", ""), http.StatusUnprocessableEntity, []string{"1001 series", "aggregate"}},
		"pods that are not there": {
			customBase + "/namespaces/" + ns + "/pods/*/http_requests_sum?labelSelector=app%3Dnone", http.StatusNotFound, []string{"no pods", "app=none"},
		},
		"pods without a number": {
			customBase + "/namespaces/" + ns + "/pods/web-0/http_errors_sum", http.StatusServiceUnavailable, []string{"none of 1 values is a number"},
		},
		"a metric without a rule": {customBase + "/namespaces/" + ns + "/pods/web-0/unknown", http.StatusNotFound, []string{"unknown", "no rule"}},
		"a resource that is not there": {
			customBase + "/namespaces/" + ns + "/gadgets/web-0/http_requests_sum", http.StatusNotFound, []string{"gadgets", "no such resource"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := raw(t.Context(), bad.path)
			if err := checkStatus(err, bad.code, bad.parts...); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("a bad file leaves the old rules in force", func(t *testing.T) { testReload(t, a, ns, file) })
}

func testReload(t *testing.T, a adapter, ns, file string) {
	write := func(text string) {
		t.Helper()

		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	listed := func(ctx context.Context) string {
		body, _ := raw(ctx, "/apis/external.metrics.k8s.io/v1beta1")
		return string(body)
	}
	write("externalRules: [{seriesQuery: 'queue_len_mail', metricsQuery: '<<.Serie>>'}]")

	eventually(t, "the invalid file is reported", func(ctx context.Context) error {
		text, err := a.metrics(ctx)
		if err == nil && !strings.Contains(text, "crane_metric_adapter_rules_invalid 1") {
			err = fmt.Errorf("no sign of it")
		}

		return err
	})

	if _, err := readExternal(t.Context(), externalPath(ns, "queue_len_of_mail", "")); err != nil {
		t.Errorf("the old rules: %v", err)
	}

	write("externalRules: [{seriesQuery: 'queue_len_mail', name: {as: 'mails'}, resources: {namespaced: false}, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}]")
	eventually(t, "the new rules are in force", func(ctx context.Context) error {
		values, err := readExternal(ctx, externalPath(ns, "mails", ""))
		if err != nil {
			return err
		}

		if len(values) != 1 || values[0].Value.String() != "3063m" || !strings.Contains(listed(ctx), "mails") {
			return fmt.Errorf("got %v", values)
		}

		return nil
	})

	_, err := raw(t.Context(), externalPath(ns, "queue_len_of_mail", ""))
	if err := checkStatus(err, http.StatusNotFound, "no rule"); err != nil {
		t.Errorf("the old rules: %v", err)
	}
}

// createPod creates a pod with the label app, which no kubelet runs.
func createPod(t *testing.T, ns, name string) {
	t.Helper()

	app, _, _ := strings.Cut(name, "-")
	_, err := clientset().CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrometheusGone checks that its metrics become unavailable with a reason, that Crane's metrics do not, and the readiness of
// both.
func TestPrometheusGone(t *testing.T) {
	ns := namespaceFor(t)
	p := openPrometheus(t, ns)
	p.put(t, map[string]float64{"queue_len_mail{queue=a}": 1})
	a, _ := startWithRules(t, p, rulesText)
	forecast := writeServedForecast(t, ns)
	mail := externalPath(ns, "queue_len_of_mail", "")

	served := func(ctx context.Context) error {
		if _, err := readExternal(ctx, mail); err != nil {
			return err
		}

		return a.readyz(ctx, "")
	}

	eventually(t, "the metric is served, and the adapter ready", served)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the metric is unavailable, and the adapter not ready", func(ctx context.Context) error {
		_, err := raw(ctx, mail)
		if err := checkStatus(err, http.StatusServiceUnavailable, "queue_len_of_mail", "Prometheus cannot be reached"); err != nil {
			return err
		}

		if err := a.readyz(ctx, ""); err == nil || !strings.Contains(err.Error(), "[-]prometheus failed") {
			return fmt.Errorf("readyz: %w", err)
		}

		return nil
	})

	if err := a.readyz(t.Context(), "?exclude=prometheus&exclude=remote-adapter"); err != nil {
		t.Errorf("readiness of the rest: %v", err)
	}

	eventually(t, "the forecast is served", func(ctx context.Context) error { return want500m(ctx, forecast) })
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the metric is served again", served)
}

// readyz returns the readiness of the adapter, not ready as an error with the response.
func (a adapter) readyz(ctx context.Context, query string) error {
	_, err := a.get(ctx, "/readyz"+query)
	return err
}
