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
	// baselinesFile is the file in the state directory with the baselines of pods.
	baselinesFile = "baselines.json"
	// dryRunBaselinesFile is the file of a dry run, which may run beside an agent that acts and never writes the agent's files.
	dryRunBaselinesFile = "baselines-dry-run.json"
)

// newBaselineStore returns the store of the baselines; nil if reboots of the host cannot be detected. A dry run creates no directory,
// writes a file of its own and also reads the agent's file.
func (o *Options) newBaselineStore(log logr.Logger) *baselines.Store {
	boot, err := baselines.BootID(o.hostRoot())
	if err != nil {
		log.Error(err, "storing no baselines of pods")
		return nil
	}

	config := baselines.Config{
		Path:   filepath.Join(o.StateDir, baselinesFile),
		BootID: boot,
		Mkdir:  !o.DryRun,
		Log:    log,
	}

	if o.DryRun {
		config.AlsoRead = config.Path
		config.Path = filepath.Join(o.StateDir, dryRunBaselinesFile)
	}

	return baselines.New(config)
}

// restoredState returns a state with the baselines stored on this host.
func (o *Options) restoredState(log logr.Logger, now time.Time) *qos.State {
	state := &qos.State{}
	if store := o.newBaselineStore(log); store != nil {
		list, err := store.Load(now)
		if err != nil {
			log.Error(err, "loading the baselines of pods")
		}

		state.RestoreBaselines(list)
	}

	return state
}

// loadBaselines loads the stored baselines and returns the manager that stores new ones, which stops after the loop.
func (l *loop) loadBaselines(store *baselines.Store) []Manager {
	if store == nil {
		return nil
	}

	l.baselines = store
	list, err := store.Load(l.clock.Now())
	if err != nil {
		l.log.Error(err, "loading the baselines of pods; learning new ones")
	}

	l.state.RestoreBaselines(list)
	return []Manager{store}
}

// saveBaselines stores the baselines once a minute and at the end.
func (l *loop) saveBaselines(atEnd bool) {
	if now := l.clock.Now(); l.baselines != nil && (atEnd || l.baselines.Due(now)) {
		l.baselines.Save(l.state.Baselines(), now)
	}
}
