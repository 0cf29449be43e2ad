// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/internal/metrics"
	source "crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

const (
	// reactionQuery is the CPU usage of containers above a number of cores. The window covers two scrapes of a minute.
	reactionQuery = "max by (pod, container) (sum without (cpu) (rate(%s[2m]))) > %g"
	// reactionTimeout bounds one query, reactionConcurrency the queries at the same time.
	reactionTimeout     = 10 * time.Second
	reactionConcurrency = 4
	// maxObserved bounds the containers above their request whose usage is kept; further ones are raised later.
	maxObserved = 20_000
	// maxCores is the highest usage that is believed.
	maxCores = 1 << 16
)

// Reactor finds containers whose CPU usage exceeds the request within the day, and wakes the reconciliation of their targets. It reads
// the usage of the targets whose Recommendations are calibrated and applied (adoptionType Auto), with one query for each of their
// namespaces and interval. NewReactor returns one.
type Reactor struct {
	client   client.Reader
	querier  Querier
	clock    clock.WithTicker
	paused   func() bool
	interval time.Duration
	// systemNamespace is Crane's own namespace.
	systemNamespace string
	wake            chan event.TypedGenericEvent[targetindex.Key]
	queries         *prometheus.CounterVec

	mu       sync.Mutex
	observed map[observedContainer]*calibrate.Recent
	demands  map[targetindex.Key]demands
}

// observedContainer is a container of a pod that used more than its request within the last minutes.
type observedContainer struct{ namespace, pod, container string }

type demands struct {
	list []adoption.Demand
	at   time.Time
}

// NewReactor returns a reactor that reads usage once in an interval of more than 0, unless everything is paused.
func NewReactor(reader client.Reader, querier Querier, clk clock.WithTicker, paused func() bool, systemNamespace string, interval time.Duration) *Reactor {
	return &Reactor{
		client:          reader,
		querier:         querier,
		clock:           clk,
		paused:          paused,
		interval:        interval,
		systemNamespace: systemNamespace,
		wake:            make(chan event.TypedGenericEvent[targetindex.Key], wakeBuffer),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_adoption_reaction_queries_total", Help: "Queries of CPU usage by which calibrated workloads react, by result: succeeded or failed.",
		}, []string{"result"}),
		observed: map[observedContainer]*calibrate.Recent{},
		demands:  map[targetindex.Key]demands{},
	}
}

// Start reads usage until ctx ends. It implements manager.Runnable; only the leader runs it.
func (r *Reactor) Start(ctx context.Context) error {
	ticker := r.clock.NewTicker(r.interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			r.read(ctx)
		}
	}
}

// reactionTarget is a target with its CPU requests in force, by container, and those of raised pods.
type reactionTarget struct {
	key      targetindex.Key
	requests map[string]units.MilliCPU
	raised   map[[2]string]units.MilliCPU
}

// reactionTargets holds the targets of a namespace by name; several kinds may share one.
type reactionTargets map[string][]reactionTarget

// read reads the usage of all namespaces with targets, and records the demands.
func (r *Reactor) read(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx).WithName("adoption")
	var all map[string]reactionTargets
	if !r.paused() {
		var err error
		if all, err = r.targets(ctx); err != nil {
			log.Error(err, "listing the workloads that react")
			return // The demands of the last reading stay until they are too old.
		}
	}

	r.mu.Lock()
	now := r.clock.Now()

	for key := range r.observed {
		if all[key.namespace] == nil {
			delete(r.observed, key)
		}
	}

	clear(r.demands)
	r.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(reactionConcurrency)

	for namespace, targets := range all {
		group.Go(func() error {
			samples, err := r.query(ctx, namespace, targets, now)
			result := "succeeded"
			if err != nil {
				result = "failed"
				log.V(1).Info("CPU usage is not known", "namespace", namespace, "reason", err.Error())
			}

			r.queries.WithLabelValues(result).Inc()
			r.observe(namespace, targets, samples, now)
			return nil
		})
	}

	_ = group.Wait() // The functions return no errors.
}

// targets returns the targets that react, by namespace.
func (r *Reactor) targets(ctx context.Context) (map[string]reactionTargets, error) {
	var list analysisv1alpha1.RecommendationList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // The objects of the cache are read only.
		return nil, fmt.Errorf("listing recommendations: %w", err)
	}

	out := map[string]reactionTargets{}
	for i := range list.Items {
		rec := &list.Items[i]
		key := targetindex.KeyOf(rec.Spec.TargetRef)
		kind, ok := targetsnapshot.SupportedKind(key.Group, key.Kind)
		if !ok || !reacts(rec, r.systemNamespace) {
			continue
		}

		err := r.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, kind.Object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading target %s: %w", key, err)
		}

		ranges, err := effectiveresources.LimitRanges(ctx, r.client, key.Namespace)
		if err != nil {
			return nil, fmt.Errorf("reading the defaults of target %s: %w", key, err)
		}

		size, raised, ok := targetsnapshot.RequestsInForce(kind.Object, ranges)
		if !ok {
			continue
		}

		t := reactionTarget{key: key, requests: map[string]units.MilliCPU{}, raised: map[[2]string]units.MilliCPU{}}
		for _, c := range rec.Status.Evidence {
			if cpu := size.Containers[c.Container].CPURequest; cpu != nil {
				t.requests[c.Container] = *cpu
			}
		}

		for _, request := range raised {
			if request.Until.After(r.clock.Now()) {
				t.raised[[2]string{request.Pod, request.Container}] = request.CPU
			}
		}

		if len(t.requests) == 0 {
			continue
		}

		if out[key.Namespace] == nil {
			out[key.Namespace] = reactionTargets{}
		}
		out[key.Namespace][key.Name] = append(out[key.Namespace][key.Name], t)
	}

	return out, nil
}

// reacts reports whether a Recommendation is calibrated and resizes running pods in place.
func reacts(rec *analysisv1alpha1.Recommendation, systemNamespace string) bool {
	return len(rec.Status.Evidence) > 0 && targetsnapshot.Applicable(rec) && targetsnapshot.Reacts(rec, systemNamespace)
}

// query returns the usage of the containers of a namespace that may exceed a request.
func (r *Reactor) query(ctx context.Context, namespace string, targets reactionTargets, now time.Time) ([]metrics.Sample, error) {
	// One query serves all workloads of the namespace; observe compares each sample with the request of its container.
	lowest := units.MilliCPU(math.MaxInt64)
	for _, named := range targets {
		for _, t := range named {
			for _, cpu := range t.requests {
				lowest = min(lowest, cpu)
			}
		}
	}

	selector, err := r.querier.Selector("container_cpu_usage_seconds_total",
		source.Matcher{Label: "namespace", Op: "=", Value: namespace},
		source.Matcher{Label: "container", Op: "!=", Value: ""}, source.Matcher{Label: "container", Op: "!=", Value: "POD"})
	if err != nil {
		return nil, fmt.Errorf("asking for CPU usage: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, reactionTimeout)
	defer cancel()

	samples, err := r.querier.Vector(ctx, fmt.Sprintf(reactionQuery, selector, float64(lowest)/1000), now)
	if err != nil {
		return nil, fmt.Errorf("asking for CPU usage: %w", err)
	}

	return samples, nil
}

// observe adds the samples of a namespace to those of the last minutes, and records what exceeds its request. A container without a
// sample uses less than every request; after a failed query, which has no samples, the last minutes do not count.
func (r *Reactor) observe(namespace string, targets reactionTargets, samples []metrics.Sample, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	found := map[targetindex.Key][]adoption.Demand{}
	current := map[observedContainer]bool{}
	for _, s := range samples {
		key := observedContainer{namespace, s.Labels["pod"], s.Labels["container"]}
		target, request := targets.find(key)
		if request == 0 || !(s.Value > 0 && s.Value < maxCores) {
			continue
		}

		cores := float64(request) / 1000
		recent := r.observed[key]
		if recent == nil {
			if s.Value <= cores || len(r.observed) >= maxObserved {
				continue
			}

			window := calibrate.NewRecent(r.interval)
			recent = &window
			r.observed[key] = recent
		}

		current[key] = true
		recent.Add(s.Value)

		if recent.Exceeds(cores) {
			found[target] = append(found[target], adoption.Demand{Pod: key.pod, Container: key.container, Use: units.MilliCPU(math.Ceil(1000 * recent.Max()))})
		}
	}

	for key, recent := range r.observed {
		if key.namespace != namespace || current[key] {
			continue
		}

		recent.Add(0)

		if recent.Max() == 0 {
			delete(r.observed, key)
		}
	}

	for target, list := range found {
		r.demands[target] = demands{list, now}
		select {
		case r.wake <- event.TypedGenericEvent[targetindex.Key]{Object: target}:
		default: // The next reading wakes it, if it is still above its request.
		}
	}
}

// find returns the target of a container and its request in force; 0 if there is none. The owner of a pod is guessed by the names that
// Kubernetes gives to pods, and checked before the pod is changed.
func (t reactionTargets) find(c observedContainer) (targetindex.Key, units.MilliCPU) {
	name := c.pod
	for range 2 { // StatefulSets and DaemonSets add one part to their name, Deployments two.
		i := strings.LastIndexByte(name, '-')
		if i < 0 {
			break
		}

		name = name[:i]
		for _, target := range t[name] {
			if cpu := target.requests[c.container]; cpu > 0 {
				return target.key, max(cpu, target.raised[[2]string{c.pod, c.container}])
			}
		}
	}

	return targetindex.Key{}, 0
}

// demandsOf returns the recent demands of a target for the containers that a Recommendation has calibrated.
func (r *Reactor) demandsOf(key targetindex.Key, rec *analysisv1alpha1.Recommendation) []adoption.Demand {
	if r == nil || rec == nil || !reacts(rec, r.systemNamespace) {
		return nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	d := r.demands[key]
	if r.clock.Since(d.at) > 2*r.interval {
		return nil
	}

	// The demands were read earlier, and the Recommendation may have changed since: only calibrated containers react.
	calibrated := map[string]bool{}
	for _, c := range rec.Status.Evidence {
		calibrated[c.Container] = true
	}

	var out []adoption.Demand
	for _, demand := range d.list {
		if calibrated[demand.Container] {
			out = append(out, demand)
		}
	}

	return out
}
