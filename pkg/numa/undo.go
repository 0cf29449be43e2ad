// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// change is what Undo needs to take a Place or a Remove back.
type change struct {
	owner  string
	before Placement
	had    bool
}

// Mark is a moment to which Undo goes back.
type Mark int

// Mark starts a trial: from now on placements and removals are remembered until Undo or Keep. Marks may nest. SetZones
// belongs to no trial and is not undone.
func (n *Node) Mark() Mark {
	n.recording = true
	return Mark(len(n.journal))
}

// Undo takes back what was placed and removed since m, exactly, and ends the trial if m was the first mark.
func (n *Node) Undo(m Mark) {
	recording := n.recording
	n.recording = false
	for i := len(n.journal) - 1; i >= int(m); i-- {
		c := n.journal[i]
		if now, has := n.held[c.owner]; has {
			n.account(now, -1)
			delete(n.held, c.owner)
		}
		if c.had {
			n.account(c.before, 1)
			n.held[c.owner] = c.before
		}
	}
	n.truncate(m, recording)
}

// Keep ends the trial that began at the first mark and leaves things as they are.
func (n *Node) Keep() { n.truncate(0, false) }

func (n *Node) truncate(m Mark, recording bool) {
	clear(n.journal[min(int(m), len(n.journal)):])
	n.journal = n.journal[:min(int(m), len(n.journal))]
	n.recording = recording && m > 0
}

func (n *Node) record(c change) {
	if n.recording {
		n.journal = append(n.journal, c)
	}
}
