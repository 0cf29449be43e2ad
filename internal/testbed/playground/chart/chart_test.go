// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func samplePoints() []Point {
	return []Point{
		{0, 140, 2, 2}, {10 * time.Second, 141, 7, 2}, {20 * time.Second, 142, 7, 7}, {30 * time.Second, 560, 8, 7}, {40 * time.Second, 720, 8, 7},
	}
}

func risen(load float64) bool { return load > 300 }

func TestRow(t *testing.T) {
	s := Scale{PodCapacity: 100, MaxLoad: 800}
	for _, c := range []struct {
		p    Point
		want string
	}{
		{Point{0, 400, 6, 4}, "    0s  load   400  pods  4 of  6  " + strings.Repeat("▒", 28) + "│"},
		{Point{time.Minute, 0, 0, 0}, "  1m0s  load     0  pods  0 of  0  │"},
		{Point{time.Second, 5000, 90, 90}, "    1s  load  5000  pods 90 of 90  " + strings.Repeat("▒", 55) + "│"},
	} {
		if got := s.Row(c.p); got != c.want {
			t.Errorf("Row(%+v) = %q, want %q", c.p, got, c.want)
		}
	}
}

func TestSummary(t *testing.T) {
	s := Scale{PodCapacity: 100, MaxLoad: 800}
	late := samplePoints()
	late[1].Desired, late[2].Desired = 2, 2
	for name, c := range map[string]struct {
		points []Point
		want   string
	}{
		"ahead":      {samplePoints(), "the pods rose after 10s, the load after 30s: 20s ahead; in 1 of 5 samples"},
		"too late":   {late, "the pods rose after 30s, the load after 30s: too late"},
		"no load":    {samplePoints()[:3], "the load did not rise"},
		"no pods":    {samplePoints()[:1], "the number of pods did not rise"},
		"no samples": {nil, "no samples"},
	} {
		if got := s.Summary(c.points, risen); !strings.Contains(got, c.want) {
			t.Errorf("%s: Summary = %q, want a text with %q", name, got, c.want)
		}
	}
}

func TestSVGIsXML(t *testing.T) {
	for _, points := range [][]Point{samplePoints(), samplePoints()[:1]} {
		var b strings.Builder
		if err := (Scale{PodCapacity: 100, MaxLoad: 800}).SVG(&b, `<pods & "load">`, points); err != nil {
			t.Fatal(err)
		}

		d := xml.NewDecoder(strings.NewReader(b.String()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("SVG of %d points: decoding: %v, want valid XML; got\n%s", len(points), err, b.String())
			}
		}

		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "%!") {
			t.Errorf("SVG of %d points contains NaN or a formatting error, want numbers only; got\n%s", len(points), b.String())
		}
	}
}
