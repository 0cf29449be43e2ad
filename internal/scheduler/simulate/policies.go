// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/scheduler/simulate/engine"
	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/pkg/nodeload"
)

// Names of the policies that the others are compared with.
const (
	normal = "default"
	oracle = "oracle"
)

// dynamicWeight is the weight of plugin Dynamic in config/crane-scheduler.
const dynamicWeight = 5

// rebalancing is the policy file of spread-rebalanced: the built-in one with lower water marks.
//
//go:embed rebalancing.yaml
var rebalancing []byte

// policyFile is a policy file of Crane's plugin: its path and content.
type policyFile struct {
	path   string
	policy *nodeload.Policy
}

// policyFiles are the files that Crane's plugin is run with.
type policyFiles struct {
	usual, rebalanced policyFile
}

// policy is a named way to schedule.
type policy struct {
	name string
	// usual marks the policies that run by default.
	usual bool
	// blind marks policies that read no metrics, so that their delay does not matter.
	blind bool
	build func(peer.Env) peer.Policy
}

// policies lists all of them.
func policies(files policyFiles) []policy {
	// The variants of Crane's plugin differ from its configuration in config/crane-scheduler by one change each.
	ours := func(strategy string, change func(*engine.Ours)) func(peer.Env) peer.Policy {
		o := engine.Ours{
			PolicyPath: files.usual.path,
			Policy:     files.usual.policy,
			Strategy:   strategy,
			Weight:     dynamicWeight,
			History:    true,
		}

		if change != nil {
			change(&o)
		}

		return o.Build
	}

	return []policy{
		{name: normal, usual: true, blind: true, build: peer.Default},
		{name: "gocrane", usual: true, build: peer.Gocrane},
		{name: "koordinator", usual: true, build: peer.Koordinator},
		{name: "koordinator-alone", build: peer.KoordinatorAlone},
		{name: "random", usual: true, blind: true, build: peer.Random},
		{name: "best-of-two", usual: true, build: peer.BestOfTwo},
		{name: "spread", usual: true, build: ours("Spread", nil)},
		{name: "pack", usual: true, build: ours("Pack", nil)},
		{name: "risk", usual: true, build: ours("Risk", nil)},
		{name: "spread-no-history", build: ours("Spread", func(o *engine.Ours) { o.History = false })},
		{name: "spread-rebalanced", build: ours("Spread", func(o *engine.Ours) {
			o.PolicyPath = files.rebalanced.path
			o.Policy = files.rebalanced.policy
			o.Rebalance = true
		})},
		{name: oracle, usual: true, blind: true, build: peer.Oracle},
	}
}

// selectPolicies returns the named policies in their default order, or the default ones if none is named.
func selectPolicies(all []policy, names []string) ([]policy, error) {
	allNames := make([]string, len(all))
	for i, p := range all {
		allNames[i] = p.name
	}

	for _, name := range names {
		if !slices.Contains(allNames, name) {
			return nil, fmt.Errorf("policy %q: want some of %s", name, strings.Join(allNames, ", "))
		}
	}

	var selected []policy
	for _, p := range all {
		if slices.Contains(names, p.name) || len(names) == 0 && p.usual {
			selected = append(selected, p)
		}
	}

	return selected, nil
}

// openPolicies reads the named file, or writes the built-in ones into dir if none is named.
func openPolicies(named, dir string) (policyFiles, error) {
	if named == "" {
		usual, err := putPolicy(filepath.Join(dir, "policy.yaml"), policyfile.BuiltinFile())
		if err != nil {
			return policyFiles{}, err
		}

		rebalanced, err := putPolicy(filepath.Join(dir, "rebalancing.yaml"), rebalancing)
		return policyFiles{usual: usual, rebalanced: rebalanced}, err
	}

	// A file of the user serves both variants: it has the marks that rebalancing shall use.
	path, err := filepath.Abs(named)
	if err != nil {
		return policyFiles{}, fmt.Errorf("resolving the path of the policy file: %w", err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return policyFiles{}, fmt.Errorf("reading the policy file: %w", err)
	}

	decoded, err := policyfile.Decode(content)
	if err != nil {
		return policyFiles{}, fmt.Errorf("decoding policy file %s: %w", named, err)
	}

	file := policyFile{path: path, policy: decoded}
	return policyFiles{usual: file, rebalanced: file}, nil
}

func putPolicy(path string, content []byte) (policyFile, error) {
	decoded, err := policyfile.Decode(content)
	if err != nil {
		return policyFile{}, fmt.Errorf("decoding the built-in policy: %w", err)
	}

	if err := os.WriteFile(path, content, 0o600); err != nil {
		return policyFile{}, fmt.Errorf("writing the policy file: %w", err)
	}

	return policyFile{path: path, policy: decoded}, nil
}
