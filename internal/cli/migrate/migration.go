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
	j, err := FindJournal(ctx, m.Client)
	if err != nil {
		return nil, err
	}

	p := &Plan{}
	var s *state
	if j != nil && j.Chunks > 0 {
		s, err = loadState(ctx, m.Client, j)
		o = j.Options
	} else {
		s, err = m.read(ctx, o, manifests, p)
	}

	if err != nil {
		return nil, err
	}

	from := "gocrane"
	if o.Away {
		from = "Crane"
	}

	p.Steps = []PlannedStep{{stepBackup, fmt.Sprintf("everything of %s, in Secrets %s-backup-*", from, JournalName), false, StepPending, []string{fmt.Sprintf("store %d objects", len(s.Items))}}}
	if j != nil && j.Chunks > 0 {
		p.Steps[0].State = StepDone
	}

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

	inv, err := ReadInventory(ctx, m.Client)
	if err != nil {
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

	if manifests == nil {
		if manifests, err = builtinManifests(o); err != nil {
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
		if item.Kind == "Pod" || item.Kind == "ReplicaSet" {
			continue
		}

		seen[item.Ref] = true
		s.Items = append(s.Items, storedItem{item.Component, item.Fate, item.object})
	}

	e := m.env(false, nil)
	for _, o := range manifests {
		if seen[RefOf(o)] {
			continue
		}

		now, err := e.get(ctx, RefOf(o))
		if err != nil {
			return nil, err
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
	j, err := FindJournal(ctx, m.Client)
	if err != nil {
		return err
	}

	switch {
	case j == nil, j.Chunks == 0 && j.Phase == PhaseRunning:
		if j, err = m.start(ctx, j, o, manifests, dryRun); err != nil {
			return err
		}

		if dryRun {
			return nil
		}

	case j.Options.Away != o.Away:
		return fmt.Errorf("%s is in progress: end it with its own command and crane migrate finish, or with crane migrate undo", map[bool]string{true: "crane migrate away", false: "a migration from gocrane"}[j.Options.Away])
	case j.Phase == PhaseUndoing:
		return errors.New("an undo is in progress: end it with crane migrate undo")
	case j.Phase == PhaseMigrated:
		m.Log("every step is done")
		return nil
	}

	s, err := loadState(ctx, m.Client, j)
	if err != nil {
		return err
	}

	return m.continueRun(ctx, m.env(dryRun, s), j, steps(s, j.Options), confirmed)
}

// start records a new migration and its backup.
func (m *Migration) start(ctx context.Context, j *Journal, o Options, manifests []*Object, dryRun bool) (*Journal, error) {
	o.Manifests = manifests != nil
	if j != nil {
		// Interrupted before the backup was complete: nothing has changed yet.
		if o = j.Options; o.Manifests && manifests == nil {
			return nil, errors.New("the migration was started with --manifests: give the file again, or undo")
		}
	}

	s, err := m.read(ctx, o, manifests, &Plan{})
	if err != nil {
		return nil, err
	}

	e := m.env(dryRun, s)
	all := steps(s, o)
	if j == nil {
		j = &Journal{
			Version:   journalVersion,
			Phase:     PhaseRunning,
			Started:   m.Clock.Now().UTC().Truncate(time.Second),
			Options:   o,
			namespace: s.namespace(),
		}

		j.list(all)
		if err := j.save(ctx, e); err != nil {
			return nil, err
		}
	}

	j.list(all)
	m.Log("step %s: %d objects", stepBackup, len(s.Items))

	if err := s.store(ctx, e, j); err != nil {
		return nil, err
	}

	if dryRun {
		return j, m.continueRun(ctx, e, j, all, true)
	}

	return j, nil
}

// list records the steps of a migration whose backup is not complete.
func (j *Journal) list(all []step) {
	j.Steps = []StepRecord{{Name: stepBackup, State: StepStarted, At: j.Started}}
	for _, st := range all {
		j.Steps = append(j.Steps, StepRecord{Name: st.name, State: StepPending})
	}
}

// namespace returns the namespace of the records: that of gocrane's craned, which exists.
func (s *state) namespace() string {
	for _, item := range s.Items {
		if item.Object.GetKind() == "Deployment" && item.Object.GetName() == componentCraned {
			return item.Object.GetNamespace()
		}
	}

	for _, item := range s.Items {
		if item.Component != componentObjects && item.Object.GetNamespace() != "" {
			return item.Object.GetNamespace()
		}
	}

	return "default"
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
	j, err := FindJournal(ctx, m.Client)
	if err != nil {
		return err
	}

	if j == nil {
		return errNoMigration
	}

	e := m.env(false, nil)
	var all []step
	if j.Chunks > 0 && slices.ContainsFunc(j.Steps[1:], func(r StepRecord) bool { return r.State == StepDone || r.State == StepStarted }) {
		s, err := loadState(ctx, m.Client, j)
		if err != nil {
			return err
		}

		e = m.env(false, s)
		all = steps(s, j.Options)
	}

	if err := j.setPhase(ctx, e, PhaseUndoing); err != nil {
		return err
	}

	for _, st := range slices.Backward(all) {
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
	if err := removeBackup(ctx, e, j); err != nil {
		return err
	}

	return e.remove(ctx, journalRef(j.namespace), propagateDefault)
}

// Finish removes the backup and the journal. There is no way back afterwards.
func (m *Migration) Finish(ctx context.Context) error {
	j, err := FindJournal(ctx, m.Client)
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
