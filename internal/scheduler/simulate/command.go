// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
	"crane.io/crane/internal/scheduler/simulate/summary"
)

// Options are the options of the command.
type Options struct {
	// Scenarios are names, or paths of files.
	Scenarios []string
	// Policies are names; empty for the default ones.
	Policies []string
	// Nodes replaces the scenario's number of nodes; 0 keeps it.
	Nodes int
	// Seeds is the number of runs per policy, from FirstSeed on.
	Seeds     int
	FirstSeed uint64
	// Delays replace the scenario's delay of metrics; empty keeps it.
	Delays []time.Duration
	// Traces is the folder of trace files.
	Traces string
	// PolicyFile of Crane's plugin; empty for the built-in one.
	PolicyFile string
	// Output format.
	Output string
	// Parallel runs at once.
	Parallel int
	// Herd simulates the burst instead of scenarios.
	Herd bool
	// Quiet disables progress output.
	Quiet bool
}

// Limits of the flags.
const maxSeeds = 1000

// NewCommand returns `simulate`.
func NewCommand() *cobra.Command {
	o := &Options{
		Scenarios: []string{"steady"},
		Seeds:     3,
		FirstSeed: 1,
		Output:    "table",
		Parallel:  runtime.GOMAXPROCS(0),
		Traces:    "../shared/traces",
	}

	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare ways to schedule on a cluster in virtual time, with the real plugins",
		Long: "simulate runs the scheduler framework with its real plugins on simulated nodes and pods, hours in minutes, and measures how\n" +
			"evenly the nodes are truly used. All policies see the same world; the same seed gives the same result.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}

			// Pods and scores cause many short-lived allocations.
			debug.SetGCPercent(1000)

			// On a signal the folder of the policy files is removed.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()

			out := termtext.NewWriter(cmd.OutOrStdout())
			if o.Herd {
				return herd(ctx, o, out)
			}

			progress := cmd.ErrOrStderr()
			if o.Quiet {
				progress = nil
			}

			report, err := Run(ctx, o, progress)
			if err != nil {
				return err
			}

			return report.Write(out, o.Output)
		},
	}

	f := cmd.Flags()
	f.StringSliceVar(&o.Scenarios, "scenario", o.Scenarios, "scenarios by name ("+strings.Join(simscenario.Names(), ", ")+") or paths of files; all for all that are built in")
	f.StringSliceVar(&o.Policies, "policies", nil, "policies to compare; without, the usual ones")
	f.IntVar(&o.Nodes, "nodes", 0, "number of nodes; 0 for the scenario's")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "runs of each policy, each with a seed of its own")
	f.Uint64Var(&o.FirstSeed, "first-seed", o.FirstSeed, "the first of these seeds")

	f.DurationSliceVar(&o.Delays, "delays", nil, "delays of metrics; without, the scenario's")
	f.StringVar(&o.Traces, "traces", o.Traces, "folder with the CSV files that scenarios of traces name")
	f.StringVar(&o.PolicyFile, "policy-file", "", "DynamicSchedulerPolicy of Crane's plugin; without, the built-in one")
	f.StringVarP(&o.Output, "output", "o", o.Output, "output: "+strings.Join(summary.Formats(), ", "))
	f.IntVar(&o.Parallel, "parallel", o.Parallel, "runs at once")
	f.BoolVar(&o.Herd, "herd", false, "instead of scenarios: a burst of equal pods on nodes of which one looks idle, with metrics that stand still")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "print no progress")

	// kube-scheduler's functions, which subcommands inherit, print its own flags only.
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprintf(c.OutOrStdout(), "Usage:\n  %s\n\nFlags:\n%s", c.UseLine(), c.LocalNonPersistentFlags().FlagUsages())
		return err
	})
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", c.Long, c.UsageString())
	})

	return cmd
}

func (o *Options) validate() error {
	switch {
	case len(o.Scenarios) == 0:
		return fmt.Errorf("--scenario: want one of %s, or a file", strings.Join(simscenario.Names(), ", "))
	case o.Seeds < 1 || o.Seeds > maxSeeds:
		return fmt.Errorf("--seeds %d: want 1 to %d", o.Seeds, maxSeeds)
	case o.Parallel < 1:
		return fmt.Errorf("--parallel %d: want 1 or more", o.Parallel)
	case o.Nodes < 0:
		return fmt.Errorf("--nodes %d: want 0 or more", o.Nodes)
	}

	if slices.Contains(summary.Formats(), o.Output) && (!o.Herd || o.Output != "svg") {
		return nil
	}

	return fmt.Errorf("--output %q: want one of %s", o.Output, strings.Join(summary.Formats(), ", "))
}

// load reads a scenario by its name, or from a file of that name.
func load(name string) (*simscenario.Scenario, error) {
	if !strings.ContainsAny(name, "./") {
		return simscenario.Named(name)
	}

	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading a scenario: %w", err)
	}

	s, err := simscenario.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}

	return s, nil
}
