// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"crane.io/crane/internal/agent/act"
)

// emptyDirectory is what the kubelet made on the node for a mount in the DaemonSet of earlier versions.
const emptyDirectory = "var/lib/kubelet/pki/crane-agent-empty"

// cleanUp undoes what agents that ended have changed on this node, and removes the state directory. If a change cannot be undone the
// directory stays, because it is the only record of the original value.
func (o *Options) cleanUp(log logr.Logger, files act.FileWriter, out io.Writer) error {
	if err := os.Remove(filepath.Join(o.HostRoot, emptyDirectory)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--host-root: %w", err)
	}

	if _, err := os.Stat(o.StateDir); errors.Is(err, fs.ErrNotExist) {
		_, err := fmt.Fprintf(out, "%s does not exist: nothing to undo\n", o.StateDir)
		return err
	}

	layout, err := o.detectCgroups()
	if err != nil {
		return fmt.Errorf("detecting cgroups: %w", err)
	}

	unlock, err := environment{Options: o, log: log}.lockStateDir()
	if err != nil {
		return err
	}
	defer unlock()

	// Both journals before the directory: a failed undo needs the record.
	undone := 0
	for _, name := range []string{changesFile, memoryFile} {
		journal, err := act.OpenJournal(filepath.Join(o.StateDir, name), layout, files)
		if err != nil {
			return err
		}

		undone += len(journal.Entries())
		if err := journal.UndoAll(); err != nil {
			return fmt.Errorf("undoing the changes in %s: %w", filepath.Join(o.StateDir, name), err)
		}
	}

	if err := os.RemoveAll(o.StateDir); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}

	_, err = fmt.Fprintf(out, "undid %d changes and removed %s\n", undone, o.StateDir)
	return err
}
