// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command requests compares the requests of the chart with what Crane recommends for its own processes. It runs the playground with a stated
// load, records CPU and memory of craned, metric-adapter, crane-scheduler and crane-agent, computes requests from the recording with
// `crane recommend --from`, and fails if the chart requests less.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// sizingPolicy is the policy of craned except for the history: an hour with samples is enough.
const sizingPolicy = "name: recorded\nbase: default\nminHistory: 1h\n"

type options struct {
	workloads, nodes, days int
	measured               time.Duration
	bin, values, keep      string
}

func main() {
	var o options
	flag.IntVar(&o.workloads, "workloads", 1000, "number of workloads; for each twenty there is one more with an EffectiveHorizontalPodAutoscaler")
	flag.IntVar(&o.nodes, "nodes", 50, "number of nodes")
	flag.IntVar(&o.days, "days", 7, "days of history that craned reads")
	flag.DurationVar(&o.measured, "for", 15*time.Minute, "time to record after the first recommendations")

	flag.StringVar(&o.bin, "bin", "bin", "directory of Crane's binaries")
	flag.StringVar(&o.values, "values", "charts/crane/values.yaml", "values of the chart")
	flag.StringVar(&o.keep, "keep", "", "directory for the recording; empty for a temporary one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "requests:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	chart, err := chartRequests(o.values)
	if err != nil {
		return err
	}

	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "bench-requests-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}

	if err := record(ctx, o, dir, slices.Collect(maps.Keys(chart))); err != nil {
		return err
	}

	fmt.Printf("%d workloads, %d nodes, %d days of history, recorded for %s after the first recommendations\n", o.workloads, o.nodes, o.days, o.measured)
	const row = "%-16s %-8s %8v %10v %12v %8v\n"
	fmt.Printf(row, "COMPONENT", "RESOURCE", "SAMPLES", "LARGEST", "RECOMMENDED", "CHART")

	for _, resourceName := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		recommended, recommendErr := recommend(ctx, o.bin, dir, resourceName)
		if recommendErr != nil {
			return recommendErr
		}

		for _, name := range slices.Sorted(maps.Keys(chart)) {
			r, ok := recommended[name]
			if !ok {
				return fmt.Errorf("%s of %s: no recommendation", resourceName, name)
			}

			requested := chart[name][resourceName]
			fmt.Printf(row, name, resourceName, r.samples, r.largest.String(), r.request.String(), requested.String())

			// All requests that are too low are reported, not only the first one.
			if requested.Cmp(r.request) < 0 {
				err = errors.Join(err, fmt.Errorf("%s: the chart requests %s of %s, less than the recommended %s", name, requested.String(), resourceName, r.request.String()))
			}
		}
	}

	return err
}

// chartRequests returns the requests of the chart by the name of the process.
func chartRequests(file string) (map[string]corev1.ResourceList, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	type component struct {
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var values struct {
		Craned         component `json:"craned"`
		MetricAdapter  component `json:"metricAdapter"`
		CraneScheduler component `json:"craneScheduler"`
		CraneAgent     component `json:"craneAgent"`
	}

	if err := yaml.Unmarshal(content, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}

	return map[string]corev1.ResourceList{
		"craned": values.Craned.Resources.Requests, "metric-adapter": values.MetricAdapter.Resources.Requests,
		"crane-scheduler": values.CraneScheduler.Resources.Requests, "crane-agent": values.CraneAgent.Resources.Requests,
	}, nil
}

// recommendation is what `crane recommend` computes from a recording.
type recommendation struct {
	request, largest resource.Quantity
	samples          int
}

// recommend runs `crane recommend` on the recording of a resource and returns the result by the name of the process.
func recommend(ctx context.Context, bin, dir string, resourceName corev1.ResourceName) (map[string]recommendation, error) {
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(sizingPolicy), 0o600); err != nil {
		return nil, err
	}

	// The recommendation is made as a user makes it, with the command and a file for each process.
	command := exec.CommandContext(ctx, filepath.Join(bin, "crane"), "recommend", "--from", filepath.Join(dir, string(resourceName)),
		"--resource", string(resourceName), "--policy", policy, "-o", "json")
	var errOut bytes.Buffer

	command.Stderr = &errOut
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("crane recommend: %w: %s", err, errOut.String())
	}

	type result struct {
		Recommended struct {
			Request struct {
				Quantity resource.Quantity `json:"quantity"`
			} `json:"request"`
		} `json:"recommended"`
		Evidence struct {
			Samples int     `json:"samples"`
			Max     float64 `json:"max"`
		} `json:"evidence"`
	}

	var report struct {
		Workloads []struct {
			Name       string                                    `json:"name"`
			Containers []map[corev1.ResourceName]json.RawMessage `json:"containers"`
		} `json:"workloads"`
	}

	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("output of crane recommend: %w", err)
	}

	results := map[string]recommendation{}
	for _, w := range report.Workloads {
		for _, c := range w.Containers {
			var r result
			if err := json.Unmarshal(c[resourceName], &r); err != nil {
				return nil, fmt.Errorf("%s of %s: %w", resourceName, w.Name, err)
			}

			if r.Recommended.Request.Quantity.IsZero() {
				return nil, fmt.Errorf("%s of %s: no request is recommended", resourceName, w.Name)
			}

			results[w.Name] = recommendation{
				request: r.Recommended.Request.Quantity, largest: quantity(resourceName, r.Evidence.Max), samples: r.Evidence.Samples,
			}
		}
	}

	return results, nil
}

// quantity returns cores in thousandths and bytes in MiB.
func quantity(resourceName corev1.ResourceName, value float64) resource.Quantity {
	if resourceName == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(int64(math.Ceil(value*1000)), resource.DecimalSI)
	}

	return *resource.NewQuantity(int64(math.Ceil(value/(1<<20)))<<20, resource.BinarySI)
}
