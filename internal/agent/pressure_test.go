// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30

	readersHigh = "6442450944"

	crowdRules = `apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: mixed}
spec:
  rules:
  - {name: memory, actionName: make-room, avoidanceThreshold: 2, restoreThreshold: 2, metricRule: {name: node_memory_usage_ratio, value: 750m}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [make-room], labelSelector: {matchExpressions: [{key: app, operator: In, values: [reader, leak, keeps]}]}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: make-room}
spec: {coolDownSeconds: 5, throttle: {memoryThrottle: {}}, eviction: {terminationGracePeriodSeconds: 5}}
`
)

// pressureFixture is a fake host of 16 GiB with cgroup v2, 4 GiB of them used by the system, with a whole agent and a fake API server and
// kubelet.
type pressureFixture struct {
	t     *testing.T
	host  *kernel.Machine
	clk   *clocktesting.FakeClock
	loop  *loop
	wants map[string]kernel.Load
	nodes *fake.Clientset
	said  chan string // events
	audit string

	mu      sync.Mutex
	state   *cluster.State
	evicted []*policyv1.Eviction
	ends    map[string]time.Time
}

func (c *pressureFixture) uid(name string) string {
	return strings.Repeat(strconv.Itoa(1+slices.Index(c.names(), name)), 8) + "-0000-0000-0000-000000000000"
}

func (c *pressureFixture) id(name string) string {
	return containerID(strconv.Itoa(1 + slices.Index(c.names(), name)))
}

func (*pressureFixture) names() []string { return []string{"server", "reader", "leak", "keeps"} }

// newPressureFixture wires an agent that evicts and enforces the given kinds.
func newPressureFixture(t *testing.T, enforce ...string) *pressureFixture {
	t.Helper()

	c := &pressureFixture{t: t, clk: clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), ends: map[string]time.Time{}}
	root := t.TempDir()
	var err error
	if c.host, err = kernel.NewMachine(root, kernel.Spec{System: kernel.Load{Anon: 4 * gibi}}, c.clk); err != nil {
		t.Fatal(err)
	}

	c.wants = map[string]kernel.Load{
		"server": {Anon: 2 * gibi}, "reader": {Anon: 128 * mebi, File: 3 * gibi}, "leak": {Anon: gibi}, "keeps": {Anon: 2 * gibi},
	}

	set, err := ruleset.Parse([]byte(crowdRules))
	if err != nil {
		t.Fatal(err)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	c.state = &cluster.State{Node: node, KnowsPods: true, KnowsRules: true, Rules: set}
	for name := range c.wants {
		pod := podOn(c.uid(name), name, c.id(name))
		pod.Spec.Priority = new(map[string]int32{"server": 1000, "leak": -100, "keeps": -100}[name])

		c.state.Pods = append(c.state.Pods, pod)
		if err := c.host.AddPod(kernel.Pod{UID: c.uid(name), Class: "BestEffort", Containers: []kernel.Container{{ID: c.id(name)}}}); err != nil {
			t.Fatal(err)
		}
	}

	// As a kubelet with MemoryQoS sets it.
	if err := c.host.Tree().Write(c.file("reader", cgroup.FileHigh), readersHigh); err != nil {
		t.Fatal(err)
	}

	c.start(root, node, enforce)
	return c
}

// State implements cluster.Source.
func (c *pressureFixture) State() *cluster.State {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.state
}

// Node implements cluster.View.
func (c *pressureFixture) Node() *corev1.Node { return c.State().Node }

// Pods implements cluster.View.
func (c *pressureFixture) Pods() []*corev1.Pod { return c.State().Pods }

// Rules implements cluster.View.
func (c *pressureFixture) Rules() ruleset.Set { return c.State().Rules }

// Evict implements act.EvictionClient.
func (c *pressureFixture) Evict(_ context.Context, e *policyv1.Eviction) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.evicted = append(c.evicted, e)
	grace := *e.DeleteOptions.GracePeriodSeconds
	next := *c.state

	next.Pods = nil
	for _, p := range c.state.Pods {
		if p.UID == *e.DeleteOptions.Preconditions.UID {
			p = p.DeepCopy()
			p.DeletionTimestamp = &metav1.Time{Time: c.clk.Now()}
			p.DeletionGracePeriodSeconds = &grace
			c.ends[p.Name] = c.clk.Now().Add(time.Duration(grace) * time.Second)
		}

		next.Pods = append(next.Pods, p)
	}

	c.state = &next
	return nil
}

// start wires the agent and runs its executors.
func (c *pressureFixture) start(root string, node *corev1.Node, enforce []string) {
	c.t.Helper()

	o := NewOptions()
	o.StateDir = c.t.TempDir()
	o.HostRoot = root

	o.Enforce = enforce
	layout, err := cgroup.Detect(o.hostRoot())
	if err != nil {
		c.t.Fatal(err)
	}

	c.audit = filepath.Join(c.t.TempDir(), "audit.log")
	audit, err := report.OpenAudit(report.AuditConfig{Path: c.audit, MaxBytes: defaultAuditBytes, Clock: c.clk, Log: logr.Discard(), Beat: func(string) {}})
	if err != nil {
		c.t.Fatal(err)
	}

	recorder := record.NewFakeRecorder(1000)
	c.said = recorder.Events
	p := environment{Options: o, log: logr.Discard(), clock: c.clk, layout: layout, heartbeats: heartbeat.New(c.clk), latest: &observe.Latest{}}

	reporter := report.New(report.Config{Node: "n", Enforced: func(report.Kind) bool { return true }, Events: recorder, Audit: audit, Log: p.log, Clock: p.clock})
	open, err := p.openJournals(c.host.Tree(), reporter)
	if err != nil {
		c.t.Fatal(err)
	}

	a, beside := p.newExecutors(clusterAccess{view: c}, open, c.host.Tree(), reporter)
	c.nodes = fake.NewClientset(node)
	a.evictor = act.NewEvictor(act.EvictorConfig{Client: c, Clock: c.clk, Log: p.log, Beat: func(string) {}})
	a.tainter = act.NewTainter(act.TainterConfig{
		Name: "n", Nodes: c.nodes.CoreV1().Nodes(), Node: c.Node, Clock: c.clk, Log: p.log, Beat: func(string) {}, Report: a.reporter.ReportTaint,
	})

	if c.loop, err = p.newLoop(c, a); err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(c.loop.observer.Close)
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	for _, m := range append(beside, a.evictor, a.tainter, audit) {
		running.Go(func() {
			if err := m.Run(ctx); err != nil {
				c.t.Error(err)
			}
		})
	}

	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// tick advances the clock by a second and waits for the agent.
func (c *pressureFixture) tick() qos.Plan {
	c.t.Helper()

	c.clk.Step(time.Second)
	c.sync()

	for name, load := range c.wants {
		if file := c.stat(name, "file"); file > 0 {
			load.File = min(load.File, file) // Read once, and not again.
		}

		if err := c.host.SetDemand(c.uid(name), c.id(name), load); err != nil {
			c.t.Fatal(err)
		}
	}

	if _, err := c.host.Advance(); err != nil {
		c.t.Fatal(err)
	}

	plan := c.loop.tick(c.clk.Now())
	synctest.Wait()
	return plan
}

// sync updates the watched Node and removes pods whose termination is over.
func (c *pressureFixture) sync() {
	c.t.Helper()

	node, err := c.nodes.CoreV1().Nodes().Get(c.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	next := *c.state
	next.Node = node
	next.Pods = slices.DeleteFunc(slices.Clone(c.state.Pods), func(p *corev1.Pod) bool {
		end, ending := c.ends[p.Name]
		return ending && !c.clk.Now().Before(end)
	})
	if len(next.Pods) < len(c.state.Pods) {
		for name := range c.ends {
			if err := c.host.RemovePod(c.uid(name)); err != nil {
				c.t.Fatal(err)
			}

			delete(c.wants, name)
		}

		clear(c.ends)
	}

	c.state = &next
}

func (c *pressureFixture) file(name, file string) string {
	return filepath.Join(c.host.Tree().Dir, c.host.ContainerGroup(c.host.PodGroup(c.uid(name), "BestEffort"), c.id(name)), file)
}

func (c *pressureFixture) read(name, file string) string {
	c.t.Helper()

	content, err := os.ReadFile(c.file(name, file))
	if err != nil {
		c.t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

// stat reads a line of memory.stat.
func (c *pressureFixture) stat(name, key string) int64 {
	c.t.Helper()

	for line := range strings.Lines(c.read(name, "memory.stat")) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				c.t.Fatal(err)
			}

			return n
		}
	}

	c.t.Fatalf("memory.stat of %s lacks %s, want it", name, key)
	return 0
}

// actions reads the audit file as "action outcome pod".
func (c *pressureFixture) actions() (out []string) {
	c.t.Helper()

	content, err := os.ReadFile(c.audit)
	if err != nil {
		c.t.Fatal(err)
	}

	for line := range strings.Lines(string(content)) {
		var r report.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.t.Fatal(err)
		}

		if said := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Action, r.Outcome, r.Pod)); !slices.Contains(out, said) {
			out = append(out, said)
		}
	}

	return out
}

// TestReclaimThenEvict checks a node with a growing pod: page cache of another pod is reclaimed first, the growth is limited, and then
// only the growing pod is evicted. When the node is calm all limits are restored.
func TestReclaimThenEvict(t *testing.T) { synctest.Test(t, reclaimThenEvict) }

func reclaimThenEvict(t *testing.T) {
	c := newPressureFixture(t, enforceMemory)
	var fired, dropped, evicted int // seconds, 0 for not yet
	var before, high int64
	for second := 1; evicted == 0; second++ {
		if second > 120 {
			t.Fatalf("no pod is evicted within 120 s, fired %d, dropped %d; want one", fired, dropped)
		}

		c.leaks()
		files := c.stat("reader", "file")

		grown := c.stat("leak", "anon")
		plan := c.tick()
		f := plan.Rules[0]
		switch {
		case f.Phase != qos.Firing && f.Value > 0.75 && fired > 0:
			t.Errorf("%d s: the finding is %+v, want it firing above 0.75", second, f)
		case f.Phase != qos.Firing:
			if len(plan.MemoryThrottles)+len(plan.Evictions) > 0 {
				t.Fatalf("%d s: a rule that is %s has actions, want none", second, f.Phase)
			}

			continue

		case fired == 0:
			fired = second
			before = files
			high = grown

			if f.Value <= 0.75 || before < 3*gibi-mebi || len(plan.MemoryThrottles) == 0 {
				t.Fatalf("the finding is %+v, the reader has %d bytes; want a throttle above 0.75 with 3 GiB", f, before)
			}
		}

		drops := slices.ContainsFunc(plan.MemoryThrottles, func(m qos.MemoryThrottle) bool { return m.Freed > 0 })
		if drops {
			dropped = second
		}

		if len(plan.Evictions) > 0 {
			evicted = second
			if drops {
				t.Errorf("%d s: a pod is evicted while page cache is reclaimed, want one after the other", second)
			}
		}
	}

	if dropped != evicted-1 || evicted-fired > 30 {
		t.Errorf("fired after %d s, dropped files until %d s, evicted at %d s; want the eviction right after, within 30 s", fired, dropped, evicted)
	}
	if left := c.stat("reader", "file"); left > before/10 || c.read("reader", cgroup.FileHigh) == readersHigh {
		t.Errorf("the reader has %d MiB of files with limit %s, want a tenth and a lower limit", left/mebi, c.read("reader", cgroup.FileHigh))
	}
	if grown := c.stat("leak", "anon"); grown <= high || grown > high*3/2 {
		t.Errorf("the leak has %d MiB, at first %d MiB; want it slowed to at most half more", grown/mebi, high/mebi)
	}

	c.mu.Lock()
	if len(c.evicted) != 1 || c.evicted[0].Name != "leak" || *c.evicted[0].DeleteOptions.GracePeriodSeconds != 5 {
		t.Errorf("evictions are %+v, want pod leak with 5s", c.evicted)
	}

	c.mu.Unlock()
	if n := c.sawNode(); len(n.Spec.Taints) != 1 {
		t.Errorf("taints are %v, want one", n.Spec.Taints)
	}

	t.Logf("fired after %d s; files dropped for %d s, %d of %d MiB; evicted %d s after it fired", fired, dropped-fired+1, (before-c.stat("reader", "file"))/mebi, before/mebi, evicted-fired)
	c.calm()
}

// leaks raises the demand of the leaking pod.
func (c *pressureFixture) leaks() {
	load := c.wants["leak"]
	load.Anon += 256 * mebi
	c.wants["leak"] = load
}

// TestEvictWithoutReclaim checks that an agent without memory throttling evicts as soon as the rule fires.
func TestEvictWithoutReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPressureFixture(t)
		for second := 1; ; second++ {
			if second > 60 {
				t.Fatal("no pod is evicted within 60 s, want one")
			}

			c.leaks()
			plan := c.tick()

			fires := plan.Rules[0].Phase == qos.Firing
			if fires != (len(plan.Evictions) == 1) {
				t.Fatalf("%d s: the finding is %+v with %d evictions, want one once it fires", second, plan.Rules[0], len(plan.Evictions))
			}
			if fires {
				break
			}
		}

		if len(c.evicted) != 1 || c.evicted[0].Name != "leak" || c.read("reader", cgroup.FileHigh) != readersHigh {
			t.Errorf("evictions are %+v, the reader's limit is %s; want pod leak and no change", c.evicted, c.read("reader", cgroup.FileHigh))
		}
	})
}

func (c *pressureFixture) sawNode() *corev1.Node {
	c.t.Helper()
	c.sync()
	return c.Node()
}

// calm waits until everything is restored, except the evicted pod.
func (c *pressureFixture) calm() {
	c.t.Helper()

	for second := 0; c.read("reader", cgroup.FileHigh) != readersHigh || c.read("keeps", cgroup.FileHigh) != "max" || len(c.sawNode().Spec.Taints) > 0; second++ {
		if second > 180 {
			c.t.Fatalf("after 180 s limits are %s and %s, taints %v; want everything restored", c.read("reader", cgroup.FileHigh), c.read("keeps", cgroup.FileHigh), c.sawNode().Spec.Taints)
		}

		c.tick()
	}

	c.tick()
	if len(c.evicted) != 1 || c.read("server", cgroup.FileHigh) != "max" {
		c.t.Errorf("%d pods are evicted, the server's limit is %s; want 1 and max", len(c.evicted), c.read("server", cgroup.FileHigh))
	}

	actions := c.actions()
	want := []string{
		"memory-throttle done reader", "taint done", "evict done leak", "memory-restore done reader", "untaint done",
	}

	at := -1
	for _, w := range want {
		i := slices.Index(actions, w)
		if i < 0 || w != "taint done" && w != "untaint done" && i < at {
			c.t.Errorf("actions are %q, want %q in its place", actions, w)
		}

		at = max(at, i)
	}

	if i := slices.IndexFunc(actions, func(a string) bool { return strings.HasSuffix(a, " server") }); i >= 0 {
		c.t.Errorf("the server has action %s, want none", actions[i])
	}

	var reasons []string
	for len(c.said) > 0 {
		reasons = append(reasons, strings.Fields(<-c.said)[1])
	}

	for _, r := range []string{"AvoidanceTriggered", "MemoryThrottled", "NewPodsKeptAway", "Evicted", "RestoreTriggered", "MemoryRestored", "NewPodsWelcome"} {
		if !slices.Contains(reasons, r) {
			c.t.Errorf("events are %q, want %s among them", reasons, r)
		}
	}
}
