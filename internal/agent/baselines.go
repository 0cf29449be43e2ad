// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"time"

	"github.com/go-logr/logr"

	"crane.io/crane/internal/agent/baselines"
	"crane.io/crane/pkg/qos"
)

const (
	// baselinesFile is the file of the state directory that has what is usual with pods.
	baselinesFile = "baselines.json"
	// dryRunBaselinesFile is that of a dry run, which writes nothing that an agent reads which acts: both may run on one node.
	dryRunBaselinesFile = "baselines-dry-run.json"
)

// newBaselineStore keeps what is usual with pods for the next agent; nil where it cannot be told whether the host is started anew in between. A
// dry run makes no directory for it, keeps it in a file of its own, and reads the other one as well.
func (o *Options) newBaselineStore(log logr.Logger) *baselines.Store {
	boot, err := baselines.BootID(o.hostRoot())
	if err != nil {
		log.Info("What is usual with pods is not kept for the next agent", "why", err.Error())
		return nil
	}
	config := baselines.Config{Path: filepath.Join(o.StateDir, baselinesFile), BootID: boot, Mkdir: !o.DryRun, Log: log}
	if o.DryRun {
		config.AlsoRead, config.Path = config.Path, filepath.Join(o.StateDir, dryRunBaselinesFile)
	}
	return baselines.New(config)
}

// restoredState is a state that knows what an agent has learnt on this host, if any has.
func (o *Options) restoredState(log logr.Logger, now time.Time) *qos.State {
	state := &qos.State{}
	if usual := o.newBaselineStore(log); usual != nil {
		list, err := usual.Load(now)
		if err != nil {
			log.Info("What is usual with pods is not known", "why", err.Error())
		}
		state.RestoreBaselines(list)
	}
	return state
}

// loadBaselines takes over what an agent before this one has learnt, and keeps for the next what this one does. It returns who writes it down,
// which stops after the loop.
func (l *loop) loadBaselines(usual *baselines.Store) []Manager {
	if usual == nil {
		return nil
	}
	l.baselines = usual
	list, err := usual.Load(l.clock.Now())
	if err != nil {
		l.log.Info("What is usual with pods has to be learnt anew", "why", err.Error())
	}
	l.state.RestoreBaselines(list)
	return []Manager{usual}
}

// saveBaselines passes on what is usual with pods, once a minute and at the end.
func (l *loop) saveBaselines(atEnd bool) {
	if now := l.clock.Now(); l.baselines != nil && (atEnd || l.baselines.Due(now)) {
		l.baselines.Save(l.state.Baselines(), now)
	}
}
