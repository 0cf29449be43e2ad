// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// tenantSamples is the number of workloads of the honest tenant whose delays are measured alone, and beside the others.
	tenantSamples = 5
	// worstCount is the number of objects of a kind whose cost is measured, for worstTime each. After settleTime they are deleted.
	worstCount = 10
	worstTime  = 2 * time.Minute
	settleTime = 20 * time.Second
	// changeInterval is the interval between two changes by hostile tenants.
	changeInterval = 100 * time.Millisecond
)

// TestTenants measures what the most expensive objects of a tenant cost craned, and the delays of an honest tenant beside CRANE_TENANTS
// hostile ones. It prints figures and fails if craned is restarted or the honest tenant is not served.
func TestTenants(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("CRANE_TENANTS"))
	if err != nil {
		t.Skip("CRANE_TENANTS is not a number of hostile tenants; run make bench-tenants")
	}
	f := startTenants(t)
	if os.Getenv("CRANE_TENANTS_COST") != "0" {
		f.printCosts(t)
	}
	alone := f.measure(t, "alone", 0)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	f.createTenants(t, n)
	go func() {
		defer close(done)
		f.changeTenants(ctx, n)
	}()
	beside := f.measure(t, "beside the hostile tenants", tenantSamples)
	stop()
	<-done
	for _, what := range []string{"forecast", "recommendation", "ConfigMap"} {
		a, b := median(alone[what]), median(beside[what])
		t.Logf("%s: alone %s, beside %d hostile tenants %s, ratio %.2f; all samples %v and %v", what, a, n, b, float64(b)/float64(a), alone[what], beside[what])
	}
	t.Logf("craned: %+v", f.read(t))
	t.Log("seconds per request of each controller, waiting and working:", f.controllers(t))
}

// tenants is a playground with tenants.
type tenants struct {
	*session
	client  client.Client
	proxy   *faultProxy
	metrics string
	// workloads are the Deployments with history, by namespace and name.
	workloads []client.ObjectKey
	samples   int
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	proxy := newFaultProxy(t)
	scenario := filepath.Join(t.TempDir(), "tenants.yaml")
	text := fmt.Sprintf("description: Tenants\ncraned: {prometheus-address: %q, prediction-update-frequency-duration: 5s, feature-gates: ClusterNodePrediction=true}\nsteps: [{at: 0s, say: ready}]\n", proxy.url)
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launch(t, t.TempDir(), "--keep", "--demo", scenario, "--nodes", "8", "--workloads", strconv.Itoa(3*tenantSamples), "--days", "2",
		"--only", "apiserver,controller-manager,scheduler,prometheus,craned,metric-adapter")
	eventually(t, "Prometheus serves", func() error {
		m := regexp.MustCompile(`Prometheus serves at (\S+)`).FindStringSubmatch(s.output())
		if m == nil {
			return errors.New(s.output())
		}
		return proxy.forward(m[1])
	})
	s.awaitOutput(t, "the scenario starts", "Tenants")
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 500, 1000
	f := &tenants{session: s, proxy: proxy, metrics: value(s.output(), "craned")}
	if f.client, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apps/v1")
	list.SetKind("DeploymentList")
	if err := f.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Items {
		f.workloads = append(f.workloads, client.ObjectKeyFromObject(&d))
	}
	if len(f.workloads) < 2*tenantSamples {
		t.Fatalf("%d Deployments", len(f.workloads))
	}
	return f
}

// apply creates an object from YAML.
func (f *tenants) apply(ctx context.Context, text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, text)
	}
	return o, f.client.Create(ctx, o)
}

// measure returns delays and prints how many CPUs each process used meanwhile: a machine that has no CPU left delays everything.
func (f *tenants) measure(t *testing.T, when string, first int) map[string][]time.Duration {
	t.Helper()
	before, began := f.cpuSeconds(t), time.Now()
	out := f.delays(t, first)
	var text []string
	for name, seconds := range f.cpuSeconds(t) {
		text = append(text, fmt.Sprintf("%s %.2f", name, (seconds-before[name])/time.Since(began).Seconds()))
	}
	slices.Sort(text)
	t.Logf("%s, of %d CPUs: %s", when, runtime.NumCPU(), strings.Join(text, ", "))
	return out
}

// cpuSeconds returns the CPU time of each process of the playground and of the whole machine.
func (f *tenants) cpuSeconds(t *testing.T) map[string]float64 {
	t.Helper()
	seconds := func(path string, fields ...int) float64 {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		all := strings.Fields(line[strings.LastIndex(line, ")")+1:])
		var sum float64
		for _, i := range fields {
			ticks, err := strconv.ParseFloat(all[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += ticks / 100 // USER_HZ
		}
		return sum
	}
	// user, nice, system, irq, softirq, and utime and stime after the name of the program.
	out := map[string]float64{"the machine": seconds("/proc/stat", 1, 2, 3, 6, 7)}
	for _, p := range processes(t, f.state) {
		program, _, _ := strings.Cut(p.line, " ")
		out[filepath.Base(program)] += seconds(fmt.Sprintf("/proc/%d/stat", p.pid), 11, 12)
	}
	return out
}

// delays returns the times until forecasts and recommendations of workloads are ready and until a ConfigMap is written and read, each measured
// by itself.
func (f *tenants) delays(t *testing.T, first int) map[string][]time.Duration {
	t.Helper()
	out := map[string][]time.Duration{}
	for i := first; i < first+tenantSamples; i++ {
		w := f.workloads[i]
		f.samples++
		// A write that does not concern Crane.
		out["ConfigMap"] = append(out["ConfigMap"], f.delay(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: honest-%d, namespace: %s}}", f.samples, w.Namespace),
			func(*unstructured.Unstructured) bool { return true }))
		target := fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, name: %s}", w.Name)
		forecast := f.delay(t, fmt.Sprintf(`{apiVersion: prediction.crane.io/v1alpha1, kind: TimeSeriesPrediction, metadata: {name: honest-%d, namespace: %s},
spec: {targetRef: %s, predictionWindowSeconds: 3600, predictionMetrics: [{resourceIdentifier: cpu, type: ResourceQuery, resourceQuery: cpu, algorithm: {algorithmType: dsp}}]}}`,
			f.samples, w.Namespace, target), func(o *unstructured.Unstructured) bool {
			metrics, _, _ := unstructured.NestedSlice(o.Object, "status", "predictionMetrics")
			if len(metrics) == 0 {
				return false
			}
			m, _ := metrics[0].(map[string]any)
			return m["ready"] == true
		})
		out["forecast"] = append(out["forecast"], forecast)
		analytics := fmt.Sprintf(`{apiVersion: analysis.crane.io/v1alpha1, kind: Analytics, metadata: {name: honest-%d, namespace: %s},
spec: {type: Resource, completionStrategy: {completionStrategyType: Once}, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: %s}]}}`, f.samples, w.Namespace, w.Name)
		out["recommendation"] = append(out["recommendation"], f.delay(t, analytics, func(o *unstructured.Unstructured) bool {
			found, _, _ := unstructured.NestedSlice(o.Object, "status", "recommendations")
			return len(found) > 0
		}))
	}
	return out
}

// delay creates an object and returns the time until it is ready.
func (f *tenants) delay(t *testing.T, text string, ready func(*unstructured.Unstructured) bool) time.Duration {
	t.Helper()
	began := time.Now()
	o, err := f.apply(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, o.GetKind()+" "+o.GetName(), func() error {
		if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !ready(o) {
			status, _ := json.Marshal(o.Object["status"])
			return fmt.Errorf("status %s", status)
		}
		return nil
	})
	return time.Since(began)
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2].Round(time.Millisecond)
}

// createTenants creates namespaces with one of the most expensive objects of each kind.
func (f *tenants) createTenants(t *testing.T, n int) {
	t.Helper()
	took := map[string][]time.Duration{}
	for i := range n {
		namespace := fmt.Sprintf("hostile-%d", i)
		f.namespace(t, namespace, 1)
		for _, kind := range tenantKinds() {
			began := time.Now()
			if err := f.applyWorst(t.Context(), kind, namespace, 0); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			took[kind] = append(took[kind], time.Since(began))
		}
	}
	for _, kind := range tenantKinds() {
		t.Logf("creating a %s took %s", kind, median(took[kind]))
	}
}

// namespace creates a namespace with targets.
func (f *tenants) namespace(t *testing.T, name string, targets int) {
	t.Helper()
	if _, err := f.apply(t.Context(), fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name)); err != nil {
		t.Fatal(err)
	}
	for i := range targets {
		if _, err := f.apply(t.Context(), worstTarget(name, i)); err != nil {
			t.Fatal(err)
		}
	}
}

// applyWorst creates an object that costs as much as its validation permits.
func (f *tenants) applyWorst(ctx context.Context, kind, namespace string, i int) error {
	o, err := f.apply(ctx, worstObject(kind, namespace, i))
	if status := worstStatus(kind); err == nil && status != "" {
		err = f.client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(status)))
	}
	return err
}

// changeTenants changes a random object of a random tenant at intervals until ctx ends: each change is a new spec.
func (f *tenants) changeTenants(ctx context.Context, n int) {
	tick := time.NewTicker(changeInterval)
	defer tick.Stop()
	kinds := tenantKinds()
	// craned does not read these: their 500 KiB load the API server alone.
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "ConfigSet" })
	for version := 1; ; version++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		kind := kinds[rand.IntN(len(kinds))]
		o := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(worstObject(kind, fmt.Sprintf("hostile-%d", rand.IntN(n)), 0)), &o.Object) != nil || f.client.Delete(ctx, o) != nil {
			continue
		}
		_, _ = f.apply(ctx, strings.ReplaceAll(worstObject(kind, o.GetNamespace(), 0), "[7d]", fmt.Sprintf("[%dm]", 5000+version))) // It may be on its way out.
	}
}

// controllers returns how long requests of craned's controllers waited and how long they took, on average, with their number.
func (f *tenants) controllers(t *testing.T) string {
	t.Helper()
	sums, names, label := map[string]float64{}, []string{}, regexp.MustCompile(`\bname="([^"]*)"`)
	f.scan(t, func(name, labels string, v float64) {
		m := label.FindStringSubmatch(labels)
		if m == nil {
			return
		}
		controller := m[1]
		if name == "workqueue_queue_duration_seconds_count" && v > 0 {
			names = append(names, controller)
		}
		sums[name+controller] += v
	})
	slices.Sort(names)
	var out strings.Builder
	for _, c := range slices.Compact(names) {
		n := sums["workqueue_queue_duration_seconds_count"+c]
		fmt.Fprintf(&out, "\n%s: %.3f, %.3f, %.0f", c, sums["workqueue_queue_duration_seconds_sum"+c]/n, sums["workqueue_work_duration_seconds_sum"+c]/n, n)
	}
	return out.String()
}

// figures are counters of craned.
type figures struct{ CPU, Memory, APIRequests, Queries float64 }

// read returns the counters of craned and of the proxy in front of Prometheus.
func (f *tenants) read(t *testing.T) figures {
	t.Helper()
	out := figures{Queries: float64(f.proxy.requests.Load())}
	f.scan(t, func(name, _ string, v float64) {
		switch name {
		case "process_cpu_seconds_total":
			out.CPU += v
		case "process_resident_memory_bytes":
			out.Memory += v
		case "rest_client_requests_total":
			out.APIRequests += v
		}
	})
	return out
}

// scan calls a function for each sample of craned's metrics.
func (f *tenants) scan(t *testing.T, use func(name, labels string, v float64)) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.metrics, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("craned does not serve its metrics: %v", err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, number, _ := strings.Cut(lines.Text(), "} ")
		if number == "" {
			series, number, _ = strings.Cut(lines.Text(), " ")
		}
		name, labels, _ := strings.Cut(series, "{")
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			use(name, labels, v)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// printCosts prints what the most expensive object of each kind costs craned.
func (f *tenants) printCosts(t *testing.T) {
	t.Helper()
	f.namespace(t, "costs", worstTargets)
	f.await(t, settleTime)
	before := f.read(t)
	f.await(t, worstTime)
	idle := f.read(t)
	minutes := worstTime.Minutes()
	t.Logf("without objects, per minute: %.2f s CPU, %.0f API requests, %.0f queries; %.0f MiB",
		(idle.CPU-before.CPU)/minutes, (idle.APIRequests-before.APIRequests)/minutes, (idle.Queries-before.Queries)/minutes, idle.Memory/(1<<20))
	const namespace = "costs"
	t.Log("| kind | CPU | memory | API requests | queries of Prometheus |, for each object and, memory apart, minute")
	for _, kind := range tenantKinds() {
		start := f.read(t)
		for i := range worstCount {
			if err := f.applyWorst(t.Context(), kind, namespace, i); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
		}
		f.await(t, worstTime)
		end := f.read(t)
		per := func(from, to, idleFrom, idleTo float64) float64 {
			return ((to - from) - (idleTo - idleFrom)) / minutes / worstCount
		}
		t.Logf("| `%s` | %.3f s | %.2f MiB | %.1f | %.1f |", kind, per(start.CPU, end.CPU, before.CPU, idle.CPU), (end.Memory-start.Memory)/worstCount/(1<<20),
			per(start.APIRequests, end.APIRequests, before.APIRequests, idle.APIRequests), per(start.Queries, end.Queries, before.Queries, idle.Queries))
		f.kubectl(t, "delete", kind, "--all", "-n", namespace)
		f.await(t, settleTime)
	}
}

// await lets craned run for some time.
func (f *tenants) await(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-f.done:
		t.Fatalf("the playground ended: %v", f.err)
	}
}
