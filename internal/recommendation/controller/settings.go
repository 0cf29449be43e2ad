// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Keys of the settings that all recommenders have, or that Crane adds to gocrane's Resource recommender.
const (
	// keyPolicy names a built-in policy of package rightsize, or holds a policy with optional rules as YAML or JSON.
	keyPolicy = "policy"
	// keyTarget is the share of the time that CPU usage may exceed the request, with the policy calibrated.
	keyTarget = "target"
	// keyCooldown is the age below which a workload is not evaluated, a duration. gocrane's default is 3m; Crane's is 0,
	// because Recommendations of young workloads have the condition Learning.
	keyCooldown = "creation-cooldown"
)

// Settings hold the recommenders, the resources they accept and their configuration. They are read-only: overrides of a rule
// are merged into a copy.
type Settings struct {
	registry     Registry
	recommenders map[string]recommenderSettings
	// invalid are the errors of recommenders whose settings in the file are invalid. Rules that name one fail unless they override
	// the setting.
	invalid error
}

// Invalid returns the errors of recommenders that cannot be used with the settings of the file; nil if there are none.
func (s Settings) Invalid() error { return s.invalid }

type recommenderSettings struct {
	config    map[string]string
	accepted  []analysisv1alpha1.ResourceSelector
	acceptAll bool
}

// DefaultSettings returns the settings without a configuration file: every recommender, for every kind that it supports.
func (r Registry) DefaultSettings() Settings {
	s := Settings{registry: r, recommenders: map[string]recommenderSettings{}}
	for _, r := range r.recommenders {
		s.recommenders[r.name] = recommenderSettings{acceptAll: true}
	}

	return s
}

// ParseSettings parses a RecommendationConfiguration strictly: unknown fields and another kind are errors with their path. An
// invalid setting makes only its recommender unusable; see Invalid. Recommenders that craned does not have are accepted and
// cannot be used.
func (r Registry) ParseSettings(data []byte) (Settings, error) {
	file, err := policyv1alpha1.DecodeRecommendationConfiguration(data)
	if err != nil {
		return Settings{}, fmt.Errorf("recommendation configuration: %w", err)
	}

	s := Settings{registry: r, recommenders: map[string]recommenderSettings{}}
	var invalid []error
	for i, listed := range file.Recommenders {
		s.recommenders[listed.Name] = recommenderSettings{config: maps.Clone(listed.Config), accepted: listed.AcceptedResources}
		if r.indexOf(listed.Name) < 0 {
			continue
		}

		if _, err := s.configure(analysisv1alpha1.Recommender{Name: listed.Name}); err != nil {
			invalid = append(invalid, fmt.Errorf("recommendation configuration: recommenders[%d] %s: %w", i, listed.Name, err))
		}
	}

	// Who builds craned with a recommender wants to use it: the file may restrict it, and need not list it.
	for _, candidate := range r.recommenders {
		if _, listed := s.recommenders[candidate.name]; candidate.external && !listed {
			s.recommenders[candidate.name] = recommenderSettings{acceptAll: true}
		}
	}

	s.invalid = errors.Join(invalid...)
	return s, nil
}

// Check returns the error that would keep a recommender of a rule from running with these settings.
func (s Settings) Check(r analysisv1alpha1.Recommender) error {
	_, err := s.configure(r)
	return err
}

// configure returns a recommender with the settings of the file, overridden by those of a rule.
func (s Settings) configure(r analysisv1alpha1.Recommender) (configuredRecommender, error) {
	base, ok := s.recommenders[r.Name]
	i := s.registry.indexOf(r.Name)
	switch {
	case !ok:
		return configuredRecommender{}, fmt.Errorf("unknown recommender %q: the configuration has %s", r.Name, s.names())
	case i < 0:
		return configuredRecommender{}, fmt.Errorf("recommender %q is not served by this version of craned", r.Name)
	}

	// The rule overrides the configuration of the recommender key by key.
	config := withoutPrefixes(base.config)
	maps.Copy(config, withoutPrefixes(r.Config))
	out := configuredRecommender{recommender: s.registry.recommenders[i], order: i, accepts: func(w workload.Workload) bool {
		return base.acceptAll || matchesAny(w, base.accepted)
	}}

	if text, set := config[keyCooldown]; set {
		cooldown, err := units.ParseDuration(text)
		if err != nil {
			return configuredRecommender{}, fmt.Errorf("config[%s]: %w", keyCooldown, err)
		}

		out.cooldown = cooldown
	}

	delete(config, keyCooldown)
	var err error
	if out.evaluator, err = out.configure(config); err != nil {
		return configuredRecommender{}, err
	}

	return out, nil
}

// gocranePrefixes are the prefixes of keys in gocrane's Analytics and ConfigSets.
func gocranePrefixes() []string { return []string{"resource.", "replicas.", "hpa.", "ehpa."} }

// withoutPrefixes returns a copy of config in which gocrane's prefixed keys have the form of today. A key without prefix takes
// precedence, then the first in alphabetical order. Percentiles of prefixed keys were in percent.
func withoutPrefixes(config map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		short := key
		value := config[key]

		for _, prefix := range gocranePrefixes() {
			short = strings.TrimPrefix(short, prefix)
		}

		if percent, err := strconv.ParseFloat(value, 64); short != key && strings.HasSuffix(short, "-percentile") && err == nil && percent > 1 {
			value = strconv.FormatFloat(percent/100, 'g', -1, 64)
		}
		if _, isSet := out[short]; !isSet {
			out[short] = value
		}
	}

	for key, value := range config {
		if _, unprefixed := out[key]; unprefixed {
			out[key] = value
		}
	}

	return out
}

// parsePolicies returns the policies of a recommender: gocrane's settings, which apply to all workloads, or the named or
// inlined policy, or Crane's default.
func parsePolicies(config map[string]string) (rightsize.PolicySet, error) {
	text := strings.TrimSpace(config[keyPolicy])
	if !strings.ContainsAny(text, "\n{") {
		policy, err := parsePolicy(config)
		return rightsize.PolicySet{Default: policy, IgnoreClasses: len(config) > 0}, err
	}

	if len(config) > 1 {
		return rightsize.PolicySet{}, fmt.Errorf("config[%s]: a policy cannot be combined with other settings", keyPolicy)
	}

	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return rightsize.PolicySet{}, fmt.Errorf("config[%s]: %w", keyPolicy, err)
	}

	set, err := rightsize.ParsePolicySet(data)
	if err != nil {
		return rightsize.PolicySet{}, fmt.Errorf("config[%s]: %w", keyPolicy, err)
	}

	return set, nil
}

// parsePolicy removes the name of a policy from the map, but not gocrane's settings.
func parsePolicy(config map[string]string) (rightsize.Policy, error) {
	name, named := config[keyPolicy]
	delete(config, keyPolicy)

	if name == rightsize.CalibratedPolicy {
		return calibratedPolicy(config)
	}

	switch {
	case named && len(config) > 0:
		return rightsize.Policy{}, fmt.Errorf("config[%s]: a named policy cannot be combined with %s",
			keyPolicy, strings.Join(slices.Sorted(maps.Keys(config)), ", "))
	case named:
		policy, err := rightsize.PolicyByName(name)
		if err != nil {
			return rightsize.Policy{}, fmt.Errorf("config[%s]: %w", keyPolicy, err)
		}

		return policy, nil

	case len(config) == 0:
		policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
		if err != nil {
			return rightsize.Policy{}, fmt.Errorf("built-in policy: %w", err)
		}

		return policy, nil
	}

	// Other keys are those of gocrane's percentile algorithm.
	policy, err := rightsize.GocranePolicy(config)
	if err != nil {
		return rightsize.Policy{}, fmt.Errorf("config: %w", err)
	}

	return policy, nil
}

// calibratedPolicy returns the policy calibrated, with the target of the settings if they have one, and removes it from them.
func calibratedPolicy(config map[string]string) (rightsize.Policy, error) {
	text, set := config[keyTarget]
	delete(config, keyTarget)

	if len(config) > 0 {
		return rightsize.Policy{}, fmt.Errorf("config[%s]: the policy calibrated cannot be combined with %s",
			keyPolicy, strings.Join(slices.Sorted(maps.Keys(config)), ", "))
	}

	policy, err := rightsize.PolicyByName(rightsize.CalibratedPolicy)
	if err != nil || !set {
		return policy, err
	}

	target, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return rightsize.Policy{}, fmt.Errorf("config[%s]: %q is not a number", keyTarget, text)
	}

	policy.CPU.Target = units.Ratio(target)
	if err := policy.Validate(); err != nil {
		return rightsize.Policy{}, fmt.Errorf("config[%s]: %w", keyTarget, err)
	}

	return policy, nil
}

func (s Settings) names() string {
	return strings.Join(slices.Sorted(maps.Keys(s.recommenders)), ", ")
}
