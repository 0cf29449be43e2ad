// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Migration moves a cluster from gocrane to Crane.
type Migration struct {
	Client client.Client
	// ServerVersion is the version of the API server.
	ServerVersion string
	Clock         clock.Clock
	// StateFile is the path of the state file of the operator; empty for the default, which follows from the cluster.
	StateFile string
	// Namespaces are those of gocrane, or of Crane where it is removed, as the operator names them; empty for those that are proven.
	Namespaces []string
	// Timeout bounds each wait for pods and definitions.
	Timeout time.Duration
	// Log is called with each step.
	Log func(format string, args ...any)
}

// ErrPaused is returned where a run stops before a step that needs the consent of the user.
var ErrPaused = errors.New("paused")

func (m *Migration) env(dryRun bool, s *state) *env {
	e := &env{
		client:  m.Client,
		clock:   m.Clock,
		timeout: m.Timeout,
		dryRun:  dryRun,
		log:     m.Log,
	}

	if dryRun {
		e.client = client.NewDryRunClient(m.Client)
	}
	if s != nil {
		e.originals = s.originals()
	}

	return e
}

// Plan is what a run would do.
type Plan struct {
	Steps    []PlannedStep `json:"steps"`
	Settings Settings      `json:"settings"`
	Findings []Finding     `json:"findings,omitempty"`
}

// PlannedStep is a step of a plan.
type PlannedStep struct {
	Name       string    `json:"name"`
	Purpose    string    `json:"purpose"`
	Pause      bool      `json:"pause,omitempty"`
	State      StepState `json:"state"`
	Operations []string  `json:"operations"`
}

// Plan returns the steps of the recorded migration, or of one that would start now.
func (m *Migration) Plan(ctx context.Context, o Options, manifests []*Object) (*Plan, error) {
	j, err := m.open(ctx)
	if err != nil {
		return nil, err
	}

	p := &Plan{}
	var s *state
	if j != nil {
		s = j.file.State
		o = j.Options
	} else {
		s, err = m.read(ctx, o, manifests, p)
	}

	if err != nil {
		return nil, err
	}

	_, path, err := m.location(ctx)
	if err != nil {
		return nil, err
	}

	from := "gocrane"
	if o.Away {
		from = "Crane"
	}

	p.Steps = []PlannedStep{{
		Name:       stepBackup,
		Purpose:    fmt.Sprintf("everything of %s, in %s", from, path),
		State:      StepPending,
		Operations: []string{fmt.Sprintf("store %d objects", len(s.Items))},
	}}

	if j != nil {
		p.Steps[0].State = j.step(stepBackup).State
	}

	// The backup comes first; the other steps follow from the state.
	for _, st := range steps(s, o) {
		planned := PlannedStep{
			Name:    st.name,
			Purpose: st.purpose,
			Pause:   st.pause,
			State:   StepPending,
		}

		if j != nil {
			planned.State = j.step(st.name).State
		}

		for _, op := range st.operations {
			planned.Operations = append(planned.Operations, op.String())
		}

		p.Steps = append(p.Steps, planned)
	}

	return p, nil
}

// read reads the cluster and checks that Crane may be installed, or removed.
func (m *Migration) read(ctx context.Context, o Options, manifests []*Object, p *Plan) (*state, error) {
	if o.Away {
		return m.gatherAway(ctx, o, p)
	}

	return m.gather(ctx, o, manifests, p)
}

// gather reads the cluster and checks that a migration may start.
func (m *Migration) gather(ctx context.Context, o Options, manifests []*Object, p *Plan) (*state, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}

	inv, err := ReadInventory(ctx, m.Client, m.Namespaces...)
	if err != nil {
		return nil, err
	}

	if err := inv.Proven(); err != nil {
		return nil, err
	}

	if !inv.Installed() {
		return nil, errors.New("gocrane is not installed")
	}

	if len(inv.Unreadable) > 0 {
		return nil, fmt.Errorf("a backup would be incomplete: %v", inv.Unreadable)
	}

	p.Settings = translate(inv)
	p.Findings = findings(inv, m.ServerVersion)
	if err := undecided(p.Findings, o); err != nil {
		return nil, fmt.Errorf("decisions are missing:\n%w", err)
	}

	// Manifests of the operator have their settings already.
	if manifests == nil {
		manifests, err = builtinManifests(o)
		if err != nil {
			return nil, err
		}

		manifests = p.Settings.apply(manifests)
	}

	if err := checkManifests(manifests); err != nil {
		return nil, err
	}

	return m.newState(ctx, inv, manifests)
}

// newState collects what the steps are made of.
func (m *Migration) newState(ctx context.Context, inv *Inventory, manifests []*Object) (*state, error) {
	s := &state{Desired: manifests, Metrics: policyMetrics(inv.others["ConfigMap"], inv.Namespaces), Requested: map[string][]string{}}
	seen := map[Ref]bool{}
	for _, item := range inv.Items {
		if !item.stored() {
			continue
		}

		seen[item.Ref] = true
		s.Items = append(s.Items, storedItem{item.Component, item.Fate, item.object})
	}

	// Objects of others with names of Crane's manifests are replaced, and so they are stored for an undo.
	e := m.env(false, nil)
	for _, o := range manifests {
		if seen[RefOf(o)] {
			continue
		}

		now, err := e.get(ctx, RefOf(o))
		if err != nil {
			return nil, err
		}

		if now != nil && isToken(now) {
			return nil, fmt.Errorf("replacing %s: it is a token, which a backup never contains", RefOf(now))
		}

		if now != nil {
			s.Others = append(s.Others, now)
		}
		if o.GetKind() == "ConfigMap" && o.GetName() == "crane-node-load-policy" {
			s.Continued = append(s.Continued, metricsOf(o)...)
		}
	}

	s.Requested = inv.requested
	return s, nil
}

// Run starts a migration or continues the recorded one. It returns ErrPaused before a step that is to be confirmed, unless confirmed is true. With dryRun,
// the server checks all writes of the remaining steps and stores none.
func (m *Migration) Run(ctx context.Context, o Options, manifests []*Object, confirmed, dryRun bool) error {
	j, err := m.open(ctx)
	if err != nil {
		return err
	}

	switch {
	case j == nil:
		j, err = m.start(ctx, o, manifests, dryRun)
		if err != nil {
			return err
		}

	case j.Options.Away != o.Away:
		return fmt.Errorf("%s is in progress: end it with its own command and crane migrate finish, or with crane migrate undo", map[bool]string{true: "crane migrate away", false: "a migration from gocrane"}[j.Options.Away])
	case j.Phase == PhaseUndoing:
		return errors.New("an undo is in progress: end it with crane migrate undo")
	case j.Phase == PhaseMigrated:
		m.Log("every step is done")
		return nil
	}

	s := j.file.State
	return m.continueRun(ctx, m.env(dryRun, s), j, steps(s, j.Options), confirmed || dryRun)
}

// start records a new migration: its file first, without which its journal is of no use.
func (m *Migration) start(ctx context.Context, o Options, manifests []*Object, dryRun bool) (*Journal, error) {
	o.Manifests = manifests != nil
	s, err := m.read(ctx, o, manifests, &Plan{})
	if err != nil {
		return nil, err
	}

	f, err := m.newStateFile(ctx, o, s)
	if err != nil {
		return nil, err
	}

	j := f.journal(StepPending)
	m.Log("step %s: %d objects in %s", stepBackup, len(s.Items), f.path)

	if dryRun {
		return j, nil
	}

	// The file is inactive until the journal is written.
	if err := f.write(f.path + inactive); err != nil {
		return nil, err
	}

	if err := j.save(ctx, m.env(false, s)); err != nil {
		return nil, err
	}

	return j, f.activate()
}

func (m *Migration) continueRun(ctx context.Context, e *env, j *Journal, all []step, confirmed bool) error {
	if err := j.set(ctx, e, stepBackup, StepDone); err != nil {
		return err
	}

	for _, st := range all {
		if j.step(st.name).State == StepDone {
			continue
		}

		if st.pause && !confirmed {
			if err := j.setPhase(ctx, e, PhasePaused); err != nil {
				return err
			}

			return fmt.Errorf("%w before %s (%s): look at the cluster, then %s --continue, or crane migrate undo", ErrPaused, st.name, st.purpose, command(j.Options))
		}

		if err := m.runStep(ctx, e, j, st); err != nil {
			return fmt.Errorf("step %s: %w", st.name, err)
		}
	}

	return j.setPhase(ctx, e, PhaseMigrated)
}

// command returns the command that continues a migration.
func command(o Options) string {
	if o.Away {
		return "crane migrate away run"
	}

	return "crane migrate run"
}

func (m *Migration) runStep(ctx context.Context, e *env, j *Journal, st step) error {
	if err := j.setPhase(ctx, e, PhaseRunning); err != nil {
		return err
	}

	if err := j.set(ctx, e, st.name, StepStarted); err != nil {
		return err
	}

	m.Log("step %s: %s", st.name, st.purpose)
	for _, op := range st.operations {
		if err := op.do(ctx, e); err != nil {
			return err
		}
	}

	return j.set(ctx, e, st.name, StepDone)
}

// Undo brings gocrane back: it undoes the steps in reverse order and removes the records.
func (m *Migration) Undo(ctx context.Context) error {
	j, err := m.open(ctx)
	if err != nil {
		return err
	}

	if j == nil {
		return errNoMigration
	}

	e := m.env(false, j.file.State)
	if err := j.setPhase(ctx, e, PhaseUndoing); err != nil {
		return err
	}

	for _, st := range slices.Backward(steps(j.file.State, j.Options)) {
		// A step that was only started may have changed something.
		if state := j.step(st.name).State; state != StepDone && state != StepStarted {
			continue
		}

		m.Log("undo step %s", st.name)
		for _, op := range slices.Backward(st.operations) {
			if err := op.undo(ctx, e); err != nil {
				return fmt.Errorf("undo step %s: %w", st.name, err)
			}
		}

		if err := j.set(ctx, e, st.name, StepUndone); err != nil {
			return err
		}
	}

	return m.forget(ctx, e, j)
}

// forget removes the records.
func (m *Migration) forget(ctx context.Context, e *env, j *Journal) error {
	if err := j.file.deactivate(); err != nil {
		return err
	}

	if err := e.remove(ctx, journalRef(), propagateDefault); err != nil {
		return err
	}

	return j.file.remove()
}

// Recorded returns the journal of the cluster; nil if there is none. unverified is the reason why it may not be that of the state file on this machine.
func (m *Migration) Recorded(ctx context.Context) (j *Journal, unverified, err error) {
	j, err = readJournal(ctx, m.Client)
	if err != nil || j == nil {
		return nil, nil, err
	}

	_, unverified = m.open(ctx)
	return j, unverified, nil
}

// Finish removes the backup and the journal. There is no way back afterward.
func (m *Migration) Finish(ctx context.Context) error {
	j, err := m.open(ctx)
	if err != nil {
		return err
	}

	if j == nil {
		return errNoMigration
	}

	if j.Phase != PhaseMigrated {
		var open []string
		for _, r := range j.Steps {
			if r.State != StepDone {
				open = append(open, r.Name)
			}
		}

		return fmt.Errorf("the migration is %s; not done: %s", j.Phase, strings.Join(open, ", "))
	}

	return m.forget(ctx, m.env(false, nil), j)
}
