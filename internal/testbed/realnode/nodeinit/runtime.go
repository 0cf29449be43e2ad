// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RuntimeName is the program name under which nodekit acts as an OCI runtime.
const RuntimeName = "runc-within-bounds"

// runc is the OCI runtime that RunRuntime executes.
const runc = "runc"

// limitations lists what a namespace node cannot do.
type limitations struct {
	// noResource means that the node lacks CAP_SYS_RESOURCE, which is required to lower an OOM score and cannot be
	// granted to containers.
	noResource bool
	// ownScore is the OOM score of the process that starts containers.
	ownScore int64
	// noHugetlb means that the hugetlb controller is not mounted.
	noHugetlb bool
}

// resource is the capability that lets a process lower its OOM score.
const resource = "CAP_SYS_RESOURCE"

// RunRuntime executes runc after it has removed settings that make runc fail on a namespace node: a lower OOM score,
// capabilities that the node lacks, and limits of controllers that are not mounted. containerd does this itself or with
// restrict_oom_score_adj and tolerate_missing_hugetlb_controller; CRI-O has no such options. It returns only on error.
func RunRuntime(args []string) error {
	path, err := exec.LookPath(runc)
	if err != nil {
		return fmt.Errorf("OCI runtime: %w", err)
	}

	if file, isBundle := startFile(args); file != "" {
		if err := restrictFile(file, isBundle); err != nil {
			return fmt.Errorf("OCI runtime: restrict %s: %w", file, err)
		}
	}

	return syscall.Exec(path, append([]string{path}, args[1:]...), os.Environ())
}

// startFile returns the file that describes what runc starts: a whole container configuration, or one process in an
// existing container.
func startFile(args []string) (file string, isBundle bool) {
	for i, arg := range args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}

		switch name {
		case "--bundle", "-b":
			return filepath.Join(value, "config.json"), true
		case "--process", "-p":
			return value, false
		}
	}

	return "", false
}

// restrictFile removes settings from the file that this node cannot fulfill.
func restrictFile(file string, isBundle bool) error {
	l, err := detectLimitations("/proc/self/oom_score_adj", "/sys/fs/cgroup")
	if err != nil {
		return err
	}

	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}

	restricted, err := l.apply(content, isBundle)
	if err != nil || bytes.Equal(restricted, content) {
		return err
	}

	return os.WriteFile(file, restricted, 0o600)
}

func detectLimitations(scoreFile, cgroups string) (limitations, error) {
	score, err := os.ReadFile(scoreFile)
	if err != nil {
		return limitations{}, fmt.Errorf("reading the OOM score: %w", err)
	}

	var l limitations
	if l.ownScore, err = strconv.ParseInt(strings.TrimSpace(string(score)), 10, 64); err != nil {
		return limitations{}, fmt.Errorf("reading the OOM score: %w", err)
	}

	granted, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return limitations{}, fmt.Errorf("reading the capability %s: %w", resource, err)
	}

	l.noResource = granted == 0
	_, v2 := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	_, v1 := os.Stat(filepath.Join(cgroups, "hugetlb"))
	l.noHugetlb = v1 != nil && v2 != nil

	return l, nil
}

// apply returns content without settings that exceed the limitations, unchanged if there are none.
func (l limitations) apply(content []byte, isBundle bool) ([]byte, error) {
	// Numbers stay as they are written: some exceed a float64.
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()

	var top map[string]any
	if err := decoder.Decode(&top); err != nil {
		return nil, fmt.Errorf("parsing: %w", err)
	}

	process := top
	changed := false
	if isBundle {
		process, _ = top["process"].(map[string]any)
		linux, _ := top["linux"].(map[string]any)

		resources, _ := linux["resources"].(map[string]any)
		if _, limited := resources["hugepageLimits"]; limited && l.noHugetlb {
			delete(resources, "hugepageLimits")
			changed = true
		}
	}

	if l.noResource {
		raised, err := l.raiseScore(process)
		if err != nil {
			return nil, err
		}

		changed = dropResource(process) || raised || changed
	}

	// Unchanged content keeps its bytes, so that the file is not rewritten.
	if !changed {
		return content, nil
	}

	return json.Marshal(top)
}

// raiseScore replaces an OOM score below the own one.
func (l limitations) raiseScore(process map[string]any) (changed bool, err error) {
	score, present := process["oomScoreAdj"]
	if !present {
		return false, nil
	}

	number, ok := score.(json.Number)
	if !ok {
		return false, errors.New("oomScoreAdj is not a number")
	}

	wanted, err := number.Int64()
	if err != nil {
		return false, fmt.Errorf("oomScoreAdj: %w", err)
	}

	if wanted >= l.ownScore {
		return false, nil
	}

	process["oomScoreAdj"] = l.ownScore
	return true, nil
}

// dropResource removes the capability from all sets of a process.
func dropResource(process map[string]any) (changed bool) {
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		list, _ := set.([]any)
		without := slices.DeleteFunc(slices.Clone(list), func(c any) bool { return c == resource })
		if len(without) < len(list) {
			sets[name] = without
			changed = true
		}
	}

	return changed
}
