// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/cpupinning"
	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/httpserver"
	"crane.io/crane/internal/agent/observe"
	tell "crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/usagemetrics"
	"crane.io/crane/internal/component/version"
)

// parts are the components that managers share.
type parts struct {
	*Options

	log        logr.Logger
	clock      clock.WithTicker
	layout     cgroup.Layout
	heartbeats *heartbeat.Heartbeats
	registry   *prometheus.Registry
	view       cluster.Source
	// api and nodeChanged are nil without an API server.
	api         *clients
	nodeChanged <-chan struct{}
	latest      *observe.Latest
	// journal is nil unless the host is changed, memory unless memory limits are.
	journal, memory *act.Journal
	reporter        *tell.Reporter
	// cpus is nil unless the CPU manager runs.
	cpus *cpupinning.Manager
}

// runAgent runs all parts of the agent until ctx ends. All of them are created before any is started, so that a wrong setting or an
// address in use is reported at once. Changes of the host are undone at the end, those of a previous agent at the start.
func runAgent(ctx context.Context, o *Options, clk clock.WithTicker, files act.FileWriter) error {
	layout, err := cgroup.Detect(o.hostRoot())
	if err != nil {
		return fmt.Errorf("detect cgroups: %w", err)
	}
	p := &parts{
		Options: o, log: logr.FromContextOrDiscard(ctx), clock: clk, layout: layout, heartbeats: heartbeat.New(clk), registry: prometheus.NewRegistry(),
		latest: &observe.Latest{},
	}
	unlock, err := p.lockStateDir()
	if err != nil {
		return err
	}
	defer unlock()
	list, err := p.managers(ctx, files)
	if err != nil {
		return err
	}
	p.log.Info("starting crane-agent", "version", version.String(), "node", o.nodeName(), "dryRun", o.DryRun, "enforce", o.Enforce,
		"cgroups", layout.Version, "apiServer", p.api != nil)
	return managerGroup{log: p.log, clock: clk, heartbeats: p.heartbeats, stopTimeout: o.StopTimeout}.run(ctx, list)
}

// managers returns the managers in start order: first those that others need, last those that change the node.
func (p *parts) managers(ctx context.Context, files act.FileWriter) ([]Manager, error) {
	list, err := p.newSource()
	if err != nil {
		return nil, err
	}
	tellers, err := p.newReporter(ctx)
	if err != nil {
		return nil, err
	}
	var changes []Manager
	if p.needsJournal() {
		if p.journal, err = p.openJournal(changesFile, files); err != nil {
			return nil, err
		}
		changes = append(changes, undoOnStop{p.journal, p.reporter})
	}
	if p.leftJournal(memoryFile) {
		if _, err = p.memoryJournal(files); err != nil {
			return nil, err
		}
	}
	actors, beside, err := p.newExecutors(files)
	if err != nil {
		return nil, err
	}
	l, err := p.newLoop(actors)
	if err != nil {
		return nil, err
	}
	recorders, err := l.startRecording(p)
	if err != nil {
		return nil, err
	}
	offered, err := p.newElasticManagers(actors.reporter.ReportAction, l, files)
	if err != nil {
		return nil, err
	}
	zones, err := p.newZoneManagers(actors.reporter.ReportAction, l.observer.SetExclusiveCPUs)
	if err != nil {
		return nil, err
	}
	announcer := p.newPublisher()
	for _, more := range [][]Manager{tellers, recorders, l.loadBaselines(p.newBaselineStore(p.log)), p.countCycles(l), beside, changes, {l.waterMarks, announcer}, zones, offered, {l}} {
		list = append(list, more...)
	}
	if err := errors.Join(p.registerBase(), p.register(announcer, actors.reporter)); err != nil {
		return nil, err
	}
	if !p.serves() {
		return list, nil
	}
	server, err := httpserver.Listen(ctx, httpserver.Config{
		Address: p.BindAddress, Gather: p.registry, Profiling: p.Profiling,
		Unhealthy: func() []string { return p.heartbeats.Overdue(p.MaxInactivity) }, Unready: p.heartbeats.NotStarted,
	})
	if err != nil {
		return nil, err
	}
	return append([]Manager{server}, list...), nil
}

// newSource creates the source of the cluster's state and returns the manager that updates it, if there is an API server.
func (p *parts) newSource() ([]Manager, error) {
	if !p.usesAPIServer() {
		static, err := p.staticSource()
		p.view = static
		return nil, err
	}
	api, err := p.clients()
	if err != nil {
		return nil, err
	}
	watcher, err := p.newWatcher(api, p.log, p.clock, p.heartbeats.Register("cluster"))
	if err != nil {
		return nil, err
	}
	p.api, p.view, p.nodeChanged = &api, watcher, watcher.NodeChanged()
	return []Manager{watcher}, nil
}

// changesHost reports whether files of the host are changed.
func (p *parts) changesHost() bool {
	return slices.ContainsFunc(enforceKinds(), func(k enforceKind) bool { return k.changesHost && p.enforces(k.name) })
}

// needsJournal reports whether a journal of host changes is needed, for this agent or to undo those of a previous one.
func (p *parts) needsJournal() bool { return p.changesHost() || p.leftJournal(changesFile) }

// lockStateDir locks the state directory, except in a dry run: two agents would undo each other's changes and overwrite their journals.
func (p *parts) lockStateDir() (unlock func(), err error) {
	if p.DryRun {
		return func() {}, nil
	}
	if err := os.MkdirAll(p.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	file, err := durablefile.Lock(p.StateDir)
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return func() { file.Close() }, nil
}

// leftJournal reports whether a previous agent left a journal, which is undone even if this agent changes less. A dry run changes nothing.
func (p *parts) leftJournal(journal string) bool {
	if p.DryRun {
		return false
	}
	_, err := os.Stat(filepath.Join(p.StateDir, journal))
	return err == nil
}

func (p *parts) newPublisher() *features.Publisher {
	config := features.PublisherConfig{Node: p.view.Node, Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("features")}
	config.List = func() []features.Feature {
		if s := p.latest.Load(); s != nil {
			return append(p.hostFeatures(&p.layout, nil, s), p.cpuManagerFeature())
		}
		return nil
	}
	if p.api != nil {
		config.Client = p.api.Interface
	}
	return features.NewPublisher(config)
}

// registerBase registers the metrics of the node and of the process.
func (p *parts) registerBase() error {
	return p.register(p.heartbeats, usagemetrics.New(usagemetrics.Config{Latest: p.latest, Pods: p.view.Pods, Clock: p.clock}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// register registers metrics.
func (p *parts) register(list ...prometheus.Collector) error {
	for _, c := range list {
		if err := p.registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// undoOnStop undoes the host changes at the end. It starts before all managers that change the host, and so stops after them; managers
// that wait for the API server at the end stop later.
type undoOnStop struct {
	journal *act.Journal
	teller  *tell.Reporter
}

// Name implements Manager.
func (undoOnStop) Name() string { return "undo" }

// Run implements Manager.
func (u undoOnStop) Run(ctx context.Context) error {
	<-ctx.Done()
	if err := undoJournal(u.journal, u.teller, reasonAgentEnded); err != nil {
		return fmt.Errorf("undo at the end: %w", err)
	}
	return nil
}
