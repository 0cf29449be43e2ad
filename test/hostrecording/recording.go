// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostrecording has the files of /proc and the cgroups recorded on hosts, for tests of what reads them.
package hostrecording

import (
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

//go:embed recorded/*.txt
var recorded embed.FS

// Recording contains the files of a host at several times.
type Recording struct {
	// Moments are sorted by time.
	Moments []Moment
}

// Moment contains the files that changed by a time.
type Moment struct {
	// At is the time since the first moment.
	At time.Duration
	// Files maps paths below the host's root to contents.
	Files map[string]string
}

// Recorded returns a recording by one of Names or Nodes. Variants have the contents of another
// recording under the cgroup names of another driver or runtime.
func Recorded(name string) (Recording, error) {
	if v, ok := variants()[name]; ok {
		r, err := Recorded(v.source)
		return v.rename(r), err
	}

	content, err := recorded.ReadFile("recorded/" + name + ".txt")
	if err != nil {
		return Recording{}, fmt.Errorf("recording %s: %w", name, err)
	}

	r, err := Parse(string(content))
	if err != nil {
		return Recording{}, fmt.Errorf("recording %s: %w", name, err)
	}

	return r, nil
}

// Parse parses a recording: a line "== 2.5s ==" starts a moment, a line "-- path --" a file; comments precede the first
// moment.
func Parse(text string) (Recording, error) {
	var r Recording
	var path string
	for line := range strings.Lines(text) {
		if at, ok := between(line, "== "); ok {
			d, err := time.ParseDuration(at)
			if err != nil {
				return Recording{}, fmt.Errorf("moment: %w", err)
			}

			r.Moments = append(r.Moments, Moment{At: d, Files: map[string]string{}})
			path = ""
			continue
		}

		if len(r.Moments) == 0 {
			if !strings.HasPrefix(line, "#") {
				return Recording{}, fmt.Errorf("%q before the first moment", line)
			}

			continue
		}

		files := r.Moments[len(r.Moments)-1].Files
		if name, ok := between(line, "-- "); ok {
			// Recordings are written to disk, and a path must not leave their directory.
			if !filepath.IsLocal(name) {
				return Recording{}, fmt.Errorf("file %q leaves the root", name)
			}

			path = name
			files[name] = ""
			continue
		}

		if path == "" {
			return Recording{}, fmt.Errorf("%q belongs to no file", line)
		}

		files[path] += line
	}

	if len(r.Moments) == 0 {
		return Recording{}, errors.New("has no moment")
	}

	return r, nil
}

func between(line, mark string) (string, bool) {
	text, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), reverse(mark))
	if !ok {
		return "", false
	}

	return strings.CutPrefix(text, mark)
}

// reverse converts "== " to " ==".
func reverse(mark string) string { return " " + strings.TrimSpace(mark) }

// Write updates dir to moment i: it writes all files that changed by then. Files are rewritten in place, so that
// readers with open files see the change, as with kernel files.
func (r Recording) Write(dir string, i int) error {
	for path, content := range r.Moments[i].Files {
		if err := writeFile(filepath.Join(dir, path), content); err != nil {
			return err
		}
	}

	return nil
}
