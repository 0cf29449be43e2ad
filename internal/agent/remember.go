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
	// dryBaselinesFile is that of a dry run, which writes nothing that an agent reads which acts: both may run on one node.
	dryBaselinesFile = "baselines-dry-run.json"
)

// newKeeper keeps what is usual with pods for the next agent; nil where it cannot be told whether the host is started anew in between. A
// dry run makes no directory for it, keeps it in a file of its own, and reads the other one as well.
func (o *Options) newKeeper(log logr.Logger) *baselines.Keeper {
	boot, err := baselines.BootID(o.root())
	if err != nil {
		log.Info("What is usual with pods is not kept for the next agent", "why", err.Error())
		return nil
	}
	config := baselines.Config{Path: filepath.Join(o.StateDir, baselinesFile), Boot: boot, Mkdir: !o.DryRun, Log: log}
	if o.DryRun {
		config.Reads, config.Path = config.Path, filepath.Join(o.StateDir, dryBaselinesFile)
	}
	return baselines.New(config)
}

// recall is a state that knows what an agent has learnt on this host, if any has.
func (o *Options) recall(log logr.Logger, now time.Time) *qos.State {
	state := &qos.State{}
	if usual := o.newKeeper(log); usual != nil {
		list, err := usual.Load(now)
		if err != nil {
			log.Info("What is usual with pods is not known", "why", err.Error())
		}
		state.Remember(list)
	}
	return state
}

// remember takes over what an agent before this one has learnt, and keeps for the next what this one does. It returns who writes it down,
// which stops after the loop.
func (l *loop) remember(usual *baselines.Keeper) []Manager {
	if usual == nil {
		return nil
	}
	l.usual = usual
	list, err := usual.Load(l.clock.Now())
	if err != nil {
		l.log.Info("What is usual with pods has to be learnt anew", "why", err.Error())
	}
	l.state.Remember(list)
	return []Manager{usual}
}

// keep passes on what is usual with pods, once a minute and at the end.
func (l *loop) keep(atEnd bool) {
	if now := l.clock.Now(); l.usual != nil && (atEnd || l.usual.Due(now)) {
		l.usual.Keep(l.state.Baselines(), now)
	}
}
