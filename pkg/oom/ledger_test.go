// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	roomy = Limits{Count: 1000, Bytes: 1 << 20, Age: 14 * 24 * time.Hour}
)

func kill(n int, at time.Time) Kill {
	name := fmt.Sprintf("web-%d", n)
	return Kill{
		ID: NewID("uid-"+name, "app", at.String()), Namespace: "shop", Pod: name, Container: "app", Memory: 512 << 20, At: at,
		Cause: Killed, Owner: Owner{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}
}

// TestParse_GocraneRecords checks that records of gocrane are read, and that its record of a kill that is still visible is
// that kill.
func TestParse_GocraneRecords(t *testing.T) {
	const theirs = `[{"Namespace":"shop","Pod":"web-1","Container":"app","Memory":"512Mi","OOMAt":"2026-03-01T11:00:00Z"},
		{"Namespace":"shop","Pod":"web-2","Container":"app","Memory":"1073741824","OOMAt":"2026-03-01T13:00:00+02:00"}]`

	l, bad, err := Parse(theirs)
	if err != nil || len(bad) != 0 || len(l.Kills()) != 2 {
		t.Fatalf("Parse(gocrane's records) = %v, %v, %v; want 2 kills", l.Kills(), bad, err)
	}

	for i, want := range []Kill{
		{Namespace: "shop", Pod: "web-1", Container: "app", Memory: 512 << 20, At: noon.Add(-time.Hour)},
		{Namespace: "shop", Pod: "web-2", Container: "app", Memory: 1 << 30, At: noon.Add(-time.Hour)},
	} {
		if got := l.Kills()[i]; got != want {
			t.Errorf("Parse(gocrane's records): kill %d is %+v, want %+v", i, got, want)
		}
	}

	seen := kill(1, noon.Add(-time.Hour))
	if added := l.Add([]Kill{seen, kill(3, noon)}, noon, roomy); len(added) != 1 || added[0].Pod != "web-3" {
		t.Errorf("Add(web-1 again, web-3) added %v, want web-3 alone", added)
	}

	text, err := l.Encode()
	if err != nil || !strings.Contains(text, `{"Namespace":"shop","Pod":"web-1","Container":"app","Memory":"512Mi","OOMAt":"2026-03-01T11:00:00Z"}`) {
		t.Errorf("Encode() = %s, %v; want the record of web-1 in gocrane's format", text, err)
	}
}

func TestParse_InvalidText(t *testing.T) {
	good := `{"Namespace":"a","Pod":"b","Container":"c","Memory":"1Gi","OOMAt":"2026-03-01T11:00:00Z"}`
	for name, c := range map[string]struct {
		text       string
		kills      int
		bad        int
		unreadable bool
	}{
		"empty":          {"", 0, 0, false},
		"blank":          {" \n", 0, 0, false},
		"null":           {"null", 0, 0, false},
		"words":          {"please do not touch", 0, 0, true},
		"an object":      {good, 0, 0, true},
		"cut off":        {"[" + good[:40], 0, 0, true},
		"twice":          {"[" + good + "," + good + "]", 1, 0, false},
		"a number":       {"[1," + good + "]", 1, 1, false},
		"no pod":         {`[{"Namespace":"a"}]`, 0, 1, false},
		"bad memory":     {"[" + strings.Replace(good, "1Gi", "much", 1) + "]", 0, 1, false},
		"negative":       {"[" + strings.Replace(good, "1Gi", "-1Gi", 1) + "]", 0, 1, false},
		"no time":        {"[" + strings.Replace(good, "2026-03-01T11:00:00Z", "0001-01-01T00:00:00Z", 1) + "]", 0, 1, false},
		"far off":        {"[" + strings.Replace(good, "2026", "9999", 1) + "]", 0, 1, false},
		"endless name":   {"[" + strings.Replace(good, `"b"`, `"`+strings.Repeat("b", 300)+`"`, 1) + "]", 0, 1, false},
		"wrong type":     {"[" + strings.Replace(good, `"b"`, `7`, 1) + "]", 0, 1, false},
		"unknown fields": {"[" + strings.Replace(good, `"Pod"`, `"x":{},"Pod"`, 1) + "]", 1, 0, false},
	} {
		l, bad, err := Parse(c.text)
		if len(l.Kills()) != c.kills || len(bad) != c.bad || (err != nil) != c.unreadable {
			t.Errorf("Parse(%s) = %v, %v, %v; want %d kills, %d unreadable records, an error: %t", name, l.Kills(), bad, err, c.kills, c.bad, c.unreadable)
		}
	}
}

// TestOnce: a kill that is seen again, by the same process or another, is not added again; a kill of another run is added.
func TestAdd_EachKillOnce(t *testing.T) {
	l := &Ledger{}
	first := kill(1, noon)
	second := kill(1, noon.Add(time.Second))

	if got := l.Add([]Kill{first, first}, noon, roomy); len(got) != 1 {
		t.Errorf("Add of one kill twice added %v, want it once", got)
	}

	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}

	next, _, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	if got := next.Add([]Kill{first, second}, noon.Add(time.Minute), roomy); len(got) != 1 || got[0] != second {
		t.Errorf("Add after a restart added %v, want the second run %v alone", got, second)
	}

	// Two runs that ended within one second are two kills.
	third := second
	third.ID = "another"
	if got := next.Add([]Kill{third}, noon.Add(time.Minute), roomy); len(got) != 1 {
		t.Errorf("Add of another run that ended in the same second added %v, want 1 kill", got)
	}
}

// TestAdd_DroppedKillsStayDropped checks that a dropped record does not return, not even after a restart.
func TestAdd_DroppedKillsStayDropped(t *testing.T) {
	tight := Limits{Count: 2, Bytes: 1 << 20, Age: roomy.Age}
	l := &Ledger{}
	all := []Kill{kill(1, noon), kill(2, noon.Add(time.Minute)), kill(3, noon.Add(2*time.Minute))}
	l.Add(all, noon.Add(time.Hour), tight)

	if n := l.Prune(noon.Add(time.Hour), tight); n != 1 || !l.DroppedThrough()[all[0].Namespace].Equal(noon) {
		t.Errorf("Prune dropped %d records, through %v; want 1, through %v", n, l.DroppedThrough(), noon)
	}

	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}

	next, _, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	for namespace, through := range l.DroppedThrough() {
		next.SetDroppedThrough(namespace, through)
	}

	if got := next.Add(all, noon.Add(time.Hour), tight); len(got) != 0 {
		t.Errorf("Add after a restart added dropped kills: %v, want none", got)
	}
	if dropped := all[0]; !next.Known(dropped, noon.Add(time.Hour), tight) {
		t.Errorf("Known(%v) = false, want true for a dropped kill", dropped)
	}
	if unknown := kill(4, noon.Add(time.Hour)); next.Known(unknown, noon.Add(time.Hour), tight) {
		t.Errorf("Known(%v) = true, want false for a new kill", unknown)
	}

	old := kill(5, noon.Add(-roomy.Age))
	if got := next.Add([]Kill{old}, noon.Add(time.Hour), tight); len(got) != 0 {
		t.Errorf("Add added %v, want none: the kill is too old", got)
	}
}

// TestFloodOfOneNamespace: a namespace whose containers are killed all the time loses its own records, and no others.
func TestFloodOfOneNamespace(t *testing.T) {
	limits := Limits{Count: 10_000, Bytes: 10 << 10, PerContainer: 20, Age: roomy.Age}
	l := &Ledger{}
	honest := kill(1, noon)
	honest.Namespace = "honest"
	honest.Owner = Owner{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	l.Add([]Kill{honest}, noon, limits)

	at := noon
	for i := range 600 {
		at = at.Add(time.Second)
		flood := kill(1000+i, at)

		// Pods without an owner: each has a limit of its own, so that only the share of the namespace bounds them.
		flood.Namespace = "attacker"
		flood.Pod = fmt.Sprintf("bare-%d", i)
		flood.Owner = Owner{}
		l.Add([]Kill{flood}, at, limits)
		l.Prune(at, limits)
	}

	// It was killed a while ago, and is seen only now.
	late := kill(2, at.Add(-5*time.Minute))
	late.Namespace, late.Owner = honest.Namespace, honest.Owner
	if added := l.Add([]Kill{late}, at, limits); len(added) != 1 {
		t.Errorf("Add added %v, want the late kill of a namespace that lost no records", added)
	}

	l.Prune(at, limits)
	count := 0
	for _, k := range l.Kills() {
		if k.Namespace == "honest" {
			count++
		}
	}

	if text, err := l.Encode(); err != nil || len(text) > limits.Bytes || count != 2 {
		t.Errorf("the ledger has %d records of honest in %d bytes, %v; want 2 in at most %d bytes", count, len(text), err, limits.Bytes)
	}
}

// TestCapPerContainer: the newest records of a container are kept, and the others do not come back.
func TestCapPerContainer(t *testing.T) {
	limits := Limits{Count: 10_000, Bytes: 1 << 20, PerContainer: 3, Age: roomy.Age}
	l := &Ledger{}

	var all []Kill
	for i := range 10 {
		k := kill(i, noon.Add(time.Duration(i)*time.Minute))
		k.Pod = fmt.Sprintf("web-%d", i)
		k.Container = "app"
		k.Owner = Owner{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
		all = append(all, k)
	}

	now := noon.Add(time.Hour)
	l.Add(all, now, limits)

	if n := l.Prune(now, limits); n != 7 || !slices.Equal(l.Kills(), all[7:]) {
		t.Errorf("Prune dropped %d records and left %v; want 7 dropped and the last 3 left", n, l.Kills())
	}
	if added := l.Add(all, now, limits); len(added) != 0 || !l.Known(all[0], now, limits) {
		t.Errorf("Add added dropped kills: %v, want none, and the first one known", added)
	}
}

// TestPrune_RandomKills checks for kills in any order that the ledger stays within its limits, is sorted by time, and contains each kill
// once.
func TestPrune_RandomKills(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limits := Limits{Count: 1 + rng.IntN(20), Bytes: 2 + rng.IntN(4000), Age: time.Duration(1+rng.IntN(100)) * time.Hour}
		l := &Ledger{}
		for range 30 {
			now := noon.Add(time.Duration(rng.IntN(50)) * time.Hour) // The clock may be set back.
			var batch []Kill
			for range rng.IntN(5) {
				batch = append(batch, kill(rng.IntN(40), now.Add(-time.Duration(rng.IntN(200))*time.Hour)))
			}

			l.Add(batch, now, limits)

			l.Prune(now, limits)
			text, err := l.Encode()
			if err != nil || len(text) > limits.Bytes || len(l.Kills()) > limits.Count {
				t.Fatalf("%d records in %d bytes, %v; want at most %+v", len(l.Kills()), len(text), err, limits)
			}
			if !slices.IsSortedFunc(l.Kills(), compareByTime) {
				t.Fatalf("Kills() = %v, want them sorted by time", l.Kills())
			}

			ids := map[string]bool{}
			for _, k := range l.Kills() {
				if ids[k.ID] {
					t.Fatalf("Kills() has %+v twice, want it once", k)
				}

				ids[k.ID] = true
			}

			if again, bad, err := Parse(text); err != nil || len(bad) > 0 || !slices.Equal(again.Kills(), l.Kills()) {
				t.Fatalf("Parse(Encode()) = %v, %v, %v; want the same %d kills", again.Kills(), bad, err, len(l.Kills()))
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("")
	f.Add(`[{"Namespace":"a","Pod":"b","Container":"c","Memory":"1Gi","OOMAt":"2026-03-01T11:00:00Z"}]`)
	f.Add(`[{"Namespace":"a","Pod":"b","Container":"c","Memory":"1e99","OOMAt":"2026-03-01T11:00:00Z","Owner":{"kind":"x"},"ID":"y"},{}]`)

	f.Fuzz(func(t *testing.T, text string) {
		l, _, err := Parse(text)
		if err != nil && len(l.Kills()) > 0 {
			t.Fatalf("Parse(%q) = %v and error %v, want no kills with an error", text, l.Kills(), err)
		}

		written, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}

		again, bad, err := Parse(written)
		if err != nil || len(bad) > 0 || !slices.Equal(again.Kills(), l.Kills()) {
			t.Fatalf("Parse(Encode(Parse(%q))) = %v, %v, %v; want %v", text, again.Kills(), bad, err, l.Kills())
		}

		for _, k := range l.Kills() {
			if k.Memory < 0 {
				t.Fatalf("Parse(%q) has negative memory in %+v, want none below 0", text, k)
			}
		}

		l.Prune(noon, Limits{Count: 1, Bytes: 100, Age: time.Hour})
	})
}
