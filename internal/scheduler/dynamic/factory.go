// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // images without zone files parse times of old writers all the same

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/scheduler/pluginconfig"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Registries register the metrics of a Factory, in a scheduler those of /metrics. A nil function registers nothing.
type Registries struct {
	// Metrics registers the plugin's own metrics.
	Metrics func(metrics.Registerable) error
	// Policies registers those of the policy file.
	Policies func(prometheus.Collector) error
}

// Factory creates the plugins of a scheduler's profiles. They share what is not specific to a profile: policy files,
// workload history, metrics and the explain address.
type Factory struct {
	clock      clock.WithTicker
	metrics    *Metrics
	registries Registries
	history    *History

	mu         sync.Mutex
	plugins    []*Plugin                   // guarded by mu; only ever added to
	policies   map[string]*policyfile.File // by path; guarded by mu
	serving    map[string]bool             // by address; guarded by mu
	watching   bool                        // guarded by mu
	registered bool                        // metrics are registered; guarded by mu
}

// NewFactory returns a Factory with the given clock.
func NewFactory(clk clock.WithTicker, registries Registries) *Factory {
	return &Factory{
		clock:      clk,
		metrics:    NewMetrics(),
		registries: registries,
		history:    &History{},
		policies:   map[string]*policyfile.File{},
		serving:    map[string]bool{},
	}
}

// History returns the usage of workloads. Changes apply from the next pod on.
func (f *Factory) History() *History { return f.history }

// New creates the plugin of one profile. It returns an error for invalid arguments or an invalid policy. Its
// goroutines end with ctx.
func (f *Factory) New(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := pluginconfig.DynamicArgsFrom(obj)
	if err != nil {
		return nil, err
	}

	zone, err := time.LoadLocation(args.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("reading the arguments of plugin %s: timeZone: %w", Name, err)
	}

	// Profiles share the registered metrics and open policy files.
	f.mu.Lock()
	defer f.mu.Unlock()

	if err := f.register(); err != nil {
		return nil, err
	}

	log := klog.FromContext(ctx).WithValues("plugin", Name, "profile", handle.ProfileName())
	policies, err := f.policy(ctx, args.PolicyConfigPath, handle)
	if err != nil {
		return nil, fmt.Errorf("opening the policy of plugin %s: %w", Name, err)
	}

	p := &Plugin{
		cluster: cluster{
			clock:    f.clock,
			policies: policies,
			minFresh: percentage(args.MinFreshPercent),
			log:      log,
			strategy: nodeload.Strategy{
				Name: nodeload.StrategyName(args.Strategy), Target: percentage(args.PackTargetPercent),
				Margin: float64(percentage(args.RiskMarginPercent)),
			},
			reader: reader{format: nodeload.Format{Zone: zone}},
		},
		pods:     podTracker{history: f.history},
		profile:  handle.ProfileName(),
		peers:    f.all,
		activate: func(pods map[string]*corev1.Pod) { handle.Activate(log, pods) },
		snapshot: func() ([]fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().List() },
	}

	if err := p.start(f.metrics, newRecorder(handle.EventRecorder())); err != nil {
		return nil, fmt.Errorf("starting plugin %s with policy %s: %w", Name, args.PolicyConfigPath, err)
	}

	if err := watchInformers(handle.SharedInformerFactory(), p); err != nil {
		return nil, fmt.Errorf("starting plugin %s: %w", Name, err)
	}

	f.plugins = append(f.plugins, p)
	go p.expire(ctx, f.clock)
	f.explain(ctx, args.ExplainAddress)

	// One watch of Recommendations serves all profiles.
	if args.History == pluginconfig.HistoryRecommendations && !f.watching && handle.KubeConfig() != nil {
		f.watching = true
		go watchRecommendations(ctx, handle.KubeConfig(), f.clock, f.history, f.metrics.workloads.Set)
	}

	return p, nil
}

// start initializes the derived fields.
func (p *Plugin) start(m *Metrics, r recorder) error {
	rules, err := nodeload.NewRules(p.policies.Policy(), p.strategy)
	if err != nil {
		return err
	}

	p.rules.Store(rules)
	p.pods.cluster = &p.cluster
	p.metrics = m.forProfile(p.profile)
	p.snapshotMetrics = p.metrics
	p.reader.unreadable = p.metrics.annotations
	p.events = newEvents(r, p.clock, m.noEvent.Inc)

	return nil
}

// watchInformers subscribes the plugin to pods and to node changes, so that annotations are parsed outside of
// scheduling cycles and a hot node takes effect before the next snapshot.
func watchInformers(factory informers.SharedInformerFactory, p *Plugin) error {
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(p.pods.handler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}

	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(p.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}

	return nil
}

func percentage(p int32) units.Ratio { return units.Ratio(p) / 100 }

// all returns the plugins of all profiles.
func (f *Factory) all() []*Plugin {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.plugins
}

// register registers the metrics; the caller holds mu.
func (f *Factory) register() error {
	if f.registered || f.registries.Metrics == nil {
		return nil
	}

	f.registered = true
	if err := f.metrics.Register(f.registries.Metrics); err != nil {
		return fmt.Errorf("registering the metrics of plugin %s: %w", Name, err)
	}

	return nil
}

// policy opens and follows a file unless another profile has opened it; the caller holds mu.
func (f *Factory) policy(ctx context.Context, path string, handle fwk.Handle) (*policyfile.File, error) {
	if file, open := f.policies[path]; open {
		return file, nil
	}

	file, err := policyfile.Open(path, policyfile.DefaultInterval, f.clock)
	if err != nil {
		return nil, err
	}

	f.policies[path] = file
	if f.registries.Policies != nil {
		if err := f.registries.Policies(file); err != nil {
			// The metrics of a file have no label that identifies it.
			klog.FromContext(ctx).V(1).Info("no metrics of this policy file, another file has them", "path", path)
		}
	}

	go file.Run(ctx, &policyObserver{
		log: klog.FromContext(ctx).WithValues("path", path), events: newRecorder(handle.EventRecorder()), plugins: f.all,
	})

	return file, nil
}

// policyObserver reports loaded and rejected policy files.
type policyObserver struct {
	log     klog.Logger
	events  recorder
	plugins func() []*Plugin
}

// Reasons of events about the policy file; craned's controller has the same.
const (
	ReasonPolicyLoaded  = "PolicyLoaded"
	ReasonPolicyRefused = "PolicyRefused"
	actionLoading       = "LoadPolicy"
	// maxNote is the maximum length of an event note.
	maxNote = 1000
)

// PolicyLoaded implements policyfile.Observer.
func (o *policyObserver) PolicyLoaded(p *nodeload.Policy) {
	o.log.Info("loaded policy", "metrics", len(p.Metrics), "limits", len(p.Limits), "weights", len(p.Weights))
	o.emit(corev1.EventTypeNormal, ReasonPolicyLoaded, fmt.Sprintf("a new policy of %d metrics is in force", len(p.Metrics)))

	// Plugins with other files retry once more than needed.
	for _, plugin := range o.plugins() {
		plugin.retry()
	}
}

// PolicyRefused implements policyfile.Observer.
func (o *policyObserver) PolicyRefused(err error) {
	o.log.Error(err, "new policy is invalid, the old one stays in force")
	o.emit(corev1.EventTypeWarning, ReasonPolicyRefused, "the scheduler keeps the old policy: "+err.Error())
}

func (o *policyObserver) emit(kind, reason, note string) {
	if o.events == nil {
		return
	}

	o.events.Eventf(policyReference(), nil, kind, reason, actionLoading, "%s", note[:min(len(note), maxNote)])
}
