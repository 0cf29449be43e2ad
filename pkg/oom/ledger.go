// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Limits bound the ledger.
type Limits struct {
	// Count is the maximum number of records, 1 or more.
	Count int
	// Bytes is the maximum size of the encoded records, more than 2.
	Bytes int
	// PerContainer is the maximum number of records of one container of a workload; 0 for no limit.
	PerContainer int
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
// ledger stores, by namespace, the time up to which it has dropped kills.
type Ledger struct {
	kills []Kill
	// droppedThrough is the time of the youngest kill of each namespace that was dropped for lack of space.
	droppedThrough map[string]time.Time
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

	var unreadable []UnreadableRecord
	var kills []Kill
	for _, r := range raw {
		var k Kill
		if err := json.Unmarshal(r, &k); err != nil {
			unreadable = append(unreadable, UnreadableRecord{Text: string(r), Err: err})
			continue
		}

		kills = append(kills, k)
	}

	l.merge(kills)
	return l, unreadable, nil
}

// merge adds records, each kill once.
func (l *Ledger) merge(kills []Kill) {
	seen := newIndex(l.kills)
	for _, k := range kills {
		if !seen.contains(k) {
			seen.add(k)
			l.kills = append(l.kills, k)
		}
	}

	slices.SortStableFunc(l.kills, compareByTime)
}

func compareByTime(a, b Kill) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.containerPath(), b.containerPath()), cmp.Compare(a.ID, b.ID))
}

// index finds records of the same kill in constant time.
type index struct {
	ids map[string]bool
	// places holds the IDs of records by container and second; the ID of gocrane's records is empty.
	places map[string][]string
}

func newIndex(kills []Kill) index {
	i := index{ids: make(map[string]bool, len(kills)), places: make(map[string][]string, len(kills))}
	for _, k := range kills {
		i.add(k)
	}

	return i
}

func (i index) key(k Kill) string {
	return k.containerPath() + "@" + k.At.UTC().Format(time.RFC3339Nano)
}

func (i index) add(k Kill) {
	if k.ID != "" {
		i.ids[k.ID] = true
	}
	i.places[i.key(k)] = append(i.places[i.key(k)], k.ID)
}

func (i index) contains(k Kill) bool {
	if k.ID != "" && i.ids[k.ID] {
		return true
	}

	for _, id := range i.places[i.key(k)] {
		if id == "" || k.ID == "" {
			return true
		}
	}

	return false
}

// Add adds kills and returns the new ones: those that are not known, not older than the limit, and not dropped before.
func (l *Ledger) Add(kills []Kill, now time.Time, limits Limits) []Kill {
	seen := newIndex(l.kills)
	surplus := l.surplus(limits)
	var added []Kill
	for _, k := range kills {
		if seen.contains(k) || now.Sub(k.At) > limits.Age || l.isDropped(k) || surplus(k) {
			continue
		}

		seen.add(k)
		added = append(added, k)
	}

	l.kills = append(l.kills, added...)
	slices.SortStableFunc(l.kills, compareByTime)
	return added
}

// Known reports whether a kill is in the ledger or too old for it.
func (l *Ledger) Known(k Kill, now time.Time, limits Limits) bool {
	if now.Sub(k.At) > limits.Age || l.isDropped(k) || l.surplus(limits)(k) {
		return true
	}

	return slices.ContainsFunc(l.kills, k.isSame)
}

// Prune drops records that are too old, then the oldest ones of containers with too many, then the oldest ones of the namespace with the most
// bytes until the rest is within the limits, and returns the number of dropped records. So a namespace whose containers are killed all the
// time drops its own records.
func (l *Ledger) Prune(now time.Time, limits Limits) int {
	before := len(l.kills)
	l.kills = slices.DeleteFunc(l.kills, func(k Kill) bool { return now.Sub(k.At) > limits.Age })
	maps.DeleteFunc(l.droppedThrough, func(_ string, t time.Time) bool { return now.Sub(t) > limits.Age })

	if limits.PerContainer > 0 {
		surplus := map[string]int{}
		for _, k := range l.kills {
			surplus[k.ownerPath()]++
		}

		l.kills = slices.DeleteFunc(l.kills, func(k Kill) bool { // The oldest come first.
			surplus[k.ownerPath()]--
			return surplus[k.ownerPath()] >= limits.PerContainer
		})
	}

	l.dropLargest(limits)
	return before - len(l.kills)
}

// dropLargest drops the oldest record of the namespace with the most bytes until the ledger is within the limits.
func (l *Ledger) dropLargest(limits Limits) {
	type share struct {
		bytes int
		// records are the indices of the remaining records of the namespace, oldest first.
		records []int
	}

	shares := map[string]*share{}
	sizes := make([]int, len(l.kills))
	total := 2 // The brackets.
	for i, k := range l.kills {
		raw, err := json.Marshal(k)
		if err != nil {
			continue // Encoding a kill does not fail.
		}

		s := shares[k.Namespace]
		if s == nil {
			s = &share{}
			shares[k.Namespace] = s
		}

		sizes[i] = len(raw) + 1 // The comma.
		total += sizes[i]
		s.bytes += sizes[i]
		s.records = append(s.records, i)
	}

	names := slices.Sorted(maps.Keys(shares))
	dropped := map[int]bool{}
	for len(dropped) < len(l.kills) && (len(l.kills)-len(dropped) > limits.Count || total > limits.Bytes) {
		largest := shares[slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(shares[a].bytes, shares[b].bytes) })]
		i := largest.records[0]
		dropped[i] = true
		largest.records = largest.records[1:]
		total -= sizes[i]
		largest.bytes -= sizes[i]
		l.setDroppedThrough(l.kills[i].Namespace, l.kills[i].At)
	}

	remaining := make([]Kill, 0, len(l.kills)-len(dropped))
	for i, k := range l.kills {
		if !dropped[i] {
			remaining = append(remaining, k)
		}
	}

	l.kills = remaining
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// Kills returns the records, oldest first. They must not be modified.
func (l *Ledger) Kills() []Kill { return l.kills }

// DroppedThrough returns, by namespace, the time up to which kills were dropped for lack of space. The empty namespace stands for all.
func (l *Ledger) DroppedThrough() map[string]time.Time { return maps.Clone(l.droppedThrough) }

// SetDroppedThrough restores a time that DroppedThrough returned in an earlier process.
func (l *Ledger) SetDroppedThrough(namespace string, t time.Time) { l.setDroppedThrough(namespace, t) }

// maxNamespaces bounds the namespaces for which the ledger stores the time of dropped kills.
const maxNamespaces = 500

func (l *Ledger) setDroppedThrough(namespace string, t time.Time) {
	if l.droppedThrough == nil {
		l.droppedThrough = map[string]time.Time{}
	}

	l.droppedThrough[namespace] = later(l.droppedThrough[namespace], t)
	if len(l.droppedThrough) > maxNamespaces {
		oldest := slices.MinFunc(slices.Sorted(maps.Keys(l.droppedThrough)), func(a, b string) int {
			return l.droppedThrough[a].Compare(l.droppedThrough[b])
		})
		delete(l.droppedThrough, oldest)
	}
}

// isDropped reports whether a kill is as old as one of its namespace that was dropped for lack of space.
func (l *Ledger) isDropped(k Kill) bool {
	return !k.At.After(l.droppedThrough[k.Namespace]) || !k.At.After(l.droppedThrough[""])
}

// surplus returns a function that reports whether a kill is older than all records of a container that has as many as it may.
func (l *Ledger) surplus(limits Limits) func(Kill) bool {
	type records struct {
		count  int
		oldest time.Time
	}

	byOwner := map[string]records{}
	for _, k := range l.kills { // The oldest come first.
		r := byOwner[k.ownerPath()]
		if r.count == 0 {
			r.oldest = k.At
		}

		r.count++
		byOwner[k.ownerPath()] = r
	}

	return func(k Kill) bool {
		r := byOwner[k.ownerPath()]
		return limits.PerContainer > 0 && r.count >= limits.PerContainer && k.At.Before(r.oldest)
	}
}

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
