// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostrecording

import "testing"

// Recorder is a recording in a test's directory.
type Recorder struct {
	Recording

	// Dir is the host's root directory.
	Dir string
	tb  testing.TB
}

// ForTest writes the first moment of a recording to a test's directory.
func ForTest(tb testing.TB, name string) *Recorder {
	tb.Helper()

	rec, err := Recorded(name)
	if err != nil {
		tb.Fatal(err)
	}

	r := &Recorder{Recording: rec, Dir: tb.TempDir(), tb: tb}
	r.To(0)
	return r
}

// To updates the directory to a moment.
func (r *Recorder) To(moment int) {
	r.tb.Helper()

	if err := r.Write(r.Dir, moment); err != nil {
		r.tb.Fatal(err)
	}
}

// Multiply calls the function Multiply for the directory.
func (r *Recorder) Multiply(uid string, copies int) {
	r.tb.Helper()

	if err := Multiply(r.Recording, r.Dir, uid, copies); err != nil {
		r.tb.Fatal(err)
	}
}
