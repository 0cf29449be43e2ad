// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	scaleclient "k8s.io/client-go/scale"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	hpadefaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/features"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// syncInterval is the sync period of the HPA controller.
const syncInterval = 15 * time.Second

// hpaSequence is a life of an HPA: what its metrics report at each sync.
type hpaSequence struct {
	spec   autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec
	start  int32
	values []map[string][]int64 // by sync and metric; a metric without values fails
	// scaled are the replicas that somebody else sets before a sync.
	scaled map[int]int32
}

// randomSequence returns a life with random bounds, behavior, targets and loads.
func randomSequence(r *rand.Rand) hpaSequence {
	out := hpaSequence{start: 1 + r.Int32N(50)}
	out.spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	out.spec.MinReplicas = new(r.Int32N(4))
	out.spec.MaxReplicas = 20 + r.Int32N(60)
	if r.IntN(3) > 0 {
		out.spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: randomRules(r), ScaleDown: randomRules(r)}
	}

	names := []string{"a", "b"}[:1+r.IntN(2)]
	for _, name := range names {
		out.spec.Metrics = append(out.spec.Metrics, externalAverage(name, "1"))
	}

	load := map[string]int64{}
	out.scaled = map[int]int32{}
	for i := range 10 + r.IntN(50) {
		if r.IntN(20) == 0 {
			out.scaled[i] = r.Int32N(out.spec.MaxReplicas + 10)
		}

		values := map[string][]int64{}
		for _, name := range names {
			if load[name] == 0 || r.IntN(4) == 0 {
				load[name] = r.Int64N(60_000) * r.Int64N(6) / 5 // At times there is none.
			}
			if r.IntN(12) > 0 {
				values[name] = []int64{load[name] + r.Int64N(300)}
			}
		}

		out.values = append(out.values, values)
	}

	return out
}

func randomRules(r *rand.Rand) *autoscalingv2.HPAScalingRules {
	if r.IntN(4) == 0 {
		return nil
	}

	out := &autoscalingv2.HPAScalingRules{}
	for range r.IntN(3) {
		p := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 1 + r.Int32N(5), PeriodSeconds: 15 * (1 + r.Int32N(8))}
		if r.IntN(2) == 0 {
			p.Type = autoscalingv2.PercentScalingPolicy
			p.Value = 1 + r.Int32N(150)
		}

		out.Policies = append(out.Policies, p)
	}

	if r.IntN(2) == 0 {
		out.SelectPolicy = new([]autoscalingv2.ScalingPolicySelect{"Max", "Max", "Min", "Min", "Disabled"}[r.IntN(5)])
	}
	if r.IntN(2) == 0 {
		out.StabilizationWindowSeconds = new(r.Int32N(300))
	}
	if r.IntN(4) == 0 {
		q := resource.MustParse([]string{"0", "0.02", "0.1", "0.3"}[r.IntN(4)])
		out.Tolerance = &q
	}

	return out
}

// scaleStore is the scale of the target.
type scaleStore struct {
	scaleclient.ScaleInterface

	mu       sync.Mutex
	replicas int32
}

func (s *scaleStore) current() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.replicas
}

func (s *scaleStore) set(replicas int32) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.replicas = replicas
}

// Scales implements scaleclient.ScalesGetter.
func (s *scaleStore) Scales(string) scaleclient.ScaleInterface { return s }

// Get implements scaleclient.ScaleInterface.
func (s *scaleStore) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	replicas := s.current()
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: "app=web"},
	}, nil
}

// Update implements scaleclient.ScaleInterface.
func (s *scaleStore) Update(_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s.set(scale.Spec.Replicas)
	return scale, nil
}

// runHPAController returns the replicas that the HPA controller sets at each sync.
func runHPAController(t *testing.T, world *hpaWorld, s hpaSequence) []int32 {
	t.Helper()

	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	hpa.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: s.spec.ScaleTargetRef, MinReplicas: s.spec.MinReplicas, MaxReplicas: s.spec.MaxReplicas, Metrics: s.spec.Metrics,
	}
	for i := range hpa.Spec.Metrics {
		hpa.Spec.Metrics[i].External.Metric.Selector = &metav1.LabelSelector{}
	}

	if b := s.spec.Behavior.DeepCopy(); b != nil { // as the API server does
		hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: hpadefaults.GenerateHPAScaleUpRules(b.ScaleUp), ScaleDown: hpadefaults.GenerateHPAScaleDownRules(b.ScaleDown),
		}
	}

	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	defer cancel()

	client := kubefake.NewClientset(hpa)
	factory := informers.NewSharedInformerFactory(client, syncInterval)
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{apps})
	mapper.Add(apps.WithKind("Deployment"), meta.RESTScopeNamespace)
	target := &scaleStore{replicas: s.start}

	controller := podautoscaler.NewHorizontalController(ctx, client.CoreV1(), target, client.AutoscalingV2(), mapper, world,
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), factory.Core().V1().Pods(), syncInterval, 5*time.Minute, 0.1, 5*time.Minute, 30*time.Second)
	world.setNamed(s.values[0])
	factory.Start(ctx.Done())
	go controller.Run(ctx, 1)

	// The replicas are read between two syncs.
	time.Sleep(syncInterval / 2)

	var out []int32
	for i := range s.values {
		world.setNamed(s.values[i])
		if replicas, ok := s.scaled[i]; ok {
			target.set(replicas)
		}

		time.Sleep(syncInterval)
		synctest.Wait()
		out = append(out, target.current())
	}

	cancel()
	factory.Shutdown()
	time.Sleep(time.Minute) // Events of the controller are sent in the background.

	return out
}

// runPreview returns the replicas that Crane computes at each sync.
func runPreview(t *testing.T, c *calculator, s hpaSequence) []int32 {
	t.Helper()

	e := &scaler{Spec: s.spec}
	e.Namespace = "shop"
	behavior := scalingBehavior(s.spec.Behavior)
	preview := &PreviewCalculator{Metrics: c.reader}
	history := &scaling.History{}
	replicas := s.start
	now := time.Now()

	var out []int32
	for i := range s.values {
		c.world.setNamed(s.values[i])
		if n, ok := s.scaled[i]; ok {
			replicas = n
		}

		now = now.Add(syncInterval)

		o := observation{ehpa: e, now: now, target: workload.Scale{Replicas: replicas, CurrentReplicas: replicas, Selector: "app=web"}}
		d := preview.sync(t.Context(), history, o, plan{})
		history.RecordScaling(behavior, now, replicas, *d.replicas)
		replicas = *d.replicas
		out = append(out, replicas)
	}

	return out
}

// TestHPAController compares random lives with the HPA controller itself, in virtual time: tolerances, stabilization, rates, bounds, failing
// metrics, the first sync after a start, no load, and replicas that somebody else sets, also to 0 and from 0.
func TestHPAController(t *testing.T) {
	const seed = 41

	// The handlers of errors share a clock between the lives; a failing metric is no error here.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil                            //nolint:reassign // Its documented use.
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers }) //nolint:reassign // As above.

	// Without the gate the API server refuses a minimum of 0.
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.HPAScaleToZero, true)

	r := rand.New(rand.NewPCG(seed, seed))
	c := newCalculator(t)
	c.world.pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"}}}}

	fixed := []hpaSequence{
		fixedSequence(nil, 1, 50, 50, 50), fixedSequence(nil, 2, 50, 50, 50), fixedSequence(nil, 3, 50, 50, 50),
		fixedSequence(nil, 10, 3, 3, 3, 3), fixedSequence(&autoscalingv2.HorizontalPodAutoscalerBehavior{}, 10, 3, 3, 3, 3),
		fixedSequence(tenPercent(), 10, 50, 50), fixedSequence(tenPercent(), 20, 50, 50), fixedSequence(tenPercent(), 50, 80, 80),
	}
	const casesPerLife = 500 // A life takes as long as that many cases of the calculator.

	for i := range max(60, differentialCases(t, 0)/casesPerLife) {
		s := randomSequence(r)
		if i < len(fixed) {
			s = fixed[i]
		}

		var want, got []int32
		synctest.Test(t, func(t *testing.T) {
			got = runPreview(t, c, s)
			want = runHPAController(t, c.world, s)
		})

		if !slices.Equal(got, want) {
			first := 0
			for got[first] == want[first] {
				first++
			}

			t.Fatalf("life %d of seed %d differs at sync %d: start %d, bounds [%d, %d], behavior %s\nvalues %v\ngot  %v\nwant %v", i, seed, first,
				s.start, *s.spec.MinReplicas, s.spec.MaxReplicas, s.spec.Behavior.String(), fmt.Sprint(s.values[:first+1]), got[:first+1], want[:first+1])
		}
	}
}

func tenPercent() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{
		Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 10, PeriodSeconds: 60}},
	}}
}

// fixedSequence returns a life in which one metric asks for replicas.
func fixedSequence(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, start int32, asked ...int64) hpaSequence {
	s := hpaSequence{start: start}
	s.spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	s.spec.MinReplicas = new(int32(1))
	s.spec.MaxReplicas = 100
	s.spec.Behavior = behavior
	s.spec.Metrics = []autoscalingv2.MetricSpec{externalAverage("a", "1")}
	for _, n := range asked {
		s.values = append(s.values, map[string][]int64{"a": {1000 * n}})
	}

	return s
}
