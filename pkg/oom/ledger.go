// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Limits say how much is kept.
type Limits struct {
	// Count is the most records, 1 or more.
	Count int
	// Bytes is the most that they take when written, more than 2.
	Bytes int
	// Age is how long a record is of use, more than 0.
	Age time.Duration
}

// ConfigMapName is the name of the ConfigMapName that holds the ledger, Key that of the records in it: as gocrane's.
const (
	ConfigMapName = "oom-record"
	ConfigMapKey  = "data"
)

// Ledger is the book of kills, oldest first. What was dropped for lack of room does not come back, though it may still be
// seen in the status of a pod: the ledger remembers up to when it has dropped. The zero value is an empty book. It is not
// safe for concurrent use.
type Ledger struct {
	kills []Kill
	// droppedThrough is the time of the youngest kill that was dropped for lack of room.
	droppedThrough time.Time
}

// UnreadableRecord is a record that could not be read, as it was found, and why.
type UnreadableRecord struct {
	Text string
	Err  error
}

// Parse reads a book as it was written by Text, or by gocrane. Records that are none are returned apart; the error says that
// the whole is no list of records. Records of one kill that are there twice are taken once.
func Parse(text string) (*Ledger, []UnreadableRecord, error) {
	l := &Ledger{}
	if len(bytes.TrimSpace([]byte(text))) == 0 {
		return l, nil, nil
	}
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return l, nil, fmt.Errorf("OOM records: want a JSON list: %w", err)
	}
	var bad []UnreadableRecord
	var kills []Kill
	for _, r := range raw {
		var k Kill
		if err := json.Unmarshal(r, &k); err != nil {
			bad = append(bad, UnreadableRecord{Text: string(r), Err: err})
			continue
		}
		kills = append(kills, k)
	}
	l.merge(kills)
	return l, bad, nil
}

// merge takes many records over, each kill once.
func (l *Ledger) merge(kills []Kill) {
	seen := newIndex(l.kills)
	for _, k := range kills {
		if !seen.has(k) {
			seen.add(k)
			l.kills = append(l.kills, k)
		}
	}
	slices.SortStableFunc(l.kills, byTime)
}

func byTime(a, b Kill) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.containerPath(), b.containerPath()), cmp.Compare(a.ID, b.ID))
}

// index finds records of the same kill in constant time.
type index struct {
	ids map[string]bool
	// places hold, by container and second, the IDs that are there; an empty one is gocrane's.
	places map[string][]string
}

func newIndex(kills []Kill) index {
	x := index{ids: make(map[string]bool, len(kills)), places: make(map[string][]string, len(kills))}
	for _, k := range kills {
		x.add(k)
	}
	return x
}

func (x index) key(k Kill) string {
	return k.containerPath() + "@" + k.At.UTC().Format(time.RFC3339Nano)
}

func (x index) add(k Kill) {
	if k.ID != "" {
		x.ids[k.ID] = true
	}
	x.places[x.key(k)] = append(x.places[x.key(k)], k.ID)
}

func (x index) has(k Kill) bool {
	if k.ID != "" && x.ids[k.ID] {
		return true
	}
	for _, id := range x.places[x.key(k)] {
		if id == "" || k.ID == "" {
			return true
		}
	}
	return false
}

// Add takes kills over and returns those that are new: not known yet, not older than the limit, and not dropped before.
func (l *Ledger) Add(kills []Kill, now time.Time, limits Limits) []Kill {
	seen := newIndex(l.kills)
	var added []Kill
	for _, k := range kills {
		if seen.has(k) || now.Sub(k.At) > limits.Age || !k.At.After(l.droppedThrough) {
			continue
		}
		seen.add(k)
		added = append(added, k)
	}
	l.kills = append(l.kills, added...)
	slices.SortStableFunc(l.kills, byTime)
	return added
}

// Known tells whether a kill needs no more attention: it is in the book, or too old for it.
func (l *Ledger) Known(k Kill, now time.Time, limits Limits) bool {
	if now.Sub(k.At) > limits.Age || !k.At.After(l.droppedThrough) {
		return true
	}
	return slices.ContainsFunc(l.kills, k.isSame)
}

// Prune drops what is too old, then the oldest until the rest is within the limits, and returns how many it dropped.
func (l *Ledger) Prune(now time.Time, limits Limits) int {
	before := len(l.kills)
	l.kills = slices.DeleteFunc(l.kills, func(k Kill) bool { return now.Sub(k.At) > limits.Age })
	sizes, total := make([]int, len(l.kills)), 2 // The brackets.
	for i, k := range l.kills {
		raw, err := json.Marshal(k)
		if err != nil {
			continue // A kill has nothing in it that cannot be written.
		}
		sizes[i] = len(raw) + 1 // The comma.
		total += sizes[i]
	}
	drop := 0
	for drop < len(l.kills) && (len(l.kills)-drop > limits.Count || total > limits.Bytes) {
		total -= sizes[drop]
		l.droppedThrough = later(l.droppedThrough, l.kills[drop].At)
		drop++
	}
	l.kills = slices.Clone(l.kills[drop:])
	return before - len(l.kills)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Kills are the records, oldest first; not to be changed.
func (l *Ledger) Kills() []Kill { return l.kills }

// DroppedThrough is the time up to which kills were dropped for lack of room; the zero time where none was. SetDroppedThrough takes over
// what an earlier process remembered.
func (l *Ledger) DroppedThrough() time.Time { return l.droppedThrough }

// SetDroppedThrough see Through.
func (l *Ledger) SetDroppedThrough(t time.Time) { l.droppedThrough = later(l.droppedThrough, t) }

// Encode is the book as it is written.
func (l *Ledger) Encode() (string, error) {
	if len(l.kills) == 0 {
		return "[]", nil
	}
	raw, err := json.Marshal(l.kills)
	if err != nil {
		return "", fmt.Errorf("writing OOM records: %w", err)
	}
	return string(raw), nil
}
