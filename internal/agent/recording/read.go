// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrTruncated is returned, wrapped, if the last line is incomplete because the agent was killed or is still running.
var ErrTruncated = errors.New("the end is cut off")

// maxLine bounds a line in bytes: that of thousands of pods.
const maxLine = 64 << 20

// Read calls each with every line of a recording in order. It stops at the first error of each or of an unreadable line; ErrTruncated is
// returned after all complete lines.
func Read(from io.Reader, each func(Entry) error) error {
	zip, err := gzip.NewReader(bufio.NewReader(from))
	if errors.Is(err, io.EOF) {
		return nil // Nothing is recorded yet.
	}
	if err != nil {
		return fmt.Errorf("not a recording: %w", asTruncated(err))
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			if lines.Scan(); errors.Is(lines.Err(), io.ErrUnexpectedEOF) {
				return fmt.Errorf("line %d: %w", n, ErrTruncated)
			}
			return fmt.Errorf("line %d: %w", n, err)
		}
		if e.Snapshot == nil {
			return fmt.Errorf("line %d: nothing was seen", n)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("after line %d: %w", n, asTruncated(err))
	}
	return nil
}

func asTruncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}
