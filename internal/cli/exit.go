// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"crane.io/crane/internal/component/logging"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/usererror"
)

// The exit codes are documented in the package comment.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNoResult = 3
	exitFailOn   = 4
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// usageError returns err with the exit code for invalid usage; nil stays nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}

	return &exitError{code: exitUsage, err: err}
}

// Main runs the command line and returns the exit code. args[0] is the path of the program.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	// Warnings of the API server are logged.
	klog.SetLogger(logging.DefaultOptions().New(errOut))

	cmd := NewCommand(Streams{In: in, Out: out, Err: errOut}, args[0])
	cmd.SetArgs(args[1:])

	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}

	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}

	termtext.PrintError(errOut, "Error", err)
	return exitCode(err)
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}

	switch usererror.KindOf(err) {
	case usererror.InvalidInput:
		return exitUsage
	case usererror.NoResult:
		return exitNoResult
	case usererror.Other:
	}

	return exitFailure
}
