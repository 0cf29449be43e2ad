// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/test/e2e/node"
)

// TestElasticPodIsIdle checks on cgroup v2 that an elastic pod is idle, besides its limits, and is restored at the end of the agent.
func TestElasticPodIsIdle(t *testing.T) {
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2})
	elastic := f.elastic("elastic")
	elastic.Spec.NodeName = f.Name() // The node does not advertise the resources, so a scheduler would not place it.
	pod := f.Run(t, elastic)
	c := f.Cgroups(t)
	container := containerDir(c, pod)

	read := func() (map[string]string, error) {
		out := map[string]string{}
		var errs []error
		for _, file := range []string{"cpu.idle", "cpu.weight", "cpu.max", "memory.max"} {
			for name, dir := range map[string]string{"pod": path.Dir(container), "container": container} {
				text, err := c.Read(t, dir+"/"+file)
				out[name+" "+file] = text
				errs = append(errs, err)
			}
		}

		return out, errors.Join(errs...)
	}

	before, err := read()
	if err != nil {
		t.Fatal(err)
	}

	memory := resource.MustParse(elasticMemory)
	want := maps.Clone(before)
	maps.Copy(want, map[string]string{
		"pod cpu.idle": "1", "pod cpu.max": "100000 100000", "pod memory.max": fmt.Sprint(memory.Value()),
		"container cpu.weight": "39", "container cpu.max": "100000 100000", "container memory.max": fmt.Sprint(memory.Value()),
	})

	await := func(what string, want map[string]string) {
		t.Helper()

		f.Eventually(t, what, func() error {
			now, err := read()
			if err != nil {
				return err
			}

			var wrong []string
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if now[name] != want[name] {
					wrong = append(wrong, fmt.Sprintf("%s is %q, want %q", name, now[name], want[name]))
				}
			}

			if len(wrong) > 0 {
				err = errors.New(strings.Join(wrong, "; "))
			}

			return err
		})
	}

	delete(want, "pod cpu.weight") // The weight of an idle cgroup is meaningless.
	if before["pod cpu.idle"] != "0" {
		t.Fatalf("before the agent starts the pod has %v, want cpu.idle 0", before)
	}

	d := f.deploy(t, "--enforce=pod-resource", "--collect-interval=2s")
	await("the limits and the idle class", want)
	d.remove(t)
	await("all is as before", before)
}
