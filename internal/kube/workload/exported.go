// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import "cmp"

// ExportedNamespace returns the namespace of an object's target in metrics, and false if the target is not for the object to describe: a tenant names the
// target, and a series about another namespace would look like that of its owner. Without a namespace the target is in that of the object. Objects in
// Crane's own namespace are those of administrators; their targets may be anywhere, and have no namespace if they are of the cluster.
func ExportedNamespace(object, target, system string) (string, bool) {
	if object == system {
		return target, true
	}

	namespace := cmp.Or(target, object)
	return namespace, namespace == object
}
