// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// layout names the files under a control plane's directory.
type layout struct{ root string }

func (l layout) pki(name string) string { return filepath.Join(l.root, "pki", name) }
func (l layout) data() string           { return filepath.Join(l.root, "data") }
func (l layout) log(c Component) string { return filepath.Join(l.root, "logs", string(c)+".log") }
func (l layout) kubeconfig(name string) string {
	return filepath.Join(l.root, "kubeconfigs", name+".kubeconfig")
}
func (l layout) portFile() string { return filepath.Join(l.root, "apiserver.port") }

// create creates the directories, readable by their owner only because they contain keys.
func (l layout) create() error {
	for _, dir := range []string{"pki", "data", "logs", "kubeconfigs"} {
		if err := os.MkdirAll(filepath.Join(l.root, dir), 0o700); err != nil {
			return fmt.Errorf("create state directory: %w", err)
		}
	}
	return nil
}

// lock locks the directory for this process until the returned file is closed.
func (l layout) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(l.root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("state directory %s is in use by another control plane", l.root)
		}
		return nil, fmt.Errorf("lock state directory %s: %w", l.root, err)
	}
	return f, nil
}

// lastPort returns the port of the previous run, 0 if there was none.
func (l layout) lastPort() int {
	data, err := os.ReadFile(l.portFile())
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || port <= 0 || port > 65535 {
		return 0
	}
	return port
}

func (l layout) savePort(port int) error {
	if err := os.WriteFile(l.portFile(), []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
		return fmt.Errorf("save port: %w", err)
	}
	return nil
}
