// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// core is shared by the instances of the plugin.
type core struct {
	store   *store
	waiting *waiting
	metrics *collectors
}

func newCore() *core {
	c := &core{waiting: newWaiting(), metrics: newCollectors()}
	c.store = newStore(func(pod *corev1.Pod, err error) {
		c.metrics.invalidResult.Inc()
		klog.Background().V(2).Info("ignored an annotation", "pod", klog.KObj(pod), "annotation", topology.AnnotationPodTopologyResult, "err", err)
	})

	return c
}

// topologyChanged processes a new or changed NodeResourceTopology and wakes the pods that now fit on its node.
func (c *core) topologyChanged(log klog.Logger, t *topology.NodeResourceTopology) {
	compiled, err := compile(t)
	if err != nil {
		compiled = nil
		c.metrics.invalidTopology.Inc()
		log.Info("ignored a NodeResourceTopology", "node", t.Name, "err", err)
	}

	c.change(log, t.Name, func() { c.store.setTopology(t.Name, compiled) })
}

func (c *core) topologyDeleted(log klog.Logger, node string) {
	c.change(log, node, func() { c.store.setTopology(node, nil) })
}

// change runs f, which changes the state of a node, and wakes the pods that it helps.
func (c *core) change(log klog.Logger, node string, f func()) {
	woken := c.waiting.during(f, func(w waiter) bool { return c.store.fitNow(node, w.request).passes(w.missing) })
	for queue, pods := range woken {
		queue.Activate(log, pods)
	}
	c.metrics.nodes.Set(float64(c.store.knownNodes()))
}

// podHandler drops the state of pods that are deleted or placed by other schedulers.
func (c *core) podHandler(log klog.Logger) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, oldOK := before.(*corev1.Pod)
			pod, podOK := after.(*corev1.Pod)
			switch {
			case !oldOK || !podOK: // Not pods; nothing to do.
			case old.UID != pod.UID:
				c.podDeleted(log, old) // It was deleted and created anew between two updates.
			case old.Spec.NodeName == "" && pod.Spec.NodeName != "":
				c.waiting.remove(pod.UID)
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				c.podDeleted(log, pod)
			}
		},
	}
}

func (c *core) podDeleted(log klog.Logger, pod *corev1.Pod) {
	c.waiting.remove(pod.UID)
	// The scheduler wakes pods after a deletion, possibly before this handler runs.
	if node := c.store.assumedOn(pod.UID); node != "" {
		c.change(log, node, func() { c.store.forget(pod.UID) })
	}
}

func result(pod *corev1.Pod) string { return pod.Annotations[topology.AnnotationPodTopologyResult] }
