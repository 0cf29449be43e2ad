// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package units

import (
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "168h": 168 * time.Hour, "90s": 90 * time.Second,
		" 1h30m ": 90 * time.Minute, "0": 0, "0d": 0, "100000d": 100000 * 24 * time.Hour,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}

	for _, text := range []string{"", " ", "d", "-7d", "-1h", "7", "1.5d", "7d7d", "7d-1h", "7d+1h", "seven", "106752d", "7D", "1h7d", "9999999999999999999d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		} else if text != "" && strings.TrimSpace(text) != "" && !strings.Contains(err.Error(), text) {
			t.Errorf("ParseDuration(%q): error %q does not quote the text", text, err)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"7d", "1d12h", "", "-1h", "1h30m", "99999d23h59m59s"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}

		if d < 0 {
			t.Fatalf("ParseDuration(%q) = %v, want 0 or more", text, d)
		}

		back, err := ParseDuration(FormatDuration(d))
		if err != nil || back != d {
			t.Fatalf("ParseDuration(FormatDuration(%v) = %q) = %v, %v; want %v", d, FormatDuration(d), back, err, d)
		}
	})
}
