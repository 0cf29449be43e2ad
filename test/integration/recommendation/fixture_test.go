// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/controller"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait. On an idle machine a wait takes a second or two.
const waitTimeout = 90 * time.Second

const mib = 1 << 20

// usageOf is the usage of a workload: a daily wave of CPU between low and high cores for each pod, and constant memory.
type usageOf struct {
	kind, name string
	pods       int
	low, high  float64
	bytes      float64
	// since is the length of the history; 0 means all of the requested period.
	since time.Duration
}

// history is a data source with generated usage. mu guards its fields, because tests change them while controllers read.
type history struct {
	mu   sync.Mutex
	uses []usageOf
	// before is called before each query. It may block, fail or change objects.
	before func(ctx context.Context, req metrics.UsageRequest) error
	asked  int // number of queries
}

// Usage implements metrics.UsageReader.
func (p *history) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		p.mu.Lock()
		before, uses := p.before, p.uses
		p.asked++
		p.mu.Unlock()

		if before != nil {
			if err := before(ctx, req); err != nil {
				yield(metrics.Chunk{}, err)
				return
			}
		}

		if req.Resource != metrics.CPU && req.Resource != metrics.Memory {
			return
		}

		for day := series.DayOf(req.Start); day.Start().Before(req.End); day++ {
			start := day.Start()
			values := make([]float64, 288)
			for _, ns := range req.Namespaces {
				for _, u := range uses {
					for i := range values {
						at := start.Add(time.Duration(i) * 5 * time.Minute)
						values[i] = u.bytes
						if req.Resource == metrics.CPU {
							values[i] = u.low + (u.high-u.low)*(1-math.Cos(2*math.Pi*float64(i)/288))/2
						}
						if !at.Before(req.End) || u.since > 0 && at.Before(req.End.Add(-u.since)) {
							values[i] = series.Gap()
						}
					}

					for pod := range u.pods {
						chunk := metrics.Chunk{
							Key: metrics.ContainerKey{
								Workload: workload.Ref{Namespace: ns, Kind: u.kind, Name: u.name}, Pod: fmt.Sprintf("%s-%d", u.name, pod), Container: "app",
							},
							Series: series.Series{Start: start, Step: 5 * time.Minute, Values: values},
						}
						if !yield(chunk, nil) {
							return
						}
					}
				}
			}
		}
	}
}

func (p *history) set(change func(*history)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	change(p)
}

func (p *history) queryCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.asked
}

// fixture is a namespace of one test and the controllers.
type fixture struct {
	client.Client
	t        *testing.T
	past     *history
	registry *prometheus.Registry
	// namespace is the namespace of the test.
	namespace string
}

// setup configures the controllers.
type setup struct {
	wrap     func(http.RoundTripper) http.RoundTripper
	settings *configfile.File[controller.Settings]
}

// newFixture creates the namespace of the test. It does not start the controllers.
func newFixture(t *testing.T) *fixture {
	t.Helper()

	config := control.Config()
	config.QPS, config.Burst = 1000, 1000
	c, err := harness.NewClient(config, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{Client: c, t: t, past: &history{}, registry: prometheus.NewRegistry()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}

	f.namespace = ns.Name
	return f
}

// start runs the controllers until the test ends, and checks that they stop.
func (f *fixture) start(s setup) {
	f.t.Helper()

	config := rest.CopyConfig(control.Config())
	config.QPS, config.Burst = 1000, 1000
	if s.wrap != nil {
		config.Wrap(s.wrap)
	}

	skip := true
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: f.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		f.t.Fatal(err)
	}

	if s.settings == nil {
		s.settings = configfile.Fixed(controller.BuiltinRegistry().DefaultSettings(), clock.RealClock{})
	}

	err = controller.AddToManager(f.t.Context(), mgr, controller.Config{
		History: profile.Source{Capabilities: metrics.Capabilities{Usage: f.past}}, Settings: s.settings, Namespace: "crane-system", Outdated: 24 * time.Hour,
		Registry: f.registry, Clock: clock.RealClock{},
	})
	if err != nil {
		f.t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()

	f.t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				f.t.Error(err)
			}
		case <-time.After(waitTimeout):
			f.t.Error("the controllers did not stop within the bound, want their end")
		}
	})
}

// create creates objects. Rules are deleted at the end of the test, because the controllers of the next test would run them.
func (f *fixture) create(objects ...client.Object) {
	f.t.Helper()

	for _, o := range objects {
		if err := f.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}

		if _, isRule := o.(*analysisv1alpha1.RecommendationRule); isRule {
			f.t.Cleanup(func() {
				if err := client.IgnoreNotFound(f.Delete(context.WithoutCancel(f.t.Context()), o)); err != nil {
					f.t.Error(err)
				}
			})
		}
	}
}

// deployment returns a Deployment with one container that requests one core and 1 GiB.
func (f *fixture) deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}},
	}}}
}

// deploy creates Deployments and writes a status with all pods available, like the Deployment controller.
func (f *fixture) deploy(replicas int32, names ...string) {
	f.t.Helper()

	for _, name := range names {
		d := f.deployment(name, replicas)
		f.create(d)
		d.Status.Replicas = replicas

		d.Status.ReadyReplicas = replicas
		d.Status.AvailableReplicas = replicas
		if err := f.Status().Update(f.t.Context(), d); err != nil {
			f.t.Fatal(err)
		}
	}
}

// rule returns a rule for the Deployments of the namespace.
func (f *fixture) rule(name string, recommenders ...string) *analysisv1alpha1.RecommendationRule {
	r := &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + name},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{MatchNames: []string{f.namespace}},
			RunInterval:       "24h",
		},
	}

	for _, name := range recommenders {
		r.Spec.Recommenders = append(r.Spec.Recommenders, analysisv1alpha1.Recommender{Name: name})
	}

	return r
}

func (f *fixture) eventually(what string, check func(ctx context.Context) error) {
	f.t.Helper()
	harness.Eventually(f.t.Context(), f.t, waitTimeout, what, check)
}

// awaitRule waits until the Ready condition of a rule has a reason, and returns the rule.
func (f *fixture) awaitRule(rule *analysisv1alpha1.RecommendationRule, reason string) *analysisv1alpha1.RecommendationRule {
	f.t.Helper()
	return harness.AwaitRule(f.t, waitTimeout, f, rule.Name, reason)
}

// all returns the Recommendations of the namespace by type/target.
func (f *fixture) all(ctx context.Context) (map[string]analysisv1alpha1.Recommendation, error) {
	var list analysisv1alpha1.RecommendationList
	if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
		return nil, err
	}

	out := map[string]analysisv1alpha1.Recommendation{}
	for _, r := range list.Items {
		key := string(r.Spec.Type) + "/" + r.Spec.TargetRef.Name
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("two recommendations %s", key)
		}

		out[key] = r
	}

	return out, nil
}

func (f *fixture) recommendations() map[string]analysisv1alpha1.Recommendation {
	f.t.Helper()

	all, err := f.all(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}

	return all
}
