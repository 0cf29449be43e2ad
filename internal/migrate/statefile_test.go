// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newPausedFixture returns a cluster with a migration that waits for its confirmation, and the objects before it.
func newPausedFixture(t *testing.T) (*fixture, map[Ref]map[string]any) {
	t.Helper()

	f := newFixture(t)
	f.create(`{apiVersion: v1, kind: Secret, metadata: {name: craned-token-x, namespace: crane-system, annotations: {kubernetes.io/service-account.name: craned}}, type: kubernetes.io/service-account-token, data: {token: c2VjcmV0LXRva2Vu}}`)
	before := f.snapshot()

	if err := f.migration(-1).Run(t.Context(), testOptions(), nil, false, false); !errors.Is(err, ErrPaused) {
		t.Fatalf("Run returned %v, want %v", err, ErrPaused)
	}

	return f, before
}

// commands are those that act on a recorded migration.
func commands(t *testing.T, m *Migration) map[string]error {
	t.Helper()

	_, planError := m.Plan(t.Context(), testOptions(), nil)
	return map[string]error{
		"run":    m.Run(t.Context(), testOptions(), nil, true, false),
		"undo":   m.Undo(t.Context()),
		"finish": m.Finish(t.Context()),
		"plan":   planError,
	}
}

// refused checks that no command acts, and that each error has a text.
func (f *fixture) refused(m *Migration, text string) {
	f.Helper()

	before := f.snapshot()
	for name, err := range commands(f.T, m) {
		if err == nil || !strings.Contains(err.Error(), text) {
			f.Errorf("%s returned %v, want an error with %q", name, err, text)
		}
	}

	f.compare("refused commands", before)
}

// TestForgedProgress lets others change the journal in the one namespace where it is read. No command acts on it.
func TestForgedProgress(t *testing.T) {
	f, _ := newPausedFixture(t)
	o := journalRef().empty()
	if err := f.client.Get(t.Context(), journalRef().key(), o); err != nil {
		t.Fatal(err)
	}

	data := stringMapAt(o, "data")
	for name, forged := range map[string]map[string]any{
		"step":    {journalKey: strings.Replace(data[journalKey], `"done"`, `"pending"`, 1), codeKey: data[codeKey]},
		"no code": {journalKey: data[journalKey]},
		"code":    {journalKey: data[journalKey], codeKey: strings.Repeat("0", len(data[codeKey]))},
	} {
		t.Run(name, func(t *testing.T) {
			o.Object["data"] = forged
			if err := f.client.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}

			f.refused(f.migration(-1), "was not written with state file")
		})
	}
}

// TestForgedJournalOfTheCluster checks that a journal that nobody on this machine has written starts nothing.
func TestForgedJournalOfTheCluster(t *testing.T) {
	f := newFixture(t)
	f.forge(journalNamespace, "paused", "pending", false)
	f.refused(f.migration(-1), "has version 1")
}

// TestMissingStateFile runs commands on a machine without the file of the operator, and then with a copy.
func TestMissingStateFile(t *testing.T) {
	f, before := newPausedFixture(t)
	copied := filepath.Join(t.TempDir(), "copy.json")
	f.stateFile, copied = copied, f.stateFile
	f.refused(f.migration(-1), "give a copy of their file with --state-file")

	if _, unverified, err := f.migration(-1).Recorded(t.Context()); unverified == nil || err != nil {
		t.Errorf("Recorded without the file returned %v, %v, want the reason why it is not verified", unverified, err)
	}

	content, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(f.stateFile, content, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := f.migration(-1).Undo(t.Context()); err != nil {
		t.Fatalf("Undo with a copy of the file returned %v, want nil", err)
	}

	f.compare("undo", before)
}

// TestUnsafeStateFile checks that files are refused that others may have written, and those of other clusters.
func TestUnsafeStateFile(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string) error
		want  string
	}{
		"readable": {func(_ *testing.T, path string) error { return os.Chmod(path, 0o640) }, "others may read or write it"},
		"writable": {func(_ *testing.T, path string) error { return os.Chmod(path, 0o602) }, "others may read or write it"},
		"link": {func(t *testing.T, path string) error {
			target := filepath.Join(t.TempDir(), "target")
			return errors.Join(os.Rename(path, target), os.Symlink(target, path))
		}, "not a regular file"},
		"directory": {func(_ *testing.T, path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "not a regular file"},
		"of another user": {func(t *testing.T, path string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file to another user, and reads such files")
			}

			return os.Chown(path, 12345, -1)
		}, "it is of user 12345"},
		"damaged": {func(_ *testing.T, path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, "reading state file"},
		"empty":   {func(_ *testing.T, path string) error { return os.WriteFile(path, []byte(`{"version": 1}`), 0o600) }, "incomplete"},
		"of another cluster": {func(_ *testing.T, path string) error {
			content, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(content), "u-cluster", "u-other", 1)), 0o600))
		}, "is of cluster u-other"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newPausedFixture(t)
			if err := c.spoil(t, f.stateFile); err != nil {
				t.Fatal(err)
			}

			f.refused(f.migration(-1), c.want)
		})
	}
}

// TestLostJournal undoes a migration whose journal is deleted, by the decision of an operator who names the file.
func TestLostJournal(t *testing.T) {
	f, before := newPausedFixture(t)
	o := journalRef().empty()
	o.SetNamespace(journalNamespace)
	o.SetName(JournalName)

	if err := f.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}

	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	m := f.migration(-1)

	m.StateFile = ""
	_, path, err := m.location(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Rename(f.stateFile, path)); err != nil {
		t.Fatal(err)
	}

	f.refused(m, "does not record")

	m.StateFile = path
	if err := m.Undo(t.Context()); err != nil {
		t.Fatalf("Undo with the file of a deleted journal returned %v, want nil", err)
	}

	f.compare("undo", before)
}

// TestStateFile checks the file itself: its mode, that the cluster has no copy, that tokens are not in it, and that it ends with its migration.
func TestStateFile(t *testing.T) {
	f, before := newPausedFixture(t)
	info, err := os.Stat(f.stateFile)
	if err != nil {
		t.Fatal(err)
	}

	if info.Mode() != 0o600 {
		t.Errorf("state file has mode %v, want 0600", info.Mode())
	}

	content, err := os.ReadFile(f.stateFile)
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(string(content), "c2VjcmV0LXRva2Vu") {
		t.Error("the state file has the token of a ServiceAccount, want none")
	}

	if !strings.Contains(string(content), "webhook-server-tls") {
		t.Error("the state file lacks the Secret that a step deletes, want it")
	}

	for ref := range f.snapshot() {
		if ref.Kind == "Secret" && before[ref] == nil {
			t.Errorf("Run wrote %s, want no Secret in the cluster", ref)
		}
	}

	if err := f.migration(-1).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	left, err := os.ReadDir(filepath.Dir(f.stateFile))
	if err != nil || len(left) > 0 {
		t.Errorf("after Undo there are files %v (%v), want none", left, err)
	}
}

// TestTokensAreNotExported checks that an export has no token.
func TestTokensAreNotExported(t *testing.T) {
	f, _ := newPausedFixture(t)
	if err := f.migration(-1).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	inv, err := ReadInventory(t.Context(), f.client)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if _, err := Export(inv, dir, testOptions()); err != nil {
		t.Fatal(err)
	}

	folder := filepath.Join(dir, backupFolder, "crane-system")
	if _, err := os.Stat(filepath.Join(folder, "secret-webhook-server-tls.yaml")); err != nil {
		t.Errorf("the export lacks a Secret of gocrane: %v, want it", err)
	}

	if _, err := os.Stat(filepath.Join(folder, "secret-craned-token-x.yaml")); err == nil {
		t.Error("the export has the token of a ServiceAccount, want none")
	}
}
