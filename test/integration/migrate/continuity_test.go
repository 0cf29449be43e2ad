// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/internal/testbed/simnode/tunnel"
	"crane.io/crane/test/controlplanetest"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/integration/harness/fleet"
)

// loadNamespace has the workloads under load.
const loadNamespace = "load"

// loadedWorkload is a Deployment under load.
type loadedWorkload struct {
	name     string
	replicas int64
	// cores is the mean load of all pods together; it moves by 5 %.
	cores float64
	// metrics are those of gocrane's HPA beside CPU at 250m a pod; none has no HPA.
	scaled, forecast, cron bool
}

// loadedWorkloads returns workloads whose replicas are held by CPU, by a forecast and by a schedule, and by no autoscaler.
func loadedWorkloads() []loadedWorkload {
	return []loadedWorkload{
		{name: "by-cpu", replicas: 3, cores: 0.72, scaled: true},
		{name: "by-forecast", replicas: 5, cores: 0.60, scaled: true, forecast: true},
		{name: "by-schedule", replicas: 6, cores: 0.60, scaled: true, cron: true},
		{name: "alone", replicas: 2, cores: 0.30},
	}
}

// daily is the load of by-forecast by the time of day: it is lowest now and highest, 1.2 cores, in 12 hours.
func daily(start time.Time) func(time.Time) float64 {
	return func(at time.Time) float64 {
		return 0.9 - 0.3*math.Cos(2*math.Pi*at.Sub(start).Hours()/24)
	}
}

// Use implements simnode.Load: the pods of a workload share its load.
func (l *loadOf) Use(pod *corev1.Pod, _ string, at time.Time) simnode.Use {
	name := pod.Labels["app"]
	for _, w := range loadedWorkloads() {
		if n := l.replicas[w.name]; w.name == name && n != nil {
			wave := 1 + 0.05*math.Sin(float64(at.UnixMilli())/7000)
			return simnode.Use{CPU: w.cores * wave / float64(max(1, n.Load())), Memory: 100 << 20, Known: true}
		}
	}

	return simnode.Use{Known: true}
}

// loadOf is the load of the workloads by their current replicas.
type loadOf struct{ replicas map[string]*atomic.Int64 }

// TestRunUnderLoad migrates a cluster with workloads under load, with Crane's own processes, and compares it second by second: no replica changes, no
// pod restarts or is replaced, and every HPA has all metrics in every second. Then it goes back, moves again and removes Crane.
func TestRunUnderLoad(t *testing.T) {
	needsFixtures(t)
	f, c := newLoadedFixture(t)
	f.install("yaml", "crane-system", smallSize())
	f.simulateWith(c)
	f.settle()
	f.awaitLoaded()
	watch := f.observe()
	f.run("run", 4, registry, imageTag, "--evpa=off")
	watch.hold(20 * time.Second)
	f.run("run", 0, "--continue")

	watch.hold(10 * time.Second)
	f.checkTakenOver()
	watch.report("run")
	f.run("undo", 0)
	watch.hold(10 * time.Second)

	watch.report("undo")
	f.run("run", 0, registry, imageTag, "--evpa=off", "--continue")
	f.run("finish", 0, "--yes")
	watch.hold(10 * time.Second)
	watch.report("second run")
	watch.leave()
}

// newLoadedFixture starts a control plane whose API server reaches Services, nodes whose pods have the load, and a Prometheus with its history.
func newLoadedFixture(t *testing.T) (*fixture, *containers) {
	t.Helper()

	ctx := t.Context()
	dir := t.TempDir()
	binaries := map[string]string{}
	for _, command := range []string{"craned", "metric-adapter"} {
		path, err := harness.Binary(ctx, dir, command)
		if err != nil {
			t.Fatal(err)
		}

		binaries[command] = path
	}

	network := newNetwork(t)
	control := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager},
		ExtraArgs: map[controlplane.Component][]string{
			controlplane.APIServer: network.APIServerArgs(),
			controlplane.ControllerManager: {
				"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
				"--horizontal-pod-autoscaler-initial-readiness-delay=1s", "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
			},
		},
	})

	api, err := client.New(quiet(control.Config()), client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{T: t, control: control, client: api, load: &loadOf{map[string]*atomic.Int64{}}}
	if f.discovery, err = discovery.NewDiscoveryClientForConfig(control.Config()); err != nil {
		t.Fatal(err)
	}

	for _, w := range loadedWorkloads() {
		f.load.replicas[w.name] = &atomic.Int64{}
		f.load.replicas[w.name].Store(w.replicas)
	}

	c := &containers{fixture: f, binaries: binaries, logs: t.TempDir(), byPod: map[string]*container{}, forecast: func(string) string { return "1200m" }}
	serve(t, network, c.route, c.endAll)
	c.prometheus = f.history()
	f.startFleet(network)

	return f, c
}

// startFleet runs the nodes of the workloads under load until the test ends.
func (f *fixture) startFleet(network *tunnel.Tunnel) {
	f.Helper()

	file, names := f.control.FrontProxy()
	proxies, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}

	serving := &simnode.Serving{
		CA: f.control.CAPEM(), ClientCA: x509.NewCertPool(), FrontProxyCA: x509.NewCertPool(), FrontProxyNames: names, Metrics: true, Tunnel: network,
		Cert: func(hosts ...string) (tls.Certificate, error) {
			cert, key, err := f.control.IssueServing(hosts...)
			if err != nil {
				return tls.Certificate{}, err
			}

			return tls.X509KeyPair(cert, key)
		},
	}

	if !serving.ClientCA.AppendCertsFromPEM(f.control.CAPEM()) || !serving.FrontProxyCA.AppendCertsFromPEM(proxies) {
		f.Fatal("no certificate in the authorities of the control plane, want one")
	}

	timing := simnode.DefaultTiming()
	timing.Create = 100 * time.Millisecond
	timing.Ready = 100 * time.Millisecond
	node := func(name string) simnode.NodeSpec {
		return simnode.NodeSpec{Name: name, CPU: resource.MustParse("16"), Memory: resource.MustParse("32Gi")}
	}

	_, stop, err := fleet.Start(f.Context(), simnode.Config{
		Client: f.control.Config(), Nodes: []simnode.NodeSpec{node("loaded-0"), node("loaded-1")}, Load: f.load, Serving: serving, Timing: timing, Sample: time.Second,
	})
	if err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { _ = stop() })
}

// history opens a Prometheus with nine days of the load and returns its address.
func (f *fixture) history() string {
	f.Helper()

	server, err := promserver.Open(promserver.Options{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { _ = server.Close() })
	now := time.Now().Truncate(time.Minute)
	grid := promserver.Grid{Start: now.Add(-9 * 24 * time.Hour), End: now, Step: time.Minute}

	var all []promserver.Series
	for _, w := range loadedWorkloads() {
		load := func(time.Time) float64 { return w.cores }
		if w.forecast {
			load = daily(now)
		}

		total := 0.0
		all = append(all, promserver.Series{
			Labels: labels.FromStrings("__name__", "container_cpu_usage_seconds_total", "namespace", loadNamespace, "pod", w.name+"-5c5d5b5f5f-abcde", "container", "main", "image", "i", "job", "cadvisor"),
			Fill: func(dst []float64, first int) {
				for i := range dst {
					total += 60 * load(grid.Start.Add(time.Duration(first+i)*time.Minute))
					dst[i] = total
				}
			},
		})
	}

	if _, err := server.Backfill(f.Context(), grid, all); err != nil {
		f.Fatal(err)
	}

	return server.URL()
}

// createLoaded creates the workloads under load with their autoscalers and what gocrane made of them.
func (f *fixture) createLoaded(now time.Time) {
	f.Helper()

	f.create("kubectl", false, namespaced("v1", "Namespace", "", loadNamespace, nil), namespaced("v1", "ServiceAccount", loadNamespace, "default", nil))
	for _, w := range loadedWorkloads() {
		spec := podTemplateSpec(w.name)
		spec["replicas"] = w.replicas
		f.create("kubectl", false, namespaced("apps/v1", "Deployment", loadNamespace, w.name, map[string]any{"spec": spec}))

		if !w.scaled {
			continue
		}

		e := ehpa(loadNamespace, w.name, 1)
		unstructured.RemoveNestedField(e.Object, "spec", "prediction")

		if w.forecast {
			_ = unstructured.SetNestedMap(e.Object, map[string]any{"predictionWindowSeconds": int64(12 * 3600), "predictionAlgorithm": map[string]any{
				"algorithmType": "dsp", "dsp": map[string]any{"sampleInterval": "60s", "historyLength": "7d"},
			}}, "spec", "prediction")
		}

		if w.cron {
			window := func(name, start, end string) any {
				return map[string]any{"name": name, "start": start, "end": end, "targetReplicas": int64(6)}
			}
			_ = unstructured.SetNestedSlice(e.Object, []any{window("first", "0 0 * * *", "0 12 * * *"), window("second", "0 12 * * *", "0 0 * * *")}, "spec", "crons")
		}

		f.create("kubectl", true, e)
		made := f.madeFor(e)
		if !w.forecast {
			made = slices.DeleteFunc(made, func(o *object) bool { return o.GetKind() == "TimeSeriesPrediction" })
			withoutForecast(made[0])
		} else {
			freshForecast(made[1], now)
		}

		f.create("craned", true, made...)
	}
}

// withoutForecast removes the forecast from the metrics of an HPA.
func withoutForecast(hpa *object) {
	metrics, _, _ := unstructured.NestedSlice(hpa.Object, "spec", "metrics")
	_ = unstructured.SetNestedSlice(hpa.Object, slices.DeleteFunc(metrics, func(m any) bool { return strings.Contains(fmt.Sprint(m), "crane_autoscaling_prediction") }), "spec", "metrics")
}

// freshForecast sets a forecast of the next 24 hours, as gocrane's craned does each minute.
func freshForecast(tsp *object, now time.Time) {
	load := daily(now)
	var samples []any
	for i := range 24 * 60 {
		at := now.Truncate(time.Minute).Add(time.Duration(i) * time.Minute)
		samples = append(samples, map[string]any{"timestamp": at.Unix(), "value": fmt.Sprintf("%.5f", load(at))})
	}

	_ = unstructured.SetNestedField(tsp.Object, int64(12*3600), "spec", "predictionWindowSeconds")
	_ = unstructured.SetNestedSlice(tsp.Object, []any{map[string]any{
		"resourceIdentifier": "resource.cpu", "ready": true, "prediction": []any{map[string]any{"samples": samples}},
	}}, "status", "predictionMetrics")
}

// awaitLoaded waits until the workloads run at their replicas and all their autoscalers have all metrics.
func (f *fixture) awaitLoaded() {
	f.Helper()

	f.eventually("the workloads are at their replicas, and their HPAs have all metrics", func(ctx context.Context) error {
		if err := f.bindLoaded(ctx); err != nil {
			return err
		}

		s, err := f.sample(ctx)
		if err != nil {
			return err
		}

		for _, w := range loadedWorkloads() {
			if s["Deployment "+w.name] != fmt.Sprintf("replicas=%d ready=%d", w.replicas, w.replicas) {
				return fmt.Errorf("%s: %s", w.name, s["Deployment "+w.name])
			}
		}

		for name, state := range s {
			if strings.Contains(state, "deleted=true") {
				return fmt.Errorf("%s: %s", name, state)
			}

			if strings.HasPrefix(name, "HPA") && !strings.Contains(state, "gap=none") {
				return fmt.Errorf("%s: %s", name, state)
			}
		}

		return nil
	})
}

// bindLoaded acts as the scheduler of the workloads under load.
func (f *fixture) bindLoaded(ctx context.Context) error {
	pods, err := f.list(ctx, "", "v1", "Pod", client.InNamespace(loadNamespace))
	if err != nil {
		return err
	}

	for i := range pods.Items {
		pod := &pods.Items[i]
		if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node != "" {
			continue
		}

		binding := namespaced("v1", "Binding", loadNamespace, pod.GetName(), map[string]any{"target": map[string]any{"apiVersion": "v1", "kind": "Node", "name": fmt.Sprintf("loaded-%d", i%2)}})
		if err := f.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
			return err
		}
	}

	return nil
}

// checkTakenOver checks that Crane's processes, and not what gocrane left, hold the replicas.
func (f *fixture) checkTakenOver() {
	f.Helper()

	hpa := f.get("autoscaling/v2", "HorizontalPodAutoscaler", loadNamespace, "ehpa-by-schedule")
	if field(hpa, "spec", "minReplicas") != "6" || strings.Contains(field(hpa, "spec", "metrics"), "crane_autoscaling_cron") {
		f.Errorf("the HPA of by-schedule is %v, want the minimum of 6 of Crane's craned", hpa.Object["spec"])
	}

	prediction := f.get("prediction.crane.io/v1alpha1", "TimeSeriesPrediction", loadNamespace, "ehpa-by-forecast")
	if metrics := field(prediction, "status", "predictionMetrics"); !strings.Contains(metrics, "skill:") {
		f.Errorf("the prediction of by-forecast is %.300s, want a forecast of Crane's craned", metrics)
	}

	api := f.get("apiregistration.k8s.io/v1", "APIService", "", "v1beta1.external.metrics.k8s.io")
	if field(api, "spec", "insecureSkipTLSVerify") == "true" || field(api, "spec", "service", "name") != "metric-adapter" {
		f.Errorf("the APIService of external metrics is %v, want Crane's metric-adapter", api.Object["spec"])
	}
}
