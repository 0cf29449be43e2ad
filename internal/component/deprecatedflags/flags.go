// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deprecatedflags accepts flags of gocrane's binaries that no longer have an effect, so that existing manifests keep
// working, and warns of those that are set. Each binary has its own list.
package deprecatedflags

import (
	"strings"

	"github.com/spf13/pflag"
)

// Flag is a flag without an effect.
type Flag struct {
	Name string
	// Default is gocrane's default; a flag with a boolean default needs no value.
	Default string
	// Replacement explains why the flag has no effect, or what replaces it.
	Replacement string
}

// Annotation marks a flag without an effect; its value is the Replacement.
const Annotation = "crane.io/retired"

// LogFlags returns the log flags that all of gocrane's binaries have.
func LogFlags() []Flag {
	const logs = "logs are lines on standard error; see --log-format and -v"
	return []Flag{
		{"add-dir-header", "false", logs},
		{"alsologtostderr", "false", logs},
		{"log-backtrace-at", ":0", logs},
		{"log-dir", "", logs},
		{"log-file", "", logs},
		{"log-file-max-size", "1800", logs},
		{"logtostderr", "true", logs},
		{"one-output", "false", logs},
		{"skip-headers", "false", logs},
		{"skip-log-headers", "false", logs},
		{"stderrthreshold", "2", logs},
		{"vmodule", "", logs},
	}
}

// Add adds the flags that fs does not define yet, hidden from --help.
func Add(fs *pflag.FlagSet, list []Flag) {
	for _, r := range list {
		if fs.Lookup(r.Name) != nil {
			continue
		}

		fs.String(r.Name, r.Default, "No effect: "+r.Replacement+".")
		f := fs.Lookup(r.Name)

		f.Hidden = true
		f.Annotations = map[string][]string{Annotation: {r.Replacement}}
		if r.Default == "true" || r.Default == "false" {
			f.NoOptDefVal = "true"
		}
	}
}

// Warnings returns a warning for each flag that was set and has no effect.
func Warnings(fs *pflag.FlagSet) []string {
	var out []string
	fs.Visit(func(f *pflag.Flag) {
		if instead, ok := f.Annotations[Annotation]; ok {
			out = append(out, "--"+f.Name+" has no effect: "+strings.Join(instead, ", "))
		}
	})

	return out
}

// NormalizeDashes accepts underscores in the names of flags, as klog does.
func NormalizeDashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
