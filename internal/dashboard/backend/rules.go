// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

const (
	// maxSelected bounds the objects that a dry run of a rule lists, maxTargets those that it names.
	maxSelected = 50_000
	maxTargets  = 200
	ruleKind    = "RecommendationRule"
)

// ruleView lists and creates RecommendationRules.
type ruleView struct {
	*viewAccess
	rules *dashboard.Shared[contract.RuleList]
}

func newRuleView(a *viewAccess) *ruleView {
	v := &ruleView{viewAccess: a}
	v.rules = shared(a, v.readRules, rowsTTL)
	return v
}

// CreateRule implements dashboard.Backend. The API server validates the rule in a dry run as well; what it selects is listed with the rights
// of the user.
func (v *ruleView) CreateRule(ctx context.Context, request contract.RuleRequest) (contract.RuleResult, error) {
	var out contract.RuleResult
	if v.fromFiles() {
		return out, dashboard.NotServed("files have no rules", "")
	}

	rule, err := parseRule(request.YAML)
	if err != nil {
		return out, err
	}

	out.Name = rule.Name
	for _, r := range rule.Spec.Recommenders {
		out.Recommenders = append(out.Recommenders, r.Name)
	}

	// Warnings of the API server are shown beside the result.
	warnings := &warningList{}
	c, err := v.Personal.ObjectClientWith(func(config *rest.Config) { config.WarningHandlerWithContext = warnings })
	if err != nil {
		return out, err
	}

	options := []client.CreateOption{client.FieldOwner("crane"), client.FieldValidation(metav1.FieldValidationStrict)}
	if request.DryRun {
		options = append(options, client.DryRunAll)
	}

	if err := c.Create(ctx, rule, options...); err != nil {
		return out, unavailable(err)
	}

	out.Created = !request.DryRun
	out.Warnings = warnings.texts
	if out.Created {
		v.rules.Expire()
		return out, nil
	}

	return out, v.selectTargets(ctx, c.RESTMapper(), rule.Spec, &out)
}

// parseRule returns the rule of a YAML document.
func parseRule(text string) (*analysisv1alpha1.RecommendationRule, error) {
	refuse := func(message string) error {
		return dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, message, "correct the YAML")
	}

	rule := &analysisv1alpha1.RecommendationRule{}
	if err := yaml.UnmarshalStrict([]byte(text), rule); err != nil {
		return nil, refuse("the rule is not valid: " + err.Error())
	}

	if rule.APIVersion != analysisv1alpha1.GroupVersion.String() || rule.Kind != ruleKind {
		return nil, refuse(fmt.Sprintf("%s %s: want one document of the kind %s in %s", rule.APIVersion, rule.Kind, ruleKind, analysisv1alpha1.GroupVersion))
	}

	if rule.Name == "" {
		return nil, refuse("metadata.name is required")
	}

	return rule, nil
}

// selectTargets counts the objects that a rule selects, each once, and names the first ones. A kind that the user may not list is a warning.
func (v *ruleView) selectTargets(ctx context.Context, mapper meta.RESTMapper, spec analysisv1alpha1.RecommendationRuleSpec, out *contract.RuleResult) error {
	lister, _, err := v.Personal.Lister()
	if err != nil {
		return err
	}

	var targets []contract.Target
	seen := map[contract.Target]bool{}
	for i, s := range spec.ResourceSelectors {
		kind := workload.KindOf(s.APIVersion, s.Kind)
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf("spec.resourceSelectors[%d]: %s", i, metrics.PublicMessage(err)))
			continue
		}

		selector := labels.Everything()
		if s.LabelSelector != nil {
			if selector, err = metav1.LabelSelectorAsSelector(s.LabelSelector); err != nil {
				return dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, fmt.Sprintf("spec.resourceSelectors[%d].labelSelector: %v", i, err), "")
			}
		}

		for _, namespace := range namespacesOf(spec.NamespaceSelector, mapping.Scope.Name() == meta.RESTScopeNameNamespace) {
			q := workload.Query{
				Kind:      mapping.GroupVersionKind,
				Namespace: namespace,
				Name:      s.Name,
				Selector:  selector,
			}

			if err := lister.ListIdentities(ctx, q, func(w workload.Workload) error {
				target := contract.Target{
					Cluster:   v.ClusterName,
					Namespace: w.Namespace,
					Kind:      w.Kind,
					Name:      w.Name,
				}
				// Selectors may overlap. Objects that are owned are sized by their owner.
				if seen[target] || w.Deleting || w.Owned {
					return nil
				}
				if len(seen) == maxSelected {
					return dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonTooLarge, fmt.Sprintf("the rule selects more than %d objects", maxSelected), "select fewer namespaces, or labels")
				}

				seen[target] = true
				targets = append(targets, target)
				return nil
			}); err != nil {
				failure := dashboard.FailureOf(unavailable(err))
				if failure.Body.Reason != contract.ReasonForbidden && failure.Body.Reason != contract.ReasonNotFound {
					return failure
				}

				out.Warnings = append(out.Warnings, failure.Body.Message)
			}
		}
	}

	slices.SortFunc(targets, func(a, b contract.Target) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	out.Selected = len(targets)
	out.Targets = targets[:min(len(targets), maxTargets)]

	return nil
}

// namespacesOf returns the namespaces to list. Cluster-scoped objects are selected only by rules of all namespaces.
func namespacesOf(s analysisv1alpha1.NamespaceSelector, namespaced bool) []string {
	switch {
	case s.Any:
		return []string{metav1.NamespaceAll}
	case !namespaced:
		return nil
	}

	return s.MatchNames
}

// warningList keeps the warnings of the API server, at most 20.
type warningList struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (l *warningList) HandleWarningHeaderWithContext(_ context.Context, code int, _, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if code == 299 && len(l.texts) < 20 {
		l.texts = append(l.texts, message)
	}
}
