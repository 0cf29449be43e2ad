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

// Limits bound the ledger.
type Limits struct {
	// Count is the maximum number of records, 1 or more.
	Count int
	// Bytes is the maximum size of the encoded records, more than 2.
	Bytes int
	// Age is the age up to which a record is kept, more than 0.
	Age time.Duration
}

// ConfigMapName is the name of the ConfigMap that holds the ledger, ConfigMapKey the key of the records in it, as in
// gocrane.
const (
	ConfigMapName = "oom-record"
	ConfigMapKey  = "data"
)

// Ledger holds kills, oldest first. The zero value is empty. It is not safe for concurrent use.
//
// Kills that were dropped for lack of space are not added again, though the status of their pods may still show them: the
// ledger stores the time up to which it has dropped kills.
type Ledger struct {
	kills []Kill
	// droppedThrough is the time of the youngest kill that was dropped for lack of space.
	droppedThrough time.Time
}

// UnreadableRecord is the text of an invalid record and its error.
type UnreadableRecord struct {
	Text string
	Err  error
}

// Parse decodes a ledger that Encode or gocrane wrote. Duplicates are dropped and invalid records returned separately; it is
// an error if the text is not a list.
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

// merge adds records, each kill once.
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
	// places holds the IDs of records by container and second; the ID of gocrane's records is empty.
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

// Add adds kills and returns the new ones: those that are not known, not older than the limit, and not dropped before.
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

// Known reports whether a kill is in the ledger or too old for it.
func (l *Ledger) Known(k Kill, now time.Time, limits Limits) bool {
	if now.Sub(k.At) > limits.Age || !k.At.After(l.droppedThrough) {
		return true
	}
	return slices.ContainsFunc(l.kills, k.isSame)
}

// Prune drops records that are too old, then the oldest ones until the rest is within the limits, and returns the number of
// dropped records.
func (l *Ledger) Prune(now time.Time, limits Limits) int {
	before := len(l.kills)
	l.kills = slices.DeleteFunc(l.kills, func(k Kill) bool { return now.Sub(k.At) > limits.Age })
	sizes, total := make([]int, len(l.kills)), 2 // The brackets.
	for i, k := range l.kills {
		raw, err := json.Marshal(k)
		if err != nil {
			continue // Encoding a kill does not fail.
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

// Kills returns the records, oldest first. They must not be modified.
func (l *Ledger) Kills() []Kill { return l.kills }

// DroppedThrough returns the time up to which kills were dropped for lack of space; zero if none was.
func (l *Ledger) DroppedThrough() time.Time { return l.droppedThrough }

// SetDroppedThrough restores the time that DroppedThrough returned in an earlier process.
func (l *Ledger) SetDroppedThrough(t time.Time) { l.droppedThrough = later(l.droppedThrough, t) }

// Encode returns the ledger as text.
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
