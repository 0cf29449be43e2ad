// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/slimclient"
)

const (
	// logInterval is the interval at which changed problems are logged.
	logInterval = time.Second
	// startTimeout bounds the wait for the first answers, after which the watcher counts as started: an unresponsive API server is no
	// reason to restart the agent.
	startTimeout = 10 * time.Second
)

// Config configures a Watcher.
type Config struct {
	Client slimclient.Interface
	// Dynamic reads the rules, so that one unreadable object does not hide the others.
	Dynamic dynamic.Interface
	// Node is the name of the only node that is watched.
	Node string
	// Namespace is Crane's own, with the list of workloads that have opted out.
	Namespace string
	// Rules are those of a file; nil for those of the API server.
	Rules *ruleset.Set
	// StartSpread bounds the random wait before the first request, which spreads those of agents that start together; 0 for none.
	StartSpread time.Duration
	Clock       clock.WithTicker
	Log         logr.Logger
	Beat        func(step string)
}

// Watcher watches the API server. While it is unavailable or does not serve a kind, the last known objects are kept and the state lists
// the problem.
type Watcher struct {
	config Config

	mu     sync.Mutex
	caches struct{ nodes, pods, namespaces, optOuts, nodeQOS, podQOS, actions *kindCache }
	// state is the current state; nil after a change.
	state       *State
	answered    chan struct{} // closed when every kind was answered once
	allAnswered bool
	// nodeChanged signals a pending change of the Node.
	nodeChanged chan struct{}
}

// NewWatcher returns a watcher to be started with Run.
func NewWatcher(c Config) *Watcher {
	w := &Watcher{config: c, answered: make(chan struct{}), nodeChanged: make(chan struct{}, 1)}
	w.caches.nodes = w.newCache("Node "+c.Node, func(o any) bool { n, ok := o.(*corev1.Node); return ok && n.Name == c.Node })
	w.caches.pods = w.newCache("pods", func(o any) bool { p, ok := o.(*corev1.Pod); return ok && p.Spec.NodeName == c.Node })
	w.caches.namespaces = w.newCache("namespaces", nil)
	w.caches.optOuts = w.newCache("ConfigMap "+optout.ConfigMapName, nil)
	w.caches.nodeQOS = w.newCache("NodeQOS", nil)
	w.caches.podQOS = w.newCache("PodQOS", nil)
	w.caches.actions = w.newCache("AvoidanceActions", nil)

	return w
}

func (w *Watcher) newCache(name string, keep func(any) bool) *kindCache {
	return &kindCache{
		w:       w,
		name:    name,
		selects: keep,
		items:   map[string]any{},
	}
}

// activeCaches returns the caches in use.
func (w *Watcher) activeCaches() []*kindCache {
	if w.config.Rules != nil {
		return w.builtIn()
	}

	return append(w.builtIn(), w.caches.nodeQOS, w.caches.podQOS, w.caches.actions)
}

// builtIn returns the caches of kinds that every API server serves.
func (w *Watcher) builtIn() []*kindCache {
	f := &w.caches
	return []*kindCache{f.nodes, f.pods, f.namespaces, f.optOuts}
}

// changed must be called with the lock held.
func (w *Watcher) changed() {
	w.state = nil
	if !w.allAnswered && !slices.ContainsFunc(w.activeCaches(), func(f *kindCache) bool { return !f.answered }) {
		w.allAnswered = true
		close(w.answered)
	}
}

// Name implements the agent's Manager.
func (w *Watcher) Name() string { return "cluster" }

// Answered returns a channel that is closed when every kind was answered once, even by an error.
func (w *Watcher) Answered() <-chan struct{} { return w.answered }

// NodeChanged returns the channel that signals a change of the Node to one receiver.
func (w *Watcher) NodeChanged() <-chan struct{} { return w.nodeChanged }

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.awaitStart(ctx) {
		return nil
	}

	// Reflectors log every attempt; logProblems logs changes. Nothing waits for them at the end: between two attempts of a watch client-go
	// sleeps up to the longest backoff without heed to ctx.
	reflectorCtx := klog.NewContext(ctx, logr.Discard())
	for _, r := range w.reflectors() {
		go r.RunWithContext(reflectorCtx)
	}

	ticker := w.config.Clock.NewTicker(logInterval)
	defer ticker.Stop()

	answered := w.answered
	startedAt := w.config.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-answered:
			answered = nil
		case <-ticker.C():
			if answered != nil && w.config.Clock.Since(startedAt) < startTimeout {
				continue // It has not started yet.
			}
		}

		w.logProblems()
		w.config.Beat("watch")
	}
}

// awaitStart waits for a random part of StartSpread and reports whether ctx has not ended.
func (w *Watcher) awaitStart(ctx context.Context) bool {
	if w.config.StartSpread <= 0 {
		return true
	}

	timer := w.config.Clock.NewTimer(rand.N(w.config.StartSpread)) //nolint:gosec // spreads requests and protects no secret
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

func (w *Watcher) reflectors() []*cache.Reflector {
	core := w.config.Client.CoreV1()
	configMaps := core.ConfigMaps(w.config.Namespace)
	named := func(name string) metav1.ListOptions {
		return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	}

	// Only the own node, its pods and objects that opt out are watched: the API server answers thousands of agents.
	out := []*cache.Reflector{
		w.caches.nodes.reflector(&corev1.Node{}, named(w.config.Node),
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Nodes().List(ctx, o)
			},
			core.Nodes().Watch, w.config.Client),
		w.caches.pods.reflector(&corev1.Pod{}, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", w.config.Node).String()},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Pods("").List(ctx, o)
			},
			core.Pods("").Watch, w.config.Client),
		w.caches.namespaces.reflector(&corev1.Namespace{}, metav1.ListOptions{LabelSelector: analysisv1alpha1.LabelOptOut + "=true"},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Namespaces().List(ctx, o)
			},
			core.Namespaces().Watch, w.config.Client),
		w.caches.optOuts.reflector(&corev1.ConfigMap{}, named(optout.ConfigMapName),
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return configMaps.List(ctx, o)
			},
			configMaps.Watch, w.config.Client),
	}

	if w.config.Rules != nil {
		return out
	}

	for resource, f := range map[string]*kindCache{"nodeqoss": w.caches.nodeQOS, "podqoss": w.caches.podQOS, "avoidanceactions": w.caches.actions} {
		out = append(out, w.dynamic(resource, f))
	}

	return out
}

// dynamic returns a reflector for a kind of rules in unstructured form.
func (w *Watcher) dynamic(resource string, f *kindCache) *cache.Reflector {
	objects := w.config.Dynamic.Resource(schema.GroupVersionResource{
		Group: ensurancev1alpha1.GroupName, Version: ensurancev1alpha1.GroupVersion.Version, Resource: resource,
	})

	return f.reflector(&unstructured.Unstructured{}, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return objects.Watch(ctx, o) }, w.config.Dynamic)
}

// logProblems logs each change of a problem once.
func (w *Watcher) logProblems() {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, f := range w.activeCaches() {
		problem := f.problem()
		switch problem {
		case f.loggedProblem:
		case "":
			w.config.Log.Info("watch recovered", "source", f.name)
		default:
			w.config.Log.Error(f.lastError, "watch failed", "problem", problem)
		}

		f.loggedProblem = problem
	}
}

// State implements Source.
func (w *Watcher) State() *State {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.state == nil {
		w.state = w.buildState()
	}

	return w.state
}

// Node implements View.
func (w *Watcher) Node() *corev1.Node { return w.State().Node }

// Pods implements View.
func (w *Watcher) Pods() []*corev1.Pod { return w.State().Pods }

// Rules implements View.
func (w *Watcher) Rules() ruleset.Set { return w.State().Rules }

func (w *Watcher) buildState() *State {
	// While it is unknown which namespaces and workloads have opted out, no pod may be changed.
	knowsPods := w.caches.pods.synced && w.caches.namespaces.synced && w.caches.optOuts.synced

	s := &State{KnowsPods: knowsPods, Note: fmt.Sprintf("pods and labels are those of the API server for node %s", w.config.Node)}
	for _, f := range w.activeCaches() {
		if p := f.problem(); p != "" {
			s.Unavailable = append(s.Unavailable, p)
		}
	}

	for _, o := range w.caches.nodes.items {
		s.Node, _ = o.(*corev1.Node)
	}

	if w.caches.nodes.synced && w.caches.nodes.lastError == nil && s.Node == nil {
		s.Problems = append(s.Problems, fmt.Sprintf("there is no Node %s (--hostname-override)", w.config.Node))
	}

	excluded := w.optOuts()
	for _, o := range w.caches.pods.items {
		if p, ok := o.(*corev1.Pod); ok && knowsPods {
			s.Pods = append(s.Pods, labeled(p, excluded))
		}
	}

	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	if w.config.Rules != nil {
		s.Rules = *w.config.Rules
		s.KnowsRules = true
		return s
	}

	s.KnowsRules = w.caches.nodeQOS.complete() && w.caches.podQOS.complete() && w.caches.actions.complete()
	s.Rules.NodeQOS = decode[ensurancev1alpha1.NodeQOS](w.caches.nodeQOS, s)
	s.Rules.PodQOS = decode[ensurancev1alpha1.PodQOS](w.caches.podQOS, s)
	s.Rules.Actions = decode[ensurancev1alpha1.AvoidanceAction](w.caches.actions, s)

	return s
}

// optOuts returns the namespaces and workloads that have opted out.
func (w *Watcher) optOuts() optout.Set {
	out := optout.Set{}
	for _, o := range w.caches.namespaces.items {
		if ns, ok := o.(*corev1.Namespace); ok {
			out.AddNamespace(ns.Name)
		}
	}

	for _, o := range w.caches.optOuts.items {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			out.Decode(cm.Data[optout.KeyWorkloads])
		}
	}

	return out
}

// labeled returns the pod with the label of its namespace or workload.
func labeled(pod *corev1.Pod, excluded optout.Set) *corev1.Pod {
	if optout.Labeled(pod.Labels) || !excluded.Excludes(pod) {
		return pod
	}

	out := *pod
	out.Labels = maps.Clone(pod.Labels)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}

	out.Labels[analysisv1alpha1.LabelOptOut] = "true"
	return &out
}

// decode converts the objects of a cache in order of their names. Unreadable ones are listed as problems.
func decode[T any](f *kindCache, s *State) []T {
	out := make([]T, 0, len(f.items))
	for _, name := range slices.Sorted(maps.Keys(f.items)) {
		o, ok := f.items[name].(*unstructured.Unstructured)
		if !ok {
			continue
		}

		var object T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &object); err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("%s %s cannot be read: %v", o.GetKind(), o.GetName(), err))
			continue
		}

		out = append(out, object)
	}

	return out
}

// View returns the current objects of the node. It is safe for concurrent use; objects are read-only.
type View interface {
	// Node returns the Node; nil if unknown.
	Node() *corev1.Node
	// Pods returns the node's pods ordered by namespace and name.
	Pods() []*corev1.Pod
	// Rules returns the rules of the whole cluster; the node's labels select those for the node.
	Rules() ruleset.Set
}

// Source is a View of immutable states.
type Source interface {
	View
	// State returns a consistent state. The same pointer means no change.
	State() *State
}

// State is an immutable snapshot of the known objects.
type State struct {
	Node  *corev1.Node
	Pods  []*corev1.Pod
	Rules ruleset.Set
	// KnowsPods reports that Pods are all pods of the node.
	KnowsPods bool
	// KnowsRules reports that Rules are all rules of the cluster, or that their kinds do not exist.
	KnowsRules bool
	// IgnoreNodeLabels reports that all rules apply while the node's labels are unknown, because there is no API server.
	IgnoreNodeLabels bool
	// Problems lists unreadable objects and a missing Node.
	Problems []string
	// Unavailable lists kinds the API server does not serve, with the reason; their last known objects are kept.
	Unavailable []string
	// Note describes the source.
	Note string
}

// Static is an unchanging View.
type Static struct{ state *State }

// NewStatic returns a view of one state.
func NewStatic(s State) Static { return Static{&s} }

// State implements Source.
func (s Static) State() *State { return s.state }

// Node implements View.
func (s Static) Node() *corev1.Node { return s.state.Node }

// Pods implements View.
func (s Static) Pods() []*corev1.Pod { return s.state.Pods }

// Rules implements View.
func (s Static) Rules() ruleset.Set { return s.state.Rules }
