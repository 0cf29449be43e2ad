// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"crane.io/crane/internal/testbed/simnode/kubelet"
	"crane.io/crane/internal/testbed/simnode/tunnel"
)

// loopback is the address of every node; they differ by port.
const loopback = "127.0.0.1"

// podKey identifies one pod object in the work queue.
type podKey struct {
	node, namespace, name string
	uid                   types.UID
}

func keyOf(pod *corev1.Pod) podKey {
	return podKey{
		node:      pod.Spec.NodeName,
		namespace: pod.Namespace,
		name:      pod.Name,
		uid:       pod.UID,
	}
}

// member is one node of the fleet. The lock guards the fields below it.
type member struct {
	spec NodeSpec
	// recorder writes the node's events; it is set at the start of Run.
	recorder record.EventRecorder
	// external is the node's address through the tunnel; empty without a tunnel.
	external string

	mu   sync.Mutex
	node *kubelet.Node
	down bool
	port int
	// reported is the time of the last write of the Node object's status; zero requests one.
	reported time.Time
	// renewed is the time of the last renewal of the lease.
	renewed time.Time
}

// Fleet is a set of simulated nodes, created by New and run by Run; the other methods are safe for concurrent use.
type Fleet struct {
	config  Config
	client  kubernetes.Interface
	members map[string]*member
	order   []*member
	queue   workqueue.TypedRateLimitingInterface[podKey]
	pods    listersv1.PodLister
	factory informers.SharedInformerFactory
	nodes   nodeReporter
	ready   chan struct{}
}

// New validates the configuration and returns a fleet that has not been started.
func New(config Config) (*Fleet, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}

	rc := rest.CopyConfig(config.Client)
	rc.QPS = -1
	rc.RateLimiter = nil
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	rc.UserAgent = "crane-simnode"

	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("simulated nodes: creating the client: %w", err)
	}

	return newFleet(config, client), nil
}

func newFleet(config Config, client kubernetes.Interface) *Fleet {
	f := &Fleet{
		config:  config,
		client:  client,
		members: map[string]*member{},
		ready:   make(chan struct{}),
	}

	// Pods and heartbeats have queues of their own, so that a burst of pods delays no lease.
	f.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](200*time.Millisecond, 10*time.Second),
		workqueue.TypedRateLimitingQueueConfig[podKey]{Clock: config.Clock})
	f.nodes = nodeReporter{config: config, client: client, members: f.members}
	f.nodes.beats = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: config.Clock})

	// Only bound pods are watched.
	f.factory = informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(stripManagedFields),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))

	f.pods = f.factory.Core().V1().Pods().Lister()
	f.nodes.cluster = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(keepConditions))
	for i, spec := range config.Nodes {
		m := &member{spec: spec, node: kubelet.NewNode(spec, config.Timing, loopback, podPrefix(i))}
		if config.Serving != nil && config.Serving.Tunnel != nil {
			m.external = tunnel.NodeAddress(i)
		}

		f.members[spec.Name] = m
		f.order = append(f.order, m)
	}

	f.nodes.order = f.order
	return f
}

// stripManagedFields drops the largest unused part of each pod.
func stripManagedFields(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}

	return obj, nil
}

// podPrefix returns the /24 prefix of the pods of the node with this index, out of 10.192.0.0/12. The addresses are not
// routed.
func podPrefix(index int) string { return fmt.Sprintf("10.%d.%d.", 192+index/256, index%256) }

// Ready returns a channel that is closed when every node is registered, every endpoint serves, and existing pods have
// been read.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Run simulates until the context ends. It returns an error if the start failed; later failures, such as a stopped API
// server, are retried with backoff.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)

	// Deferred calls run in reverse order: stop the work first, then wait for it.
	var running sync.WaitGroup
	defer running.Wait()
	defer f.factory.Shutdown()
	defer f.nodes.cluster.Shutdown()
	defer f.nodes.beats.ShutDown()
	defer f.queue.ShutDown()
	defer cancel()

	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()

	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: f.client.CoreV1().Events("")})
	for _, m := range f.order {
		m.recorder = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: m.spec.Name})
	}

	if s := f.config.Serving; s != nil && s.Tunnel != nil {
		running.Go(func() { s.Tunnel.Serve(ctx) })
	}

	// The endpoints serve before the nodes are registered with their ports.
	servers, err := f.listen(ctx)
	if err != nil {
		return err
	}

	for _, s := range servers {
		running.Go(func() { s.serve(ctx) })
	}

	if err := f.nodes.registerAll(ctx); err != nil {
		return err
	}

	if err := f.watch(ctx); err != nil {
		return err
	}

	if err := f.nodes.watch(ctx); err != nil {
		return err
	}

	// Workers start once all pods have been observed, so that running pods keep their resources.
	for range f.config.Workers {
		running.Go(func() { f.work(ctx) })
	}

	for range heartbeatWorkers {
		running.Go(func() { f.nodes.beat(ctx) })
	}

	running.Go(func() { f.sample(ctx) })
	close(f.ready)
	f.config.Log.Info("simulated nodes run", "nodes", len(f.order))
	<-ctx.Done()

	return nil
}
