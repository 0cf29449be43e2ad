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
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/usagemetrics"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/pause"
)

// environment holds what all parts of the agent share. It does not change after the start.
type environment struct {
	*Options

	log        logr.Logger
	clock      clock.WithTicker
	layout     cgroup.Layout
	heartbeats *heartbeat.Heartbeats
	registry   *prometheus.Registry
	latest     *observe.Latest
	// kubelet returns what the kubelet assigns to containers, by its socket.
	kubelet kubeletsocket.Source
	// stopped reports whether Crane is paused, or not yet known not to be; nil without an API server.
	stopped func() bool
	restart *restart
}

// pauseManager follows the switch that stops writes.
type pauseManager struct{ *pause.Switch }

// Name implements Manager.
func (pauseManager) Name() string { return "pause" }

// Run implements Manager.
func (m pauseManager) Run(ctx context.Context) error { return m.Start(ctx) }

// clusterAccess reads the state of the cluster; api and nodeChanged are nil without an API server.
type clusterAccess struct {
	view        cluster.Source
	api         *clients
	nodeChanged <-chan struct{}
}

// runAgent runs all parts of the agent until ctx ends. All of them are created before any is started, so that a wrong setting or an address
// in use is reported at once. Changes of the host are undone at the end, those of a previous agent at the start.
func runAgent(ctx context.Context, o *Options, clk clock.WithTicker, files act.FileWriter) error {
	layout, err := o.detectCgroups()
	if err != nil {
		return fmt.Errorf("detecting cgroups: %w", err)
	}

	e := environment{
		Options:    o,
		log:        logr.FromContextOrDiscard(ctx),
		clock:      clk,
		layout:     layout,
		heartbeats: heartbeat.New(clk),
		registry:   prometheus.NewRegistry(),
		latest:     &observe.Latest{},
	}

	unlock, err := e.lockStateDir()
	if err != nil {
		return err
	}
	defer unlock()

	// Before any journal is opened: the marker decides whether the changes in it are undone or taken over.
	e.restart = e.readHandover()
	list, err := e.managers(ctx, files)
	if err != nil {
		return err
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	list = append(list, podGroupManager{e, end})

	e.log.Info("starting crane-agent", "version", version.String(), "node", o.Cluster.nodeName(), "dryRun", o.DryRun, "enforce", o.Enforce,
		"cgroups", layout.Version, "apiServer", o.Cluster.usesAPIServer())
	err = managerGroup{
		log:         e.log,
		clock:       clk,
		heartbeats:  e.heartbeats,
		stopTimeout: o.StopTimeout,
	}.run(ctx, list)

	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return errors.Join(cause, err)
	}

	return err
}

// managers returns the managers in start order: first those that others need, last those that change the node.
func (e environment) managers(ctx context.Context, files act.FileWriter) ([]Manager, error) {
	access, watchers, err := e.newClusterAccess()
	if err != nil {
		return nil, err
	}

	if access.api != nil {
		e.stopped = access.api.pause.Stopped
		watchers = append(watchers, pauseManager{access.api.pause})

		if err := register(e, access.api.pause); err != nil {
			return nil, err
		}
	}

	reporter, writers, err := e.newReporter(ctx, access.api)
	if err != nil {
		return nil, err
	}

	opened, err := e.openJournals(files, reporter)
	if err != nil {
		return nil, err
	}

	kubelet := kubeletsocket.NewWatch(kubeletSocket(e.Options), e.clock, e.heartbeats.Register(kubeletsocket.WatchName))
	e.kubelet = kubelet.Latest

	executors, actors := e.newExecutors(access, opened, files, reporter)
	l, err := e.newLoop(access.view, executors)
	if err != nil {
		return nil, err
	}

	recorders, err := l.startRecording(e)
	if err != nil {
		return nil, err
	}

	elastic, reclaimable, err := e.newElasticManagers(access, opened, reporter)
	if err != nil {
		return nil, err
	}

	l.reclaimable = reclaimable
	zones, cpus, err := e.newZoneManagers(access, opened.changes, reporter, l.observer.SetExclusiveCPUs)
	if err != nil {
		return nil, err
	}

	publisher := e.newPublisher(access, cpus)
	if err := errors.Join(e.registerBase(access.view), register(e, publisher, reporter)); err != nil {
		return nil, err
	}

	var undo []Manager
	if opened.changes != nil {
		undo = []Manager{undoOnStop{opened.changes, reporter, e.restart.kept}}
	}

	list := slices.Concat([]Manager{kubelet}, watchers, e.newPredecessorManager(access, opened.changes, reporter), writers, recorders, l.loadBaselines(e.newBaselineStore(e.log)), e.countCycles(l), actors, undo,
		[]Manager{l.waterMarks, publisher}, zones, elastic, []Manager{l}, e.newRestartManager(access, executors))

	// The server is created last, when everything that it serves is registered, and starts first.
	server, err := newServer(ctx, e, access)
	if err != nil {
		return nil, err
	}

	return append(server, list...), nil
}

// newServer returns the HTTP server of metrics and probes; none without an address.
func newServer(ctx context.Context, e environment, access clusterAccess) ([]Manager, error) {
	if !e.serves() {
		return nil, nil
	}

	config := httpserver.Config{
		Address:   e.BindAddress,
		Gather:    e.registry,
		Log:       e.log,
		Profiling: e.Profiling,
		Unhealthy: func() []string { return e.heartbeats.Overdue(e.MaxInactivity) },
		Unready:   e.heartbeats.NotStarted,
	}

	if e.MetricsSecure && access.api != nil {
		if err := protect(&config, access.api.config, e.Cluster.nodeName(), e.log); err != nil {
			return nil, err
		}
	}

	server, err := httpserver.Listen(ctx, config)
	if err != nil {
		return nil, err
	}

	return []Manager{server}, nil
}

// newClusterAccess returns the access to the cluster's state and the manager that updates it, if there is an API server.
func (e environment) newClusterAccess() (clusterAccess, []Manager, error) {
	if !e.Cluster.usesAPIServer() {
		static, err := e.Cluster.staticSource()
		return clusterAccess{view: static}, nil, err
	}

	api, err := e.Cluster.clients(e.clock)
	if err != nil {
		return clusterAccess{}, nil, err
	}

	watcher, err := e.Cluster.newWatcher(api, e.log, e.clock, e.heartbeats.Register("cluster"))
	if err != nil {
		return clusterAccess{}, nil, err
	}

	return clusterAccess{view: watcher, api: &api, nodeChanged: watcher.NodeChanged()}, []Manager{watcher}, nil
}

// changesHost reports whether files of the host are changed.
func (e environment) changesHost() bool {
	return slices.ContainsFunc(enforceKinds(), func(k enforceKind) bool { return k.changesHost && e.enforces(k.name) })
}

// needsJournal reports whether a journal of host changes is needed, for this agent or to undo those of a previous one.
func (e environment) needsJournal() bool { return e.changesHost() || e.leftJournal(changesFile) }

// lockStateDir locks the state directory, except in a dry run: two agents would undo each other's changes and overwrite their journals.
func (e environment) lockStateDir() (unlock func(), err error) {
	if e.DryRun && !e.leftHandover() {
		return func() {}, nil
	}

	if err := os.MkdirAll(e.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}

	file, err := durablefile.Lock(e.StateDir)
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}

	return func() { file.Close() }, nil
}

// leftJournal reports whether a previous agent left a journal, which is undone even if this agent changes less. A dry run changes nothing,
// unless the previous agent left its changes to it.
func (e environment) leftJournal(journal string) bool {
	if e.DryRun && (e.restart == nil || e.restart.marker == nil) {
		return false
	}

	_, err := os.Stat(filepath.Join(e.StateDir, journal))
	return err == nil
}

func (e environment) newPublisher(access clusterAccess, cpus *cpupinning.Manager) *features.Publisher {
	config := features.PublisherConfig{
		Node:  access.view.Node,
		Clock: e.clock,
		Log:   e.log,
		Beat:  e.heartbeats.Register("features"),
	}

	config.List = func() []features.Feature {
		if s := e.latest.Load(); s != nil {
			return append(e.hostFeatures(&e.layout, nil, s, e.kubelet), cpuManagerFeature(cpus))
		}

		return nil
	}

	if access.api != nil {
		config.Client = access.api.Interface
	}

	return features.NewPublisher(config)
}

// registerBase registers the metrics of the node and of the process.
func (e environment) registerBase(view cluster.View) error {
	return register(e, e.heartbeats, usagemetrics.New(usagemetrics.Config{Latest: e.latest, Pods: view.Pods, Clock: e.clock}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// register registers metrics.
func register(e environment, list ...prometheus.Collector) error {
	registry := seriesguard.New(e.registry, e.log)

	for _, c := range list {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}

	return nil
}

// undoOnStop undoes the host changes at the end. It starts before all managers that change the host, and so stops after them; managers
// that wait for the API server at the end stop later.
type undoOnStop struct {
	journal  *act.Journal
	reporter *report.Reporter
	// keep reports that the changes stay, for the next agent.
	keep func() bool
}

// Name implements Manager.
func (undoOnStop) Name() string { return "undo" }

// Run implements Manager.
func (u undoOnStop) Run(ctx context.Context) error {
	<-ctx.Done()
	if u.keep() {
		return nil
	}

	if err := undoJournal(u.journal, u.journal.UndoAll, u.reporter, reasonAgentEnded); err != nil {
		return fmt.Errorf("undoing the changes at the end: %w", err)
	}

	return nil
}
