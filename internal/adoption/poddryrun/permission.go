// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package poddryrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
)

const (
	// policyFile holds the admission policy that reduces the right to create pods to dry runs, and its binding.
	policyFile = "policy/craned-pod-dry-runs.yaml"
	// defaultNamespace is the namespace of craned in policyFile.
	defaultNamespace = "crane-system"
)

// Permitted returns why craned does not try the creation of pods; empty if it has the right to create pods, and the policy that denies it all
// but dry runs is bound as Crane ships it. RBAC cannot tell a dry run from a creation, so that the right is not used without the policy.
func Permitted(ctx context.Context, c client.Client, live client.Reader, namespace string) (reason string, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "pods"},
	}}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("reviewing the right to create pods: %w", err)
	}
	if !review.Status.Allowed {
		return "craned has no right to create pods", nil
	}

	policy, binding, err := shippedPolicy(namespace)
	if err != nil {
		return "", err
	}

	var found admissionregistrationv1.ValidatingAdmissionPolicy
	if err := live.Get(ctx, client.ObjectKeyFromObject(policy), &found); err != nil {
		return explainUnread(fmt.Errorf("reading the admission policy %s: %w", policy.Name, err))
	}

	var bound admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err := live.Get(ctx, client.ObjectKeyFromObject(binding), &bound); err != nil {
		return explainUnread(fmt.Errorf("reading the binding of admission policy %s: %w", policy.Name, err))
	}

	switch {
	case !sameRules(&found.Spec, &policy.Spec):
		return fmt.Sprintf("admission policy %s is not the one that Crane ships", policy.Name), nil
	case bound.Spec.PolicyName != policy.Name || !slices.Contains(bound.Spec.ValidationActions, admissionregistrationv1.Deny) ||
		bound.Spec.ParamRef != nil || restricts(bound.Spec.MatchResources):
		return fmt.Sprintf("admission policy %s is not bound to all namespaces with action Deny", policy.Name), nil
	}

	return "", nil
}

// explainUnread returns the reason for an object that is missing or that craned may not read, and any other error as it is: it does not say
// whether the policy is bound.
func explainUnread(err error) (reason string, unknown error) {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return err.Error(), nil
	}

	return "", err
}

// shippedPolicy returns the policy and its binding for craned in a namespace.
func shippedPolicy(namespace string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	text, err := config.Manifests.ReadFile(policyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", policyFile, err)
	}

	documents := strings.Split(strings.ReplaceAll(string(text), defaultNamespace, namespace), "\n---\n")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if len(documents) != 2 {
		return nil, nil, fmt.Errorf("%s has %d documents, want a policy and its binding", policyFile, len(documents))
	}

	for i, object := range []any{policy, binding} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
			return nil, nil, fmt.Errorf("decoding %s: %w", policyFile, err)
		}
	}

	return policy, binding, nil
}

// sameRules compares what policies deny and to whom; the API server sets defaults in the rest.
func sameRules(found, shipped *admissionregistrationv1.ValidatingAdmissionPolicySpec) bool {
	fails := found.FailurePolicy == nil || *found.FailurePolicy == admissionregistrationv1.Fail
	return fails && found.ParamKind == nil && found.MatchConstraints != nil && !restricts(&admissionregistrationv1.MatchResources{
		NamespaceSelector:    found.MatchConstraints.NamespaceSelector,
		ObjectSelector:       found.MatchConstraints.ObjectSelector,
		ExcludeResourceRules: found.MatchConstraints.ExcludeResourceRules,
	}) && sameResourceRules(found.MatchConstraints.ResourceRules, shipped.MatchConstraints.ResourceRules) &&
		equality.Semantic.DeepEqual(found.MatchConditions, shipped.MatchConditions) &&
		equality.Semantic.DeepEqual(found.Validations, shipped.Validations)
}

func sameResourceRules(found, shipped []admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.EqualFunc(found, shipped, func(a, b admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Equal(a.Operations, b.Operations) && slices.Equal(a.APIGroups, b.APIGroups) && slices.Equal(a.Resources, b.Resources) &&
			slices.Equal(a.APIVersions, b.APIVersions) && len(a.ResourceNames) == 0 && (a.Scope == nil || *a.Scope == admissionregistrationv1.AllScopes)
	})
}

// restricts reports whether a match selects less than everything.
func restricts(m *admissionregistrationv1.MatchResources) bool {
	if m == nil {
		return false
	}

	selects := m.NamespaceSelector != nil && len(m.NamespaceSelector.MatchLabels)+len(m.NamespaceSelector.MatchExpressions) > 0 ||
		m.ObjectSelector != nil && len(m.ObjectSelector.MatchLabels)+len(m.ObjectSelector.MatchExpressions) > 0
	return selects || len(m.ResourceRules) > 0 || len(m.ExcludeResourceRules) > 0
}
