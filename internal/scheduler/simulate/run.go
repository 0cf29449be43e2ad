// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/scheduler/simulate/engine"
	"crane.io/crane/internal/scheduler/simulate/quality"
	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
	"crane.io/crane/internal/scheduler/simulate/summary"
)

// Run simulates the options. It writes a line to progress after each run; nil for none. A scenario without its trace
// is skipped, and the report names it.
func Run(ctx context.Context, o *Options, progress io.Writer) (*summary.Report, error) {
	dir, err := os.MkdirTemp("", "crane-simulate-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the policy file: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // A small file in the folder for such files.

	files, err := openPolicies(o.PolicyFile, dir)
	if err != nil {
		return nil, err
	}

	selected, err := selectPolicies(policies(files), o.Policies)
	if err != nil {
		return nil, err
	}

	names := o.Scenarios
	if len(names) == 1 && names[0] == "all" {
		names = simscenario.Names()
	}

	report := &summary.Report{}
	for _, name := range names {
		s, err := load(name)
		if err != nil {
			return nil, err
		}

		// A trace has its own nodes, which --nodes does not replace.
		if o.Nodes > 0 && s.Trace == nil {
			s.Nodes.Count = o.Nodes
			if err := s.Validate().ToAggregate(); err != nil {
				return nil, fmt.Errorf("--nodes %d: %w", o.Nodes, err)
			}
		}

		results, err := (&comparison{
			options:  o,
			scenario: s,
			policies: selected,
			progress: progress,
		}).run(ctx)
		if err != nil {
			return nil, err
		}

		report.Scenarios = append(report.Scenarios, results...)
	}

	return report, nil
}

// comparison is one scenario with all its delays, seeds and policies.
type comparison struct {
	options  *Options
	scenario *simscenario.Scenario
	policies []policy

	mu       sync.Mutex
	progress io.Writer // guarded by mu
	started  time.Time
	total    int
	ended    int // guarded by mu
}

// run simulates the scenario, and returns one result for each delay.
func (c *comparison) run(ctx context.Context) ([]summary.Scenario, error) {
	worlds := make([]*simcluster.World, c.options.Seeds)
	seeds := make([]uint64, c.options.Seeds)
	for i := range seeds {
		seeds[i] = c.options.FirstSeed + uint64(i)
		world, err := c.world(seeds[i])
		if errors.Is(err, fs.ErrNotExist) {
			return []summary.Scenario{{Name: c.scenario.Name, Description: c.scenario.Description, Skipped: err.Error()}}, nil
		}
		if err != nil {
			return nil, err
		}

		worlds[i] = world
	}

	delays := c.options.Delays
	if len(delays) == 0 {
		delays = []time.Duration{c.scenario.Metrics.Delay.Duration}
	}

	results, err := c.simulate(ctx, delays, seeds, worlds)
	if err != nil {
		return nil, err
	}

	names := make([]string, len(c.policies))
	for i, p := range c.policies {
		names[i] = p.name
	}

	scenarios := make([]summary.Scenario, len(delays))
	for d, delay := range delays {
		runs := map[string][]quality.Run{}
		for i, p := range c.policies {
			runs[p.name] = results[d][i]
		}
		scenarios[d] = summary.NewScenario(c.scenario.Name, c.scenario.Description, delay, len(worlds[0].Nodes), seeds, names, runs, normal, oracle)
	}

	return scenarios, nil
}

// simulate computes results by delay, policy and seed. Policies that read no metrics run once for all delays.
func (c *comparison) simulate(ctx context.Context, delays []time.Duration, seeds []uint64, worlds []*simcluster.World) ([][][]quality.Run, error) {
	results := make([][][]quality.Run, len(delays))
	for d := range delays {
		results[d] = make([][]quality.Run, len(c.policies))
		for p := range c.policies {
			results[d][p] = make([]quality.Run, len(seeds))
		}
	}

	c.started = time.Now()
	c.total = 0
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(c.options.Parallel)

	for i, seed := range seeds {
		for p, policy := range c.policies {
			for d, delay := range delays {
				if policy.blind && d > 0 {
					continue
				}

				c.count()
				group.Go(func() error {
					if running.Err() != nil {
						return nil //nolint:nilerr // another run failed, and its error is returned
					}

					s := *c.scenario
					s.Metrics.Delay = metav1.Duration{Duration: delay}
					run, err := engine.Run(running, &s, worlds[i], seed, policy.build)
					if err != nil {
						return fmt.Errorf("simulating policy %s, seed %d, delay %v: %w", policy.name, seed, delay, err)
					}

					for other := range delays {
						if other == d || policy.blind {
							results[other][p][i] = run
						}
					}

					c.done(policy.name, seed, delay, run)
					return nil
				})
			}
		}
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("simulating %s: %w", c.scenario.Name, err)
	}

	return results, nil
}

func (c *comparison) count() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.total++
}

func (c *comparison) done(policy string, seed uint64, delay time.Duration, run quality.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.ended++
	if c.progress != nil {
		fmt.Fprintf(c.progress, "%6.0fs  run %d: %s, %s, seed %d, delay %v: σ %.2f points, %.0f node-minutes above 80 %%\n",
			time.Since(c.started).Seconds(), c.ended, c.scenario.Name, policy, seed, delay, 100*run.Sigma, run.Hot)
	}
}

// world draws the world of a seed, or reads it from the trace. The error is fs.ErrNotExist where a file of the trace is not there.
func (c *comparison) world(seed uint64) (*simcluster.World, error) {
	s := c.scenario
	if s.Trace == nil {
		w, err := simcluster.Generate(s, seed)
		if err != nil {
			return nil, fmt.Errorf("generating the world of seed %d: %w", seed, err)
		}

		return w, nil
	}

	nodes, err := os.Open(filepath.Join(c.options.Traces, s.Trace.Nodes))
	if err != nil {
		return nil, fmt.Errorf("opening the nodes of the trace: %w", err)
	}
	defer nodes.Close()

	pods, err := os.Open(filepath.Join(c.options.Traces, s.Trace.Pods))
	if err != nil {
		return nil, fmt.Errorf("opening the pods of the trace: %w", err)
	}
	defer pods.Close()

	w, err := simcluster.FromTrace(s, nodes, pods, seed)
	if err != nil {
		return nil, fmt.Errorf("reading the trace in %s: %w", c.options.Traces, err)
	}

	return w, nil
}

// Sizes of the burst.
const (
	herdNodes = 100
	herdPods  = 100
)

// herd runs the burst with each policy and prints where its pods went.
func herd(ctx context.Context, o *Options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "crane-simulate-")
	if err != nil {
		return fmt.Errorf("creating a folder for the policy file: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // A small file in the folder for such files.

	files, err := openPolicies(o.PolicyFile, dir)
	if err != nil {
		return err
	}

	selected, err := selectPolicies(policies(files), o.Policies)
	if err != nil {
		return err
	}

	// The burst needs one idle node and another.
	nodes := herdNodes
	if o.Nodes > 1 {
		nodes = o.Nodes
	}

	var herds []engine.Herd
	for _, p := range selected {
		h, err := engine.RunHerd(ctx, nodes, herdPods, p.name, p.build)
		if err != nil {
			return err
		}

		herds = append(herds, h)
	}

	return writeHerd(out, o.Output, herds)
}

func writeHerd(out io.Writer, format string, herds []engine.Herd) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")

		if err := encoder.Encode(herds); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}

		return nil
	}

	// The fullest node is shown in pods above the mean, because one pod is the best that any policy can reach.
	t := table.NewWriter()
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"policy", "pods", "waiting", "on the idle node", "most on one node", "fullest node above the mean, pods"})

	for _, h := range herds {
		t.AppendRow(table.Row{h.Policy, h.Pods, h.Waiting, h.OnIdle, h.Most, fmt.Sprintf("%.2f", h.Above/h.PodShare)})
	}

	rendered := t.Render()
	if format == "markdown" {
		rendered = t.RenderMarkdown()
	}

	fmt.Fprintln(out, rendered)
	return nil
}
