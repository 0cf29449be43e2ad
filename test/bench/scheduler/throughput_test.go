// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler_test measures how many pods a second crane-scheduler binds on a real API server, with Crane's plugins
// and with the default profile, in interleaved pairs of two runs each of the same binary. make bench-throughput runs it.
package scheduler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/test/controlplanetest"
)

// patience bounds a run. 5,000 pods take about half a minute on two idle cores.
const patience = 20 * time.Minute

// size is what is measured; each number has an environment variable.
type size struct{ nodes, pods, pairs, whole int }

func sizeFromEnv(b *testing.B) size {
	b.Helper()

	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
		if err != nil || n < 0 {
			b.Fatalf("%s=%q, want a number from 0 up", name, os.Getenv(name))
		}

		return n
	}

	return size{
		nodes: number("CRANE_BENCH_NODES", 1000), pods: number("CRANE_BENCH_PODS", 5000),
		pairs: number("CRANE_BENCH_PAIRS", 10), whole: number("CRANE_BENCH_WHOLE_PAIRS", 1),
	}
}

// BenchmarkThroughput schedules the same pods on the same nodes with the default profile and with ours, by turns. All nodes
// have fresh load annotations, which change each minute, and a NodeResourceTopology, on both sides.
func BenchmarkThroughput(b *testing.B) {
	binary := os.Getenv("CRANE_SCHEDULER")
	if binary == "" || os.Getenv(controlplane.BinaryEnv) == "" {
		b.Skipf("CRANE_SCHEDULER and %s name the binaries; make bench-throughput sets them", controlplane.BinaryEnv)
	}

	s := sizeFromEnv(b)
	control := controlplanetest.ForTest(b, controlplane.Options{ExtraArgs: map[controlplane.Component][]string{
		// The API server must not be what limits.
		controlplane.APIServer: {"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000"},
	}})
	config := control.Config()
	config.QPS = -1

	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}

	run := &bench{B: b, control: control, client: client, binary: binary, size: s, dir: b.TempDir()}
	run.prepare()

	for b.Loop() {
		run.compare("pods without whole CPUs", "ratio", s.pairs, "50m", "100m")
		run.compare("pods with whole CPUs (each gets an annotation)", "ratio-whole-CPUs", s.whole, "1", "1")
	}
}

type bench struct {
	*testing.B
	control *controlplane.ControlPlane
	client  kubernetes.Interface
	binary  string
	size    size
	dir     string
	runs    int
}

// compare prints pods a second of both sides and the median of the pairs' ratios with its interval.
func (b *bench) compare(what, unit string, pairs int, request, limit string) {
	if pairs == 0 {
		return
	}

	var ratios, plain, ours, cpu, serving []float64
	for i := range pairs {
		// Each side runs twice in a pair, in the order A B B A: what grows with time, as the API server's history does, weighs on
		// both alike. Neither always comes first.
		sides := []string{"default", "crane", "crane", "default"}
		if i%2 == 1 {
			sides = []string{"crane", "default", "default", "crane"}
		}

		got := map[string]outcome{}
		for _, side := range sides {
			got[side] = got[side].and(b.measure(side, request, limit))
		}

		theirs := got["default"]
		mine := got["crane"]
		ratios = append(ratios, mine.rate/theirs.rate)
		plain = append(plain, theirs.rate)
		ours = append(ours, mine.rate)
		cpu = append(cpu, mine.scheduler/theirs.scheduler)
		serving = append(serving, mine.server/theirs.server)
		fmt.Printf("# %s: pair %d: CPU of the scheduler: default %.2f ms/pod, crane %.2f ms/pod, ratio %.3f; of the API server: %.2f and %.2f ms/pod, ratio %.3f\n",
			what, i+1, theirs.scheduler, mine.scheduler, cpu[i], theirs.server, mine.server, serving[i])
		fmt.Printf("# %s: pair %d: default %.0f pods/s, crane %.0f pods/s, ratio %.3f\n", what, i+1, theirs.rate, mine.rate, ratios[i])
	}

	low, high := interval(ratios)
	fmt.Printf("%s: %d nodes, %d pods, %d pairs: default %.0f pods/s, crane %.0f pods/s (medians); ratio median %.3f, 95 %% interval %.3f to %.3f\n",
		what, b.size.nodes, b.size.pods, pairs, median(plain), median(ours), median(ratios), low, high)
	low, high = interval(cpu)
	fmt.Printf("%s: CPU time of the scheduler per pod, crane over default: median %.3f, 95 %% interval %.3f to %.3f; of the API server: median %.3f\n",
		what, median(cpu), low, high, median(serving))
	b.ReportMetric(median(ratios), unit)
}

// outcome is the number of pods that were bound a second, and the milliseconds of CPU that the scheduler and the API server used
// for each. The latter say something on a machine that is busy with other things too.
type outcome struct{ rate, scheduler, server float64 }

// and is the outcome of two runs of the same number of pods as if they had been one.
func (o outcome) and(p outcome) outcome {
	if o.rate == 0 {
		return p
	}

	return outcome{rate: 2 / (1/o.rate + 1/p.rate), scheduler: (o.scheduler + p.scheduler) / 2, server: (o.server + p.server) / 2}
}

// measure makes the pods and runs a scheduler until all are bound. What counts is the time between the first and the last.
func (b *bench) measure(side, request, limit string) outcome {
	b.Helper()

	b.runs++
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()

	b.makePods(ctx, request, limit)
	bound := b.follow(ctx)

	p, err := process.Start(process.Spec{Name: side, Path: b.binary, Args: b.schedulerArgs(side), LastLines: 40})
	if err != nil {
		b.Fatal(err)
	}

	var first, last time.Time
	server := b.control.PID(controlplane.APIServer)
	var used, served time.Duration
	for seen := 0; seen < b.size.pods; {
		select {
		case last = <-bound:
			seen++

			if seen == 1 {
				first = last
				used = b.cpuTime(p.PID())
				served = b.cpuTime(server)
			}

		case <-p.Done():
			b.Fatalf("the scheduler ended: %v\n%s", p.Err(), strings.Join(p.LastLines(), "\n"))
		case <-ctx.Done():
			b.Fatalf("%d pods are bound, want %d\n%s", seen, b.size.pods, strings.Join(p.LastLines(), "\n"))
		}
	}

	used = b.cpuTime(p.PID()) - used
	served = b.cpuTime(server) - served

	if err := p.Stop(ctx); err != nil {
		b.Fatal(err)
	}

	b.removePods(ctx)
	others := float64(b.size.pods - 1)
	return outcome{rate: others / last.Sub(first).Seconds(), scheduler: used.Seconds() * 1000 / others, server: served.Seconds() * 1000 / others}
}

// cpuTime is what a process has used, of user and system time, in ticks of 10 ms (proc(5)).
func (b *bench) cpuTime(pid int) time.Duration {
	b.Helper()

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}

	// The fields after the name, which is in parentheses and may hold blanks; the first of them is the third.
	rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))

	user, errU := strconv.Atoi(rest[11])
	system, errS := strconv.Atoi(rest[12])
	if err := errors.Join(errU, errS); err != nil {
		b.Fatal(err)
	}

	return time.Duration(user+system) * 10 * time.Millisecond
}

// follow returns a channel with the observation time of each pod that is bound from now on. It uses an informer, because
// an API server under load terminates slow watches.
func (b *bench) follow(ctx context.Context) <-chan time.Time {
	b.Helper()

	bound := make(chan time.Time, b.size.pods)
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace("default"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))

	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { bound <- time.Now() }}); err != nil {
		b.Fatal(err)
	}

	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.Fatal("the informer of pods did not sync, want a synced cache")
	}

	return bound
}

// schedulerArgs writes the configuration of a side.
func (b *bench) schedulerArgs(side string) []string {
	b.Helper()

	plugins := ""
	if side == "crane" {
		plugins = `  plugins:
    multiPoint:
      enabled: [{name: Dynamic, weight: 5}, {name: NodeResourceTopologyMatch, weight: 2}]
  pluginConfig:
  - name: Dynamic
    args: {policyConfigPath: ` + filepath.Join(b.dir, "policy.yaml") + `, explainAddress: none}
`
	}

	file := filepath.Join(b.dir, side+".yaml")
	content := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: ` + b.control.Kubeconfig() + `, qps: 5000, burst: 5000, contentType: application/vnd.kubernetes.protobuf}
profiles:
- schedulerName: default-scheduler
` + plugins

	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}

	return []string{"--config=" + file, "--secure-port=0", "--feature-gates=OpportunisticBatching=false"}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// interval returns the order statistics that hold the median with at least 95 % (binomial; with fewer than 6 values these
// are the extremes, which hold it with less).
func interval(v []float64) (low, high float64) {
	s := slices.Sorted(slices.Values(v))
	n := len(s)

	// P(at most rank of n values lie below the median)
	rank := 0

	below := math.Pow(0.5, float64(n))
	for p := below; ; rank++ {
		p *= float64(n-rank) / float64(rank+1)
		if 2*(below+p) > 0.05 || rank+1 >= n/2 {
			break
		}

		below += p
	}

	return s[rank], s[n-1-rank]
}

// TestInterval pins known ranks: of 10 values the second and ninth hold the median with 97.9 %, of 20 the sixth and
// fifteenth with 95.9 %.
func TestInterval(t *testing.T) {
	for n, want := range map[int][2]float64{1: {1, 1}, 5: {1, 5}, 6: {1, 6}, 10: {2, 9}, 20: {6, 15}} {
		var v []float64
		for i := range n {
			v = append(v, float64(i+1))
		}

		if low, high := interval(v); low != want[0] || high != want[1] {
			t.Errorf("%d values: ranks %v to %v, want %v", n, low, high, want)
		}
	}
}
