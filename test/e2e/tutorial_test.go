// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"crane.io/crane/test/consolepage"
)

const (
	// tutorialData is the data directory that the tutorial names.
	tutorialData = "/tmp/crane-playground"

	faultsDemo = `make playground ARGS="--demo faults"`
)

// TestFirstHour runs the commands of docs/tutorials/first-hour.md as printed, in one shell, up to the demonstrations, which have tests of
// their own, and then those of docs/tutorials/first-day-on-a-cluster.md that need no installation. Each command must succeed, print what the
// page shows, and leave no Warning event of Crane.
func TestFirstHour(t *testing.T) {
	text, demos, found := strings.Cut(tutorial(t, "first-hour.md"), "## 7. Watch demonstrations")
	if !found || !strings.Contains(demos, "--demo all") {
		t.Fatal("the section with the demonstrations is missing, want one with --demo all")
	}

	commands := consolepage.Commands(text)
	const first = `make playground ARGS="--data-dir ` + tutorialData + `"`
	if len(commands) < 15 || commands[0].Line != first {
		t.Fatalf("commands %q, want %s first", commands, first)
	}

	started := time.Now()
	s := start(t) // make builds the binaries, which CRANE_BIN has
	t.Logf("%.1f s from the start to the first recommendations", time.Since(started).Seconds())
	checkAnswer(t, commands[0], s.output())
	s.shell(t, slices.Concat(commands[1:], firstDayCommands(t)))

	var events struct {
		Items []struct {
			Type, Reason, Message, ReportingComponent string
			Source                                    struct{ Component string }
			InvolvedObject                            struct{ Kind, Namespace, Name string }
		}
	}

	if err := json.Unmarshal([]byte(s.kubectl(t, "get", "events", "-A", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}

	crane := 0
	for _, e := range events.Items {
		component := e.ReportingComponent + e.Source.Component
		if !strings.Contains(component, "crane") && !strings.Contains(component, "metric-adapter") {
			continue
		}

		crane++

		if e.Type == "Warning" {
			t.Errorf("Warning event of %s on %s %s/%s: %s: %s, want none", component, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}

	if crane == 0 {
		t.Errorf("none of %d events is of Crane, want some", len(events.Items))
	}
	s.interrupt(t)
}

// tutorial returns the text of a tutorial.
func tutorial(t *testing.T, name string) string {
	t.Helper()

	page, err := os.ReadFile("../../docs/tutorials/" + name)
	if err != nil {
		t.Fatal(err)
	}

	return string(page)
}

// firstDayCommands returns the commands of the tutorial about the first day that read the cluster: builds and installations have tests of their own.
func firstDayCommands(t *testing.T) []consolepage.Command {
	t.Helper()

	var commands []consolepage.Command
	for _, c := range consolepage.Commands(tutorial(t, "first-day-on-a-cluster.md")) {
		if strings.HasPrefix(c.Line, "make ") || strings.HasPrefix(c.Line, "helm ") {
			continue
		}

		c.Line = strings.TrimPrefix(c.Line, "bin/")
		commands = append(commands, c)
	}

	if len(commands) < 7 {
		t.Fatalf("%d commands of the first day read the cluster, want 7 or more: %v", len(commands), commands)
	}

	return commands
}

// checkAnswer compares the answer that a page prints with the real one.
func checkAnswer(t *testing.T, command consolepage.Command, answer string) {
	t.Helper()

	if missing := command.Missing(answer); len(missing) > 0 {
		t.Errorf("$ %s answers\n%s\nwant lines of the shape of these, as the page prints:\n%s", command.Line, answer, strings.Join(missing, "\n"))
	}
}

// checkFaults compares what the demonstration of faults printed with the tutorial.
func checkFaults(t *testing.T, output string) {
	t.Helper()

	commands := consolepage.Commands(tutorial(t, "first-hour.md"))
	i := slices.IndexFunc(commands, func(c consolepage.Command) bool { return c.Line == faultsDemo })
	if i < 0 {
		t.Fatalf("the tutorial has no command %s", faultsDemo)
	}

	checkAnswer(t, commands[i], output)
}

// shell runs commands in one shell in the directory of the repository, logs how long each takes, and compares their answers.
func (s *session) shell(t *testing.T, commands []consolepage.Command) {
	t.Helper()

	reports := t.TempDir()
	var script strings.Builder
	script.WriteString("set -o pipefail\n")

	paths := strings.NewReplacer(tutorialData, s.state, "/tmp/", reports+"/")
	for i, c := range commands {
		fmt.Fprintf(&script, "echo '##' %d\nSECONDS=0\n%s || { echo \"exit code $?\"; exit 1; }\necho \"## $SECONDS s\"\n", i, paths.Replace(c.Line))
	}

	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()

	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = "../.."
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), "HOME="+reports, "PATH="+filepath.Dir(binary(t, "kubectl"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()

	answers := regexp.MustCompile(`(?m)^## \d+$`).Split(string(out), -1)[1:]
	for i, answer := range answers {
		t.Logf("$ %s%s", commands[i].Line, answer)
		checkAnswer(t, commands[i], answer)
	}

	if err != nil || len(answers) != len(commands) {
		t.Fatalf("%d commands were answered, want %d: %v", len(answers), len(commands), err)
	}

	if page, err := os.ReadFile(filepath.Join(reports, "crane-report.html")); err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("the report has %d bytes, want it to end with </html>: %v", len(page), err)
	}
}
