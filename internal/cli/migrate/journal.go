// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// JournalName is the name of the ConfigMap that records a migration, in the namespace of gocrane's craned.
const JournalName = "crane-migration"

const (
	journalKey     = "journal.json"
	journalVersion = 1
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

// Journal records a migration. It is stored in a ConfigMap; each write requires the version that was read, so that two processes
// cannot continue the same migration.
type Journal struct {
	Version int          `json:"version"`
	Phase   Phase        `json:"phase"`
	Started time.Time    `json:"started"`
	Steps   []StepRecord `json:"steps"`
	// Chunks is the number of Secrets of the backup, and Checksum that of its content; 0 while it is not complete.
	Chunks   int     `json:"chunks"`
	Checksum string  `json:"checksum,omitempty"`
	Options  Options `json:"options"`

	namespace string
	object    *Object
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

func journalRef(namespace string) Ref {
	return namespacedRef("v1", "ConfigMap", namespace, JournalName)
}

// FindJournal returns the journal of the migration of the cluster; nil if there is none.
func FindJournal(ctx context.Context, c client.Reader) (*Journal, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})

	if err := c.List(ctx, list, client.MatchingFields{"metadata.name": JournalName}); err != nil {
		return nil, fmt.Errorf("failed to read the journal: %w", err)
	}

	switch len(list.Items) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, fmt.Errorf("%d ConfigMaps are called %s: delete those that are no journal", len(list.Items), JournalName)
	}

	return parseJournal(&list.Items[0])
}

func parseJournal(o *Object) (*Journal, error) {
	j := &Journal{namespace: o.GetNamespace(), object: o}
	if err := json.Unmarshal([]byte(stringMapAt(o, "data")[journalKey]), j); err != nil {
		return nil, fmt.Errorf("the journal in %s is damaged: %w", RefOf(o), err)
	}

	if j.Version != journalVersion {
		return nil, fmt.Errorf("the journal in %s has version %d, this program reads %d: use the crane that started the migration", RefOf(o), j.Version, journalVersion)
	}

	return j, nil
}

// save writes the journal. It fails if another process has written it.
func (j *Journal) save(ctx context.Context, e *env) error {
	content, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("failed to write the journal: %w", err)
	}

	if e.dryRun {
		return nil
	}

	create := j.object == nil
	if create {
		j.object = journalRef(j.namespace).empty()
		j.object.SetNamespace(j.namespace)
		j.object.SetName(JournalName)
		j.object.SetLabels(map[string]string{labelMigration: "journal"})
	}

	if err := unstructured.SetNestedField(j.object.Object, string(content), "data", journalKey); err != nil {
		return fmt.Errorf("failed to write the journal: %w", err)
	}

	if create {
		err = e.client.Create(ctx, j.object, client.FieldOwner(fieldOwner))
	} else {
		err = e.client.Update(ctx, j.object, client.FieldOwner(fieldOwner))
	}

	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another process continues this migration: %w", err)
	}

	if err != nil {
		return fmt.Errorf("failed to write the journal: %w", err)
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
