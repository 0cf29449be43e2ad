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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

// kubeletVersion is the kubelet version of the nodes.
const kubeletVersion = "v1.36.3"

// heartbeatWorkers is the number of workers for leases, separate from those for pods so that a burst of pods makes no
// node NotReady.
const heartbeatWorkers = 2

// leaseSeconds is the kubelet's nodeLeaseDurationSeconds.
const leaseSeconds = 40

// nodeReporter renews the leases of the nodes of a fleet and writes their Node objects.
type nodeReporter struct {
	config  Config
	client  kubernetes.Interface
	members map[string]*member
	order   []*member
	beats   workqueue.TypedRateLimitingInterface[string]
	// cluster watches Node objects, of which only the conditions are kept.
	cluster informers.SharedInformerFactory
}

// registerAll writes every Node object and lease once and spreads the heartbeats over their interval.
func (r *nodeReporter) registerAll(ctx context.Context) error {
	work := make(chan *member)
	errs := make(chan error)
	for range r.config.Workers {
		go func() {
			var failed error
			for m := range work {
				failed = errors.Join(failed, r.report(ctx, m))
			}
			errs <- failed
		}()
	}

	for i, m := range r.order {
		work <- m
		r.beats.AddAfter(m.spec.Name, r.config.Heartbeat*time.Duration(i+1)/time.Duration(len(r.order)))
	}

	close(work)
	var err error
	for range r.config.Workers {
		err = errors.Join(err, <-errs)
	}

	return err
}

// beat renews leases and reports statuses until the queue is shut down.
func (r *nodeReporter) beat(ctx context.Context) {
	for {
		name, quit := r.beats.Get()
		if quit {
			return
		}

		if err := r.report(ctx, r.members[name]); err != nil && ctx.Err() == nil {
			r.config.Log.V(1).Info("retrying a heartbeat", "node", name, "reason", err.Error())
			r.beats.AddRateLimited(name)
		} else {
			r.beats.Forget(name)
			r.beats.AddAfter(name, r.config.Heartbeat)
		}

		r.beats.Done(name)
	}
}

// report renews the lease of a node and writes the Node object if due.
func (r *nodeReporter) report(ctx context.Context, m *member) error {
	now := r.config.Clock.Now()
	m.mu.Lock()
	down := m.down

	last := m.reported
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

		if err := r.writeNode(ctx, m, now); err != nil {
			m.setReported(time.Time{})
			return err
		}
	}

	if err := r.renew(ctx, m.spec.Name, now); err != nil {
		return err
	}

	m.mu.Lock()
	m.renewed = now
	m.mu.Unlock()

	return nil
}

// renew renews the lease, or creates it if absent.
func (r *nodeReporter) renew(ctx context.Context, name string, now time.Time) error {
	leases := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
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
		return fmt.Errorf("renewing the lease of node %s: %w", name, err)
	}

	return nil
}

// writeNode creates the Node object or updates its status.
func (r *nodeReporter) writeNode(ctx context.Context, m *member, now time.Time) error {
	nodes := r.client.CoreV1().Nodes()
	m.mu.Lock()
	want := nodeObject(m, now)
	m.mu.Unlock()

	_, err := nodes.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err = nodes.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("registering node %s: %w", want.Name, err)
		}
	case err != nil:
		return fmt.Errorf("reading node %s: %w", want.Name, err)

	default:
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return r.updateNode(ctx, want) })
		if err != nil {
			return fmt.Errorf("reporting node %s: %w", want.Name, err)
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
func (r *nodeReporter) updateNode(ctx context.Context, want *corev1.Node) error {
	old, err := r.client.CoreV1().Nodes().Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}

	next := old.DeepCopy()

	// A condition keeps the time of its last transition.
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
		if next, err = r.client.CoreV1().Nodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}

	// The controllers of volumes own these fields of the status.
	volumes, attached := next.Status.VolumesInUse, next.Status.VolumesAttached
	next.Status = want.Status
	next.Status.VolumesInUse = volumes
	next.Status.VolumesAttached = attached
	_, err = r.client.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{})

	return err
}

// watch watches the Node objects for changes by others. A kubelet compares its status with the object every ten
// seconds; one watch for the whole fleet is faster and cheaper.
func (r *nodeReporter) watch(ctx context.Context) error {
	informer := r.cluster.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.onNodeChanged,
		UpdateFunc: func(_, obj any) { r.onNodeChanged(obj) },
	})
	if err != nil {
		return fmt.Errorf("simulated nodes: watching the nodes: %w", err)
	}

	r.cluster.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("simulated nodes: listing the nodes: %w", context.Cause(ctx))
	}

	return nil
}

// onNodeChanged requests a report of a node whose Ready condition the cluster has changed after late heartbeats:
// renewing only the lease would leave it NotReady and tainted until the next report is due.
func (r *nodeReporter) onNodeChanged(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok || isReady(node) {
		return
	}

	m, ok := r.members[node.Name]
	if !ok {
		return
	}

	m.setReported(time.Time{})
	r.beats.Add(node.Name)
}

// isReady reports whether the object's Ready condition is True, as reported by every running simulated node.
func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}

	return false
}

// keepConditions drops all fields of a Node that onNodeChanged does not read.
func keepConditions(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
			Status:     corev1.NodeStatus{Conditions: node.Status.Conditions},
		}, nil
	}

	return obj, nil
}
