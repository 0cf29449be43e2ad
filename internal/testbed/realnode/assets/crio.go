// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// CRIODir is the subdirectory of the binaries with CRI-O and its programs, built by `make build-crio`.
const CRIODir = "crio"

// Conmon is the program that monitors each container of CRI-O.
const Conmon = "conmon"

// crioPrograms returns CRI-O, its program that pins namespaces, and the program that imports images into its store.
func crioPrograms() []string { return []string{"crio", "pinns", "images"} }

// CRIO returns the directory of CRI-O's programs.
func (s Set) CRIO() string { return filepath.Join(filepath.Dir(s.Kit), CRIODir) }

// HasCRIO returns an error if CRI-O is not available.
func (s Set) HasCRIO() error {
	for _, p := range crioPrograms() {
		if info, err := os.Stat(filepath.Join(s.CRIO(), p)); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("no CRI-O: %s does not exist: run `make build-crio`", filepath.Join(s.CRIO(), p))
		}
	}
	if _, err := exec.LookPath(Conmon); err != nil {
		return fmt.Errorf("no CRI-O: %w: run `make build-crio`", err)
	}
	return nil
}
