// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodehost puts a host under a simulated node, so that a node agent can run on it: cgroups and /proc in a directory, which follow
// what the node's containers do, and limits in it that the containers obey.
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

// step is the time between two looks at what containers want: agents look once a second.
const step = 500 * time.Millisecond

// patience is how many looks in a row may fail: an agent may be in the middle of writing a file, which a kernel would do in one moment.
const patience = 10

// Set is the hosts of some nodes. It says what containers use, and is safe for concurrent use.
type Set struct {
	wants simnode.Load
	clock clock.WithTicker

	mu    sync.Mutex
	hosts map[string]*host
}

type host struct {
	machine *kernel.Machine
	// pods are those that are on the machine, by UID.
	pods map[string][]simnode.ContainerState
	// got is what containers had last, by their id without the runtime's scheme.
	got map[string]kernel.Got
}

// New returns a set without hosts, in which containers get what they want.
func New(wants simnode.Load, clk clock.WithTicker) *Set {
	return &Set{wants: wants, clock: clk, hosts: map[string]*host{}}
}

// Add puts a host into dir and under a node.
func (s *Set) Add(dir string, node simnode.NodeSpec) error {
	machine, err := kernel.NewMachine(dir, kernel.Spec{Systemd: true, CPUs: int(node.CPU.Value()), Memory: node.Memory.Value()}, s.clock)
	if err != nil {
		return fmt.Errorf("host of %s: %w", node.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[node.Name] = &host{machine: machine, pods: map[string][]simnode.ContainerState{}, got: map[string]kernel.Got{}}
	return nil
}

// Use implements simnode.Load: what a container wants, as far as its host lets it.
func (s *Set) Use(pod *corev1.Pod, container string, at time.Time) simnode.Use {
	use := s.wants.Use(pod, container, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[pod.Spec.NodeName]
	if h == nil || !use.Known {
		return use
	}
	for _, status := range pod.Status.ContainerStatuses {
		got, ok := h.got[bare(status.ContainerID)]
		if status.Name != container || !ok {
			continue
		}
		use.CPU = min(use.CPU, got.CPU)
		use.Memory = min(use.Memory, float64(got.Anon+got.File))
		use.Cache = min(use.Cache, float64(got.File))
	}
	return use
}

// Run brings the hosts up to what containers there are, again and again until ctx ends.
func (s *Set) Run(ctx context.Context, containers func() []simnode.ContainerState) error {
	ticker := s.clock.NewTicker(step)
	defer ticker.Stop()
	failed := 0
	for {
		err := s.Follow(containers())
		if failed++; err == nil {
			failed = 0
		} else if failed >= patience {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Follow lets the time since the last call pass on all hosts, with the containers that run on all nodes.
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
	var errs []error
	for name, h := range s.hosts {
		if err := h.follow(running[name], s.wants, now); err != nil {
			errs = append(errs, fmt.Errorf("host of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (h *host) follow(running map[string][]simnode.ContainerState, wants simnode.Load, now time.Time) error {
	for uid, was := range h.pods {
		if !slices.EqualFunc(was, running[uid], same) {
			if err := h.machine.RemovePod(uid); err != nil {
				return fmt.Errorf("remove a pod: %w", err)
			}
			delete(h.pods, uid)
		}
	}
	for uid, containers := range running {
		if h.pods[uid] == nil {
			if err := h.machine.AddPod(podOf(containers)); err != nil {
				return fmt.Errorf("add a pod: %w", err)
			}
		}
		h.pods[uid] = containers
		for _, c := range containers {
			use := wants.Use(c.Pod, c.Container, now)
			anon := max(use.Memory-use.Cache, 0)
			if err := h.machine.Wants(uid, bare(c.ID), kernel.Load{CPU: use.CPU, Anon: int64(anon), File: int64(use.Cache)}); err != nil {
				return fmt.Errorf("load of a pod: %w", err)
			}
		}
	}
	got, err := h.machine.Advance()
	if err != nil {
		return fmt.Errorf("let time pass: %w", err)
	}
	// A call in the same moment brings nothing.
	if len(got) > 0 || len(running) == 0 {
		h.got = got
	}
	return nil
}

// same tells whether two states are of the same run of a container. After a restart it is another, and a container whose limits were
// changed in place has its groups made anew.
func same(a, b simnode.ContainerState) bool {
	return a.ID == b.ID && equality.Semantic.DeepEqual(a.Resources, b.Resources)
}

// podOf is a pod with its running containers, as a kubelet brings it to a host.
func podOf(containers []simnode.ContainerState) kernel.Pod {
	pod := containers[0].Pod
	out := kernel.Pod{UID: string(pod.UID), Class: string(pod.Status.QOSClass)}
	for _, c := range containers {
		requests, limits := c.Resources.Requests, c.Resources.Limits
		out.Containers = append(out.Containers, kernel.Container{
			ID: bare(c.ID), RequestCPU: requests.Cpu().MilliValue(), LimitCPU: limits.Cpu().MilliValue(),
			RequestMem: requests.Memory().Value(), LimitMem: limits.Memory().Value(),
		})
	}
	return out
}

// bare is a container's id without the runtime's scheme.
func bare(id string) string {
	if _, rest, found := strings.Cut(id, "://"); found {
		return rest
	}
	return id
}
