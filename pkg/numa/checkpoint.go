// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// undoRecord is a recorded Place or Remove.
type undoRecord struct {
	owner   string
	before  Placement
	existed bool
}

// Checkpoint is a state that Undo can restore.
type Checkpoint int

// Checkpoint starts recording placements and removals until Undo or Commit. Checkpoints may nest. SetZones is not recorded.
func (n *Node) Checkpoint() Checkpoint {
	n.recording = true
	return Checkpoint(len(n.undoLog))
}

// Undo exactly reverts placements and removals since m, and stops recording if m was the first checkpoint.
func (n *Node) Undo(m Checkpoint) {
	recording := n.recording
	n.recording = false
	for i := len(n.undoLog) - 1; i >= int(m); i-- {
		record := n.undoLog[i]
		if placement, ok := n.placements[record.owner]; ok {
			n.capacity.adjustUsed(placement, -1)
			delete(n.placements, record.owner)
		}

		if record.existed {
			n.capacity.adjustUsed(record.before, 1)
			n.placements[record.owner] = record.before
		}
	}

	n.truncateUndo(m, recording)
}

// Commit stops recording and keeps all changes.
func (n *Node) Commit() { n.truncateUndo(0, false) }

func (n *Node) truncateUndo(m Checkpoint, recording bool) {
	clear(n.undoLog[min(int(m), len(n.undoLog)):])
	n.undoLog = n.undoLog[:min(int(m), len(n.undoLog))]
	n.recording = recording && m > 0
}

func (n *Node) recordUndo(record undoRecord) {
	if n.recording {
		n.undoLog = append(n.undoLog, record)
	}
}
