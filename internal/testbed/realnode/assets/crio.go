// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// CRIODir is below the directory of the binaries, and has CRI-O and what it needs beside it. `make build-crio` makes it.
const CRIODir = "crio"

// Conmon watches over each container of CRI-O.
const Conmon = "conmon"

// crioPrograms are CRI-O, the program that pins namespaces for it, and ours that puts images into its store.
func crioPrograms() []string { return []string{"crio", "pinns", "images"} }

// CRIO is the directory of CRI-O's programs.
func (s Set) CRIO() string { return filepath.Join(filepath.Dir(s.Kit), CRIODir) }

// HasCRIO says why there is no CRI-O for nodes, nil if there is one.
func (s Set) HasCRIO() error {
	for _, p := range crioPrograms() {
		if info, err := os.Stat(filepath.Join(s.CRIO(), p)); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("no CRI-O: %s is not there: run `make build-crio`", filepath.Join(s.CRIO(), p))
		}
	}
	if _, err := exec.LookPath(Conmon); err != nil {
		return fmt.Errorf("no CRI-O: %w: run `make build-crio`", err)
	}
	return nil
}
