// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// JournalName is the name of the ConfigMap that records the progress of a migration.
const JournalName = "crane-migration"

const (
	// journalNamespace is the namespace of the journal: every cluster has it, and tenants may not write there.
	journalNamespace = "kube-system"
	journalKey       = "journal.json"
	// codeKey has the code that authenticates the journal.
	codeKey        = "hmac-sha256"
	journalVersion = 2
	// labelMigration marks the objects that record a migration.
	labelMigration = "migrate.crane.io/record"
	// fieldOwner is the field manager of all writes.
	fieldOwner = "crane-migrate"
)

// Phase is the state of a migration.
type Phase string

// The phases.
const (
	PhaseRunning  Phase = "running"
	PhasePaused   Phase = "paused"
	PhaseMigrated Phase = "migrated"
	PhaseUndoing  Phase = "undoing"
)

// StepState is the state of a step.
type StepState string

// The states.
const (
	StepPending StepState = "pending"
	StepStarted StepState = "started"
	StepDone    StepState = "done"
	StepUndone  StepState = "undone"
)

// StepRecord records a step.
type StepRecord struct {
	Name  string    `json:"name"`
	State StepState `json:"state"`
	At    time.Time `json:"at,omitzero"`
}

// Journal records the progress of a migration; what its steps write is in the file of the operator. It is stored in a ConfigMap; each write requires
// the version that was read, so that two processes cannot continue the same migration.
type Journal struct {
	Version int          `json:"version"`
	Phase   Phase        `json:"phase"`
	Started time.Time    `json:"started"`
	Steps   []StepRecord `json:"steps"`
	Options Options      `json:"options"`

	file   *stateFile
	object *Object
}

// step returns the record of a step.
func (j *Journal) step(name string) *StepRecord {
	for i := range j.Steps {
		if j.Steps[i].Name == name {
			return &j.Steps[i]
		}
	}

	return &StepRecord{Name: name, State: StepPending}
}

func journalRef() Ref {
	return namespacedRef("v1", "ConfigMap", journalNamespace, JournalName)
}

// readJournal returns the journal of the cluster; nil if there is none. It is not authenticated.
func readJournal(ctx context.Context, c client.Reader) (*Journal, error) {
	o := journalRef().empty()
	err := c.Get(ctx, journalRef().key(), o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}

	j := &Journal{object: o}
	if err := json.Unmarshal([]byte(stringMapAt(o, "data")[journalKey]), j); err != nil {
		return nil, fmt.Errorf("the journal in %s is damaged: %w", journalRef(), err)
	}

	if j.Version != journalVersion {
		return nil, fmt.Errorf("the journal in %s has version %d, this program reads %d: use the crane that started the migration", journalRef(), j.Version, journalVersion)
	}

	return j, nil
}

// authentic reports whether the journal was written with the key of its file.
func (j *Journal) authentic() bool {
	data := stringMapAt(j.object, "data")
	return hmac.Equal([]byte(data[codeKey]), []byte(j.file.sign(data[journalKey])))
}

// save writes the journal. It fails if another process has written it.
func (j *Journal) save(ctx context.Context, e *env) error {
	content, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}

	if e.dryRun {
		return nil
	}

	// The object that was read carries the version, so that two processes cannot both write.
	create := j.object == nil
	if create {
		j.object = journalRef().empty()
		j.object.SetNamespace(journalNamespace)
		j.object.SetName(JournalName)
		j.object.SetLabels(map[string]string{labelMigration: "journal"})
	}

	j.object.Object["data"] = map[string]any{journalKey: string(content), codeKey: j.file.sign(string(content))}

	if create {
		err = e.client.Create(ctx, j.object, client.FieldOwner(fieldOwner))
	} else {
		err = e.client.Update(ctx, j.object, client.FieldOwner(fieldOwner))
	}

	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another process continues this migration: %w", err)
	}

	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}

	return nil
}

// set records the state of a step, if it differs.
func (j *Journal) set(ctx context.Context, e *env, name string, state StepState) error {
	record := j.step(name)
	if record.State == state {
		return nil
	}

	record.State = state
	record.At = e.clock.Now().UTC().Truncate(time.Second)
	return j.save(ctx, e)
}

// setPhase records the phase, if it differs.
func (j *Journal) setPhase(ctx context.Context, e *env, phase Phase) error {
	if j.Phase == phase {
		return nil
	}

	j.Phase = phase
	return j.save(ctx, e)
}

// errNoMigration is returned where a migration is expected and none is recorded.
var errNoMigration = errors.New("no migration is recorded in the cluster: start one with crane migrate run")
