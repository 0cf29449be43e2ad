// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"crane.io/crane/pkg/rightsize"
)

// maxPolicyFile bounds what is read as a policy; a policy is about a kilobyte.
const maxPolicyFile = 1 << 20

// isPolicyFile tells a file from the name of a policy: by its ending, or by a directory in front.
func isPolicyFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) || filepath.Base(name) != name
}

// loadPolicy is loadPolicies for where one policy is looked at; rules have no meaning there.
func loadPolicy(name string) (rightsize.Policy, error) {
	set, err := loadPolicies(name)
	if err == nil && len(set.Rules) > 0 {
		err = fmt.Errorf("%s: rules: they choose among workloads, and here one policy is looked at", name)
	}
	return set.Default, err
}

// loadPolicies returns a built-in policy by its name, or reads one, with rules where it has some, from a file in YAML or
// JSON.
func loadPolicies(name string) (rightsize.PolicySet, error) {
	var none rightsize.PolicySet
	if !isPolicyFile(name) {
		policy, err := rightsize.PolicyByName(name)
		if err != nil {
			return none, fmt.Errorf("%w, or a file that ends in .yaml or .json", err)
		}
		return rightsize.NewPolicySet(policy), nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return none, fmt.Errorf("reading a policy: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxPolicyFile {
		return none, fmt.Errorf("reading a policy: %s is not a file of at most %d bytes", name, maxPolicyFile)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return none, fmt.Errorf("reading a policy: %w", err)
	}
	data, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return none, fmt.Errorf("%s: %w", name, err)
	}
	set, err := rightsize.ParsePolicySet(data)
	if err != nil {
		return none, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}
