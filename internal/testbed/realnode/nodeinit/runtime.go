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

// RuntimeName is the name under which nodekit is an OCI runtime.
const RuntimeName = "runc-within-bounds"

// runc is the OCI runtime that RunRuntime becomes.
const runc = "runc"

// bounds are what a node in namespaces cannot do.
type bounds struct {
	// noResource says that it lacks the capability of that name, without which no OOM score lower than the own may be given. Neither
	// may the capability.
	noResource bool
	// ownScore is the OOM score of what starts containers.
	ownScore int64
	// noHugetlb says that there is no group in which pages of other sizes could be limited.
	noHugetlb bool
}

// resource is the capability that lets a process lower its OOM score.
const resource = "CAP_SYS_RESOURCE"

// RunRuntime becomes runc, which gives up where a container is to have a lower OOM score than its node may give, a capability that the
// node lacks, or limits of a controller that is not mounted. It leaves out what cannot be, as containerd does by itself or with
// restrict_oom_score_adj and tolerate_missing_hugetlb_controller; CRI-O has no such options. It returns only on error.
func RunRuntime(args []string) error {
	path, err := exec.LookPath(runc)
	if err != nil {
		return fmt.Errorf("OCI runtime: %w", err)
	}
	if file, whole := startFile(args); file != "" {
		if err := bound(file, whole); err != nil {
			return fmt.Errorf("OCI runtime: bound %s: %w", file, err)
		}
	}
	return syscall.Exec(path, append([]string{path}, args[1:]...), os.Environ())
}

// startFile is the file that says what runc is to start: a whole configuration, or one process in a container that is there.
func startFile(args []string) (file string, whole bool) {
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

// bound leaves out of the file what this node cannot do.
func bound(file string, whole bool) error {
	b, err := findBounds("/proc/self/oom_score_adj", "/sys/fs/cgroup")
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	within, err := b.apply(content, whole)
	if err != nil || bytes.Equal(within, content) {
		return err
	}
	return os.WriteFile(file, within, 0o600)
}

func findBounds(scoreFile, cgroups string) (bounds, error) {
	own, err := os.ReadFile(scoreFile)
	if err != nil {
		return bounds{}, fmt.Errorf("read the own OOM score: %w", err)
	}
	var b bounds
	if b.ownScore, err = strconv.ParseInt(strings.TrimSpace(string(own)), 10, 64); err != nil {
		return bounds{}, fmt.Errorf("read the own OOM score: %w", err)
	}
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return bounds{}, fmt.Errorf("read the capability %s: %w", resource, err)
	}
	b.noResource = has == 0
	_, v2 := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	_, v1 := os.Stat(filepath.Join(cgroups, "hugetlb"))
	b.noHugetlb = v1 != nil && v2 != nil
	return b, nil
}

// apply returns content within the bounds, and unchanged where it is.
func (b bounds) apply(content []byte, whole bool) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var top map[string]any
	if err := decoder.Decode(&top); err != nil {
		return nil, fmt.Errorf("parse it: %w", err)
	}
	process := top
	changed := false
	if whole {
		process, _ = top["process"].(map[string]any)
		linux, _ := top["linux"].(map[string]any)
		resources, _ := linux["resources"].(map[string]any)
		if _, limited := resources["hugepageLimits"]; limited && b.noHugetlb {
			delete(resources, "hugepageLimits")
			changed = true
		}
	}
	if b.noResource {
		raised, err := b.raise(process)
		if err != nil {
			return nil, err
		}
		changed = withoutResource(process) || raised || changed
	}
	if !changed {
		return content, nil
	}
	return json.Marshal(top)
}

// raise gives the process the own OOM score in the place of a lower one.
func (b bounds) raise(process map[string]any) (changed bool, err error) {
	score, given := process["oomScoreAdj"]
	if !given {
		return false, nil
	}
	number, ok := score.(json.Number)
	if !ok {
		return false, errors.New("its OOM score is no number")
	}
	wanted, err := number.Int64()
	if err != nil {
		return false, fmt.Errorf("its OOM score: %w", err)
	}
	if wanted >= b.ownScore {
		return false, nil
	}
	process["oomScoreAdj"] = b.ownScore
	return true, nil
}

// withoutResource takes the capability from all sets of a process.
func withoutResource(process map[string]any) (changed bool) {
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
