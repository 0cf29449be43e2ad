// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRecommendEvidence(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	run := func(args ...string) (string, error) {
		out, _, err := execute(t, append([]string{"recommend", "--from", dir}, args...)...)
		return out, err
	}

	out, err := run("-o", "json", "--evidence")
	if err != nil {
		t.Fatal(err)
	}

	var report jsonReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}

	replay := report.Workloads[0].Containers[0].CPU.Replay
	if replay == nil || replay.Days != 3 || len(replay.Outcomes) != 5 || replay.Outcomes[0].Violation != 0 || len(replay.Curve) == 0 {
		t.Errorf("replay = %+v, want 3 days, 5 outcomes, none above the request, and a curve", replay)
	}
	if out, err = run("-o", "json"); err != nil || strings.Contains(out, `"replay"`) {
		t.Errorf("recommend without --evidence: %v, want no replay in the output", err)
	}
	if _, err = run("--evidence"); err == nil || !strings.Contains(err.Error(), "--output json") {
		t.Errorf("--evidence with a table: error %v, want which outputs it requires", err)
	}
}
