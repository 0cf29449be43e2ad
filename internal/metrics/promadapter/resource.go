// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of a cluster as its REST mapper describes it.
type Resource struct {
	Group, Singular string
	// Plural is guessed from Singular where it is empty.
	Plural string
	// Resolve finds the resource of an override, as the REST mapper does: without a group that of the preferred one. Nil compares names and
	// groups, and an override without a group means any.
	Resolve func(group, name string) (schema.GroupResource, error)
}

// namespaceResource and podResource return the resources whose labels are known without a cluster.
func namespaceResource() Resource { return Resource{Singular: namespaceLabel, Plural: "namespaces"} }

func podResource() Resource { return Resource{Singular: podLabel, Plural: "pods"} }

// plural returns the plural name.
func (r Resource) plural() string {
	if r.Plural != "" {
		return r.Plural
	}

	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: r.Singular})
	return plural.Resource
}

// guessSingular returns the singular of a name of a resource that may be either, for callers without a REST mapper.
func guessSingular(name string) string {
	for _, ending := range [][2]string{{"ies", "y"}, {"es", ""}, {"s", ""}} {
		stem, ok := strings.CutSuffix(name, ending[0])
		if !ok || stem == "" {
			continue
		}

		singular := stem + ending[1]
		if (Resource{Singular: singular}).plural() == name {
			return singular
		}
	}

	return name
}

// is reports whether an override names the resource, in the singular or in the plural.
func (r Resource) is(name resourceName) bool {
	text := strings.ToLower(name.Resource)
	if r.Resolve != nil {
		found, err := r.Resolve(name.Group, text)
		return err == nil && found == schema.GroupResource{Group: r.Group, Resource: r.plural()}
	}

	return (text == r.Singular || text == r.plural()) && (name.Group == "" || name.Group == r.Group)
}
