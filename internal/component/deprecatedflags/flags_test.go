// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package deprecatedflags

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// TestAdd checks that a flag without an effect is accepted with underscores and with dashes, that booleans need no value, that
// an existing flag is kept, and that flags that were set are reported.
func TestAdd(t *testing.T) {
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	fs.SetNormalizeFunc(NormalizeDashes)
	served := fs.String("taken-up", "own", "It does something.")
	Add(fs, append([]Flag{{"taken-up", "old", "nothing"}, {"gone", "", "use --other"}}, LogFlags()...))

	if err := fs.Parse([]string{"--gone=5", "--log_dir=/tmp", "--logtostderr", "--taken-up=new"}); err != nil {
		t.Fatal(err)
	}

	if *served != "new" {
		t.Errorf("--taken-up is %q, want new", *served)
	}

	got := Warnings(fs)
	want := []string{
		"--gone has no effect: use --other",
		"--log-dir has no effect: logs are lines on standard error; see --log-format and -v",
		"--logtostderr has no effect: logs are lines on standard error; see --log-format and -v",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	for _, f := range LogFlags() {
		if found := fs.Lookup(f.Name); found == nil || !found.Hidden || found.DefValue != f.Default {
			t.Errorf("--%s: %+v, want a hidden flag with the default %q", f.Name, found, f.Default)
		}
	}
}
