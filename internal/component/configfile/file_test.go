// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/configfile"
)

func decode(raw []byte) (string, error) {
	if strings.HasPrefix(string(raw), "bad") {
		return "", errors.New("it is bad")
	}

	return string(raw), nil
}

// TestOpenOptional checks that a missing file is loaded when it appears, and that an invalid or a deleted file keeps the last
// valid content in use and is reported once.
func TestOpenOptional(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	f, err := configfile.OpenOptional(path, time.Minute, clock.RealClock{}, decode, "default")
	if err != nil || f.Content() != "default" {
		t.Fatalf("OpenOptional without the file = %v, %v, want the default", f, err)
	}

	var loaded, refused []string
	look := func() {
		f.Reload(configfile.Observer[string]{
			Loaded:   func(s string) { loaded = append(loaded, s) },
			Rejected: func(err error) { refused = append(refused, err.Error()) },
		})
	}

	write := func(text string) {
		t.Helper()

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	look()
	if len(refused) != 0 || f.State().Invalid {
		t.Errorf("without the file: errors %v, want none", refused)
	}

	write("one")
	look()
	look()
	write("bad")
	look()
	look()

	if f.Content() != "one" || len(loaded) != 1 || len(refused) != 1 || !f.State().Invalid {
		t.Errorf("after a bad file: content %q, loaded %v, refused %v, want one, loaded once and refused once", f.Content(), loaded, refused)
	}

	write("two")
	look()

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	look()
	if f.Content() != "two" || len(loaded) != 2 || len(refused) != 2 {
		t.Errorf("after further files: content %q, loaded %v, refused %v, want two, each twice", f.Content(), loaded, refused)
	}
	if s := f.State(); s.Failed != 2 || s.Succeeded != 3 {
		t.Errorf("State = %+v, want 2 failed and 3 succeeded", s)
	}

	write("bad")
	if _, err := configfile.OpenOptional(path, time.Minute, clock.RealClock{}, decode, "default"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("OpenOptional of a bad file: %v, want an error with its path", err)
	}
	if _, err := configfile.Open(path, 0, clock.RealClock{}, decode); err == nil {
		t.Error("Open with an interval of 0 = nil, want an error")
	}
}
