// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// undoRecord is what Undo needs to take a Place or a Remove back.
type undoRecord struct {
	owner  string
	before Placement
	had    bool
}

// Checkpoint is a moment to which Undo goes back.
type Checkpoint int

// Checkpoint starts a trial: from now on placements and removals are remembered until Undo or Keep. Marks may nest. SetZones
// belongs to no trial and is not undone.
func (n *Node) Checkpoint() Checkpoint {
	n.recording = true
	return Checkpoint(len(n.undoLog))
}

// Undo takes back what was placed and removed since m, exactly, and ends the trial if m was the first mark.
func (n *Node) Undo(m Checkpoint) {
	recording := n.recording
	n.recording = false
	for i := len(n.undoLog) - 1; i >= int(m); i-- {
		c := n.undoLog[i]
		if now, has := n.placements[c.owner]; has {
			n.adjustUsed(now, -1)
			delete(n.placements, c.owner)
		}
		if c.had {
			n.adjustUsed(c.before, 1)
			n.placements[c.owner] = c.before
		}
	}
	n.truncateUndo(m, recording)
}

// Commit ends the trial that began at the first mark and leaves things as they are.
func (n *Node) Commit() { n.truncateUndo(0, false) }

func (n *Node) truncateUndo(m Checkpoint, recording bool) {
	clear(n.undoLog[min(int(m), len(n.undoLog)):])
	n.undoLog = n.undoLog[:min(int(m), len(n.undoLog))]
	n.recording = recording && m > 0
}

func (n *Node) recordUndo(c undoRecord) {
	if n.recording {
		n.undoLog = append(n.undoLog, c)
	}
}
