// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodehost emulates the host of a simulated node for a node agent: cgroups and /proc files in a directory,
// which reflect the use of the node's containers, and cgroup limits that bound it.
package nodehost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/internal/testbed/simnode/kernel"
)

// step is the interval between updates of the hosts: agents read them once a second.
const step = 500 * time.Millisecond

// maxFailures bounds consecutive failed updates: an agent may be in the middle of writing a file, which is atomic in a
// kernel.
const maxFailures = 10

// Set contains the hosts of some nodes. It implements simnode.Load and is safe for concurrent use.
type Set struct {
	demand simnode.Load
	clock  clock.WithTicker

	mu    sync.Mutex
	hosts map[string]*host
}

type host struct {
	machine *kernel.Machine
	// pods contains the pods on the machine by UID.
	pods map[string][]simnode.ContainerState
	// lastUse contains the last use by container ID without the runtime's scheme.
	lastUse map[string]kernel.Use
}

// New returns a set without hosts. Containers on nodes without a host use what they demand.
func New(demand simnode.Load, clk clock.WithTicker) *Set {
	return &Set{demand: demand, clock: clk, hosts: map[string]*host{}}
}

// Add creates a host in dir for a node.
func (s *Set) Add(dir string, node simnode.NodeSpec) error {
	machine, err := kernel.NewMachine(dir, kernel.Spec{Systemd: true, CPUs: int(node.CPU.Value()), Memory: node.Memory.Value()}, s.clock)
	if err != nil {
		return fmt.Errorf("host of %s: %w", node.Name, err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.hosts[node.Name] = &host{machine: machine, pods: map[string][]simnode.ContainerState{}, lastUse: map[string]kernel.Use{}}
	return nil
}

// Use implements simnode.Load: it returns the container's demand bounded by the limits of its host.
func (s *Set) Use(pod *corev1.Pod, container string, at time.Time) simnode.Use {
	use := s.demand.Use(pod, container, at)
	s.mu.Lock()
	defer s.mu.Unlock()

	h := s.hosts[pod.Spec.NodeName]
	if h == nil || !use.Known {
		return use
	}

	for _, status := range pod.Status.ContainerStatuses {
		got, ok := h.lastUse[bare(status.ContainerID)]
		if status.Name != container || !ok {
			continue
		}

		use.CPU = min(use.CPU, got.CPU)
		use.Memory = min(use.Memory, float64(got.Anon+got.File))
		use.Cache = min(use.Cache, float64(got.File))
	}

	return use
}

// Run calls Follow with the current containers periodically until ctx ends.
func (s *Set) Run(ctx context.Context, containers func() []simnode.ContainerState) error {
	ticker := s.clock.NewTicker(step)
	defer ticker.Stop()

	failed := 0
	for {
		err := s.Follow(containers())
		failed++

		if err == nil {
			failed = 0
		} else if failed >= maxFailures {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Follow updates all hosts to the running containers of all nodes and simulates the time since the last call.
func (s *Set) Follow(containers []simnode.ContainerState) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.clock.Now()
	running := map[string]map[string][]simnode.ContainerState{}
	for _, c := range containers {
		if s.hosts[c.Node] == nil {
			continue
		}

		if running[c.Node] == nil {
			running[c.Node] = map[string][]simnode.ContainerState{}
		}

		uid := string(c.Pod.UID)
		running[c.Node][uid] = append(running[c.Node][uid], c)
	}

	// A failure on one host does not keep the others from being updated.
	var errs []error
	for name, h := range s.hosts {
		if err := h.follow(running[name], s.demand, now); err != nil {
			errs = append(errs, fmt.Errorf("host of %s: %w", name, err))
		}
	}

	return errors.Join(errs...)
}

func (h *host) follow(running map[string][]simnode.ContainerState, demand simnode.Load, now time.Time) error {
	// A changed pod is removed here and created again below.
	for uid, previous := range h.pods {
		if !slices.EqualFunc(previous, running[uid], same) {
			if err := h.machine.RemovePod(uid); err != nil {
				return fmt.Errorf("removing a pod: %w", err)
			}

			delete(h.pods, uid)
		}
	}

	for uid, containers := range running {
		if h.pods[uid] == nil {
			if err := h.machine.AddPod(podOf(containers)); err != nil {
				return fmt.Errorf("adding a pod: %w", err)
			}
		}

		h.pods[uid] = containers
		for _, c := range containers {
			use := demand.Use(c.Pod, c.Container, now)
			anon := max(use.Memory-use.Cache, 0)
			if err := h.machine.SetDemand(uid, bare(c.ID), kernel.Load{CPU: use.CPU, Anon: int64(anon), File: int64(use.Cache)}); err != nil {
				return fmt.Errorf("setting the load of a pod: %w", err)
			}
		}
	}

	got, err := h.machine.Advance()
	if err != nil {
		return fmt.Errorf("advancing the machine: %w", err)
	}

	// A call at the same time returns nothing.
	if len(got) > 0 || len(running) == 0 {
		h.lastUse = got
	}

	return nil
}

// same reports whether two states belong to the same run of a container with equal resources. After a restart or an
// in-place resize its cgroups are recreated.
func same(a, b simnode.ContainerState) bool {
	return a.ID == b.ID && equality.Semantic.DeepEqual(a.Resources, b.Resources)
}

// podOf converts a pod's running containers to the form in which a kubelet creates their cgroups.
func podOf(containers []simnode.ContainerState) kernel.Pod {
	pod := containers[0].Pod
	out := kernel.Pod{UID: string(pod.UID), Class: string(pod.Status.QOSClass)}
	for _, c := range containers {
		requests := c.Resources.Requests
		limits := c.Resources.Limits
		out.Containers = append(out.Containers, kernel.Container{
			ID:         bare(c.ID),
			RequestCPU: requests.Cpu().MilliValue(),
			LimitCPU:   limits.Cpu().MilliValue(),
			LimitMem:   limits.Memory().Value(),
		})
	}

	return out
}

// bare returns a container ID without the runtime's scheme.
func bare(id string) string {
	if _, name, found := strings.Cut(id, "://"); found {
		return name
	}

	return id
}
