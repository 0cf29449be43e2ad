// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version identifies the build of Crane.
package version

import (
	"encoding/json"
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

// info is the version as gocrane's web API has it.
type info struct {
	GitVersion   string `json:"gitVersion"`
	GitCommit    string `json:"gitCommit"`
	BuildDate    string `json:"buildDate"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
	GitTreeState string `json:"gitTreeState"`
}

// JSON returns the version and what the Go tool recorded about the build as a JSON object with gocrane's fields. Unknown texts are
// empty; the build date, for which builds have the date of the commit, is then the start of 1970, as in gocrane.
func JSON() string {
	out := info{
		GitVersion: String(),
		BuildDate:  "1970-01-01T00:00:00Z",
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}

	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				out.GitCommit = s.Value
			case "vcs.time":
				out.BuildDate = s.Value
			case "vcs.modified":
				out.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
			}
		}
	}

	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // A struct of strings has no such error.
	}

	return string(text)
}
