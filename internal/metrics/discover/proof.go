// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whoever has rights in any namespace can create a Service there that looks like Prometheus. Only administrators create ClusterRoleBindings, and
// whoever scrapes the kubelets of a cluster has one: this proves that the namespace of a Service is one for monitoring.

// monitoringNamespaces returns the namespaces with a ServiceAccount that a ClusterRoleBinding lets read the metrics of all nodes.
func (f *Finder) monitoringNamespaces(ctx context.Context) (map[string]bool, error) {
	roles := map[string]bool{}
	err := pages(func(options metav1.ListOptions) (string, error) {
		list, err := f.rbac.ClusterRoles().List(ctx, options)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			roles[list.Items[i].Name] = slices.ContainsFunc(list.Items[i].Rules, readsNodeMetrics)
		}

		return list.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing clusterroles: %w", err)
	}

	namespaces := map[string]bool{}
	err = pages(func(options metav1.ListOptions) (string, error) {
		list, err := f.rbac.ClusterRoleBindings().List(ctx, options)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			if !roles[list.Items[i].RoleRef.Name] {
				continue
			}

			for _, subject := range list.Items[i].Subjects {
				if subject.Kind == rbacv1.ServiceAccountKind {
					namespaces[subject.Namespace] = true
				}
			}
		}

		return list.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing clusterrolebindings: %w", err)
	}

	return namespaces, nil
}

// readsNodeMetrics reports whether a rule permits to read the metrics of all kubelets.
func readsNodeMetrics(rule rbacv1.PolicyRule) bool {
	return len(rule.ResourceNames) == 0 &&
		containsAny(rule.Verbs, "get", rbacv1.VerbAll) &&
		containsAny(rule.APIGroups, corev1.GroupName, rbacv1.APIGroupAll) &&
		containsAny(rule.Resources, "nodes/metrics", "nodes/proxy", rbacv1.ResourceAll)
}

func containsAny(list []string, values ...string) bool {
	return slices.ContainsFunc(values, func(value string) bool { return slices.Contains(list, value) })
}

// pages calls list for each page until the API server names no further one.
func pages(list func(metav1.ListOptions) (next string, err error)) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		next, err := list(options)
		if err != nil || next == "" {
			return err
		}

		options.Continue = next
	}
}
