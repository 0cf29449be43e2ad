// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/bench/measure"
)

const (
	sampleInterval = 15 * time.Second
	// startUp is the time whose CPU `craned` keeps apart for each pod. The first reading of all histories is in it.
	startUp = 5 * time.Minute
	// workloadsPerScaler is the number of workloads for each EffectiveHorizontalPodAutoscaler.
	workloadsPerScaler = 20
)

// record runs the playground and writes DIR/cpu/NAME.csv, in cores, and DIR/memory/NAME.csv, resident bytes, for the processes of names.
func record(ctx context.Context, o options, dir string, names []string) (err error) {
	scenario := filepath.Join(dir, "scenario.yaml")
	if err := os.WriteFile(scenario, []byte(scenarioText(o)), 0o600); err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(dir, "playground.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	command := exec.CommandContext(ctx, filepath.Join(o.bin, "playground"), "--workloads", strconv.Itoa(o.workloads), "--nodes", strconv.Itoa(o.nodes),
		"--days", strconv.Itoa(o.days), "--demo", scenario)
	command.Stdout = log
	command.Stderr = log

	// SIGTERM lets the playground stop the processes that it has started.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	if err := command.Start(); err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	r := recorder{
		parent:    command.Process.Pid,
		names:     names,
		processes: map[int]*observed{},
		rows:      map[string][]string{},
	}

	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()

	for {
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("playground: %w, see %s", err, log.Name())
			}

			return r.write(dir)

		case <-ticker.C:
			if err := r.sample(time.Now()); err != nil {
				return errors.Join(err, command.Cancel(), <-ended)
			}
		}
	}
}

// scenarioText returns a scenario with an agent and EffectiveHorizontalPodAutoscalers that ends after the time of recording.
func scenarioText(o options) string {
	var b strings.Builder
	b.WriteString("description: requests of Crane's own processes\nagentNodes: 1\nsteps:\n- at: 0s\n  apply: |\n")

	for i := range o.workloads / workloadsPerScaler {
		if i > 0 {
			b.WriteString("    ---\n")
		}
		fmt.Fprintf(&b, scaled, i)
	}

	fmt.Fprintf(&b, "- at: %s\n  say: recorded\n", o.measured)
	return b.String()
}

// scaled is a Deployment with an EffectiveHorizontalPodAutoscaler.
const scaled = `    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: scaled-%[1]d, namespace: default}
    spec:
      replicas: 2
      selector: {matchLabels: {app: scaled-%[1]d}}
      template:
        metadata:
          labels: {app: scaled-%[1]d}
          annotations: {sim.crane.io/cpu: 20m, sim.crane.io/memory: 20Mi}
        spec:
          containers:
          - name: app
            image: pause:3.10
            resources: {requests: {cpu: 50m, memory: 32Mi}}
    ---
    apiVersion: autoscaling.crane.io/v1alpha1
    kind: EffectiveHorizontalPodAutoscaler
    metadata: {name: scaled-%[1]d, namespace: default}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled-%[1]d}
      minReplicas: 2
      maxReplicas: 4
      metrics:
      - type: Resource
        resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}
      prediction:
        predictionAlgorithm: {algorithmType: auto}
`

// recorder samples child processes.
type recorder struct {
	parent    int
	names     []string
	processes map[int]*observed
	rows      map[string][]string // by the path of the file
}

// observed is a process at its last sample.
type observed struct {
	name      string
	first, at time.Time
	cpu       time.Duration
}

func (r *recorder) sample(now time.Time) error {
	if err := r.find(now); err != nil {
		return err
	}

	for pid, p := range r.processes {
		cpu, cpuErr := measure.CPU(pid)
		memory, memoryErr := measure.Memory(pid, "VmRSS")
		if err := errors.Join(cpuErr, memoryErr); err != nil {
			if _, statErr := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "exe")); statErr != nil {
				delete(r.processes, pid) // It has ended.
				continue
			}

			return fmt.Errorf("%s: %w", p.name, err)
		}

		r.add(corev1.ResourceMemory, p.name, now, float64(memory))
		if !p.at.IsZero() && p.at.Sub(p.first) >= startUp {
			r.add(corev1.ResourceCPU, p.name, now, (cpu-p.cpu).Seconds()/now.Sub(p.at).Seconds())
		}

		p.cpu = cpu
		p.at = now
	}

	return nil
}

func (r *recorder) add(resourceName corev1.ResourceName, name string, at time.Time, value float64) {
	file := filepath.Join(string(resourceName), name+".csv")
	r.rows[file] = append(r.rows[file], fmt.Sprintf("%d,%g\n", at.Unix(), value))
}

// find adds the children of the parent that are to be observed.
func (r *recorder) find(now time.Time) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}

	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}

		status, err := os.ReadFile(filepath.Join(dir, "status"))
		exe, exeErr := os.Readlink(filepath.Join(dir, "exe"))
		if errors.Join(err, exeErr) != nil { // It has ended, or is a thread of the kernel.
			continue
		}

		name := filepath.Base(exe)
		if r.processes[pid] == nil && slices.Contains(r.names, name) && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", r.parent)) {
			r.processes[pid] = &observed{name: name, first: now}
		}
	}

	return nil
}

// write writes the files.
func (r *recorder) write(dir string) error {
	for file, rows := range r.rows {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}

		if err := os.WriteFile(path, []byte("ts,value\n"+strings.Join(rows, "")), 0o600); err != nil {
			return err
		}
	}

	return nil
}
