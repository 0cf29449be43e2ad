// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodescommand

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/realnode/cleanup"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/realnode/microvm"
)

const (
	// roundBound bounds a round.
	roundBound = 10 * time.Minute
	// idleTime is the duration of the measurement of the idle cost.
	idleTime = 20 * time.Second
)

// round is one start and stop of `nodes up`.
type round struct {
	startup, shutdown time.Duration
	boots             int // repeated boots of virtual machines after one hung
	err               error
}

// bench repeatedly starts and stops nodes and prints the durations and the machine's load.
func bench(o options, out io.Writer) (int, error) {
	fmt.Fprintf(out, "%d rounds of %d nodes (cgroup version %s), %d CPUs, load %s\n", o.rounds, o.nodes, kind(o), runtime.NumCPU(), load())
	before, err := listResources()
	if err != nil {
		return 1, err
	}

	var ups, downs []time.Duration
	failed, hung := 0, 0
	for i := range o.rounds {
		idle := io.Discard
		if i == 0 {
			idle = out
		}

		r := runRound(o, idle)
		hung += r.boots

		if r.err != nil {
			failed++
			fmt.Fprintf(out, "round %2d: FAILED after %s: %v\n", i+1, seconds(r.startup), r.err)
			continue
		}

		fmt.Fprintf(out, "round %2d: Ready after %s, gone after %s, load %s\n", i+1, seconds(r.startup), seconds(r.shutdown), load())
		ups = append(ups, r.startup)
		downs = append(downs, r.shutdown)
	}

	after, err := listResources()
	if err != nil {
		return 1, err
	}

	fmt.Fprintf(out, "Ready: %s\ngone:  %s\nfailed starts: %d of %d\n", spread(ups), spread(downs), failed, o.rounds)
	if hung > 0 {
		fmt.Fprintf(out, "boots of virtual machines that hung and were retried: %d\n", hung)
	}

	// Whatever exists now and did not before was left behind by a session.
	leaks := slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
	fmt.Fprintf(out, "left behind: %d %s\n", len(leaks), strings.Join(leaks, " "))

	if failed > 0 || len(leaks) > 0 {
		return 1, nil
	}

	return 0, nil
}

func kind(o options) string {
	if o.cgroup == 0 {
		return "of this machine"
	}

	return strconv.Itoa(o.cgroup)
}

// runRound starts `nodes up`, measures the start, and stops it with SIGINT.
func runRound(o options, idle io.Writer) (r round) {
	ctx, cancel := context.WithTimeout(context.Background(), roundBound)
	defer cancel()

	self, err := os.Executable()
	if err != nil {
		return round{err: err}
	}

	cmd := exec.CommandContext(ctx, self, "up", "--nodes", strconv.Itoa(o.nodes), "--cgroup", strconv.Itoa(o.cgroup),
		"--machine="+strconv.FormatBool(o.machine), "--cgroup-driver", o.driver, "--bin-dir", o.binDir)

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return round{err: err}
	}

	var progress bytes.Buffer
	cmd.Stderr = &progress
	begin := time.Now()

	if err := cmd.Start(); err != nil {
		return round{err: err}
	}

	// The last line of `nodes up` shows that the nodes are Ready.
	ready := false

	id := ""
	lines := bufio.NewScanner(stdout)
	for !ready && lines.Scan() {
		ready = strings.HasPrefix(lines.Text(), "Ctrl-C")
		if found := regexp.MustCompile(cleanup.Prefix + "[0-9a-f]+").FindString(lines.Text()); found != "" {
			id = found
		}
	}

	r.startup = time.Since(begin)
	if !ready {
		err := cmd.Wait()
		r.err = fmt.Errorf("the nodes did not become Ready: %w\n%s", err, progress.String())
		r.boots = strings.Count(progress.String(), microvm.RetryPrefix)

		return r
	}

	if idle != io.Discard {
		reportIdle(idle, id)
	}

	begin = time.Now()
	if r.err = cmd.Process.Signal(syscall.SIGINT); r.err == nil {
		_, _ = io.Copy(io.Discard, stdout)
		r.err = cmd.Wait()
		r.boots = strings.Count(progress.String(), microvm.RetryPrefix)
	}

	r.shutdown = time.Since(begin)
	return r
}

// reportIdle prints the memory and CPU use of each idle node's cgroup.
func reportIdle(out io.Writer, session string) {
	first := usage(session)
	time.Sleep(idleTime)

	second := usage(session)
	for _, name := range slices.Sorted(maps.Keys(second)) {
		u := second[name]
		cores := (u.cpu - first[name].cpu).Seconds() / idleTime.Seconds()
		fmt.Fprintf(out, "idle %s: %d MiB, %.3f cores (over %s)\n", name, u.memory>>20, cores, idleTime)
	}
}

// use is the use of a cgroup.
type use struct {
	cpu    time.Duration
	memory int64
}

// usage reads the cgroups of the nodes of a session.
func usage(session string) map[string]use {
	found := map[string]use{}
	host, err := hostcgroup.Detect()
	if err != nil {
		return found
	}

	read := func(dir, file string) int64 {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0
		}

		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			if err == nil {
				return n
			}
		}

		return 0
	}

	// CPU time and memory are in different hierarchies of version 1; a missing file counts as 0.
	hierarchies := host.V1
	if len(hierarchies) == 0 && host.Unified != nil {
		hierarchies = []hostcgroup.Hierarchy{*host.Unified}
	}

	for _, h := range hierarchies {
		dirs, err := filepath.Glob(filepath.Join(h.Own, session, "node-*"))
		if err != nil {
			continue
		}

		for _, dir := range dirs {
			u := found[filepath.Base(dir)]
			u.cpu += time.Duration(read(dir, "cpuacct.usage")) + time.Duration(read(dir, "cpu.stat"))*time.Microsecond*oneIf(h.Name == "")
			u.memory += read(dir, "memory.usage_in_bytes") + read(dir, "memory.current")
			found[filepath.Base(dir)] = u
		}
	}

	return found
}

// oneIf returns 1 for true. cpu.stat starts with usage_usec on version 2 only.
func oneIf(b bool) time.Duration {
	if b {
		return 1
	}

	return 0
}

// listResources lists the cgroups, directories, interfaces, mounts and processes that sessions may leave behind.
func listResources() ([]string, error) {
	host, err := hostcgroup.Detect()
	if err != nil {
		return nil, err
	}

	plan, err := host.Plan(cleanup.Prefix + "*")
	if err != nil {
		return nil, err
	}

	var found []string
	for _, pattern := range append(plan.Dirs, cleanup.BaseDir+"/*", filepath.Join(os.TempDir(), cleanup.Prefix+"*")) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", pattern, err)
		}

		found = append(found, paths...)
	}

	interfaces, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}

	found = append(found, interfaces...)
	for line := range strings.Lines(string(mounts)) {
		found = append(found, strings.Fields(line)[4])
	}

	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}

	for _, p := range programs {
		switch target, err := os.Readlink(p); {
		case err != nil: // exited, or a kernel thread
		case slices.Contains([]string{"nodekit", "kubelet", "containerd", "containerd-shim-runc-v2", "qemu-system-x86_64"}, filepath.Base(target)):
			found = append(found, "process:"+filepath.Base(filepath.Dir(p))+":"+filepath.Base(target))
		}
	}

	return found, nil
}

func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}

	first, _, _ := strings.Cut(string(content), " ")
	return first
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// spread formats measured durations.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}

	slices.Sort(d)
	return fmt.Sprintf("median %s, from %s to %s", seconds(d[len(d)/2]), seconds(d[0]), seconds(d[len(d)-1]))
}
