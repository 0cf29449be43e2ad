// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// kubeletVersion is the kubelet version of the nodes.
const kubeletVersion = "v1.36.3"

// heartbeatWorkers is the number of workers for leases, separate from those for pods so that a burst of pods makes no
// node NotReady.
const heartbeatWorkers = 2

// leaseSeconds is the kubelet's nodeLeaseDurationSeconds.
const leaseSeconds = 40

// registerAll writes every Node object and lease once and spreads the heartbeats over their interval.
func (f *Fleet) registerAll(ctx context.Context) error {
	work := make(chan *member)
	errs := make(chan error)
	for range f.config.Workers {
		go func() {
			var failed error
			for m := range work {
				failed = errors.Join(failed, f.report(ctx, m))
			}
			errs <- failed
		}()
	}
	for i, m := range f.order {
		work <- m
		f.beats.AddAfter(m.spec.Name, f.config.Heartbeat*time.Duration(i+1)/time.Duration(len(f.order)))
	}
	close(work)
	var err error
	for range f.config.Workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// beat renews leases and reports statuses until the queue is shut down.
func (f *Fleet) beat(ctx context.Context) {
	for {
		name, quit := f.beats.Get()
		if quit {
			return
		}
		if err := f.report(ctx, f.members[name]); err != nil && ctx.Err() == nil {
			f.config.Log.V(1).Info("heartbeat failed, retrying", "node", name, "reason", err.Error())
			f.beats.AddRateLimited(name)
		} else {
			f.beats.Forget(name)
			f.beats.AddAfter(name, f.config.Heartbeat)
		}
		f.beats.Done(name)
	}
}

// report renews the lease of a node and writes the Node object if due.
func (f *Fleet) report(ctx context.Context, m *member) error {
	now := f.config.Clock.Now()
	m.mu.Lock()
	down, last := m.down, m.reported
	if now.Sub(m.renewed) > leaseSeconds*time.Second {
		last = time.Time{} // the cluster may have set the node to Unknown: report now
	}
	m.mu.Unlock()
	if down {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if last.IsZero() || now.Sub(last) >= statusReport {
		// Set before the write, so that a concurrent request for another report is kept.
		m.setReported(now)
		if err := f.writeNode(ctx, m, now); err != nil {
			m.setReported(time.Time{})
			return err
		}
	}
	if err := f.renew(ctx, m.spec.Name, now); err != nil {
		return err
	}
	m.mu.Lock()
	m.renewed = now
	m.mu.Unlock()
	return nil
}

// renew renews the lease, or creates it if absent.
func (f *Fleet) renew(ctx context.Context, name string, now time.Time) error {
	leases := f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &name, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: new(metav1.NewMicroTime(now)),
	}}
	patch, err := json.Marshal(map[string]any{"spec": lease.Spec})
	if err != nil {
		return fmt.Errorf("node %s: encode the lease: %w", name, err)
	}
	_, err = leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		lease.Name = name
		_, err = leases.Create(ctx, &lease, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("node %s: renew the lease: %w", name, err)
	}
	return nil
}

// writeNode creates the Node object or updates its status.
func (f *Fleet) writeNode(ctx context.Context, m *member, now time.Time) error {
	nodes := f.client.CoreV1().Nodes()
	m.mu.Lock()
	want := nodeObject(m, now)
	m.mu.Unlock()
	_, err := nodes.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err = nodes.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("node %s: register: %w", want.Name, err)
		}
	case err != nil:
		return fmt.Errorf("node %s: %w", want.Name, err)
	default:
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return f.updateNode(ctx, want) })
		if err != nil {
			return fmt.Errorf("node %s: report: %w", want.Name, err)
		}
	}
	return nil
}

// setReported sets the time of the last status write; zero makes the next heartbeat write it.
func (m *member) setReported(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reported = at
}

// updateNode updates the kubelet's fields of the object and keeps those of others.
func (f *Fleet) updateNode(ctx context.Context, want *corev1.Node) error {
	old, err := f.client.CoreV1().Nodes().Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	next := old.DeepCopy()
	for i := range want.Status.Conditions {
		c := &want.Status.Conditions[i]
		for j := range old.Status.Conditions {
			if o := &old.Status.Conditions[j]; o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, want.Labels)
	if !maps.Equal(next.Labels, old.Labels) {
		if next, err = f.client.CoreV1().Nodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	volumes, attached := next.Status.VolumesInUse, next.Status.VolumesAttached
	next.Status = want.Status
	next.Status.VolumesInUse, next.Status.VolumesAttached = volumes, attached
	_, err = f.client.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
