// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/playground/demo"
)

// nodePrefix is the prefix of a simulated node in a scenario, as in node/node-03.
const nodePrefix = "node/"

// A command that is shown until its output has a text is repeated at this interval, for this long.
const (
	showInterval = 2 * time.Second
	showTimeout  = 2 * time.Minute
)

// executor runs the steps of a scenario on a playground.
type executor struct{ *playground }

var _ demo.Executor = executor{}

// Stop implements demo.Executor.
func (e executor) Stop(ctx context.Context, component string) error {
	switch component {
	case componentPrometheus:
		if e.prometheus == nil {
			return notStarted(component)
		}

		return e.prometheus.Stop()

	case componentCraned, componentCraneScheduler, componentMetricAdapter:
		child, ok := e.childOf(component)
		if !ok {
			return notStarted(component)
		}

		return child.process.Stop(ctx)

	case componentAPIServer, componentControllerManager, componentScheduler:
		return e.control.StopComponent(ctx, controlplane.Component(component))
	}

	// A node is disconnected, not removed: its object and its pods stay in the API.
	if node, ok := strings.CutPrefix(component, nodePrefix); ok {
		return e.fleet.FailNode(node)
	}

	return unknownComponent(component)
}

// Start implements demo.Executor.
func (e executor) Start(ctx context.Context, component string) error {
	switch component {
	case componentPrometheus:
		if e.prometheus == nil {
			return notStarted(component)
		}

		return e.prometheus.Start()

	case componentCraned, componentCraneScheduler, componentMetricAdapter:
		child, ok := e.childOf(component)
		if !ok {
			return notStarted(component)
		}

		// The process ended with Stop, so the same specification starts a new one.
		return e.launch(child.spec)

	case componentAPIServer, componentControllerManager, componentScheduler:
		return e.control.StartComponent(ctx, controlplane.Component(component))
	}

	if node, ok := strings.CutPrefix(component, nodePrefix); ok {
		return e.fleet.RecoverNode(node)
	}

	return unknownComponent(component)
}

// Kill implements demo.Executor.
func (e executor) Kill(_ context.Context, component string) error {
	pid, ok := e.pids()[component]
	if !ok || component == "playground" {
		return fmt.Errorf("killing %s: no such child process", component)
	}

	return syscall.Kill(pid, syscall.SIGKILL)
}

// notStarted returns the error for a component that --only excludes.
func notStarted(component string) error {
	return fmt.Errorf("%s does not run in this playground: --only excludes it", component)
}

func unknownComponent(name string) error {
	return fmt.Errorf("unknown component %q: want one of %s, or %sNAME", name, strings.Join(components(), ", "), nodePrefix)
}

// Apply implements demo.Executor.
func (e executor) Apply(ctx context.Context, manifest string) error {
	return applyYAML(ctx, e.applier, manifest)
}

// Show implements demo.Executor: it runs kubectl and prints the command and its output. A failure of kubectl, for
// example while the API server is down, is printed and not returned; so is a missing kubectl.
func (e executor) Show(ctx context.Context, args []string, until string) error {
	kubectl, err := findKubectl(e.options.BinDir)
	if err != nil {
		e.console.resultf("$ kubectl %s\n(not run: %v)", quoteArgs(args), err)
		return nil
	}

	output, err := repeatUntil(ctx, until, func() []byte {
		output, failure := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", e.control.Kubeconfig()}, args...)...).CombinedOutput()
		if failure != nil {
			output = fmt.Appendf(output, "(%v)\n", failure)
		}

		return output
	})

	e.console.resultf("$ kubectl %s\n%s", quoteArgs(args), output)
	return err
}

// repeatUntil returns the output of the first run that matches the regular expression, empty for any. It returns the last output and an
// error when none matches within showTimeout.
func repeatUntil(ctx context.Context, until string, run func() []byte) ([]byte, error) {
	pattern, err := regexp.Compile(until)
	if err != nil {
		return nil, fmt.Errorf("parsing until: %w", err)
	}

	var output []byte
	err = wait.PollUntilContextTimeout(ctx, showInterval, showTimeout, true, func(context.Context) (bool, error) {
		output = run()
		return pattern.Match(output), nil
	})

	// The caller's cancellation is no failure of the command.
	switch {
	case ctx.Err() != nil:
		return output, ctx.Err()
	case err != nil:
		return output, fmt.Errorf("the output did not match %q within %s", until, showTimeout)
	}

	return output, nil
}

// Policy implements demo.Executor.
func (e executor) Policy(_ context.Context, content string) error {
	// Rename replaces the file atomically, so that concurrent readers read one complete version.
	next := policyPath(e.dir) + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}

	return os.Rename(next, policyPath(e.dir))
}

// Crane implements demo.Executor: it runs crane and prints the command and its output. A failure of the command is
// printed and not returned.
func (e executor) Crane(ctx context.Context, args []string) error {
	full := make([]string, len(args))
	for i, a := range args {
		full[i] = strings.ReplaceAll(a, "{scheduler}", "http://"+e.explainAddress)
	}

	path := filepath.Join(e.options.BinDir, "crane")
	cmd := exec.CommandContext(ctx, path, full...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.control.Kubeconfig())
	if e.prometheus != nil {
		cmd.Env = append(cmd.Env, "CRANE_PROMETHEUS_URL="+e.prometheus.URL())
	}

	output, err := cmd.CombinedOutput()
	if err != nil {
		output = fmt.Appendf(output, "(%v)\n", err)
	}

	e.console.resultf("$ crane %s\n%s", quoteArgs(full), output)
	return ctx.Err()
}

// quoteArgs quotes and joins arguments for a shell, so that a printed command can be run again.
func quoteArgs(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'`$&|;<>()*?[]{}\\!#~") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}

	return strings.Join(out, " ")
}

// Say implements demo.Executor.
func (e executor) Say(text string) { e.console.resultf("%s", text) }

func findKubectl(binDir string) (string, error) {
	if path, err := exec.LookPath(filepath.Join(binDir, "kubectl")); err == nil {
		return path, nil
	}

	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", fmt.Errorf("%w (make tools builds it)", err)
	}

	return path, nil
}
