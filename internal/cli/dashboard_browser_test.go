// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestBrowserArgumentsHaveNoToken checks that the address that opens a session is in no argument of the command that opens the browser, which
// every user of the machine can read, but in a file of this user alone, which is removed once the session is opened.
func TestBrowserArgumentsHaveNoToken(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the command that opens the browser is that of Linux")
	}

	bin := t.TempDir()
	arguments := filepath.Join(bin, "arguments")

	script := "#!/bin/sh\necho \"$@\" > " + arguments + ".new && mv " + arguments + ".new " + arguments + "\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	cmd := NewCommand(Streams{In: strings.NewReader(""), Out: out, Err: io.Discard}, "crane")
	cmd.SetArgs([]string{"dashboard", "--from", fixtureSeriesDir(t)})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()

	lines := bufio.NewScanner(printed)
	lines.Scan()
	link := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	go func() { _, _ = io.Copy(io.Discard, printed) }()

	var args []byte
	waitUntil(t, "the browser is opened", func() bool {
		var err error
		args, err = os.ReadFile(arguments)
		return err == nil
	})

	_, token, _ := strings.Cut(link, "token=")
	if token == "" || strings.Contains(string(args), token) || strings.Contains(string(args), "http") {
		t.Errorf("the browser is opened with the arguments %q, want the path of a file without the token of %s", args, link)
	}

	path := strings.TrimSpace(string(args))
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), token) {
		t.Fatalf("the file that redirects has %q, %v, want %s", content, err, link)
	}

	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s: %v, %v, want %o", name, info, err, want)
		}
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}

	_ = response.Body.Close()
	waitUntil(t, "the file is removed after its use", func() bool {
		_, err := os.Stat(filepath.Dir(path))
		return os.IsNotExist(err)
	})

	cancel()
	if err := <-done; err != nil {
		t.Errorf("crane dashboard ended with %v, want no error", err)
	}
}

// waitUntil waits until a condition holds.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()

	for range 3000 {
		if holds() {
			return
		}

		time.Sleep(20 * time.Millisecond)
	}

	t.Fatalf("waited for a minute, want %s", what)
}
