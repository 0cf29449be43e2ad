// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deprecatedflags keeps flags of gocrane's binaries working that have lost their meaning: they are accepted, so that manifests keep
// working, and the log says what to use. Which flags these are each binary says.
package deprecatedflags

import (
	"strings"

	"github.com/spf13/pflag"
)

// Flag is a flag that has lost its meaning.
type Flag struct {
	Name string
	// Default is gocrane's; a flag whose default is a boolean needs no value.
	Default string
	// Replacement says why the flag has no effect, or what has taken its place.
	Replacement string
}

// Annotation marks a flag without effect and holds what to use instead.
const Annotation = "crane.io/retired"

// LogFlags are those of the log that all of gocrane's binaries have.
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

// Add adds those that the binary has not taken up, out of sight of --help.
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

// Warnings names the flags that were set and have no effect.
func Warnings(fs *pflag.FlagSet) []string {
	var out []string
	fs.Visit(func(f *pflag.Flag) {
		if instead, ok := f.Annotations[Annotation]; ok {
			out = append(out, "--"+f.Name+" has no effect: "+strings.Join(instead, ", "))
		}
	})
	return out
}

// NormalizeDashes lets flags be written with underscores, as klog's are.
func NormalizeDashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
