// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"crane.io/crane/pkg/series"
)

var gap = series.Gap()

func read(t *testing.T, content string) File {
	t.Helper()

	f, err := Read(strings.NewReader(content), "x.csv")
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func TestRead(t *testing.T) {
	start := time.Unix(600, 0).UTC()
	minutes := func(values ...float64) series.Series {
		return series.Series{Start: start, Step: time.Minute, Values: values}
	}
	for _, c := range []struct {
		name, content string
		want          File
	}{
		{"plain", "ts,value\n600,1\n660,2.5\n", File{Series: minutes(1, 2.5), Rows: 2}},
		{"no newline at the end", "ts,value\n600,1\n660,2", File{Series: minutes(1, 2), Rows: 2}},
		{"byte order mark", "\xef\xbb\xbfts,value\n600,1\n660,2\n", File{Series: minutes(1, 2), Rows: 2}},
		{"CRLF", "ts,value\r\n600,1\r\n660,2\r\n", File{Series: minutes(1, 2), Rows: 2}},
		{"blank lines", "ts,value\n\n600,1\n  \n\r\n660,2\n\n", File{Series: minutes(1, 2), Rows: 2}},
		{"spaces and quotes", "\"TS\" , \"Value\"\n \"600\" , \"1\"\n660 ,\t2\n", File{Series: minutes(1, 2), Rows: 2}},
		{"decimals and RFC 3339", "ts,value\n600.0,1\n1970-01-01T00:11:00Z,2\n7.2e2,3\n", File{Series: minutes(1, 2, 3), Rows: 3}},
		{"a hole", "ts,value\n600,1\n660,2\n840,5\n", File{Series: minutes(1, 2, gap, gap, 5), Rows: 3}},
		{"gaps as text", "ts,value\n600,1\n660,\n720,NaN\n780,nan\n840,5\n", File{Series: minutes(1, gap, gap, gap, 5), Rows: 5}},
		{
			"impossible values", "ts,value\n600,1\n660,-2\n720,Inf\n780,-inf\n840,1e999\n900,6\n",
			File{Series: minutes(1, gap, gap, gap, gap, 6), Rows: 6, Invalid: 4},
		},
		{"unsorted", "ts,value\n720,3\n600,1\n660,2\n", File{Series: minutes(1, 2, 3), Rows: 3}},
		{"the last of several wins", "ts,value\n600,1\n660,7\n720,3\n660,2\n", File{Series: minutes(1, 2, 3), Rows: 4, Replaced: 1}},
		{"off the grid", "ts,value\n600,1\n660,2\n721,3\n779,4\n840,5\n900,6\n", File{Series: minutes(1, 2, 3, 4, 5, 6), Rows: 6}},
		{"one row", "ts,value\n600,1\n", File{Series: minutes(1), Rows: 1}},
		{"no row", "ts,value\n", File{}},
		{"negative zero", "ts,value\n600,-0\n660,1\n", File{Series: minutes(math.Copysign(0, -1), 1), Rows: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(t, c.content)
			c.want.Name = "x.csv"
			if diff := cmp.Diff(c.want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("Read(%q) differs (-want +got):\n%s", c.content, diff)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"text in a number", "ts,value\n600,1\n660,abc\n", `x.csv:3: value "abc" is not a number`},
		{"text in a time", "ts,value\n600,1\nyesterday,1\n", `x.csv:3: time "yesterday": must be seconds since 1970 or RFC 3339`},
		{"hexadecimal", "ts,value\n600,0x10\n", `x.csv:2: value "0x10" is not a number`},
		{"a decimal comma", "ts,value\n600,1,5\n", `x.csv:2: "600,1,5": must have two fields, ts,value`},
		{"one field", "ts,value\n\n600\n", `x.csv:3: "600": must have two fields, ts,value`},
		{"milliseconds", "ts,value\n1633017600000,1\n", `x.csv:2: time "1633017600000" lies after 2199: must be in seconds, not milliseconds`},
		{"before 1970", "ts,value\n-1,1\n", `x.csv:2: time "-1" lies before 1970`},
		{"no time", "ts,value\nNaN,1\n", `x.csv:2: time "NaN" lies before 1970`},
		{"a long line", "ts,value\n600," + strings.Repeat("1", maxLine) + "\n", `x.csv:2: a line of more than 4096 bytes`},
		{
			"a hole of ten years", "ts,value\n600,1\n660,1\n315360660,1\n",
			`x.csv:4: no values for 87600h0m0s before this row: at a step of 1m0s the series would have more than 2097152 values; split the file`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.content), "x.csv")
			if err == nil || err.Error() != c.want {
				t.Errorf("Read(%q): error %v, want %s", c.content, err, c.want)
			}
		})
	}
}

func TestReadKnowsOtherFiles(t *testing.T) {
	for _, content := range []string{
		"", "\n", "600,1\n", "time,value\n1,2\n", "ts;value\n", "ts,value,unit\n", "name,cpu_milli\n", "\xff\xfet\x00s\x00", "<html>",
		strings.Repeat("a", 10*maxLine),
	} {
		if _, err := Read(strings.NewReader(content), "x.csv"); !errors.Is(err, ErrNotSeries) {
			t.Errorf("Read(%.20q): error %v, want ErrNotSeries", content, err)
		}
	}
}

func TestHostileHolesTakeNoMemory(t *testing.T) {
	var content strings.Builder
	content.WriteString("ts,value\n")

	for i := range 1000 {
		fmt.Fprintf(&content, "%d,1\n%d,1\n", i*7000000, i*7000000+1)
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	if _, err := Read(strings.NewReader(content.String()), "x.csv"); err == nil {
		t.Error("want an error for holes of weeks at a step of a second")
	}

	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("Read allocated %d bytes for 2000 rows, want at most %d", grown, 4<<20)
	}
}

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()

		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("b.csv", "ts,value\n60,1\n120,2\n")
	write("a.CSV", "ts,value\n60,1\n")
	write("nodes.csv", "name,cpu\nn1,3\n")
	write("empty.csv", "ts,value\n")
	write("gaps.csv", "ts,value\n60,NaN\n")
	write("README.md", "ts,value\n60,1\n")

	if err := os.Mkdir(filepath.Join(dir, "more.csv"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("nowhere", filepath.Join(dir, "link.csv")); err != nil {
		t.Fatal(err)
	}

	files, skipped, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var names, lines []string
	for _, f := range files {
		names = append(names, f.Name)
	}

	for _, s := range skipped {
		lines = append(lines, strings.ReplaceAll(s.String(), dir+string(filepath.Separator), ""))
	}

	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("ReadDir: names of the series differ (-want +got):\n%s", diff)
	}

	want := []string{
		"skipping README.md: its name does not end in .csv",
		"skipping empty.csv: it has no samples",
		"skipping gaps.csv: it has no samples",
		"skipping link.csv: it cannot be opened",
		"skipping more.csv: it is a directory",
		`skipping nodes.csv: the first line is not "ts,value"`,
	}

	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("ReadDir: skipped files differ (-want +got):\n%s", diff)
	}

	write("c.csv", "ts,value\n60,1\n120,two\n")
	if _, _, err := ReadDir(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "c.csv")+":3:") {
		t.Errorf("ReadDir with an invalid row: error %v, want one with file and line", err)
	}
	if _, _, err := ReadDir(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadDir of a missing directory: error %v, want os.ErrNotExist", err)
	}
}

func TestReadRealTraces(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "traces")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no traces beside the checkout: %v", err)
	}

	files, skipped, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(files) != 8 || len(skipped) != 3 {
		t.Errorf("ReadDir(%s) returned %d series and skipped %d files, want 8 and 3: %v", dir, len(files), len(skipped), skipped)
	}

	for _, f := range files {
		if f.Series.Step != time.Minute || f.Samples() != f.Rows || len(f.Series.Values) != f.Rows {
			t.Errorf("%s: %d rows, %d samples, %d values every %v: want no gap at one minute",
				f.Name, f.Rows, f.Samples(), len(f.Series.Values), f.Series.Step)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"ts,value\n600,1\n660,2\n", "\xef\xbb\xbfts,value\r\n600,1\r\n", "ts,value\n600,\n660,NaN\n720,-1\n",
		"ts,value\n1970-01-01T00:10:00Z,1\n600.5,2\n", "ts,value\n600,abc\n", "ts,value\n0,1\n7258118399,1\n1,1\n",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, content string) {
		file, err := Read(strings.NewReader(content), "x.csv")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.csv:") {
				t.Errorf("Read(%q): error %q, want one that names the file and line", content, err)
			}

			return
		}

		s := file.Series
		if len(s.Values) > MaxCells || len(s.Values) > 0 && s.Step <= 0 || file.Rows > 0 && len(s.Values) == 0 {
			t.Errorf("Read(%q) returned %d rows and %d values every %v, want at most %d values, a step, and values for rows", content, file.Rows, len(s.Values), s.Step, MaxCells)
		}
		if file.Samples()+file.Invalid+file.Replaced > file.Rows {
			t.Errorf("Read(%q) = %+v with %d samples, want no more samples than rows", content, file, file.Samples())
		}

		for i, v := range s.Values {
			if v < 0 || math.IsInf(v, 0) {
				t.Errorf("Read(%q): value %d is %v, want finite values of at least 0", content, i, v)
			}
		}
	})
}
