// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/recording"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/pkg/qos"
)

// startRecording starts recording the loop's snapshots if a flag enables it, and returns the manager that writes them.
func (l *loop) startRecording(e environment) ([]Manager, error) {
	if e.Record == "" {
		return nil, nil
	}

	recorder, err := recording.New(recording.Config{
		Path:     e.Record,
		MaxBytes: e.RecordBytes,
		Clock:    e.clock,
		Log:      e.log,
		Beat:     e.heartbeats.Register("record"),
	})
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}

	l.recorder = recorder
	return []Manager{recorder}, nil
}

// replay replays a recording in its own time through the steps of the loop, without executing anything, and prints the changes.
func (o *Options) replay(out io.Writer) error {
	limits, err := o.limits()
	if err != nil {
		return err
	}

	file, err := os.Open(o.Replay)
	if err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	defer file.Close()

	p := &replayer{
		Options:  o,
		out:      out,
		limits:   limits,
		phases:   map[string]qos.Phase{},
		reported: map[string]bool{},
	}

	if o.Cluster.Rules != "" {
		set, err := o.Cluster.readRules()
		if err != nil {
			return err
		}

		p.rules = &set
	}

	// A recording of a killed agent lacks its end; what it has is replayed.
	err = recording.Read(file, p.replay)
	if errors.Is(err, recording.ErrTruncated) {
		fmt.Fprintf(out, "%s: %v\n", o.Replay, err)
		err = nil
	}

	if err != nil {
		return fmt.Errorf("--replay %s: %w", o.Replay, err)
	}

	if p.skipped > 0 {
		fmt.Fprintf(out, "skipped the first %d snapshots, for which the recording has no state of the cluster\n", p.skipped)
	}

	fmt.Fprintf(out, "%d snapshots over %s. Nothing was executed: each action is independent, on the node as recorded.\n", p.snapshots, p.at.Sub(p.first).Round(time.Second))
	return nil
}

// replayer replays snapshots.
type replayer struct {
	*Options

	out    io.Writer
	limits qos.Limits
	// rules are those of a file; nil for the recording's own.
	rules *ruleset.Set

	clusterState *cluster.State
	policy       qos.Policy
	signals      signals.SignalBuilder
	state        qos.State
	// avoided reports that new pods would be kept away.
	avoided bool

	first, at          time.Time
	snapshots, skipped int
	phases             map[string]qos.Phase
	// reported holds the actions of the previous snapshot by rule and target.
	reported map[string]bool
	// problems are those of the rules.
	problems map[string]bool
}

// replay replays one snapshot.
func (p *replayer) replay(e recording.Entry) error {
	p.snapshots++
	p.at = e.Snapshot.At

	if p.snapshots == 1 {
		p.first = p.at
	}
	if e.Cluster != nil {
		p.refreshPolicy(e.Cluster)
	}

	if p.clusterState == nil {
		p.skipped++
		return nil
	}

	plan := qos.Decide(&p.policy, p.signals.Build(e.Snapshot, p.newInventory(p.clusterState), p.avoided), &p.state)
	p.printChanges(&plan)
	return nil
}

// refreshPolicy applies a new state of the cluster.
func (p *replayer) refreshPolicy(current *cluster.State) {
	if p.rules != nil {
		current.Rules = *p.rules
		current.KnowsRules = true
		current.Problems = nil
	}

	if p.clusterState == nil {
		p.avoided = act.IsTainted(current.Node)
	}

	p.clusterState = current
	var problems []string
	p.policy, problems = nodePolicy(current, p.limits)
	for _, problem := range problems {
		if !p.problems[problem] {
			p.printf("cannot use a part of the rules: %s", problem)
		}
	}

	p.problems = map[string]bool{}
	for _, problem := range problems {
		p.problems[problem] = true
	}
}

func (p *replayer) printf(format string, args ...any) {
	fmt.Fprintf(p.out, "%s  %s\n", p.at.UTC().Format("2006-01-02T15:04:05.0Z"), fmt.Sprintf(format, args...))
}

// printChanges prints what changed with a plan.
func (p *replayer) printChanges(plan *qos.Plan) {
	for i := range plan.Rules {
		f := &plan.Rules[i]
		if p.phases[f.Rule] == f.Phase {
			continue
		}

		p.phases[f.Rule] = f.Phase
		if f.Phase == qos.Unknown {
			p.printf("rule %s: %s, %s", f.Rule, f.Phase, f.Reason)
			continue
		}

		p.printf("rule %s: %s, %s, threshold %s", f.Rule, f.Phase, qos.FormatValue(f.Value, f.Unit), qos.FormatValue(f.Threshold, f.Unit))
	}

	if plan.Avoid.Desired != p.avoided {
		p.avoided = plan.Avoid.Desired
		if p.avoided {
			p.printf("would keep new pods away: %s", plan.Avoid.Reason)
		} else {
			p.printf("would admit new pods again")
		}
	}

	// An action is planned at each snapshot; only the first of a series is printed.
	now := map[string]bool{}
	p.printActions(now, "would", plan.Actions)

	for _, v := range plan.Previews {
		p.printActions(now, "in preview would", v.Actions)
	}
	p.reported = now
}

// printActions prints the actions that were not in the previous plan.
func (p *replayer) printActions(now map[string]bool, would string, a qos.Actions) {
	printOnce := func(key, text string) {
		now[key] = true

		if !p.reported[key] {
			p.printf("%s %s", would, text)
		}
	}

	for _, t := range a.Throttles {
		printOnce("cpu "+t.Rule+t.ContainerID, fmt.Sprintf("throttle cpu of %s, container %s, from %s to %.3g cores (rule %s): %s", t.Pod, t.ContainerName, t.From, float64(t.To)/1000, t.Rule, t.Reason))
	}

	for _, t := range a.MemoryThrottles {
		printOnce("memory "+t.Rule+t.ContainerID, fmt.Sprintf("throttle memory of %s, container %s, from %s to %d bytes (rule %s): %s", t.Pod, t.ContainerName, t.From, int64(t.To), t.Rule, t.Reason))
	}

	for _, e := range a.Evictions {
		printOnce("evict "+e.Rule+e.Pod.UID, fmt.Sprintf("evict %s (rule %s): %s", e.Pod, e.Rule, e.Reason))
	}
}
