// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oncelog logs recurring problems of the agent's loops once, until they change or end.
package oncelog

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
)

// Logger logs messages that changed. It is not safe for concurrent use.
type Logger struct {
	log  logr.Logger
	last map[string]string
}

// New returns a Logger that has logged nothing.
func New(log logr.Logger) *Logger { return &Logger{log: log, last: map[string]string{}} }

// Log logs a message with key-value pairs unless it is the last one of the subject. An empty message means that the subject has no problem
// any more; the end of a problem is logged as well.
func (l *Logger) Log(subject, message string, values ...any) {
	if l.replace(subject, problemText(message, values)) && message != "" {
		l.log.Info(message, values...)
	}
}

// Error logs a failure with its error and key-value pairs, or the end of the last failure for a nil error.
func (l *Logger) Error(subject, message string, err error, values ...any) {
	if err == nil {
		l.replace(subject, "")
		return
	}

	if l.replace(subject, problemText(message+": "+err.Error(), values)) {
		l.log.Error(err, message, values...)
	}
}

// problemText returns a message with its key-value pairs.
func problemText(message string, values []any) string {
	if message == "" || len(values) == 0 {
		return message
	}

	return message + ": " + strings.TrimSpace(fmt.Sprintln(values...))
}

// replace records the current problem of a subject and reports whether it differs from the last one. It logs the end of a problem.
func (l *Logger) replace(subject, problem string) bool {
	last := l.last[subject]
	l.last[subject] = problem

	if problem == "" && last != "" {
		l.log.Info("problem resolved", "problem", last)
	}

	return problem != last
}
