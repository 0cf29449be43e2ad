// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// FailNode disconnects a node: no heartbeats, no reports, no endpoints, until RecoverNode. Its containers keep running.
func (f *Fleet) FailNode(name string) error { return f.setDown(name, true) }

// RecoverNode reconnects a failed node, which then catches up with changes of its pods.
func (f *Fleet) RecoverNode(name string) error {
	if err := f.setDown(name, false); err != nil {
		return err
	}

	pods, err := f.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("recovering node %s: listing its pods: %w", name, err)
	}

	for _, pod := range pods {
		if pod.Spec.NodeName == name {
			f.observe(pod)
		}
	}

	f.nodes.beats.Add(name)
	return nil
}

func (f *Fleet) setDown(name string, down bool) error {
	m, ok := f.members[name]
	if !ok {
		return fmt.Errorf("unknown simulated node %q", name)
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.down = down
	m.reported = time.Time{}
	return nil
}

// KillContainer terminates a running container with the exit code, like a crash.
func (f *Fleet) KillContainer(namespace, pod, container string, code int32) error {
	for _, m := range f.order {
		m.mu.Lock()
		ok := !m.down && m.node.Kill(namespace, pod, container, code, f.config.Clock.Now())
		dirty := m.node.Dirty()
		m.mu.Unlock()
		f.enqueue(dirty)

		if ok {
			return nil
		}
	}

	return fmt.Errorf("container %s of pod %s/%s does not run on a simulated node", container, namespace, pod)
}

// Snapshot returns all running containers, for an exporter. It shares the pod objects.
func (f *Fleet) Snapshot() []ContainerState {
	var list []ContainerState
	for _, m := range f.order {
		m.mu.Lock()
		list = m.node.Containers(list, !m.down)
		m.mu.Unlock()
	}

	return list
}

// Nodes returns the state of all nodes in the order of the configuration.
func (f *Fleet) Nodes() []NodeState {
	list := make([]NodeState, 0, len(f.order))
	for _, m := range f.order {
		list = append(list, f.state(m))
	}

	return list
}

func (f *Fleet) state(m *member) NodeState {
	m.mu.Lock()
	defer m.mu.Unlock()

	s := m.node.State()
	s.Address = loopback
	s.Port = m.port
	s.Reachable = !m.down

	return s
}
