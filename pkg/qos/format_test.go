// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import "testing"

func TestFormatValue(t *testing.T) {
	for want, c := range map[string]struct {
		v    float64
		unit string
	}{
		"24576.0 MiB": {24 << 30, "bytes"}, "1.5 MiB/s": {3 << 19, "bytes/s"}, "1000 bytes": {1000, "bytes"}, "50.5 percent": {50.5, "percent"},
		"-2.0 MiB": {-2 << 20, "bytes"}, "8000 millicores": {8000, "millicores"}, "1": {1, ""},
	} {
		if got := FormatValue(c.v, c.unit); got != want {
			t.Errorf("%g %q: %q, want %q", c.v, c.unit, got, want)
		}
	}
}
