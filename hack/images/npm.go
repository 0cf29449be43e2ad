// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// webPackage selects the directory of the package web of the main module, which embeds a bundle of sources from npm.
const webPackage = `{{with .Module}}{{if and .Main (eq $.ImportPath (print .Path "/web"))}}{{$.Dir}}{{end}}{{end}}`

// nodeModules precedes the names of packages in a lock file.
const nodeModules = "node_modules/"

// npmPackage is a package of npm whose code is in a binary. The license is an SPDX expression or NOASSERTION.
type npmPackage struct {
	name, version, license string
}

// purl returns the package URL.
func (p npmPackage) purl() string {
	return fmt.Sprintf("pkg:npm/%s@%s", strings.Replace(p.name, "@", "%40", 1), p.version)
}

// npmPackages returns the packages of the bundle that a command embeds, sorted by their place in the lock file; none for commands without it.
func (o *options) npmPackages(ctx context.Context, command string, platform *v1.Platform) ([]npmPackage, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", webPackage, "./cmd/"+command)
	list.Dir = o.source
	list.Env = goEnvironment(platform)

	list.Stderr = os.Stderr
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %s: %w", command, err)
	}

	if dir = bytes.TrimSpace(dir); len(dir) == 0 {
		return nil, nil
	}

	return lockedPackages(filepath.Join(string(dir), "package-lock.json"))
}

// lockedPackages returns the dependencies of a lock file of npm, also indirect ones, without those for development.
func lockedPackages(file string) ([]npmPackage, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	var lock struct {
		Packages map[string]struct {
			Version     string `json:"version"`
			License     string `json:"license"`
			Dev         bool   `json:"dev"`
			DevOptional bool   `json:"devOptional"`
		} `json:"packages"`
	}

	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}

	var out []npmPackage
	for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
		locked := lock.Packages[path]
		// The root has no path. Packages of a package are below another node_modules.
		at := strings.LastIndex(path, nodeModules)
		if at < 0 || locked.Dev || locked.DevOptional {
			continue
		}

		out = append(out, npmPackage{path[at+len(nodeModules):], locked.Version, cmp.Or(locked.License, unknown)})
	}

	return out, nil
}
