// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/topology"
)

// detectInterval is the interval at which the group of pods is detected again. It changes with the kubelet's driver or root alone, or once if
// the agent starts before the kubelet.
const detectInterval = time.Minute

// detectCgroups returns where the cgroups of the host and of its pods are: in --pod-cgroup, else below the kubelet's cgroupRoot, else in one of
// the usual groups.
func (o *Options) detectCgroups() (cgroup.Layout, error) {
	reader := topology.KubeletReader{
		Root:       o.hostRoot(),
		Dir:        o.KubeletRoot,
		File:       o.CPUs.KubeletConfig,
		AnswerPath: filepath.Join(o.StateDir, topology.AnswerFile),
	}

	kubelet := reader.Known()
	return cgroup.DetectWith(o.hostRoot(), cgroup.Hint{
		Pods:   o.PodGroup,
		Root:   kubelet.CgroupRoot,
		Driver: cgroup.Driver(kubelet.CgroupDriver),
	})
}

// podGroupManager ends the agent when the pods are in another group than at its start, so that the next start uses that one.
type podGroupManager struct {
	environment

	end context.CancelCauseFunc
}

// Name implements Manager.
func (podGroupManager) Name() string { return "pod-group" }

// Run implements Manager.
func (m podGroupManager) Run(ctx context.Context) error {
	ticker := m.clock.NewTicker(detectInterval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}

		m.check()
	}
}

// check ends the agent if its group has no pods and another one has: the group may be left over, or its pods may be about to come.
func (m podGroupManager) check() {
	now, err := m.detectCgroups()
	if err == nil && now.Pods != m.layout.Pods && now.HasPods() && !m.layout.HasPods() {
		m.end(fmt.Errorf("the pods are in group %s, not in %q as at the start: the agent has to start again", now.Pods, m.layout.Pods))
	}
}
