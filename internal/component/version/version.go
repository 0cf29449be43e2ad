// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version identifies the build of Crane.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (see the Makefile).
var version string

// String returns the version of this build: the linker's value, else the module version or revision that the Go tool recorded,
// else "unknown".
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}

// Long returns String with the Go version and the platform.
func Long() string {
	return fmt.Sprintf("%s (%s, %s/%s)", String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
