// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

const targetFlagHelp = "share of the time that CPU usage may exceed the request, 0.0025 to 0.5, for calibrated policies (0.005: 7.2 minutes a day)"

// checkTarget returns an error for a share of the time that cannot be a target.
func checkTarget(target float64) error {
	var errs settings.Errors
	calibrate.CheckTarget(&errs, "--target", units.Ratio(target))
	return errs.Err()
}

// isPolicyFile reports whether name is a file, by its extension or directory, and not the name of a policy.
func isPolicyFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) || filepath.Base(name) != name
}

// loadPolicy is loadPolicies without support for rules, for commands that use a single policy.
func loadPolicy(name string) (rightsize.Policy, error) {
	set, err := loadPolicies(name)
	if err == nil && len(set.Rules) > 0 {
		err = fmt.Errorf("%s: rules are not supported here, because they select a policy per workload", name)
	}

	return set.Default, err
}

// loadPolicies returns a built-in policy by name, or reads a policy, possibly with rules, from a YAML or JSON file.
func loadPolicies(name string) (rightsize.PolicySet, error) {
	var none rightsize.PolicySet
	if !isPolicyFile(name) {
		policy, err := rightsize.PolicyByName(name)
		if err != nil {
			return none, fmt.Errorf("%w, or a .yaml or .json file", err)
		}

		return rightsize.NewPolicySet(policy), nil
	}

	content, err := readInputFile(name)
	if err != nil {
		return none, fmt.Errorf("reading the policy: %w", err)
	}

	// YAML with a duplicate key is rejected instead of using the last one.
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
