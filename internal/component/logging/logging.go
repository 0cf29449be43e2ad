// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logging configures the structured log of Crane's processes.
package logging

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/component/termtext"
)

const (
	formatText = "text"
	formatJSON = "json"
)

// Options are the settings of the log.
type Options struct {
	// Format is text or json.
	Format string
	// Verbosity is 0 for actions and errors, 1 and above for details.
	Verbosity int
}

// DefaultOptions returns the text format with verbosity 0.
func DefaultOptions() Options { return Options{Format: formatText} }

// AddFlags adds --log-format and --v.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Format, "log-format", o.Format, "Format of the log: text or json.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 for events, 1 and above also for their reasons.")
}

// Validate returns the errors of the options, each with the flag that it is about.
func (o Options) Validate() field.ErrorList {
	var errs field.ErrorList
	if o.Format != formatText && o.Format != formatJSON {
		errs = append(errs, field.NotSupported(field.NewPath("--log-format"), o.Format, []string{formatText, formatJSON}))
	}
	if o.Verbosity < 0 {
		errs = append(errs, field.Invalid(field.NewPath("--v"), o.Verbosity, "must be 0 or more"))
	}

	return errs
}

// New returns a logger that writes to w without characters that control a terminal. Verbosity n of logr is level -n of slog.
func (o Options) New(w io.Writer) logr.Logger {
	w = termtext.NewWriter(w) // JSON may have such characters in strings.
	opts := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if o.Format == formatJSON {
		handler = slog.NewJSONHandler(w, opts)
	}

	return logr.FromSlogHandler(handler)
}
