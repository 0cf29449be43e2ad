// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"math"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

var epoch = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// fixture is an environment whose time stands still until it is moved.
type fixture struct {
	spec  *simscenario.Scenario
	world *simcluster.World
	truth *simcluster.Truth
	meter *simcluster.Meter
	now   time.Duration
}

func newFixture() *fixture {
	b := &fixture{spec: &simscenario.Scenario{Metrics: simscenario.Metrics{Scrape: metav1.Duration{Duration: 30 * time.Second}}}}
	b.world = simcluster.NewBurst(4, 10, 0).World
	b.truth = simcluster.NewTruth(b.world)
	b.meter = simcluster.NewMeter(b.spec.Metrics, 4, 1)

	return b
}

func (b *fixture) Spec() *simscenario.Scenario     { return b.spec }
func (b *fixture) World() *simcluster.World        { return b.world }
func (b *fixture) Truth() *simcluster.Truth        { return b.truth }
func (b *fixture) Meter() *simcluster.Meter        { return b.meter }
func (b *fixture) Now() time.Duration              { return b.now }
func (b *fixture) Clock() time.Time                { return epoch.Add(b.now) }
func (b *fixture) WriterClock() time.Time          { return b.Clock() }
func (b *fixture) At(_ time.Duration, do func())   { do() }
func (b *fixture) Node(name string) int            { i, _ := strconv.Atoi(name[len("node-"):]); return i }
func (b *fixture) Pod(pod *corev1.Pod) int         { i, _ := strconv.Atoi(string(pod.UID)); return i }
func (b *fixture) Annotate(int, map[string]string) {}
func (b *fixture) Random(a, c int) float64 {
	return float64(simcluster.Hash(1, uint64(a), uint64(c))>>11) / (1 << 53)
}

// info is a NodeInfo that has no more than its node.
type info struct {
	fwk.NodeInfo
	node *corev1.Node
}

func (i info) Node() *corev1.Node { return i.node }

func node(annotations map[string]string) info {
	return info{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-00001", Annotations: annotations}}}
}

func TestGocraneFormula(t *testing.T) {
	b := newFixture()
	g, err := Gocrane(b).New(t.Context(), nil, nil)
	if err != nil {
		t.Fatalf("Gocrane: %v, want a plugin", err)
	}

	at := epoch.Format(",2006-01-02T15:04:05Z")
	all := func(u string) map[string]string {
		m := map[string]string{}
		for _, r := range []string{"cpu", "mem"} {
			for _, w := range []string{"avg_5m", "max_avg_1h", "max_avg_1d"} {
				m[r+"_usage_"+w] = u + at
			}
		}

		return m
	}

	with := func(m map[string]string, key, value string) map[string]string { m[key] = value; return m }
	missing := all("0.5")
	delete(missing, "cpu_usage_max_avg_1d")

	for name, c := range map[string]struct {
		annotations map[string]string
		after       time.Duration
		score       int64
		passes      bool
	}{
		"half":              {all("0.5"), 0, 50, true},
		"hot value":         {with(all("0.5"), "node_hot_value", "2"+at), 0, 30, true},
		"old hot value":     {with(all("0.5"), "node_hot_value", "2"+at), 6 * time.Minute, 50, true},
		"very hot":          {with(all("0.5"), "node_hot_value", "9"+at), 0, 0, true},
		"nothing is known":  {nil, 0, 0, true},
		"one is missing":    {missing, 0, 37, true}, // its weight of 0.5 of 2 counts, as if it were full
		"five minutes gone": {all("0.5"), 9 * time.Minute, 40, true},
		"above a limit":     {with(all("0.5"), "cpu_usage_avg_5m", "0.66"+at), 0, 48, false},
		"the limit expired": {with(all("0.5"), "cpu_usage_avg_5m", "0.66"+at), 9 * time.Minute, 40, true},
	} {
		b.now = c.after
		score, _ := g.(fwk.ScorePlugin).Score(t.Context(), nil, nil, node(c.annotations))
		passes := g.(fwk.FilterPlugin).Filter(t.Context(), nil, nil, node(c.annotations)).IsSuccess()
		if score != c.score || passes != c.passes {
			t.Errorf("%s: score %d and passes %v, want %d and %v", name, score, passes, c.score, c.passes)
		}
	}
}

func TestGocraneHotValue(t *testing.T) {
	b := newFixture()
	p := Gocrane(b)
	plugin, _ := p.New(t.Context(), nil, nil)
	g := plugin.(*gocrane)

	for range 7 {
		p.Bound(0, 1)
	}

	// Seven in five minutes are one of five, seven in one minute three of two.
	if hot := g.hotValues(b.Clock()); hot[1] != 1+3 || hot[0] != 0 {
		t.Errorf("hotValues after seven bindings = %v, want 4 on the bound node", hot)
	}
	if hot := g.hotValues(b.Clock().Add(2 * time.Minute)); hot[1] != 1 {
		t.Errorf("hotValues after two minutes = %v, want 1 on the bound node", hot)
	}

	for range 3 * gocraneHeap {
		p.Bound(0, 2)
	}

	if len(g.binds) != gocraneHeap {
		t.Errorf("%d bindings are kept, want %d", len(g.binds), gocraneHeap)
	}
}

func TestKoordinatorFormula(t *testing.T) {
	b := newFixture()
	k := newKoordinator(b)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("16")}} // the first of the burst: 500m, 256 MiB

	score := func() int64 { s, _ := k.Score(t.Context(), nil, pod, node(nil)); return s }
	passes := func() bool { return k.Filter(t.Context(), nil, pod, node(nil)).IsSuccess() }
	if score() != 0 || !passes() {
		t.Errorf("a node without a report scores %d, passes %v, want 0 and true", score(), passes())
	}

	k.nodes[1].hasReport = true
	k.nodes[1].cpu = 0.5
	k.nodes[1].memory = 0.2

	cpu := 0.5 + 0.85*500/16000
	memory := 0.2 + 0.7*256/65536
	if want := (int64(100*(1-cpu)) + int64(100*(1-memory))) / 2; score() != want {
		t.Errorf("Score = %d, want %d", score(), want)
	}

	// A pod that is new counts with its estimate, one that was reported with what that is above its use.
	if err := b.truth.Place(17, 1, 0); err != nil {
		t.Fatalf("Place: %v, want no error", err)
	}

	k.bound(17, 1)
	if got, _ := k.load(16, 1); math.Abs(got-(cpu+0.85*500/16000)) > 1e-9 {
		t.Errorf("load with a new pod = %v, want its estimate added to %v", got, cpu)
	}

	b.now = 30 * time.Second
	k.nodes[1].reported = b.now
	k.nodes[1].arrived = b.now

	k.nodes[1].pods[17] = 300
	k.nodes[1].dirty = true
	if got, _ := k.load(16, 1); math.Abs(got-(cpu+(0.85*500-300)/16000)) > 1e-9 {
		t.Errorf("load with a reported pod = %v, want the excess of its estimate over 300m added to %v", got, cpu)
	}

	// Once the report is a minute younger than the pod, the pod counts with what was reported alone.
	k.nodes[1].reported = 2 * time.Minute
	k.nodes[1].dirty = true
	if got, _ := k.load(16, 1); math.Abs(got-cpu) > 1e-9 {
		t.Errorf("load with an old pod = %v, want %v", got, cpu)
	}

	k.nodes[1].cpu = 0.7
	if passes() {
		t.Error("Filter passes a node above 65 %, want it rejected")
	}

	k.nodes[1].cpu = 0.1
	b.now = b.now + koordinatorExpiry + time.Second

	if passes() || score() != 0 {
		t.Errorf("a node with an expired report scores %d, passes %v, want 0 and false", score(), passes())
	}
}
