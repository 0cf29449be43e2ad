// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// nodeObject returns the Node as a kubelet registers it. The caller holds the member's lock.
func nodeObject(m *member, now time.Time) *corev1.Node {
	spec := m.spec
	id := sha256.Sum256([]byte(spec.Name))
	hexID := hex.EncodeToString(id[:16])
	addresses := []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: loopback}, {Type: corev1.NodeHostName, Address: spec.Name},
	}

	if m.external != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: m.external})
	}

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: spec.AllLabels()},
		Spec:       corev1.NodeSpec{Taints: spec.Taints, ProviderID: "sim://" + spec.Name},
		Status: corev1.NodeStatus{
			Capacity:        spec.Capacity(),
			Allocatable:     spec.Allocatable(),
			Conditions:      nodeConditions(m, now),
			Addresses:       addresses,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(m.port)}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               hexID,
				SystemUUID:              hexID,
				BootID:                  hexID,
				KernelVersion:           "6.12.0-sim",
				OSImage:                 "Crane simulated node",
				ContainerRuntimeVersion: "containerd://2.1.0-sim",
				KubeletVersion:          kubeletVersion,
				OperatingSystem:         "linux",
				Architecture:            runtime.GOARCH,
			},
		},
	}
}

func nodeConditions(m *member, now time.Time) []corev1.NodeCondition {
	pressure, since := m.node.Pressure()
	if since.IsZero() {
		since = now
	}

	beat := metav1.NewTime(now)
	condition := func(kind corev1.NodeConditionType, on bool, reason, message string, since time.Time) corev1.NodeCondition {
		status := corev1.ConditionFalse
		if on {
			status = corev1.ConditionTrue
		}

		return corev1.NodeCondition{
			Type:               kind,
			Status:             status,
			Reason:             reason,
			Message:            message,
			LastHeartbeatTime:  beat,
			LastTransitionTime: metav1.NewTime(since),
		}
	}

	// The simulation has memory pressure only; the other resources are always sufficient.
	memory := condition(corev1.NodeMemoryPressure, false, "KubeletHasSufficientMemory", "kubelet has sufficient memory available", since)
	if pressure {
		memory = condition(corev1.NodeMemoryPressure, true, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", since)
	}

	return []corev1.NodeCondition{
		memory,
		condition(corev1.NodeDiskPressure, false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now),
		condition(corev1.NodePIDPressure, false, "KubeletHasSufficientPID", "kubelet has sufficient PID available", now),
		condition(corev1.NodeReady, true, "KubeletReady", "kubelet is posting ready status", now),
	}
}

// sample measures all nodes at each tick.
func (f *Fleet) sample(ctx context.Context) {
	ticker := f.config.Clock.NewTicker(f.config.Sample)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f.measure()
		}
	}
}

func (f *Fleet) measure() {
	for _, m := range f.order {
		m.mu.Lock()
		if m.down {
			m.mu.Unlock()
			continue
		}

		before, _ := m.node.Pressure()
		m.node.Measure(f.config.Load, f.config.Clock.Now())
		after, _ := m.node.Pressure()

		if before != after {
			m.reported = time.Time{}
			f.nodes.beats.Add(m.spec.Name)
		}

		dirty := m.node.Dirty()
		events := m.node.Events()
		m.mu.Unlock()
		f.enqueue(dirty)
		f.recordEvents(m, events)
	}
}

// recordEvents writes events about pods and about the node itself.
func (f *Fleet) recordEvents(m *member, events []kubelet.Event) {
	for _, e := range events {
		if e.Pod != nil {
			m.recorder.Event(e.Pod, e.Type, e.Reason, e.Message)
			continue
		}

		ref := &corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Node",
			Name:       m.spec.Name,
			UID:        types.UID(m.spec.Name),
		}

		m.recorder.Event(ref, e.Type, e.Reason, e.Message)
	}
}
