// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/pluginconfig"
)

// readyTimeout is how long the first pods with whole CPUs wait for the first list of NodeResourceTopologies, or for
// its error.
const readyTimeout = 30 * time.Second

// Factory creates the plugin. All instances of one factory share their state, since they place on the same nodes.
type Factory struct {
	core  *core
	mu    sync.Mutex
	ready <-chan struct{}
}

// NewFactory returns a factory without state.
func NewFactory() *Factory {
	return &Factory{core: newCore()}
}

// Metrics returns the plugin's metrics for a registry.
func (f *Factory) Metrics() []metrics.Registerable { return f.core.metrics.all() }

// New creates an instance of the plugin for the scheduler's registry. The first one starts watches of pods and
// NodeResourceTopologies, until ctx is done. It does not wait for them: the first pod with whole CPUs does.
func (f *Factory) New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	a, err := pluginconfig.NodeResourceTopologyMatchArgsFrom(args)
	if err != nil {
		return nil, err
	}

	if err := f.start(ctx, handle); err != nil {
		return nil, err
	}

	p := &Plugin{
		core:     f.core,
		queue:    handle,
		api:      handle,
		missing:  a.MissingTopology,
		ready:    f.ready,
		snapshot: func(node string) (fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().Get(node) },
	}

	for _, name := range a.TopologyAwareResources {
		p.aware = append(p.aware, corev1.ResourceName(name))
	}

	return p, nil
}

// start watches pods and NodeResourceTopologies for all profiles, at the first call. ready closes after the first list,
// or after a time without one.
func (f *Factory) start(ctx context.Context, handle fwk.Handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.ready != nil {
		return nil
	}

	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(f.core.podHandler(klog.FromContext(ctx)))
	if err != nil {
		return fmt.Errorf("starting plugin %s: watching pods: %w", Name, err)
	}

	tried, err := f.core.watchTopologies(ctx, handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("starting plugin %s: %w", Name, err)
	}

	// Scheduling goes on without topologies: an API server without them must not block pods with whole CPUs.
	ready := make(chan struct{})
	go func() {
		defer close(ready)

		select {
		case <-tried:
		case <-time.After(readyTimeout):
		case <-ctx.Done():
		}
	}()

	f.ready = ready
	return nil
}
