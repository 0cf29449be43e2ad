// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"crane.io/crane/internal/component/atomicfile"
)

const (
	stateFileVersion = 1
	// inactive is the suffix of a state file while no step may run: until the journal is created, and while it is deleted.
	inactive = ".inactive"
	// keyBytes is the length of the key of a journal.
	keyBytes = 32
)

// stateFile is the file of a migration on the machine of the operator. It is written once, before the first change of the cluster, so that every
// copy of it is complete. It holds what the steps write, and the key by which the journal in the cluster is known to be that of this migration.
type stateFile struct {
	Version int `json:"version"`
	// Cluster is the UID of the namespace kube-system.
	Cluster string    `json:"cluster"`
	Started time.Time `json:"started"`
	Key     []byte    `json:"key"`
	Options Options   `json:"options"`
	State   *state    `json:"state"`

	path string
}

// newStateFile returns the file of a migration that starts now.
func (m *Migration) newStateFile(ctx context.Context, o Options, s *state) (*stateFile, error) {
	cluster, path, err := m.location(ctx)
	if err != nil {
		return nil, err
	}

	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making a key for the journal: %w", err)
	}

	return &stateFile{
		Version: stateFileVersion,
		Cluster: cluster,
		Started: m.Clock.Now().UTC().Truncate(time.Second),
		Key:     key,
		Options: o,
		State:   s,
		path:    path,
	}, nil
}

var uidPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// location returns the UID of the cluster and the path of its state file.
func (m *Migration) location(ctx context.Context) (cluster, path string, err error) {
	o, err := m.env(false, nil).get(ctx, Ref{APIVersion: "v1", Kind: "Namespace", Name: journalNamespace})
	if err != nil {
		return "", "", err
	}

	if o == nil || !uidPattern.MatchString(string(o.GetUID())) {
		return "", "", fmt.Errorf("reading the identity of the cluster: namespace %s has no UID", journalNamespace)
	}

	cluster = string(o.GetUID())
	if m.StateFile != "" {
		return cluster, m.StateFile, nil
	}

	dir, err := os.UserConfigDir()
	if err != nil {
		return "", "", fmt.Errorf("choosing a state file: %w; give one with --state-file", err)
	}

	return cluster, filepath.Join(dir, "crane", "migrations", cluster+".json"), nil
}

// readStateFile reads a state file; nil if there is none. A file that others own, or may read or write, is an error: its content is applied with the
// rights of the operator.
func readStateFile(path string) (*stateFile, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading state file: %w", err)
	}

	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading state file %s: it is not a regular file", path)
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading state file: %w", err)
	}
	defer file.Close()

	// What was opened may have replaced what was found.
	opened, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading state file: %w", err)
	}

	if !os.SameFile(info, opened) {
		return nil, fmt.Errorf("reading state file %s: it was replaced meanwhile", path)
	}

	if err := checkPrivate(opened); err != nil {
		return nil, fmt.Errorf("reading state file %s: %w", path, err)
	}

	content, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading state file: %w", err)
	}

	f := &stateFile{path: path}
	if err := json.Unmarshal(content, f); err != nil {
		return nil, fmt.Errorf("reading state file %s: %w", path, err)
	}

	if f.Version != stateFileVersion {
		return nil, fmt.Errorf("state file %s has version %d, this program reads %d: use the crane that started the migration", path, f.Version, stateFileVersion)
	}

	if f.State == nil || len(f.Key) != keyBytes {
		return nil, fmt.Errorf("state file %s is incomplete", path)
	}

	return f, nil
}

// write writes the file to a path and syncs it to the disk.
func (f *stateFile) write(path string) error {
	content, err := json.Marshal(f)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}

	if err != nil {
		return fmt.Errorf("writing state file: %w", err)
	}

	if err := atomicfile.WriteDurably(path, content); err != nil {
		return fmt.Errorf("writing state file: %w", err)
	}

	return nil
}

// activate lets steps run. It writes the file again: another process that started at the same time may have replaced the inactive one.
func (f *stateFile) activate() error {
	if err := f.write(f.path); err != nil {
		return err
	}

	return f.remove()
}

// deactivate ends a migration, before its journal is deleted: a file without a journal is then not that of a migration that goes on.
func (f *stateFile) deactivate() error {
	if err := atomicfile.Rename(f.path, f.path+inactive); err != nil {
		return fmt.Errorf("deactivating state file: %w", err)
	}

	return nil
}

// remove removes the inactive file.
func (f *stateFile) remove() error {
	if err := os.Remove(f.path + inactive); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing state file: %w", err)
	}

	return nil
}

// sign returns the code that authenticates the content of a journal.
func (f *stateFile) sign(content string) string {
	code := hmac.New(sha256.New, f.Key)
	code.Write([]byte(content))
	return hex.EncodeToString(code.Sum(nil))
}

// journal returns a journal whose steps have a state.
func (f *stateFile) journal(state StepState) *Journal {
	j := &Journal{
		Version: journalVersion,
		Phase:   PhaseRunning,
		Started: f.Started,
		Steps:   []StepRecord{{Name: stepBackup, State: StepStarted, At: f.Started}},
		Options: f.Options,
		file:    f,
	}

	for _, st := range steps(f.State, f.Options) {
		j.Steps = append(j.Steps, StepRecord{Name: st.name, State: state})
	}

	return j
}

// open returns the journal of the migration that is in progress, with its file; nil if there is none. Only the file says what a step writes. The
// journal says which steps are done, and only if it was written with the key of the file.
func (m *Migration) open(ctx context.Context) (*Journal, error) {
	cluster, path, err := m.location(ctx)
	if err != nil {
		return nil, err
	}

	j, err := readJournal(ctx, m.Client)
	if err != nil {
		return nil, err
	}

	f, err := readStateFile(path)
	if err != nil {
		return nil, err
	}

	if f == nil && j != nil {
		f, err = j.reactivate(path)
		if err != nil {
			return nil, err
		}
	}

	// Neither is trusted alone: the ConfigMap may be changed in the cluster, and the file may be of another cluster.
	switch {
	case f == nil && j == nil:
		return nil, nil
	case f == nil:
		return nil, fmt.Errorf("%s records a migration, and its state file %s is not here: use the machine of the operator who started it, or give a copy of their file with --state-file. If no migration was started, delete the ConfigMap", journalRef(), path)
	case f.Cluster != cluster:
		return nil, fmt.Errorf("state file %s is of cluster %s, this is cluster %s", path, f.Cluster, cluster)

	case j == nil && m.StateFile == "":
		return nil, fmt.Errorf("state file %s is of a migration that %s does not record: delete the file if that migration has ended on another machine. If it has not, give the file with --state-file to repeat all its steps, or to undo them", path, journalRef())
	case j == nil:
		m.Log("%s is gone: all steps of %s are repeated", journalRef(), path)
		return f.journal(StepStarted), nil
	}

	j.file = f
	if !j.authentic() {
		return nil, fmt.Errorf("%s was not written with state file %s: it was changed, or it is of another migration. Give the file of its operator with --state-file, or delete the ConfigMap and give this file with --state-file to repeat all its steps, or to undo them", journalRef(), path)
	}

	return j, nil
}

// reactivate returns the inactive file of a journal, and activates it; nil if there is none. A process was killed between the writes of both.
func (j *Journal) reactivate(path string) (*stateFile, error) {
	f, err := readStateFile(path + inactive)
	if err != nil || f == nil {
		return nil, err
	}

	f.path = path
	if (&Journal{file: f, object: j.object}).authentic() {
		return f, f.activate()
	}

	return nil, nil
}
