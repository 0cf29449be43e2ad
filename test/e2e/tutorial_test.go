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
	"strings"
	"syscall"
	"testing"
	"time"
)

// tutorialData is the data directory that the tutorial names.
const tutorialData = "/tmp/crane-playground"

// TestFirstHour runs the commands of docs/tutorials/first-hour.md as printed, in one shell, up to the demonstrations, which have tests of
// their own. Each command must succeed, print nothing twice to copy from, and leave no Warning event of Crane.
func TestFirstHour(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorials/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}

	text, demos, found := strings.Cut(string(page), "## 7. Watch demonstrations")
	if !found || !strings.Contains(demos, "--demo all") {
		t.Fatal("the section with the demonstrations is missing, want one with --demo all")
	}

	commands := printedCommands(text)
	const first = `make playground ARGS="--data-dir ` + tutorialData + `"`
	if len(commands) < 15 || commands[0] != first {
		t.Fatalf("commands %q, want %s first", commands, first)
	}

	started := time.Now()
	s := start(t) // make builds the binaries, which CRANE_BIN has
	t.Logf("%.1f s from the start to the first recommendations", time.Since(started).Seconds())
	s.shell(t, commands[1:])

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

// printedCommands returns the commands of the console blocks of a page.
func printedCommands(page string) []string {
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, strings.TrimSpace(command))
			}
		}
	}

	return commands
}

// shell runs commands in one shell in the directory of the repository, and logs how long each takes.
func (s *session) shell(t *testing.T, commands []string) {
	t.Helper()

	reports := t.TempDir()
	var script strings.Builder
	script.WriteString("set -o pipefail\n")

	paths := strings.NewReplacer(tutorialData, s.state, "/tmp/", reports+"/")
	for i, c := range commands {
		c = paths.Replace(c)
		fmt.Fprintf(&script, "echo '##' %d\nSECONDS=0\n%s || { echo \"exit code $?\"; exit 1; }\necho \"## $SECONDS s\"\n", i, c)
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
		t.Logf("$ %s%s", commands[i], answer)
	}

	if err != nil || len(answers) != len(commands) {
		t.Fatalf("%d commands were answered, want %d: %v", len(answers), len(commands), err)
	}

	if page, err := os.ReadFile(filepath.Join(reports, "crane-report.html")); err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("the report has %d bytes, want it to end with </html>: %v", len(page), err)
	}
}
