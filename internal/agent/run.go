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

// parts are what managers are made of.
type parts struct {
	*Options

	log      logr.Logger
	clock    clock.WithTicker
	layout   cgroup.Layout
	pulse    *heartbeat.Pulse
	registry *prometheus.Registry
	view     cluster.Source
	// api and nodeChanged are nil where there is no API server.
	api         *clients
	nodeChanged <-chan struct{}
	latest      *observe.Latest
	// journal is nil where nothing of the host is changed, memory where no limit of memory is.
	journal, memory *act.Journal
	teller          *tell.Teller
	// cpus is nil where nobody gives CPUs to containers.
	cpus *cpupinning.Manager
}

// runAgent runs all parts of the agent until ctx ends. Before anything runs all of them are put together, so that a wrong setting or an
// address that is taken is an error at once. What is changed on the host is undone at the end, and what an agent before this one has
// left is at the start.
func runAgent(ctx context.Context, o *Options, clk clock.WithTicker, files act.Files) error {
	layout, err := cgroup.Detect(o.root())
	if err != nil {
		return fmt.Errorf("detect cgroups: %w", err)
	}
	p := &parts{
		Options: o, log: logr.FromContextOrDiscard(ctx), clock: clk, layout: layout, pulse: heartbeat.New(clk), registry: prometheus.NewRegistry(),
		latest: &observe.Latest{},
	}
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	list, err := p.managers(ctx, files)
	if err != nil {
		return err
	}
	p.log.Info("Starting crane-agent", "version", version.String(), "node", o.node(), "dryRun", o.DryRun, "enforce", o.Enforce,
		"cgroups", layout.Version, "apiServer", p.api != nil)
	return managers{log: p.log, clock: clk, pulse: p.pulse, stopBound: o.StopTimeout}.run(ctx, list)
}

// managers puts the parts of the agent together, in the order in which they start: what others need first, what changes the node last.
func (p *parts) managers(ctx context.Context, files act.Files) ([]Manager, error) {
	list, err := p.sources()
	if err != nil {
		return nil, err
	}
	tellers, err := p.newTeller(ctx)
	if err != nil {
		return nil, err
	}
	var changes []Manager
	if p.journals() {
		if p.journal, err = p.openJournal(changesFile, files); err != nil {
			return nil, err
		}
		changes = append(changes, undoing{p.journal, p.teller})
	}
	if p.left(memoryFile) {
		if _, err = p.memoryJournal(files); err != nil {
			return nil, err
		}
	}
	actors, beside, err := p.newActors(files)
	if err != nil {
		return nil, err
	}
	l, err := p.newLoop(actors)
	if err != nil {
		return nil, err
	}
	recorders, err := l.record(p)
	if err != nil {
		return nil, err
	}
	offered, err := p.newReclaiming(actors.teller.Did, l, files)
	if err != nil {
		return nil, err
	}
	zones, err := p.newZones(actors.teller.Did, l.observer.OwnedCPUs)
	if err != nil {
		return nil, err
	}
	announcer := p.newAnnouncer()
	for _, more := range [][]Manager{tellers, recorders, l.remember(p.newKeeper(p.log)), p.countCycles(l), beside, changes, {l.marks, announcer}, zones, offered, {l}} {
		list = append(list, more...)
	}
	if err := errors.Join(p.registerBase(), p.register(announcer, actors.teller)); err != nil {
		return nil, err
	}
	if !p.serves() {
		return list, nil
	}
	server, err := httpserver.Listen(ctx, httpserver.Config{
		Address: p.BindAddress, Gather: p.registry, Profiling: p.Profiling,
		Unhealthy: func() []string { return p.pulse.Late(p.MaxInactivity) }, Unready: p.pulse.Waiting,
	})
	if err != nil {
		return nil, err
	}
	return append([]Manager{server}, list...), nil
}

// sources are what the agent knows of the cluster, and the manager that keeps it current where there is an API server.
func (p *parts) sources() ([]Manager, error) {
	if !p.asksCluster() {
		static, err := p.static()
		p.view = static
		return nil, err
	}
	api, err := p.clients()
	if err != nil {
		return nil, err
	}
	watcher, err := p.newWatcher(api, p.log, p.clock, p.pulse.For("cluster"))
	if err != nil {
		return nil, err
	}
	p.api, p.view, p.nodeChanged = &api, watcher, watcher.NodeChanged()
	return []Manager{watcher}, nil
}

// changesHost tells whether anything of the host is changed.
func (p *parts) changesHost() bool {
	return slices.ContainsFunc(kinds(), func(k kind) bool { return k.host && p.enforces(k.name) })
}

// journals tells whether there is a journal of what is changed on the host, by this agent or by one before it.
func (p *parts) journals() bool { return p.changesHost() || p.left(changesFile) }

// lock takes the state directory, except in a dry run: two agents would undo what the other does, and write over its journals.
func (p *parts) lock() (unlock func(), err error) {
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

// left tells whether an agent before this one has a journal, which is undone also where this one changes less than it did. A dry run
// changes nothing at all.
func (p *parts) left(journal string) bool {
	if p.DryRun {
		return false
	}
	_, err := os.Stat(filepath.Join(p.StateDir, journal))
	return err == nil
}

func (p *parts) newAnnouncer() *features.Announcer {
	config := features.AnnouncerConfig{Node: p.view.Node, Clock: p.clock, Log: p.log, Beat: p.pulse.For("features")}
	config.Look = func() []features.Feature {
		if s := p.latest.Load(); s != nil {
			return append(p.features(&p.layout, nil, s), p.cpuFeature())
		}
		return nil
	}
	if p.api != nil {
		config.Client = p.api.Interface
	}
	return features.NewAnnouncer(config)
}

// registerBase adds what the agent measures and what it takes itself to /metrics.
func (p *parts) registerBase() error {
	return p.register(p.pulse, usagemetrics.New(usagemetrics.Config{Latest: p.latest, Pods: p.view.Pods, Clock: p.clock}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// register adds what parts tell to /metrics.
func (p *parts) register(list ...prometheus.Collector) error {
	for _, c := range list {
		if err := p.registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// undoing is the manager that puts back at the end what the agent has changed on the host. It starts before all that change something,
// and so stops after them; those who talk to the API server at the end, which may be slow, stop later.
type undoing struct {
	journal *act.Journal
	teller  *tell.Teller
}

// Name implements Manager.
func (undoing) Name() string { return "undo" }

// Run implements Manager.
func (u undoing) Run(ctx context.Context) error {
	<-ctx.Done()
	if err := undo(u.journal, u.teller, atEnd); err != nil {
		return fmt.Errorf("undo at the end: %w", err)
	}
	return nil
}
