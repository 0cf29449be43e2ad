// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestAdoptionDemo: a workload is resized in place step by step, another is rolled back after an OOM kill, and an idle
// node is reported; each is visible by the printed command.
func TestAdoptionDemo(t *testing.T) {
	s := launchTemporary(t, "--once", "--demo", "adoption", "--nodes", "3", "--workloads", "8", "--days", "8")
	select {
	case <-s.done:
	case <-time.After(2 * bound):
		t.Fatalf("the demo has not ended after %s, want its end", 2*bound)
	}

	if s.err != nil {
		t.Fatalf("the playground ended with %v", s.err)
	}

	for _, c := range []struct{ what, command, want string }{
		{"what would be sent", "crane adopt generous", `(?s)1\. deployments/generous, .*2\. pods/generous-\S+/resize, .*"cpu":"600m"`},
		{"an idle node", "kubectl get recommendations -n crane-system", `(?m)^spare-01\s+Delete\s+\S.* Evidence: `},
		{"rolled back, with the pod that was there", "kubectl get pods -n shop -l app=touchy", `(?m)^touchy-\S+\s+512Mi\s+512Mi\s+[1-9]\d*\s+OOMKilled`},
		{"the kill on record", "kubectl get configmap oom-record", `"Container":"app".*"Owner":\{"apiVersion":"apps/v1","kind":"Deployment","name":"touchy"\}`},
		{"in place, in force, no restart", "kubectl get pods -n shop -l app=generous", `(?s)(generous-\S+\s+200m\s+128Mi\s+200m\s+0\s*){3}`},
		{"how far both have come", "kubectl get recommendations generous touchy", `(?s)generous\s+Auto\s+Resting\s+4\s+as recommended.*touchy\s+Auto\s+Held\s+1\s+rolled back, `},
		{"an event for each step", "kubectl get events -n shop", `(?s)(generous\s+AdoptionStep.*){4}touchy\s+AdoptionStep.*touchy\s+AdoptionRolledBack`},
		{"new pods too", "kubectl get pods -n shop -l app=generous", `(?s)(generous-\S+\s+200m\s+128Mi\s*){4}`},
		{"the way back", "kubectl wait pods -n shop -l app=generous", `(?s)(pod/generous-\S+ condition met\s*){4}`},
	} {
		if !regexp.MustCompile(c.want).MatchString(shown(s.output(), c.command)) {
			t.Errorf("%s: want %s behind `%s`", c.what, c.want, c.command)
		}
	}

	if said := shown(s.output(), "kubectl "); strings.Contains(said, "timed out") || strings.Contains(said, "(exit status") {
		t.Error("a command of the demo failed, want all commands to succeed")
	}
	s.checkGone(t)
}

// shown returns what the playground has printed for commands with this prefix.
func shown(output, command string) string {
	var out strings.Builder
	for _, part := range strings.Split(output, "\n$ ")[1:] {
		if strings.HasPrefix(part, command) {
			out.WriteString(part + "\n")
		}
	}

	return out.String()
}
