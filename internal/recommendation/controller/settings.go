// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Keys of a recommender's settings beside those of gocrane's Resource recommender.
const (
	// keyPolicy names a built-in policy of rightsize, or holds one as YAML or JSON, with rules where there are some.
	keyPolicy = "policy"
	// keyCooldown is the age from which a workload is looked at, a duration. gocrane waits 3m where it is not set; here
	// the default is 0, because a workload that is too young is said to be learning.
	keyCooldown = "creation-cooldown"
)

// Settings say which recommenders there are, what each accepts and with which settings it runs. They are read-only:
// what a rule overrides is merged into a copy.
type Settings struct {
	recommenders map[string]recommenderSettings
}

type recommenderSettings struct {
	config    map[string]string
	accepted  []analysisv1alpha1.ResourceSelector
	acceptAll bool
}

// BuiltinSettings are those of a craned without a configuration file: every recommender, for every kind that it can look
// at.
func BuiltinSettings() Settings {
	s := Settings{recommenders: map[string]recommenderSettings{}}
	for _, r := range recommenders() {
		s.recommenders[r.name] = recommenderSettings{acceptAll: true}
	}
	return s
}

// ParseSettings reads a RecommendationConfiguration, strictly: an unknown field, a wrong kind or a setting that does
// not parse is an error with its path. A recommender that craned does not have may stand there, and cannot be used.
func ParseSettings(data []byte) (Settings, error) {
	file, err := policyv1alpha1.DecodeRecommendationConfiguration(data)
	if err != nil {
		return Settings{}, fmt.Errorf("recommendation configuration: %w", err)
	}
	s := Settings{recommenders: map[string]recommenderSettings{}}
	for i, r := range file.Recommenders {
		s.recommenders[r.Name] = recommenderSettings{config: maps.Clone(r.Config), accepted: r.AcceptedResources}
		if evaluationOrder(r.Name) < 0 {
			continue
		}
		if _, err := s.configure(analysisv1alpha1.Recommender{Name: r.Name}); err != nil {
			return Settings{}, fmt.Errorf("recommendation configuration: recommenders[%d]: %w", i, err)
		}
	}
	return s, nil
}

// Check says why a rule's recommender could not run with these settings, nil if it could.
func (s Settings) Check(r analysisv1alpha1.Recommender) error {
	_, err := s.configure(r)
	return err
}

// configure merges the settings of the file with those of a rule, into a map that is nobody else's.
func (s Settings) configure(r analysisv1alpha1.Recommender) (configuredRecommender, error) {
	base, known := s.recommenders[r.Name]
	i := evaluationOrder(r.Name)
	switch {
	case !known:
		return configuredRecommender{}, fmt.Errorf("unknown recommender %q: the configuration has %s", r.Name, s.names())
	case i < 0:
		return configuredRecommender{}, fmt.Errorf("recommender %q is not served by this version of craned", r.Name)
	}
	config := maps.Clone(base.config)
	if config == nil {
		config = map[string]string{}
	}
	maps.Copy(config, r.Config)
	out := configuredRecommender{recommender: recommenders()[i], accepts: func(w workload.Workload) bool {
		return base.acceptAll || matchesAny(w, base.accepted)
	}}
	if text, set := config[keyCooldown]; set {
		cooldown, err := series.ParseDuration(text)
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

// parsePolicies takes gocrane's settings where there are any, which are for all workloads alike, else the policy that is named
// or written out, else Crane's own default.
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

// parsePolicy leaves gocrane's settings in the map.
func parsePolicy(config map[string]string) (rightsize.Policy, error) {
	name, named := config[keyPolicy]
	delete(config, keyPolicy)
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
	policy, err := rightsize.GocranePolicy(config)
	if err != nil {
		return rightsize.Policy{}, fmt.Errorf("config: %w", err)
	}
	return policy, nil
}

func (s Settings) names() string {
	return strings.Join(slices.Sorted(maps.Keys(s.recommenders)), ", ")
}
