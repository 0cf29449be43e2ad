// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package playground runs the whole system on one machine: a Kubernetes control plane, simulated nodes, a Prometheus
// with two weeks of history, and Crane's own binaries as child processes with the RBAC rules of config/.
//
// It combines other packages in the required order: package load generates the load, clusterseries exports metrics and
// demo runs scenarios. Only cmd/playground and tests may import it.
package playground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/loopback"
	"crane.io/crane/internal/testbed/playground/clusterseries"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/playground/nodehost"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/internal/testbed/simnode/tunnel"
)

// Bounds of waits; each is many times the usual duration.
const (
	podsBound            = 2 * time.Minute
	recommendationsBound = 5 * time.Minute
	stopBound            = 30 * time.Second
)

// fieldManager is the field manager of objects that the playground applies.
const fieldManager = "crane-playground"

// playground is a running system. Its fields are set in the order of the start and not changed afterward, except the
// processes of craned, crane-scheduler and metric-adapter.
type playground struct {
	options *Options
	console *console
	dir     string

	workloads    []*load.Workload
	source       *load.Source
	control      *controlplane.ControlPlane
	client       client.Client
	applier      *manifest.Applier
	tunnel       *tunnel.Tunnel // through which the API server reaches the simulated nodes
	fleet        *simnode.Fleet
	hosts        *nodehost.Set // emulated hosts of the nodes with an agent, nil without
	agentNames   []string      // names of the nodes with an agent
	agents       map[string]*process.Process
	exporter     *clusterseries.Exporter
	prometheus   *promserver.Server
	externalLoad *externalLoad // the scenario's external load, nil without

	cranedMetrics string
	cranedWeb     string
	dashboard     string // the address that opens it

	explainAddress string // address at which crane-scheduler explains its decisions

	background sync.WaitGroup // fleet, caches, exporter
	cleanup
	children
	scrapeTargets
}

// Run starts a playground and returns when it has ended: after the first recommendations with Once, after a demo unless Keep is set,
// otherwise when ctx ends. It writes results to out and progress to errOut, and stops everything it started before it returns.
func Run(ctx context.Context, o *Options, out, errOut io.Writer) (err error) {
	p := &playground{options: o, console: newConsole(out, errOut), children: children{byComponent: map[string]child{}}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(nil)
		err = errors.Join(err, p.stop(context.WithoutCancel(ctx)))
	}()

	if err := p.start(ctx, cancel); err != nil {
		return ignoreCancellation(ctx, err)
	}

	if o.scenario != nil {
		if err := o.scenario.Play(ctx, clock.RealClock{}, executor{p}); err != nil {
			return ignoreCancellation(ctx, err)
		}
	}

	if o.ends() {
		return nil
	}

	p.console.resultf("Press Ctrl-C to stop the playground and remove everything it started.")
	<-ctx.Done()
	return ignoreCancellation(ctx, nil)
}

// ignoreCancellation returns nil if the user canceled the context, its cause if something else ended it, and err
// otherwise.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}

	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}

	return nil
}

// start starts everything in order. Background tasks call fail to end the playground with an error.
func (p *playground) start(ctx context.Context, fail context.CancelCauseFunc) error {
	// Each phase needs those before it: workloads need nodes, the history needs their pods.
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
		skip bool
	}{
		{name: "checking", run: p.prepare},
		{name: "control plane", run: p.startControlPlane},
		{name: "manifests", run: p.install},
		{name: "nodes", run: func(ctx context.Context) error { return p.startNodes(ctx, fail) }},
		{name: "agents", run: p.startAgents, skip: !p.options.hasAgents()},
		{name: "real nodes", run: p.startRealNodes, skip: p.options.RealNodes == 0},
		{name: "workloads", run: p.createWorkloads},
		{name: "history", run: func(ctx context.Context) error { return p.startPrometheus(ctx, fail) }, skip: !p.options.runs(componentPrometheus)},
		{name: "craned", run: p.startCraned, skip: !p.options.runs(componentCraned)},
		{name: "crane-scheduler", run: p.startCraneScheduler, skip: !p.options.runs(componentCraneScheduler)},
		{name: "metric-adapter", run: p.startMetricAdapter, skip: !p.options.runs(componentMetricAdapter)},
		{name: "dashboard", run: p.startDashboard, skip: !p.options.servesDashboard()},
	} {
		if phase.skip {
			continue
		}

		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}

	return p.printSummary(ctx)
}

// prepare checks the binaries, creates the data directory and generates the workloads.
func (p *playground) prepare(context.Context) error {
	// A missing binary is reported before anything is started.
	binaries := []string{"controlplane", componentCraned}
	if p.options.runs(componentCraneScheduler) {
		binaries = append(binaries, componentCraneScheduler)
	}

	if p.options.runs(componentMetricAdapter) {
		binaries = append(binaries, componentMetricAdapter)
	}

	if p.options.servesDashboard() {
		binaries = append(binaries, "crane")
	}

	if p.options.hasAgents() {
		binaries = append(binaries, componentCraneAgent)
	}

	if err := checkBinaries(p.options.BinDir, binaries...); err != nil {
		return err
	}

	// A temporary directory is removed at the end; one of the user keeps its state.
	if p.dir = cmp.Or(p.options.DataDir, p.options.stateDir()); p.dir == "" {
		dir, err := os.MkdirTemp("", "crane-playground-")
		if err != nil {
			return err
		}

		p.dir = dir
		p.onStop(func(context.Context) error { return os.RemoveAll(dir) })
	}

	dir, err := filepath.Abs(p.dir)
	if err != nil {
		return err
	}

	p.dir = dir
	if err := os.MkdirAll(filepath.Join(p.dir, "logs"), 0o700); err != nil {
		return err
	}

	// From here on libraries of Kubernetes log to a file.
	log, err := logLibraries(p.dir)
	if err != nil {
		return err
	}

	p.onStop(func(context.Context) error { return log.Close() })
	p.workloads, err = workloads(p.options, time.Now(), p.console)
	if err != nil {
		return err
	}

	p.source = load.NewSource(p.workloads, p.options.Speed)
	return nil
}

// logLibraries redirects the logs of the Kubernetes libraries in this process to a file, to keep the console readable, and returns it.
func logLibraries(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "logs", "playground.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}

	logger := logr.FromSlogHandler(slog.NewTextHandler(file, nil))
	klog.SetLogger(logger)
	ctrllog.SetLogger(logger)

	return file, nil
}

func (p *playground) startControlPlane(ctx context.Context) error {
	// The API server always runs; --only may exclude the others.
	var components []controlplane.Component
	for _, c := range []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler} {
		if p.options.runs(string(c)) {
			components = append(components, c)
		}
	}

	var err error
	if p.tunnel, err = tunnel.Open(ctx, p.dir, p.options.directNetworks()...); err != nil {
		return err
	}

	p.onStop(func(context.Context) error { return p.tunnel.Close() })

	// The API server reaches simulated kubelets through the tunnel.
	extra := map[controlplane.Component][]string{controlplane.APIServer: p.tunnel.APIServerArgs()}
	if args := p.options.controllerManagerArgs(); len(args) > 0 {
		extra[controlplane.ControllerManager] = args
	}

	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir:           filepath.Join(p.dir, "controlplane"),
		Binary:        filepath.Join(p.options.BinDir, "controlplane"),
		Components:    components,
		APIServerPort: p.options.port(portAPIServer),
		ExtraArgs:     extra,
		Restart:       true,
		OnExit:        p.reportExit,
	})
	if err != nil {
		return err
	}

	p.control = control
	p.onStop(control.Stop)

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}

	if p.client, err = client.New(control.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}

	if p.applier, err = manifest.NewApplier(control.Config(), fieldManager); err != nil {
		return err
	}

	p.console.progressf("Kubernetes serves at %s", control.URL())
	return nil
}

// controllerManagerArgs returns the controller manager flags of the scenario.
func (o *Options) controllerManagerArgs() []string {
	if o.scenario == nil || !o.runs(componentControllerManager) {
		return nil
	}

	var args []string
	for _, name := range slices.Sorted(maps.Keys(o.scenario.ControllerManager)) {
		args = append(args, "--"+name+"="+o.scenario.ControllerManager[name])
	}

	return args
}

// reportExit prints the unrequested exit of a child process with its last lines. In a demo, which lets processes fail, it prints one line.
func (p *playground) reportExit(e process.Exit) {
	text := e.String()
	if p.options.scenario != nil {
		text, _, _ = strings.Cut(text, "\n")
	}

	p.console.progressf("%s", text)
}

// cleanup undoes what was started.
type cleanup struct{ closers []func(context.Context) error }

// onStop registers a function; they run in reverse order.
func (c *cleanup) onStop(f func(context.Context) error) { c.closers = append(c.closers, f) }

// freeAddresses returns n free addresses on loopback. They stay reserved until the cleanup, so that processes can restart.
func (c *cleanup) freeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	for range n {
		port, err := loopback.Reserve(ctx, 0)
		if err != nil {
			return nil, err
		}

		c.onStop(func(context.Context) error { return port.Close() })
		addresses = append(addresses, port.Address())
	}

	return addresses, nil
}

// stop stops everything within a bound, in reverse order of the start.
func (p *playground) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()

	// craned stops first, so that it does not report the end of the others as failures.
	errs := []error{p.stopChild(ctx, componentCraned)}
	p.background.Wait()

	for _, v := range slices.Backward(p.closers) {
		errs = append(errs, v(ctx))
	}

	return errors.Join(errs...)
}

// pids returns the process IDs of the playground and its children by name.
func (p *playground) pids() map[string]int {
	all := map[string]int{"playground": os.Getpid()}
	for _, c := range []controlplane.Component{controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler} {
		all[string(c)] = p.control.PID(c)
	}

	p.children.mu.Lock()
	for name, child := range p.byComponent {
		all[name] = child.process.PID()
	}

	p.children.mu.Unlock()
	for name, child := range p.agents {
		all[name] = child.PID()
	}

	maps.DeleteFunc(all, func(_ string, pid int) bool { return pid == 0 })
	return all
}
