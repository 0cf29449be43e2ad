// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/test/e2e/node"
)

// TestCRIO checks that the agent observes, throttles and restores pods of CRI-O, which names cgroups differently.
func TestCRIO(t *testing.T) {
	f := newFixture(t, node.Options{Restart: true, Runtime: realnode.CRIO})
	t.Run("sees", func(t *testing.T) { testLook(t, f) })
	t.Run("throttles", func(t *testing.T) { testThrottle(t, f) })
}

// testLook checks that --once changes nothing, names and measures pods and reports the container it would throttle.
func testLook(t *testing.T, f fixture) {
	busy := f.batchPod(t, "busy", "cpu-hog", "-threads", "1")
	quiet := f.Run(t, f.Pod("quiet", "pause", nil, node.Resources("50m", "16Mi"), node.Resources("50m", "16Mi")))
	before := f.Settings(t)
	a := f.launcher(t)
	rules := strings.NewReplacer("PodName: hog", "PodName: busy", "avoidanceThreshold: 2", "avoidanceThreshold: 1").Replace(throttleRules)
	rules = a.write(t, "rules.yaml", rules)

	f.Eventually(t, "a look", func() error {
		cmd := exec.CommandContext(t.Context(), node.Command(command), "--dry-run", "--once", "--output=json", "--host-root="+a.Path("/"), "--rules="+rules,
			"--kubeconfig="+a.kubeconfig, "--hostname-override="+a.Name(), "--state-dir="+a.dir, "--collect-interval=1s")
		var complaints strings.Builder

		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, complaints.String())
		}

		var r onceReport
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("%q: %w", out, err)
		}

		return r.check(string(busy.UID), string(quiet.UID))
	})

	if c := node.ChangedSettings(before, f.Settings(t)); len(c) > 0 {
		t.Errorf("a look changed %s, want nothing changed", strings.Join(c, "; "))
	}

	f.Delete(t, busy)
	f.Delete(t, quiet)
}

// onceReport is the checked part of the output of --once.
type onceReport struct {
	Features []struct{ Name, Reason string }
	Pods     []struct {
		UID, Name, Class string
		UsedCPU          *float64 `json:"usedCpu"`
		WorkingSet       *int64   `json:"workingSet"`
	}
	Throttles []struct{ Pod, Container string }
}

func (r onceReport) check(busy, quiet string) error {
	classes := map[string]string{}
	for _, p := range r.Pods {
		if p.WorkingSet == nil || p.UsedCPU == nil || *p.WorkingSet <= 0 || p.Name == "busy" && *p.UsedCPU < 0.02 {
			return fmt.Errorf("pod %s is not measured: %+v", p.Name, p)
		}

		classes[p.UID+" "+p.Name] = p.Class
	}

	if classes[busy+" busy"] != "BestEffort" || classes[quiet+" quiet"] != "Guaranteed" {
		return fmt.Errorf("pods by class: %v", classes)
	}

	for _, f := range r.Features {
		if f.Name == "runtime" && !strings.Contains(f.Reason, "/run/crio/crio.sock") {
			return fmt.Errorf("feature %+v, want CRI-O's socket", f)
		}
	}

	if len(r.Throttles) != 1 || !strings.Contains(r.Throttles[0].Pod, "busy") || r.Throttles[0].Container != "main" {
		return fmt.Errorf("%+v would be throttled, want container main of pod busy", r.Throttles)
	}

	return nil
}
