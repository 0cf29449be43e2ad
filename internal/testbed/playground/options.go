// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/playground/demo"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

// Components that --only selects and that scenarios stop and start. The API server and the simulated nodes always run.
const (
	componentAPIServer         = "apiserver"
	componentControllerManager = "controller-manager"
	componentScheduler         = "scheduler"
	componentPrometheus        = "prometheus"
	componentCraned            = "craned"
	componentCraneScheduler    = "crane-scheduler"
	componentMetricAdapter     = "metric-adapter"
	// componentDashboard is not started where the playground ends by itself.
	componentDashboard = "dashboard"

	// componentCraneAgent runs only in scenarios with agentNodes.
	componentCraneAgent = "crane-agent"
)

func components() []string {
	return []string{
		componentAPIServer, componentControllerManager, componentScheduler, componentPrometheus, componentCraned, componentCraneScheduler,
		componentMetricAdapter, componentDashboard,
	}
}

// Options configures a playground. The zero value is not valid; use NewOptions.
type Options struct {
	// Nodes is the number of simulated nodes, 1 to 1000.
	Nodes int
	// Workloads is the number of generated workloads, 0 to 5000. With Traces it defaults to 0.
	Workloads int
	// Days is the length of the history written at the start, 1 to 60 days.
	Days int
	// Step is the interval between samples of that history, 15 s to 60 s.
	Step time.Duration
	// Seed is the seed of the load generator: the same seed generates the same workloads and the same load.
	Seed uint64
	// Traces is a directory of CSV series that become workloads; empty for none.
	Traces string
	// Resource is the resource that the traces measure: cpu or memory.
	Resource string
	// Speed compresses the load pattern: at 48 one of its days lasts half an hour. The clock is never compressed.
	Speed float64
	// AlertSpeed divides the time that alerts wait before they fire, and the interval of scrapes and rules, down to 1 s.
	AlertSpeed float64
	// DataDir keeps the state across restarts; empty for a temporary directory that is removed on exit.
	DataDir string
	// BinDir contains craned, crane and controlplane; empty for the directory of the running binary.
	BinDir string
	// Once stops the playground after the first recommendations and, if set, the demo.
	Once bool
	// Only lists the components to start; empty for all.
	Only []string
	// Demo is the name of a built-in scenario, or the path of a scenario file; empty for none. The playground stops at its end.
	Demo string
	// Keep keeps the playground running after the demo.
	Keep bool

	// RealNodes is the number of real nodes in addition to the simulated ones, 0 to 3. They require Linux and root.
	RealNodes int

	scenario *demo.Scenario
	session  *sandbox.Session // where real nodes run; nil without
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Nodes:      12,
		Workloads:  60,
		Days:       14,
		Step:       time.Minute,
		Seed:       1,
		Resource:   string(metrics.CPU),
		Speed:      1,
		AlertSpeed: 1,
	}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.Nodes, "nodes", o.Nodes, "number of simulated nodes")
	fs.IntVar(&o.Workloads, "workloads", o.Workloads, "number of generated workloads (with --traces the default is 0)")
	fs.IntVar(&o.Days, "days", o.Days, "days of history to write at the start, 1 to 60")
	fs.DurationVar(&o.Step, "step", o.Step, "interval between samples of the history, 15s to 1m")
	fs.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the load generator")
	fs.StringVar(&o.Traces, "traces", o.Traces, "directory of CSV series (header ts,value) to replay as workloads; other files are skipped")
	fs.StringVar(&o.Resource, "resource", o.Resource, "resource that the traces measure: cpu or memory")
	fs.Float64Var(&o.Speed, "speed", o.Speed, "compress the load pattern, history included: at 48 one of its days lasts half an hour")

	fs.Float64Var(&o.AlertSpeed, "alert-speed", o.AlertSpeed, "divide the time that alerts wait before they fire by this, 1 to 1000; Prometheus scrapes Crane that much more often, at most once a second")
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "directory that keeps the state across restarts (default: a temporary directory, removed on exit)")
	fs.StringVar(&o.BinDir, "bin-dir", o.BinDir, "directory of Crane's binaries (default: that of this binary)")
	fs.BoolVar(&o.Once, "once", o.Once, "exit after the first recommendations; with --demo, after the demo")
	fs.IntVar(&o.RealNodes, "real-nodes", o.RealNodes, "number of real nodes in addition to the simulated ones (requires Linux, root and make build-nodes)")
	fs.StringSliceVar(&o.Only, "only", o.Only, "start only these components: "+strings.Join(components(), ", "))
	fs.StringVar(&o.Demo, "demo", o.Demo, "play a scenario: "+strings.Join(demo.Names(), ", ")+", or the path of a scenario file; the playground stops at its end")
	fs.BoolVar(&o.Keep, "keep", o.Keep, "keep the playground running after the demo")
}

// Complete sets defaults that depend on other options or on the machine, and loads the scenario.
func (o *Options) Complete(fs *pflag.FlagSet) error {
	// Traces replace the generated workloads unless their number is set.
	if o.Traces != "" && !fs.Changed("workloads") {
		o.Workloads = 0
	}

	if o.BinDir == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the directory of this binary: %w", err)
		}

		o.BinDir = filepath.Dir(self)
	}

	if o.Demo == "" {
		return nil
	}

	// A path selects a file, anything else a built-in scenario.
	var err error
	if strings.ContainsRune(o.Demo, filepath.Separator) || filepath.Ext(o.Demo) == ".yaml" {
		var content []byte
		if content, err = os.ReadFile(o.Demo); err == nil {
			o.scenario, err = demo.Parse(content)
		}
	} else {
		o.scenario, err = demo.Demo(o.Demo)
	}

	if err != nil {
		return fmt.Errorf("--demo: %w", err)
	}

	return nil
}

// Validate reports every option that is out of its range.
func (o *Options) Validate() error {
	var errs []error

	// Every problem is reported at once, not only the first.
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	check(o.Nodes >= 1 && o.Nodes <= 1000, "--nodes: %d is not between 1 and 1000", o.Nodes)
	check(o.RealNodes >= 0 && o.RealNodes <= maxRealNodes, "--real-nodes: %d is not between 0 and %d", o.RealNodes, maxRealNodes)
	check(o.Workloads >= 0 && o.Workloads <= 5000, "--workloads: %d is not between 0 and 5000", o.Workloads)
	check(o.Workloads > 0 || o.Traces != "", "--workloads: 0 leaves nothing to run; set --traces or more workloads")
	check(o.Days >= 1 && o.Days <= 60, "--days: %d is not between 1 and 60", o.Days)

	check(o.Step >= 15*time.Second && o.Step <= time.Minute && o.Step%time.Second == 0,
		"--step: %s is not a whole number of seconds between 15s and 1m", o.Step)
	check(o.AlertSpeed >= 1 && o.AlertSpeed <= 1000, "--alert-speed: %g is not between 1 and 1000", o.AlertSpeed)
	check(o.Speed >= 1 && o.Speed <= 1440, "--speed: %g is not between 1 and 1440", o.Speed)
	check(o.Resource == string(metrics.CPU) || o.Resource == string(metrics.Memory),
		"--resource: %q is neither cpu nor memory", o.Resource)

	for _, c := range o.Only {
		check(slices.Contains(components(), c), "--only: %q is not one of %s", c, strings.Join(components(), ", "))
	}

	check(!o.Keep || o.Demo != "" && !o.Once, "--keep: requires --demo, and excludes --once")
	check(!o.runs(componentCraned) || o.runs(componentPrometheus),
		"--only: craned reads its history from prometheus; name both")

	if o.Traces != "" {
		info, err := os.Stat(o.Traces)
		check(err == nil && info.IsDir(), "--traces: %s is not a directory that can be read", o.Traces)
	}

	return errors.Join(errs...)
}

// runs reports whether --only includes the component.
func (o *Options) runs(component string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, component)
}

// hasAgents reports whether the scenario has nodes with an agent.
func (o *Options) hasAgents() bool { return o.scenario != nil && o.scenario.AgentNodes > 0 }

// ends reports whether the playground stops by itself.
func (o *Options) ends() bool { return o.Once || o.scenario != nil && !o.Keep }
