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
	text := message
	if message != "" && len(values) > 0 {
		text += ": " + strings.TrimSpace(fmt.Sprintln(values...))
	}

	before := l.last[subject]
	if text == before {
		return
	}

	l.last[subject] = text

	if message == "" {
		l.log.Info("problem resolved", "problem", before)
		return
	}

	l.log.Info(message, values...)
}

// Error logs a failure with its error, or the end of the last failure for a nil error.
func (l *Logger) Error(subject, message string, err error) {
	if err == nil {
		l.Log(subject, "")
		return
	}

	l.Log(subject, message, "error", err.Error())
}
