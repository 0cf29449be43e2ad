// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/testbed/simnode/kernel"
)

// TestPredecessor checks that the first start removes what gocrane's agent left, as far as pods do not hold it, and that a dry run warns.
func TestPredecessor(t *testing.T) {
	for name, test := range map[string]struct {
		enforce []string
		removes bool
		cpu     int64
	}{
		"dry run":       {nil, false, 6},
		"enforced":      {[]string{enforceThrottle}, true, 3},
		"node-resource": {[]string{enforceThrottle, enforceNodeResource}, true, 6},
	} {
		t.Run(name, func(t *testing.T) {
			six := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("6")}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule}}},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionTrue}},
					Capacity:   six, Allocatable: six.DeepCopy(),
				},
			}

			pod := podOn("1", "elastic", containerID("1"))
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("3")}
			pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests
			client := fake.NewClientset(node)
			o := NewOptions()
			o.Enforce = test.enforce
			o.DryRun = test.enforce == nil

			var log []string
			e := environment{Options: o, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), log: funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})}
			view := cluster.NewStatic(cluster.State{Node: node, Pods: []*corev1.Pod{pod}, KnowsPods: true})
			e.latest = &observe.Latest{}
			e.latest.Publish(&observe.Snapshot{})

			for _, m := range e.newPredecessorManager(clusterAccess{view: view, api: &clients{Interface: client}}, nil, nil) {
				if err := m.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			got, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			if cpu := got.Status.Capacity[ensurancev1alpha1.ResourceReclaimedCPU]; (len(got.Spec.Taints) == 0) != test.removes || (len(got.Status.Conditions) == 0) != test.removes || cpu.Value() != test.cpu {
				t.Errorf("taints %+v, conditions %+v, CPU %s; want removed: %t, and %d cores", got.Spec.Taints, got.Status.Conditions, cpu.String(), test.removes, test.cpu)
			}
			if !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "interference.crane.io") }) {
				t.Errorf("log %q, want the taint in it", log)
			}
		})
	}
}

// quotaFixture is a node whose host gocrane's agent left with lowered CPU quotas of four containers.
type quotaFixture struct {
	tree     *kernel.Tree
	layout   cgroup.Layout
	observer *observe.Observer
	latest   *observe.Latest
	journal  *act.Journal
	client   *fake.Clientset
	pods     []*corev1.Pod
}

const (
	quotaUID = "11111111-1111-1111-1111-111111111111"
	quotaPod = "kubepods/burstable/pod" + quotaUID
)

func newQuotaFixture(t *testing.T, v1 bool) *quotaFixture {
	t.Helper()

	dir := t.TempDir()
	base := filepath.Join(dir, "sys/fs/cgroup")
	f := &quotaFixture{tree: &kernel.Tree{Dir: base}, latest: &observe.Latest{}}
	if v1 {
		f.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}

	pod := podOn(quotaUID, "web", "")
	pod.Spec.Containers = nil
	pod.Status.ContainerStatuses = nil
	for i, limits := range []corev1.ResourceList{
		{corev1.ResourceCPU: resource.MustParse("2")}, {}, {ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("1")}, {corev1.ResourceCPU: resource.MustParse("500m")},
	} {
		id := containerID(strconv.Itoa(i))
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c" + strconv.Itoa(i), Resources: corev1.ResourceRequirements{Limits: limits}})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "c" + strconv.Itoa(i), ContainerID: "containerd://" + id})

		if err := f.tree.Make(quotaPod + "/" + id); err != nil {
			t.Fatal(err)
		}
	}

	f.pods = []*corev1.Pod{pod}
	if !v1 {
		if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpu\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var err error
	if f.layout, err = cgroup.Detect(host.Root(dir)); err != nil {
		t.Fatal(err)
	}

	for i := range pod.Spec.Containers {
		f.set(t, i, 50*time.Millisecond)
	}

	if f.journal, err = act.OpenJournal(filepath.Join(dir, "changes.json"), f.layout, f.tree); err != nil {
		t.Fatal(err)
	}

	f.observer = observe.New(host.Root(dir), f.layout)
	t.Cleanup(f.observer.Close)
	f.latest.Publish(f.observer.Collect(time.Unix(1, 0)))
	f.client = fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionFalse}}},
	})

	return f
}

// set writes the quota of a container as gocrane's agent does, in a period of 100 ms.
func (f *quotaFixture) set(t *testing.T, container int, quota time.Duration) {
	t.Helper()

	change := act.QuotaChanges(f.layout.Version, quotaPod+"/"+containerID(strconv.Itoa(container)), cgroup.Bandwidth{Quota: quota, Period: 100 * time.Millisecond})[0]
	path, err := f.layout.SettingFile(change.Group, change.File)
	if err == nil {
		err = f.tree.Write(path, change.Value)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// cores returns the quotas of all containers; -1 for none.
func (f *quotaFixture) cores(t *testing.T) (out []float64) {
	t.Helper()

	for i := range f.pods[0].Spec.Containers {
		limit, _, err := f.layout.ReadLimit(&host.Reader{}, quotaPod+"/"+containerID(strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}

		if limit.Unlimited() {
			out = append(out, -1)
		} else {
			out = append(out, limit.Cores())
		}
	}

	return out
}

// run runs the manager once and returns the Node's annotation.
func (f *quotaFixture) run(t *testing.T, enforce ...string) (annotation string, err error) {
	t.Helper()

	node, err := f.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	o := NewOptions()
	o.Enforce = enforce
	o.DryRun = enforce == nil
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))

	e := environment{Options: o, clock: clk, log: logr.Discard(), layout: f.layout, latest: f.latest}
	reporter := report.New(report.Config{Node: "n", Enforced: func(report.Kind) bool { return true }, Log: logr.Discard(), Clock: clk})
	view := cluster.NewStatic(cluster.State{Node: node, Pods: f.pods, KnowsPods: true})
	for _, m := range e.newPredecessorManager(clusterAccess{view: view, api: &clients{Interface: f.client}}, f.journal, reporter) {
		err = errors.Join(err, m.Run(t.Context()))
	}

	if node, getErr := f.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); getErr != nil {
		t.Fatal(getErr)
	} else {
		annotation = node.Annotations[ensurancev1alpha1.AnnotationPredecessor]
	}

	return annotation, err
}

func (f *quotaFixture) expect(t *testing.T, what string, want ...float64) {
	t.Helper()

	if got := f.cores(t); !slices.Equal(got, want) {
		t.Errorf("%s: quotas of %v cores, want %v", what, got, want)
	}
}

// TestQuotasOfPredecessor checks that quotas that gocrane's agent left are raised to what the pods' specs ask for, once and for good: not by
// an agent that does not enforce them, not while Crane is paused, and not below a change of the agent's own. The Node's annotation records
// meanwhile that some are left.
func TestQuotasOfPredecessor(t *testing.T) {
	const left = ensurancev1alpha1.PredecessorGocrane
	for _, v1 := range []bool{false, true} {
		f := newQuotaFixture(t, v1)
		if got, err := f.run(t); got != "" || err != nil {
			t.Errorf("a dry run: annotation %q, %v; want neither", got, err)
		}
		if got, err := f.run(t, enforceEvict); got != left || err != nil {
			t.Errorf("without --enforce=cpu-throttle: annotation %q, %v; want %q", got, err, left)
		}

		f.journal.Stopped = func() bool { return true }
		if got, err := f.run(t, enforceThrottle); got != left || !errors.Is(err, act.ErrPaused) {
			t.Errorf("while paused: annotation %q, %v; want %q and ErrPaused", got, err, left)
		}

		f.journal.Stopped = nil
		f.expect(t, "before", 0.5, 0.5, 0.5, 0.5)

		// The agent throttles the first container, whose quota is restored after that.
		own := act.QuotaChanges(f.layout.Version, quotaPod+"/"+containerID("0"), cgroup.Bandwidth{Quota: 30 * time.Millisecond, Period: 100 * time.Millisecond})
		if err := f.journal.Change(act.Unit{Key: "cpu/x", Subject: "x", Changes: own}); err != nil {
			t.Fatal(err)
		}

		if got, err := f.run(t, enforceThrottle); got != left || err == nil {
			t.Errorf("beside an own change: annotation %q, %v; want %q and an error", got, err, left)
		}

		f.expect(t, "beside an own change", 0.3, -1, 1, 0.5)
		if err := f.journal.Undo("cpu/x"); err != nil {
			t.Fatal(err)
		}

		if got, err := f.run(t, enforceThrottle); got != "" || err != nil {
			t.Errorf("after the own change: annotation %q, %v; want neither", got, err)
		}
		if err := f.journal.UndoAll(); err != nil || len(f.journal.Entries()) > 0 {
			t.Error(err)
		}

		f.expect(t, "after the agent's end", 2, -1, 1, 0.5)

		// Without a mark of gocrane's agent a low quota may have any reason.
		f.set(t, 0, 50*time.Millisecond)

		if got, err := f.run(t, enforceThrottle); got != "" || err != nil {
			t.Errorf("without a mark of gocrane's agent: annotation %q, %v; want neither", got, err)
		}
		f.expect(t, "without a mark", 0.5, -1, 1, 0.5)
	}
}

// TestQuotasThatStay checks which pods keep their quotas.
func TestQuotasThatStay(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"opted out":   func(p *corev1.Pod) { p.Labels[analysisv1alpha1.LabelOptOut] = "true" },
		"static":      func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		"another UID": func(p *corev1.Pod) { p.UID = "22222222-2222-2222-2222-222222222222" },
		"being resized": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}}
		},
		"resources of the pod": func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} },
	} {
		f := newQuotaFixture(t, false)
		change(f.pods[0])

		if got, err := f.run(t, enforceThrottle); got != "" || err != nil {
			t.Errorf("%s: annotation %q, %v; want neither", name, got, err)
		}
		f.expect(t, name, 0.5, 0.5, 0.5, 0.5)
	}
}
