// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/test/integration/harness"
)

const (
	// waitTimeout bounds each wait. On an idle machine a wait takes seconds.
	waitTimeout = 2 * time.Minute
	// stopTimeout bounds the shutdown of the adapter.
	stopTimeout     = 30 * time.Second
	systemNamespace = "crane-system"
)

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// pointAPIServices applies the Service and the APIServices of config/ with the port of an address.
func pointAPIServices(t *testing.T, address string) {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}

	if objects, err = redirect.MetricAdapter(objects, number); err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(control.Config(), "metric-adapter-test")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// sharedKubeconfig returns the kubeconfig of the adapter's service account, with one token for all tests.
var sharedKubeconfig = sync.OnceValues(func() (string, error) {
	return control.KubeconfigFor(context.Background(), "metric-adapter", controlplane.ServiceAccount(systemNamespace, "metric-adapter"))
})

// adapter is a running metric-adapter.
type adapter struct {
	*harness.Process
	address string
}

// start runs an adapter with the rights of config/rbac, registers it and waits until its APIs are served.
func start(t *testing.T, args ...string) adapter {
	t.Helper()

	a := startUnregistered(t, args...)
	pointAPIServices(t, a.address)

	// The API server discovers each version separately, with growing backoff while the adapter starts.
	for _, version := range []string{"external.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1"} {
		eventually(t, version+" is served", func(ctx context.Context) error {
			_, err := raw(ctx, "/apis/"+version)
			return err
		})
	}

	return a
}

// startUnregistered runs an adapter without registering it.
func startUnregistered(t *testing.T, args ...string) adapter {
	t.Helper()

	kubeconfig, err := sharedKubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	address := harness.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	args = append([]string{"--lister-kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=" + port, "--v=1"}, args...)

	return adapter{harness.Start(t, stopTimeout, binary, args...), address}
}

// clientset returns the clientset of an administrator.
func clientset() kubernetes.Interface { return kubernetes.NewForConfigOrDie(control.Config()) }

// raw reads a path like kubectl get --raw. A code other than 200 is an error with the status.
func raw(ctx context.Context, path string) ([]byte, error) { return rawAs(ctx, control.Config(), path) }

// rawAs reads a path as another user.
func rawAs(ctx context.Context, as *rest.Config, path string) ([]byte, error) {
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		return nil, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, as.Host+path, http.NoBody)
	if err != nil {
		return nil, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return body, err
	}

	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}

	return nil, &apierrors.StatusError{ErrStatus: status}
}

// newClient returns the uncached client of an administrator.
func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := harness.NewClient(control.Config(), predictionv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// namespaceFor creates a namespace for a test.
func namespaceFor(t *testing.T) string {
	t.Helper()

	ns, err := clientset().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "adapter-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	harness.AwaitServiceAccount(t.Context(), t, waitTimeout, newClient(t), ns.Name)
	return ns.Name
}

// forecastPath returns the path of an external metric with the selector of a key.
func forecastPath(metric string, key scalingmetric.Key) string {
	return externalPath(key.TargetNamespace, metric, labels.Set(key.MatchLabels()).String())
}

func externalPath(namespace, metric, selector string) string {
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/" + metric
	if selector != "" {
		path += "?labelSelector=" + strings.NewReplacer("=", "%3D", ",", "%2C", " ", "%20").Replace(selector)
	}

	return path
}

// readExternal reads an external metric as an administrator.
func readExternal(ctx context.Context, path string) ([]externalv1beta1.ExternalMetricValue, error) {
	var list externalv1beta1.ExternalMetricValueList
	body, err := raw(ctx, path)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}

	return list.Items, err
}

// checkStatus checks that an error is a status with a code, and parts of its message.
func checkStatus(err error, code int32, parts ...string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("got %v, want a status", err)
	}

	got := status.Status()
	if got.Code != code {
		return fmt.Errorf("got code %d (%s), want %d", got.Code, got.Message, code)
	}

	for _, part := range parts {
		if !strings.Contains(err.Error()+got.Message, part) {
			return fmt.Errorf("message %q does not contain %q", got.Message, part)
		}
	}

	return nil
}

// forecast describes a TimeSeriesPrediction with a forecast.
type forecast struct {
	namespace, target, identifier string
	values                        []string
	// from is the time of the first value; the others follow each minute.
	from  time.Time
	skill string
	// series is the number of series, which have the same values.
	series int
}

const window = 10 * time.Minute

// newForecast returns a usable forecast.
func newForecast(namespace, target string, values ...string) forecast {
	return forecast{namespace: namespace, target: target, identifier: "resource.cpu", values: values, from: time.Now(), skill: "0.8", series: 1}
}

// valuesWithPeak returns the values of half an hour: 0.1, and a peak at one minute. The window of ten minutes covers the peak long enough
// for a slow machine.
func valuesWithPeak(minute int, peak string) []string {
	values := make([]string, 30)
	for i := range values {
		values[i] = "0.1"
	}

	values[minute] = peak
	return values
}

func (f forecast) key() scalingmetric.Key {
	return scalingmetric.Key{TargetKind: "Deployment", TargetName: f.target, TargetNamespace: f.namespace, Identifier: f.identifier}
}

// write creates or replaces the prediction.
func (f forecast) write(t *testing.T, c client.Client) {
	t.Helper()

	tsp := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: "ehpa-" + f.target,
		Labels: map[string]string{autoscalingv1alpha1.LabelManagedBy: autoscalingv1alpha1.ManagedByEffectiveHPA},
	}}

	if err := c.Get(t.Context(), client.ObjectKeyFromObject(tsp), tsp); apierrors.IsNotFound(err) {
		tsp.Spec = predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef:               &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: f.target, Namespace: f.namespace},
			PredictionWindowSeconds: int32(window / time.Second),
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: f.identifier, Type: predictionv1alpha1.ExpressionQueryMetricType,
				ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "vector(1)"},
				Algorithm:       predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP, DSP: &predictionv1alpha1.DSP{}},
			}},
		}

		if err := c.Create(t.Context(), tsp); err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}

	made := metav1.NewTime(f.from.Truncate(time.Second))
	metric := predictionv1alpha1.PredictionMetricStatus{ResourceIdentifier: f.identifier, Ready: true, UpdateTime: &made, LastSampleTime: &made, Skill: f.skill}
	for range f.series {
		metric.Prediction = append(metric.Prediction, harness.MinuteSeries(f.from, f.values))
	}

	tsp.Status = predictionv1alpha1.TimeSeriesPredictionStatus{PredictionMetrics: []predictionv1alpha1.PredictionMetricStatus{metric}}
	if err := c.Status().Update(t.Context(), tsp); err != nil {
		t.Fatal(err)
	}
}
