// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// redirectPage is a page that redirects to an address.
const redirectPage = `<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url=%[1]s">
<title>Crane</title>
<a href="%[1]s">Open the dashboard</a>
`

// openSecretLink opens an address that only this user may know in the default browser. Every user of the machine can read the arguments of
// the browser, so they name a file in a directory of this user alone, which redirects to the address. The returned function removes it and
// may be called several times, also after an error.
func openSecretLink(ctx context.Context, link string) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "crane-dashboard-") // with mode 0700
	if err != nil {
		return func() {}, fmt.Errorf("creating a directory: %w", err)
	}

	remove = sync.OnceFunc(func() { _ = os.RemoveAll(dir) }) // The token is of no use after this process.
	path := filepath.Join(dir, "open.html")
	if err := os.WriteFile(path, fmt.Appendf(nil, redirectPage, html.EscapeString(link)), 0o600); err != nil {
		return remove, fmt.Errorf("writing %s: %w", path, err)
	}

	return remove, openBrowser(ctx, path)
}

// openBrowser opens a file or an address in the default browser.
func openBrowser(ctx context.Context, address string) error {
	command := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", address}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	}

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}

	go func() { _ = cmd.Wait() }() // reaps the process; its result does not matter
	return nil
}
