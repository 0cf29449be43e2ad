// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// recordedRow is a row of a table of what Kubernetes reads in an expression: the next times after a time, as texts.
type recordedRow struct {
	text string
	from time.Time
	next []string
}

// readTable reads the table that hack/tools/crontable recorded.
func readTable(tb testing.TB) []recordedRow {
	tb.Helper()

	const path = "testdata/kubernetes.tsv"
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}

	var rows []recordedRow
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}

		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) != 3 {
			tb.Fatalf("%s: line %q has %d columns, want 3", path, line, len(columns))
		}

		text, err := strconv.Unquote(columns[0])
		if err != nil {
			tb.Fatalf("%s: line %q: %v", path, line, err)
		}

		from, err := time.Parse(time.RFC3339, columns[1])
		if err != nil {
			tb.Fatalf("%s: line %q: %v", path, line, err)
		}

		rows = append(rows, recordedRow{text: text, from: from, next: strings.Fields(columns[2])})
	}

	const leastRows = 1500
	if len(rows) < leastRows {
		tb.Fatalf("%s has %d rows, want at least %d", path, len(rows), leastRows)
	}

	return rows
}

// nextTimes returns what the table has of an expression.
func nextTimes(row recordedRow) []string {
	schedule, err := Parse(row.text)
	if err != nil {
		return []string{"refused"}
	}

	var times []string
	at := row.from
	for range 3 {
		at = schedule.Next(at)
		if at.IsZero() {
			return append(times, "never")
		}

		times = append(times, at.Format(time.RFC3339))
	}

	return times
}

func TestParse_Recorded(t *testing.T) {
	accepted := 0
	for _, row := range readTable(t) {
		got := nextTimes(row)
		want := row.next
		// The library of Kubernetes searches five years, Next eight.
		if last := len(want) - 1; want[last] == "never" && len(got) > last {
			got = got[:last]
			want = want[:last]
		}

		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("times of %q after %s: got %q, want %q", row.text, row.from.Format(time.RFC3339), got, want)
		}
		if len(got) > 1 {
			accepted++
		}
	}

	const leastAccepted = 700
	if accepted < leastAccepted {
		t.Errorf("%d rows have times, want at least %d", accepted, leastAccepted)
	}
}

// TestLast_Recorded: between a time of a schedule and the next one, the latest is that time.
func TestLast_Recorded(t *testing.T) {
	for _, row := range readTable(t) {
		schedule, err := Parse(row.text)
		if err != nil || schedule.Interval() > 0 || len(row.next) < 2 || row.next[1] == "never" {
			continue
		}

		first, errFirst := time.Parse(time.RFC3339, row.next[0])
		second, errSecond := time.Parse(time.RFC3339, row.next[1])
		if errFirst != nil || errSecond != nil {
			t.Fatalf("times of %q: %v, %v", row.text, errFirst, errSecond)
		}

		for _, at := range []time.Time{first, second.Add(-time.Nanosecond)} {
			if got := schedule.Last(at); !got.Equal(first) {
				t.Errorf("Last of %q at %s = %s, want %s", row.text, at, got, first)
			}
		}
		if got := schedule.Last(row.from); got.After(row.from) {
			t.Errorf("Last of %q at %s = %s, want none after it", row.text, row.from, got)
		}
	}
}

func TestParse_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "0 fields, want 5",
		"0 8 * *":                     "4 fields, want 5",
		"61 8 * * *":                  `minute "61": 61 is more than 59`,
		"0 8-x * * *":                 `hour "8-x": "x" is not a number or a name`,
		"0 0 0 * *":                   `day of the month "0": 0 is less than 1`,
		"0 0 * 12-1 *":                `month "12-1": range from 12 to 1: ends before it begins`,
		"0 0 * * mon/0":               `day of the week "mon/0": step 0: must be positive`,
		"-1 8 * * *":                  `minute "-1"`,
		"*/-1 8 * * *":                "-1: must not be negative",
		"@reboot":                     "unknown descriptor",
		"@every soon":                 "@every: time: invalid duration",
		"TZ=UTC 0 8 * * *":            "time zone of its own",
		"TZ=UTC":                      "time zone of its own",
		"CRON_TZ=UTC\t0\t8\t*\t*\t*":  "time zone of its own",
		"TZ=../../../etc/passwd 0 8 ": "time zone of its own",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) error = %v, want one with %q", text, err, want)
		}
	}
}

// TestNext_RareDates: dates that come once in eight years are found, those that do not exist are not.
func TestNext_RareDates(t *testing.T) {
	from := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"0 0 29 2 *": time.Date(2104, 2, 29, 0, 0, 0, 0, time.UTC),
		"0 0 30 2 *": {},
		"0 0 31 4 *": {},
	} {
		schedule, err := Parse(text)
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}

		if got := schedule.Next(from); !got.Equal(want) {
			t.Errorf("Next of %q after %s = %s, want %s", text, from, got, want)
		}
		if got := schedule.Last(from.AddDate(8, 0, -2)); want.IsZero() != got.IsZero() {
			t.Errorf("Last of %q = %s, want a time only if there is one", text, got)
		}
	}
}

// FuzzParse: no text panics or is accepted without times in order.
func FuzzParse(f *testing.F) {
	for i, row := range readTable(f) {
		if i < 200 {
			f.Add(row.text, row.from.Unix())
		}
	}

	f.Add("TZ=UTC\t0\t8\t*\t*\t*", int64(0))
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		schedule, err := Parse(text)
		if err != nil {
			return
		}

		at := time.Unix(seconds%4_000_000_000, 0)
		next := schedule.Next(at)
		if schedule.Interval() > 0 {
			if !next.After(at) {
				t.Fatalf("Next of %q after %s = %s, want a later time", text, at, next)
			}

			return
		}

		if !next.IsZero() && (!next.After(at) || !schedule.Last(next).Equal(next) || !schedule.Next(next.Add(-time.Nanosecond)).Equal(next)) {
			t.Fatalf("Next of %q after %s = %s: Last there is %s, want a later time that is the latest one", text, at, next, schedule.Last(next))
		}
		if last := schedule.Last(at); last.After(at) || !last.IsZero() && !next.IsZero() && !schedule.Next(last.Add(-time.Minute)).Equal(last) {
			t.Fatalf("Last of %q at %s = %s, want a time of the schedule that is not later", text, at, last)
		}
	})
}
