// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/prediction/nodetemplate"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func known[T any](v T) observe.Known[T] { return observe.Known[T]{Value: v, OK: true} }

const gi = 1 << 30

// snapshot returns a node of 64 GiB with the containers "e" (elastic CPU and memory), "c" (elastic CPU), "m" (elastic memory) and "n"
// (neither).
func snapshot(at time.Time, total units.MilliCPU, used units.Bytes) *observe.Snapshot {
	container := func(id string, cpu units.MilliCPU, memory units.Bytes) observe.Container {
		return observe.Container{ID: id, Use: observe.Use{UsedCPU: known(cpu), Memory: known(observe.Memory{WorkingSet: 2 * memory, RSS: memory - memory/4, Shared: memory / 4})}}
	}
	s := &observe.Snapshot{At: at, Pods: []observe.Pod{
		{UID: "1", Containers: []observe.Container{container("e", 500, gi), container("sandbox", 1, 1)}},
		{UID: "2", Containers: []observe.Container{container("c", 200, 2*gi)}},
		{UID: "3", Containers: []observe.Container{container("n", 1000, 3*gi), container("m", 300, gi/2)}},
	}}

	s.Node.UsedCPU = known(total)
	s.Node.Memory = known(host.Memory{Total: 64 * gi, Available: 64*gi - used})
	return s
}

var testRequests = map[string]elasticrequest.Amounts{"e": {CPU: 1000, Memory: 2 * gi}, "c": {CPU: 1000}, "m": {Memory: gi}, "gone": {CPU: 1000}}

func TestUsage(t *testing.T) {
	var u usage
	if cpu, memory := u.drain(); !cpu.At.IsZero() || !memory.At.IsZero() {
		t.Errorf("drain before a measurement = %+v, %+v, want no use", cpu, memory)
	}

	u.add(nil, testRequests)
	u.add(snapshot(start, 3000, 10*gi), testRequests)
	u.add(snapshot(start, 9000, 10*gi), testRequests) // the same snapshot again
	u.add(snapshot(start.Add(time.Second), 4001, 20*gi), testRequests)
	swapped := snapshot(start.Add(2*time.Second), 5000, 15*gi)
	swapped.Node.Memory.Value.SwappedOut = 7 * gi
	u.add(swapped, testRequests)

	cpu, memory := u.drain()
	if want := (model.Use[units.MilliCPU]{At: start.Add(2 * time.Second), Total: 4001, Elastic: 700}); cpu != want {
		t.Errorf("%+v, want %+v", cpu, want)
	}
	if want := (model.Use[units.Bytes]{At: start.Add(2 * time.Second), Total: 22 * gi, Elastic: gi + gi/2}); memory != want {
		t.Errorf("%+v, want %+v", memory, want)
	}

	// Without a new snapshot the last measurement keeps its time.
	if again, _ := u.drain(); again != cpu {
		t.Errorf("%+v, want %+v", again, cpu)
	}

	// Unknown use of elastic pods counts as that of others. Without the node's use there is no measurement.
	s := snapshot(start.Add(time.Minute), 5000, 15*gi)
	s.Pods[0].Containers[0].Use = observe.Use{}
	u.add(s, testRequests)
	lost := snapshot(start.Add(time.Minute+time.Second), 5000, 15*gi)
	lost.Node = observe.Node{}
	u.add(lost, testRequests)

	cpu, memory = u.drain()
	if cpu.Elastic != 200 || memory.Elastic != gi/2 || !cpu.At.Equal(s.At) || !memory.At.Equal(s.At) {
		t.Errorf("drain = %+v, %+v, want 200m and half a GiB of elastic use at the last measurement", cpu, memory)
	}
}

// TestPageCacheOfElasticPods checks that page cache of elastic pods, which the node's use excludes, is not subtracted from it.
func TestPageCacheOfElasticPods(t *testing.T) {
	s := &observe.Snapshot{At: start, Pods: []observe.Pod{{UID: "1", Containers: []observe.Container{
		{ID: "e", Use: observe.Use{Memory: known(observe.Memory{Used: 25 * gi, WorkingSet: 25 * gi, RSS: 4 * gi, Shared: gi, Cache: 21 * gi})}},
	}}}}
	s.Node.Memory = known(host.Memory{Total: 64 * gi, Available: 39 * gi}) // others use 20 GiB
	var u usage
	u.add(s, testRequests)
	_, memory := u.drain()
	var state model.State[units.Bytes]

	got := model.Decide(model.Input[units.Bytes]{At: start, Allocatable: 64 * gi, Use: memory, PodsKnown: true}, model.Memory(), &state)
	if got.Offer != 42*gi {
		t.Errorf("offers %d GiB, want 42 GiB", got.Offer/gi)
	}
}

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"pool": "mixed"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
	}
}

const testTemplate = `predictionMetrics:
- resourceIdentifier: cpu
  type: ExpressionQuery
  expressionQuery: {expression: 'sum(rate(node_cpu_seconds_total{mode!="idle",instance=~"({{.metadata.name}})(:\\d+)?",pool="{{.metadata.labels.pool}}"}[5m]))'}
- {resourceIdentifier: use, type: ResourceQuery, resourceQuery: memory}
`

func TestRender(t *testing.T) {
	spec, err := nodetemplate.Render(testTemplate, newNode())
	if err != nil {
		t.Fatal(err)
	}

	if e := spec.PredictionMetrics[0].ExpressionQuery.Expression; !strings.Contains(e, `instance=~"(n1)(:\\d+)?",pool="mixed"`) {
		t.Errorf("the expression is %s, want it to select the node and its pool", e)
	}
	if spec.TargetRef.Name != "n1" || spec.TargetRef.Kind != "Node" || spec.PredictionWindowSeconds != 3600 {
		t.Errorf("Render = %+v, want Node n1 as target and a window of an hour", spec)
	}

	for text, why := range map[string]string{
		"{{.metadata.labels.nothing}}": "nothing",
		"{{.metadata.nothing.name}}":   "nothing",
		"{{":                           "template",
		"predictionMetrics: []":        "no predictionMetrics",
		"":                             "no predictionMetrics",
		"predictionMetrics: 7":         "not a spec",
		"predictionWindow: 7":          "unknown field",
		`{{range $i, $e := .status.addresses}}{{printf "%99999999s" "x"}}{{end}}`: "template",
		"{{range 100000}}0123456789{{end}}":                                       "neither a list nor a map",
		`{{range .status.addresses}}{{printf "%999999d" 1}}{{end}}`:               "more than",
	} {
		if _, err := nodetemplate.Render(text, newNode()); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", text, err, why)
		}
	}
}

func newForecast(values ...string) *predictionv1alpha1.TimeSeriesPrediction {
	memory := corev1.ResourceMemory
	tsp := &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Name: "noderesource-n1"}}
	tsp.Spec = predictionv1alpha1.TimeSeriesPredictionSpec{
		TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n1"}, PredictionWindowSeconds: 3600,
		PredictionMetrics: []predictionv1alpha1.PredictionMetric{
			{ResourceIdentifier: "cpu", Type: predictionv1alpha1.ExpressionQueryMetricType},
			{ResourceIdentifier: "memory", Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &memory},
		},
	}

	var samples []predictionv1alpha1.Sample
	for i, v := range values {
		samples = append(samples, predictionv1alpha1.Sample{Value: v, Timestamp: start.Add(time.Duration(i) * time.Minute).Unix()})
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{{ResourceIdentifier: "cpu", Ready: true, Prediction: []predictionv1alpha1.MetricTimeSeries{{Samples: samples}}}}
	return tsp
}

// TestForecast checks units, the peak within the window, and the reasons for unusable forecasts.
func TestForecast(t *testing.T) {
	cpu := func(e forecastState) model.Forecast[units.MilliCPU] {
		return readForecast(e, newNode(), corev1.ResourceCPU, start.Add(30*time.Second), model.ParseCores)
	}

	if f := cpu(forecastState{tsp: newForecast("2.00000", "12.50000", "3.00000")}); !f.OK || !f.Requested || f.Peak != 12500 || !f.Until.Equal(start.Add(2*time.Minute)) {
		t.Errorf("readForecast = %+v, want a peak of 12.5 cores for two minutes", f)
	}
	if f := cpu(forecastState{}); f.Requested {
		t.Errorf("readForecast without a template = %+v, want none requested", f)
	}
	if f := cpu(forecastState{requested: true, reason: "not yet"}); !f.Requested || f.OK || f.Detail != "not yet" {
		t.Errorf("readForecast = %+v, want a requested one that is missing: not yet", f)
	}

	if f := readForecast(forecastState{tsp: newForecast("1")}, newNode(), corev1.ResourceMemory, start, model.ParseBytes); !f.Requested || f.OK || f.Detail == "" {
		t.Errorf("readForecast of memory = %+v, want a requested one that is missing", f)
	}

	other := newForecast("1")
	other.Spec.PredictionMetrics = other.Spec.PredictionMetrics[:1]
	if f := readForecast(forecastState{tsp: other}, newNode(), corev1.ResourceMemory, start, model.ParseBytes); f.Requested {
		t.Errorf("readForecast of memory without a metric = %+v, want none requested", f)
	}

	two := newForecast("1")
	two.Status.PredictionMetrics[0].Prediction = append(two.Status.PredictionMetrics[0].Prediction, two.Status.PredictionMetrics[0].Prediction[0])
	stranger := newForecast("1")
	stranger.Spec.TargetRef.Name = "n2"
	old := newForecast("1")
	made := metav1.NewTime(start)
	long := metav1.NewTime(start.Add(-3 * time.Hour))

	old.Status.PredictionMetrics[0].UpdateTime = &made
	old.Status.PredictionMetrics[0].LastSampleTime = &long
	for name, c := range map[string]struct {
		tsp *predictionv1alpha1.TimeSeriesPrediction
		why string
	}{
		"NaN": {newForecast("NaN", "NaN"), "NaN"}, "below nothing": {newForecast("-1", "-1"), "-1"}, "infinite": {newForecast("Inf", "Inf"), "Inf"},
		"words": {newForecast("many", "more"), "many"}, "none": {newForecast(), "no values"},
		"several series": {two, "aggregate"}, "about another node": {stranger, "does not target this node"}, "of old samples": {old, "out of date"},
		"more than there can be": {newForecast("1e300", "1e300"), "out of range"},
	} {
		if f := cpu(forecastState{tsp: c.tsp}); f.OK || !f.Requested || !strings.Contains(f.Detail, c.why) {
			t.Errorf("%s: %+v, want %s", name, f, c.why)
		}
	}

	if f := readForecast(forecastState{tsp: newForecast("1", "2")}, newNode(), corev1.ResourceCPU, start.Add(time.Hour), model.ParseCores); f.OK || !strings.Contains(f.Detail, "ends at") {
		t.Errorf("readForecast after its end = %+v, want the end as detail", f)
	}

	byAddress := newForecast("1", "1")
	byAddress.Spec.TargetRef.Name = "10.0.0.1"
	if f := cpu(forecastState{tsp: byAddress}); !f.OK {
		t.Errorf("readForecast of a target by address = %+v, want it as in gocrane", f)
	}
}

func TestReserveOf(t *testing.T) {
	n := newNode()
	if r, why := readReserve(n, reserveCPU, 0.25); r != 0.25 || why != "" {
		t.Errorf("readReserve without annotation = %v, %q, want the default of 0.25", r, why)
	}

	n.Annotations = map[string]string{reserveCPU: "40", reserveMemory: "much"}
	if r, why := readReserve(n, reserveCPU, 0.25); r != 0.4 || why != "" {
		t.Errorf("readReserve = %v, %q, want the annotation's 0.4", r, why)
	}
	if _, why := readReserve(n, reserveMemory, 0.25); !strings.Contains(why, "much") || !strings.Contains(why, reserveMemory) {
		t.Errorf("readReserve of an invalid annotation has problem %q, want its name and value", why)
	}
}

func FuzzParseAnnotation(f *testing.F) {
	for _, s := range []string{"", "{}", "null", `{"at":"2026-01-01T00:00:00Z","ended":true,"cpu":{"was":"9"}}`, `{"cpu":{"was":"-9e99"}}`} {
		f.Add(s)
	}

	f.Fuzz(func(_ *testing.T, text string) {
		if a := parseAnnotation(text); a != nil {
			cpu := a.CPU.previousQuantity()
			memory := a.Memory.previousQuantity()
			_ = cpu.Value()
			_ = memory.Value()
		}
	})
}
