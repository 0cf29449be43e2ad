// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/test/e2e/node"
)

// TestThrottleWithSystemd checks that a pod is throttled and restored although systemd resets limits on a daemon-reload.
func TestThrottleWithSystemd(t *testing.T) {
	f := newMachineFixture(t, node.Options{CgroupDriver: realnode.Systemd})
	// It is always busy: at its least limit, a process that switches it off would take minutes.
	hog := f.batchPod(t, "hog", "cpu-hog", "-threads", "1")
	cgroups := f.Cgroups(t)
	system := f.Run(t, f.HostPod("system"))
	f.apply(t, throttleRules)
	f.deploy(t, "--enforce=cpu-throttle", "--collect-interval=2s")
	f.awaitHeldDown(t, cgroups, hog)
	_, id, _ := strings.Cut(hog.Status.ContainerStatuses[0].ContainerID, "://")

	scope := "cri-containerd-" + id + ".scope"
	for _, command := range [][]string{{"daemon-reload"}, {"set-property", "--runtime", scope, "CPUQuota="}} {
		if _, err := f.ExecOnNode(t, system, append([]string{"systemctl"}, command...)...); err != nil {
			t.Fatal(err)
		}

		if limits, err := cgroups.ContainerLimits(t, hog); err == nil {
			t.Logf("after %s the limit is %g cores", command[0], limits.Cores)
		}
		f.awaitHeldDown(t, cgroups, hog)
	}

	f.dropRule(t, "busy")
	f.Eventually(t, "limits are as before", func() error {
		ofPod, err := cgroups.PodLimits(t, hog)
		if err != nil {
			return err
		}

		ofContainer, err := cgroups.ContainerLimits(t, hog)
		if err == nil && !(math.IsInf(ofPod.Cores, 1) && math.IsInf(ofContainer.Cores, 1)) {
			err = fmt.Errorf("pod %g cores, container %g", ofPod.Cores, ofContainer.Cores)
		}

		return err
	})
}
