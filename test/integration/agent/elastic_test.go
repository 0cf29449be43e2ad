// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticresource"
	agenthost "crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/integration/harness"
)

// elasticFixture runs the manager of elastic resources with the agent's permissions, on a node of 16 cores and 64 GiB with a given use and
// a fake clock.
type elasticFixture struct {
	t     *testing.T
	name  string
	admin client.Client
	clock *clocktesting.FakeClock
	beats chan struct{}
	done  chan error
	stop  context.CancelFunc
	used  units.MilliCPU
	seen  *observe.Latest
}

func newElasticFixture(t *testing.T, name string) *elasticFixture {
	t.Helper()

	f := &elasticFixture{t: t, name: name, admin: newClient(t), clock: clocktesting.NewFakeClock(time.Now()), used: 3000, seen: &observe.Latest{}, beats: make(chan struct{}, 1)}
	node := newNode(name)
	harness.Create(t, f.admin, node)
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}

	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := f.admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	f.start()
	return f
}

// start runs the manager as the agent does.
func (f *elasticFixture) start() {
	f.t.Helper()

	config, err := control.ConfigFor(f.t.Context(), controlplane.ServiceAccount("crane-system", "crane-agent"))
	if err != nil {
		f.t.Fatal(err)
	}

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}

	watcher := cluster.NewWatcher(cluster.Config{
		Client: clients, Dynamic: objects, Node: f.name, Namespace: "crane-system", Clock: clock.RealClock{}, Log: logr.Discard(), Beat: func(string) {},
	})
	m := elasticresource.New(elasticresource.Config{
		View: watcher, Latest: f.seen, Client: clients, Objects: objects, Namespace: "crane-system", Enforce: true,
		Clock: f.clock, Log: logr.Discard(), Report: func(report.Action) {},
		Beat: func(string) {
			select {
			case f.beats <- struct{}{}:
			default:
			}
		},
	})

	ctx, cancel := context.WithCancel(f.t.Context())
	f.done = make(chan error, 1)
	watching := make(chan error, 1)
	go func() { watching <- watcher.Run(ctx) }()
	<-watcher.Answered()

	end := make(chan struct{})
	own, stop := context.WithCancel(ctx)
	go func() {
		defer close(end)

		f.done <- m.Run(own)
	}()

	f.stop = sync.OnceFunc(func() {
		stop()
		<-end
		cancel()
		<-watching
	})

	f.t.Cleanup(f.stop)
}

// pass advances the clock with a measurement per second.
func (f *elasticFixture) pass(d time.Duration) {
	f.t.Helper()

	for range int(d / time.Second) {
		s := &observe.Snapshot{At: f.clock.Now()}
		s.Node.UsedCPU = observe.Known[units.MilliCPU]{Value: f.used, OK: true}
		s.Node.Memory = observe.Known[agenthost.Memory]{Value: agenthost.Memory{Total: 64 << 30, Available: 48 << 30}, OK: true}
		f.seen.Publish(s)

		select {
		case <-f.beats:
		default:
		}

		f.clock.Step(time.Second)
		select {
		case <-f.beats:
		case <-time.After(waitTimeout):
			f.t.Fatal("the manager sent no beat, want it to continue")
		}
	}
}

func (f *elasticFixture) node(ctx context.Context) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := f.admin.Get(ctx, client.ObjectKey{Name: f.name}, node)
	return node, err
}

// shows waits, with an advancing clock, until the node advertises the given cores; the manager may have decided on an older watch state.
func (f *elasticFixture) shows(cores string) {
	f.t.Helper()

	eventually(f.t, "the node shows "+cores, func(ctx context.Context) error {
		node, err := f.node(ctx)
		if err != nil {
			return err
		}

		capacity := node.Status.Capacity[ensurancev1alpha1.ResourceReclaimedCPU]
		allocatable := node.Status.Allocatable[ensurancev1alpha1.ResourceReclaimedCPU]
		if capacity.String() == cores && allocatable.String() == cores {
			return nil
		}

		f.pass(2 * time.Second)
		return fmt.Errorf("capacity %s, allocatable %s, %s", &capacity, &allocatable, node.Annotations[ensurancev1alpha1.AnnotationElasticResources])
	})
}

// account returns the annotation's values of CPU.
func (f *elasticFixture) account() (cpu struct{ Phase, Forecast, From, Problem, Deficit, Was string }) {
	f.t.Helper()

	node, err := f.node(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}

	all := struct{ CPU any }{&cpu}
	if err := json.Unmarshal([]byte(node.Annotations[ensurancev1alpha1.AnnotationElasticResources]), &all); err != nil {
		f.t.Fatal(err)
	}

	return cpu
}

// elasticPod returns a pod that requests cores; an empty node leaves the placement to a scheduler.
func elasticPod(namespace, name, node, cores string) *corev1.Pod {
	list := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse(cores)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(0)), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "crane.local/nothing:1", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}},
		},
	}
}

// TestElasticOffer checks that unused capacity is offered, that a pod is placed on it, that the requests of pods stay advertised and that
// values reset by a kubelet are restored.
func TestElasticOffer(t *testing.T) {
	f := newElasticFixture(t, "elastic")
	f.pass(3 * time.Minute)
	f.pass(4 * time.Minute)

	// 16 - 3 - 0.3 of margin.
	f.shows("12")
	ns := namespace(t, f.admin, fmt.Sprintf("elastic-%d", time.Now().UnixNano())) // a namespace is deleted slowly

	if err := control.StartComponent(t.Context(), controlplane.Scheduler); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := control.StopComponent(context.WithoutCancel(t.Context()), controlplane.Scheduler); err != nil {
			t.Error(err)
		}
	})

	fits := elasticPod(ns, "fits", "", "8")
	tooMuch := elasticPod(ns, "too-much", "", "5")
	harness.Create(t, f.admin, fits)

	eventually(t, "the pod is placed", func(ctx context.Context) error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(fits), fits); err != nil {
			return err
		}

		if fits.Spec.NodeName != f.name {
			return fmt.Errorf("on %q: %v", fits.Spec.NodeName, fits.Status.Conditions)
		}

		return nil
	})

	harness.Create(t, f.admin, tooMuch)
	eventually(t, "the other pod is not", func(ctx context.Context) error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(tooMuch), tooMuch); err != nil {
			return err
		}

		for _, c := range tooMuch.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return nil
			}
		}

		return errors.New("the scheduler has not looked at it")
	})

	// The node needs its capacity: the pod's request stays advertised, and the deficit is published.
	f.used = 13000
	f.shows("8")

	eventually(t, "the deficit is told", func(context.Context) error {
		if a := f.account(); a.Phase != "deficit" || a.Deficit != "7" {
			f.pass(10 * time.Second)
			return fmt.Errorf("%+v", a)
		}

		return nil
	})

	// A kubelet that registers its node again.
	zero := `{"gocrane.io/cpu":"0","gocrane.io/memory":"0"}`
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name}}
	if err := f.admin.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"capacity":%s,"allocatable":%[1]s}}`, zero))); err != nil {
		t.Fatal(err)
	}

	f.shows("8")
	// A kubelet status update with conditions and without extended resources.
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	if err := f.admin.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`))); err != nil {
		t.Fatal(err)
	}

	f.pass(20 * time.Second)
	f.shows("8")

	// A stopped agent leaves only the pod's request advertised, and the next one continues.
	f.stop()

	if err := <-f.done; err != nil {
		t.Fatal(err)
	}

	if a := f.account(); a.Phase != "withdrawn" || a.Was != "8" {
		t.Errorf("account %+v, want it withdrawn with 8 before", a)
	}

	f.start()
	f.used = 3000
	f.pass(8 * time.Minute)
	f.shows("12")
}

const nodeTemplate = `
predictionMetrics:
- resourceIdentifier: cpu
  type: ExpressionQuery
  expressionQuery: {expression: 'sum(rate(node_cpu_seconds_total{instance="{{.metadata.name}}",mode!="idle"}[5m]))'}
  algorithm: {algorithmType: dsp}
predictionWindowSeconds: 3600
`

// TestElasticForecast checks that the forecast of a template is created, that nothing is offered before it is ready and that it counts in
// cores.
func TestElasticForecast(t *testing.T) {
	admin := newClient(t)
	template := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourceTemplateConfigMap},
		Data:       map[string]string{predictionv1alpha1.NodeResourceTemplateKey: nodeTemplate},
	}
	harness.Create(t, admin, template)
	f := newElasticFixture(t, "forecast")

	name := client.ObjectKey{Namespace: "crane-system", Name: "noderesource-forecast"}
	tsp := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	t.Cleanup(func() {
		f.stop() // it would create another
		if err := admin.Delete(context.WithoutCancel(t.Context()), tsp); err != nil {
			t.Error(err)
		}
	})

	asked := func(ctx context.Context) error {
		f.pass(time.Second)
		return admin.Get(ctx, name, tsp)
	}
	eventually(t, "the forecast is asked for", asked)

	if tsp.Spec.TargetRef.Name != f.name || tsp.Spec.TargetRef.Kind != "Node" || len(tsp.OwnerReferences) != 1 || tsp.OwnerReferences[0].Name != f.name ||
		tsp.Spec.PredictionMetrics[0].ExpressionQuery.Expression != `sum(rate(node_cpu_seconds_total{instance="forecast",mode!="idle"}[5m]))` {
		t.Errorf("the prediction is %+v, want one of the CPU usage of node %s, owned by it", tsp, f.name)
	}

	f.pass(6 * time.Minute)
	eventually(t, "nothing is offered without the forecast", func(context.Context) error {
		if a := f.account(); a.Problem == "" {
			f.pass(10 * time.Second)
			return fmt.Errorf("%+v", a)
		}

		return nil
	})

	node, err := f.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if q := node.Status.Capacity[ensurancev1alpha1.ResourceReclaimedCPU]; !q.IsZero() {
		t.Errorf("the node offers %s of CPU, want none without a forecast", &q)
	}
	if q := node.Status.Capacity[ensurancev1alpha1.ResourceReclaimedMemory]; q.IsZero() {
		t.Error("the node offers no memory, want some: memory has no forecast")
	}

	// 12.5 cores, for a long time.
	var samples []predictionv1alpha1.Sample
	for i := range 240 {
		samples = append(samples, predictionv1alpha1.Sample{Value: "12.50000", Timestamp: f.clock.Now().Add(time.Duration(i-5) * time.Minute).Unix()})
	}

	made := metav1.NewTime(f.clock.Now())
	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{{
		ResourceIdentifier: "cpu", Ready: true, UpdateTime: &made, LastSampleTime: &made, Prediction: []predictionv1alpha1.MetricTimeSeries{{Samples: samples}},
	}}

	if err := admin.Status().Update(t.Context(), tsp); err != nil {
		t.Fatal(err)
	}

	f.pass(5 * time.Minute)
	f.shows("2")

	if a := f.account(); a.Forecast != "12500m" || a.From != "forecast" {
		t.Errorf("account %+v, want the forecast of 12500m", a)
	}

	// The object follows a changed template.
	template.Data[predictionv1alpha1.NodeResourceTemplateKey] = "predictionWindowSeconds: 7200" + nodeTemplate[:len(nodeTemplate)-len("predictionWindowSeconds: 3600\n")]
	if err := admin.Update(t.Context(), template); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the object follows the template", func(ctx context.Context) error {
		f.pass(30 * time.Second)
		if err := admin.Get(ctx, name, tsp); err != nil {
			return err
		}

		if tsp.Spec.PredictionWindowSeconds != 7200 {
			return fmt.Errorf("window %d", tsp.Spec.PredictionWindowSeconds)
		}

		return nil
	})

	if len(tsp.Status.PredictionMetrics) != 1 {
		t.Error("the prediction has no status, want it kept")
	}
}

// TestElasticAgent checks that the agent reports missing inputs, offers nothing for them and withdraws at its end, and that a dry run
// writes nothing.
func TestElasticAgent(t *testing.T) {
	c := newClient(t)
	for _, name := range []string{"enforced", "dry"} {
		node := newNode(name)
		harness.Create(t, c, node)

		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16000Mi")}
		node.Status.Capacity = node.Status.Allocatable
		if err := c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}

	account := func(ctx context.Context, name string) (cpu, memory struct{ Phase, Problem string }, ended bool, err error) {
		node := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return cpu, memory, false, err
		}

		all := struct {
			CPU, Memory any
			Ended       bool
		}{CPU: &cpu, Memory: &memory}
		err = json.Unmarshal([]byte(node.Annotations[ensurancev1alpha1.AnnotationElasticResources]), &all)

		return cpu, memory, all.Ended, err
	}

	template := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourceTemplateConfigMap},
		Data:       map[string]string{predictionv1alpha1.NodeResourceTemplateKey: nodeTemplate},
	}
	harness.Create(t, c, template)

	followsTemplate := func(window int64) {
		t.Helper()

		eventually(t, "the forecast follows the template", func(ctx context.Context) error {
			tsp := &predictionv1alpha1.TimeSeriesPrediction{}
			key := client.ObjectKey{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourcePrefix + "enforced"}
			if err := c.Get(ctx, key, tsp); err != nil {
				return err
			}

			if int64(tsp.Spec.PredictionWindowSeconds) != window {
				return fmt.Errorf("window %d", tsp.Spec.PredictionWindowSeconds)
			}

			return nil
		})
	}

	a := startAgent(t, "enforced", "--enforce=node-resource", "--node-resource-reserved=cpu=25%")
	followsTemplate(3600)
	eventually(t, "the node says why nothing is offered", func(ctx context.Context) error {
		// The host's files do not change, so the CPU use is unknown; memory is measured each time.
		cpu, memory, ended, err := account(ctx, "enforced")
		if err == nil && (cpu.Phase != "holding" || !strings.Contains(cpu.Problem, "use is unknown") || memory.Phase != "waiting" || memory.Problem != "" || ended) {
			err = fmt.Errorf("%+v, %+v, %t", cpu, memory, ended)
		}

		return err
	})

	if v, err := a.metric(t.Context(), `crane_agent_elastic_cpu_cores{term="reserve"}`); err != nil || v != "1" {
		t.Errorf("reserve %s, %v, want 1", v, err)
	}

	a.Stop(t)
	if _, _, ended, err := account(t.Context(), "enforced"); err != nil || !ended {
		t.Errorf("has not withdrawn: %v", err)
	}

	template.Data[predictionv1alpha1.NodeResourceTemplateKey] = strings.Replace(nodeTemplate, "3600", "7200", 1)
	if err := c.Update(t.Context(), template); err != nil {
		t.Fatal(err)
	}

	again := startAgent(t, "enforced", "--enforce=node-resource")
	followsTemplate(7200)
	again.Stop(t)
	dry := startAgent(t, "dry")
	eventually(t, "the dry run has decided", func(ctx context.Context) error {
		_, err := dry.metric(ctx, `crane_agent_elastic_memory_bytes{term="offer"}`)
		return err
	})

	if _, _, _, err := account(t.Context(), "dry"); err == nil {
		t.Error("a dry run wrote to the node, want no account")
	}
}
