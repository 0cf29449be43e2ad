// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"crane.io/crane/pkg/series"
)

// maxInputFileBytes limits the size of policy files and files of dates, which have about one kilobyte.
const maxInputFileBytes = 1 << 20

// readInputFile reads a regular file of limited size.
func readInputFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() || info.Size() > maxInputFileBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxInputFileBytes)
	}

	return os.ReadFile(path)
}

// durationFlag is the text of a flag and the variable for its value.
type durationFlag struct {
	name, text string
	value      *time.Duration
}

// parseDurations parses flags of at least one second.
func parseDurations(flags ...durationFlag) error {
	var errs []error
	for _, f := range flags {
		d, err := series.ParseDuration(f.text)
		if err == nil && d < time.Second {
			err = fmt.Errorf("%q: must be at least 1s", f.text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}

		*f.value = d
	}

	return errors.Join(errs...)
}
