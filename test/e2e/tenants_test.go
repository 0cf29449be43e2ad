// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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
	// tenantAccount is the name of each tenant's ServiceAccount.
	tenantAccount = "tenant"
)

// TestTenants measures what the most expensive objects of a tenant cost craned, and the delays of an honest tenant alone and beside CRANE_TENANTS
// hostile ones, for each rate of CRANE_TENANTS_RATES: the number of objects that they replace together each second. Each tenant is a ServiceAccount
// with rights on Crane's kinds in its own namespace, so that API Priority and Fairness applies. The test prints figures and fails if craned is
// restarted or the honest tenant is not served.
func TestTenants(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("CRANE_TENANTS"))
	if err != nil {
		t.Skip("CRANE_TENANTS is not a number of hostile tenants; run make bench-tenants")
	}

	var rates []float64
	for text := range strings.SplitSeq(cmp.Or(os.Getenv("CRANE_TENANTS_RATES"), "0,1,10"), ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate < 0 {
			t.Fatalf("CRANE_TENANTS_RATES: %q is no rate, want a number of zero or more", text)
		}

		rates = append(rates, rate)
	}

	f := startTenants(t, len(rates))
	if os.Getenv("CRANE_TENANTS_COST") != "0" {
		f.printCosts(t)
	}

	alone := f.measure(t, "alone")
	f.createTenants(t, n)

	for _, rate := range rates {
		when := fmt.Sprintf("beside %d hostile tenants who replace %g objects a second", n, rate)
		ctx, stop := context.WithCancel(t.Context())
		var changes changeCounts
		var running sync.WaitGroup
		began := time.Now()

		for i, hostile := range f.hostile {
			if rate > 0 {
				running.Go(func() { hostile.change(ctx, i, time.Duration(float64(n)/rate*float64(time.Second)), &changes) })
			}
		}

		beside := f.measure(t, when)
		stop()
		running.Wait()
		t.Logf("%s: %.1f a second arrived, %d requests failed", when, float64(changes.done.Load())/time.Since(began).Seconds(), changes.failed.Load())

		for _, what := range []string{"forecast", "recommendation", "ConfigMap"} {
			a := median(alone[what])
			b := median(beside[what])
			t.Logf("%s %s: alone %s, beside %s, ratio %.2f; all samples %v and %v", what, when, a, b, float64(b)/float64(a), alone[what], beside[what])
		}
	}

	t.Logf("craned: %+v", f.read(t))
	t.Log("seconds per request of each controller, waiting and working:", f.controllers(t))
}

// tenants is a playground with tenants.
type tenants struct {
	*session
	admin   client.Client
	config  *rest.Config
	proxy   *faultProxy
	metrics string
	// honest is the tenant whose delays are measured.
	honest  tenant
	hostile []tenant
	// workloads are the Deployments with history, by namespace and name.
	workloads []client.ObjectKey
	samples   int
}

// startTenants starts a playground with workloads for a measurement alone and others beside hostile tenants.
func startTenants(t *testing.T, others int) *tenants {
	t.Helper()

	proxy := newFaultProxy(t)
	scenario := filepath.Join(t.TempDir(), "tenants.yaml")
	text := fmt.Sprintf("description: Tenants\ncraned: {prometheus-address: %q, feature-gates: ClusterNodePrediction=true}\nsteps: [{at: 0s, say: ready}]\n", proxy.url)
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	s := launch(t, t.TempDir(), "--keep", "--demo", scenario, "--nodes", "8", "--workloads", strconv.Itoa((others+1)*tenantSamples*3/2), "--days", "2",
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

	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // A ConfigSet has no effect.
	f := &tenants{session: s, config: config, proxy: proxy, metrics: value(s.output(), "craned")}
	if f.admin, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}

	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apps/v1")
	list.SetKind("DeploymentList")

	if err := f.admin.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}

	var namespaces []string
	for _, d := range list.Items {
		f.workloads = append(f.workloads, client.ObjectKeyFromObject(&d))
		namespaces = append(namespaces, d.GetNamespace())
	}

	slices.Sort(namespaces)
	if len(f.workloads) < (others+1)*tenantSamples {
		t.Fatalf("%d Deployments, want %d or more", len(f.workloads), (others+1)*tenantSamples)
	}

	f.honest = f.newTenant(t, slices.Compact(namespaces)...)
	return f
}

// tenant is a client with the token of a ServiceAccount.
type tenant struct{ client.Client }

// newTenant creates a ServiceAccount in the first of some namespaces, with all rights on ConfigMaps and Crane's namespaced kinds in all of them.
func (f *tenants) newTenant(t *testing.T, namespaces ...string) tenant {
	t.Helper()

	f.create(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}", tenantAccount, namespaces[0]))
	for _, namespace := range namespaces {
		f.create(t, fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s, namespace: %s}, rules: [{apiGroups: [""], resources: [configmaps], verbs: ["*"]},
{apiGroups: [analysis.crane.io, autoscaling.crane.io, prediction.crane.io], resources: ["*"], verbs: ["*"]}]}`, tenantAccount, namespace))
		f.create(t, fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s, namespace: %[2]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s},
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[3]s}]}`, tenantAccount, namespace, namespaces[0]))
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespaces[0], Name: tenantAccount}}
	token := &authenticationv1.TokenRequest{}
	if err := f.admin.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}

	config := rest.AnonymousClientConfig(f.config)
	config.BearerToken = token.Status.Token

	config.QPS = -1
	own, err := client.New(config, client.Options{Mapper: f.admin.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}

	return tenant{own}
}

// create creates an object from YAML as an administrator.
func (f *tenants) create(t *testing.T, text string) {
	t.Helper()

	if _, err := apply(t.Context(), f.admin, text); err != nil {
		t.Fatal(err)
	}
}

// apply creates an object from YAML.
func apply(ctx context.Context, c client.Client, text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, text)
	}

	return o, c.Create(ctx, o)
}

// measure returns delays and prints how many CPUs each process used meanwhile: a machine that has no CPU left delays everything.
func (f *tenants) measure(t *testing.T, when string) map[string][]time.Duration {
	t.Helper()

	before := f.cpuSeconds(t)
	flowsBefore := f.flows(t)
	began := time.Now()
	out := f.delays(t)
	f.logFlows(t, when, flowsBefore, time.Since(began))

	var text []string
	for name, seconds := range f.cpuSeconds(t) {
		text = append(text, fmt.Sprintf("%s %.2f", name, (seconds-before[name])/time.Since(began).Seconds()))
	}

	slices.Sort(text)
	t.Logf("%s, of %d CPUs: %s", when, runtime.NumCPU(), strings.Join(text, ", "))
	return out
}

// delays returns the times until forecasts and recommendations of workloads are ready and until a ConfigMap is written and read, each measured
// by itself.
func (f *tenants) delays(t *testing.T) map[string][]time.Duration {
	t.Helper()

	out := map[string][]time.Duration{}
	for range tenantSamples {
		w := f.workloads[f.samples]
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
	o, err := apply(t.Context(), f.honest, text)
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, o.GetKind()+" "+o.GetName(), func() error {
		if err := f.honest.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
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

// createTenants creates tenants, each of whom creates one of the most expensive objects of each kind. Several do so at the same time.
func (f *tenants) createTenants(t *testing.T, n int) {
	t.Helper()

	began := time.Now()
	for i := range n {
		namespace := fmt.Sprintf("hostile-%d", i)
		f.namespace(t, namespace, 1)
		f.hostile = append(f.hostile, f.newTenant(t, namespace))
	}

	accounts := time.Since(began)
	var all errgroup.Group
	all.SetLimit(8)

	for i, hostile := range f.hostile {
		all.Go(func() error {
			for _, kind := range tenantKinds() {
				if err := hostile.applyWorst(t.Context(), kind, fmt.Sprintf("hostile-%d", i), 0); err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
			}

			return nil
		})
	}

	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}

	t.Logf("creating %d tenants took %s, their %d objects %s", n, accounts.Round(time.Second), n*len(tenantKinds()), (time.Since(began) - accounts).Round(time.Second))
}

// namespace creates a namespace with targets.
func (f *tenants) namespace(t *testing.T, name string, targets int) {
	t.Helper()

	f.create(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
	for i := range targets {
		f.create(t, worstTarget(name, i))
	}
}

// applyWorst creates an object that costs as much as its validation permits.
func (c tenant) applyWorst(ctx context.Context, kind, namespace string, i int) error {
	o, err := apply(ctx, c, worstObject(kind, namespace, i))
	if status := worstStatus(kind); err == nil && status != "" {
		err = c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(status)))
	}

	return err
}

// changeCounts counts changes by hostile tenants and their requests that failed.
type changeCounts struct{ done, failed atomic.Int64 }

// change replaces a random object of hostile tenant i at intervals until ctx ends: each replacement has a new spec.
func (c tenant) change(ctx context.Context, i int, interval time.Duration, counts *changeCounts) {
	kinds := tenantKinds()
	// craned does not read these: their 500 KiB load the API server alone.
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "ConfigSet" })

	// The tenants do not act at the same moments.
	wait := time.Duration(rand.Int64N(int64(interval)))
	for version := 1; ; version++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}

		began := time.Now()
		kind := kinds[rand.IntN(len(kinds))]
		text := worstObject(kind, fmt.Sprintf("hostile-%d", i), 0)

		o := &unstructured.Unstructured{}
		err := yaml.Unmarshal([]byte(text), &o.Object)
		if err == nil {
			err = c.Delete(ctx, o)
		}
		if err == nil || apierrors.IsNotFound(err) {
			_, err = apply(ctx, c, strings.ReplaceAll(text, "[7d]", fmt.Sprintf("[%dm]", 5000+version)))
		}

		if err != nil { // It may be on its way out.
			counts.failed.Add(1)
		} else {
			counts.done.Add(1)
		}

		wait = max(0, interval-time.Since(began))
	}
}
