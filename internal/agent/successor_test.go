// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/testbed/simnode/kernel"
)

// changingView is a view whose pods change.
type changingView struct{ cluster.Static }

func (v *changingView) set(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	v.Static = known(t, rules, pods...)
}

// TestRestartWhileThrottled checks that the containers of a crash loop that a rule throttles are throttled one after the other: none gets
// less than its request, and nothing of the ended ones stays at the pod.
func TestRestartWhileThrottled(t *testing.T) {
	m := newHostFixture(t)
	hog := func(id string) *corev1.Pod {
		p := podOn("22222222-2222-2222-2222-222222222222", "hog", containerID(id))
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		return p
	}
	web := podOn("11111111-1111-1111-1111-111111111111", "web", containerID("1"))
	put := func(group, value string) {
		t.Helper()

		if err := m.tree.Write(filepath.Join(m.tree.Dir, group, "cpu.max"), value); err != nil {
			t.Fatal(err)
		}
	}
	quota := func(group string) int {
		t.Helper()

		content, err := os.ReadFile(filepath.Join(m.tree.Dir, group, "cpu.max"))
		if err != nil {
			t.Fatal(err)
		}

		var n int
		if _, err := fmt.Sscan(strings.Replace(string(content), "max", "-1", 1), &n); err != nil {
			t.Fatal(err)
		}

		return n
	}

	put(hogGroup, "400000")
	put(hogGroup+"/"+containerID("2"), "400000")
	view := &changingView{}
	view.set(t, web, hog("2"))
	_, l, _ := fixture{m.dir, t.TempDir(), clocktesting.NewFakeClock(m.now), m.tree, view}.agent(t, enforceThrottle)

	current := "2"
	run := func(seconds int) {
		t.Helper()

		for range seconds {
			m.now = m.now.Add(time.Second)
			got, err := m.tree.Tick(time.Second, []kernel.Load{
				{Group: webGroup + "/" + containerID("1"), CPU: m.web}, {Group: hogGroup + "/" + containerID(current), CPU: m.hog},
			})
			if err != nil {
				t.Fatal(err)
			}

			m.used = got[0].CPU + got[1].CPU
			m.busy += 100 * m.used
			m.idle += 100 * (4 - m.used)
			cpu := fmt.Sprintf("%.0f 0 0 %.0f", m.busy, m.idle)
			m.write(t, "proc/stat", "cpu "+cpu+"\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n")
			l.tick(m.now)

			if got := quota(hogGroup); got != 400000 {
				t.Fatalf("%s: quota of the pod = %d, want the kubelet's 400000", m.now.Format("15:04:05"), got)
			}
			if got := quota(hogGroup + "/" + containerID(current)); got < 50000 {
				t.Fatalf("%s: quota of container %s = %d, want at least the 50000 it requests", m.now.Format("15:04:05"), current, got)
			}
		}
	}

	m.web, m.hog = 1, 0.5
	run(3)
	m.web, m.hog = 2.95, 3
	run(8)

	for _, next := range []string{"3", "4", "5"} {
		if got := quota(hogGroup + "/" + containerID(current)); got == 400000 {
			t.Errorf("quota of container %s on a busy node = %d, want it throttled", current, got)
		}

		if err := m.tree.Remove(hogGroup + "/" + containerID(current)); err != nil {
			t.Fatal(err)
		}

		if err := m.tree.Make(hogGroup + "/" + containerID(next)); err != nil {
			t.Fatal(err)
		}

		put(hogGroup+"/"+containerID(next), "400000")
		current = next
		view.set(t, web, hog(next))
		run(8)
	}

	m.web, m.hog = 0.1, 0.2
	run(90)
	if got := quota(hogGroup + "/" + containerID(current)); got != 400000 {
		t.Errorf("quota of container %s on a calm node = %d, want the original 400000", current, got)
	}
}
