// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/scheduler/pluginconfig"
)

// handle is the part of a fwk.Handle that New uses.
type handle struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	config  *rest.Config
	lister  fwk.SharedLister
}

func (h handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h handle) KubeConfig() *rest.Config                               { return h.config }
func (h handle) SnapshotSharedLister() fwk.SharedLister                 { return h.lister }

type lister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	nodes map[string]*nodeInfo
}

func (l lister) NodeInfos() fwk.NodeInfoLister         { return l }
func (l lister) Get(name string) (fwk.NodeInfo, error) { return l.nodes[name], nil }

// TestProfilesShareZones checks that two profiles of one scheduler do not assign the same zones. The API server of
// this test has no NodeResourceTopologies; New does not wait for them, and PreFilter only for a bounded time.
func TestProfilesShareZones(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/topology.crane.io/v1alpha1/noderesourcetopologies") {
			asked.Add(1)
		}
		http.NotFound(w, r)
	}))
	defer server.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	client := fake.NewClientset()
	nodes := map[string]*nodeInfo{}
	h := handle{
		client: client, factory: informers.NewSharedInformerFactory(client, 0), config: &rest.Config{Host: server.URL},
		lister: lister{nodes: nodes},
	}
	f := NewFactory()
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(f.Metrics()...)

	if _, err := f.New(ctx, &runtime.Unknown{}, h); err == nil {
		t.Error("New with arguments of another type returned no error, want one")
	}

	args := &pluginconfig.NodeResourceTopologyMatchArgs{}
	pluginconfig.SetNodeResourceTopologyMatchDefaults(args)

	var profiles []fixture
	for range 2 {
		p, err := f.New(ctx, args, h)
		if err != nil {
			t.Fatalf("New: %v, want a plugin", err)
		}

		profiles = append(profiles, fixture{Plugin: p.(*Plugin), nodes: nodes})
	}

	select {
	case <-profiles[1].ready:
	case <-time.After(readyTimeout / 2):
		t.Fatal("PreFilter still waits after the API server answered 404, want ready")
	}

	if asked.Load() == 0 {
		t.Error("New listed no topologies, want a list request")
	}

	f.core.topologyChanged(klog.Background(), nrt("n", 4))
	if s := profiles[0].reserve(t, newPod("a", "3"), "n"); !s.IsSuccess() {
		t.Fatalf("the first profile's Reserve of 3 of 4 CPUs = %v, want success", s)
	}

	if s := profiles[1].reserve(t, newPod("b", "3"), "n"); s.Code() != fwk.Unschedulable {
		t.Errorf("the second profile's Reserve of 3 of the same 4 CPUs = %v, want Unschedulable", s)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("Gather: %v, want metrics", err)
	}

	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			values[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}

	if values["crane_scheduler_topology_nodes"] != 1 || values["crane_scheduler_topology_available"] != 0 {
		t.Errorf("Gather = %v, want crane_scheduler_topology_nodes 1 and crane_scheduler_topology_available 0", values)
	}
}
