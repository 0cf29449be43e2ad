// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

// state is what the steps of a migration are made of: everything as it was before, and the manifests of Crane. It is stored in the file of the
// operator alone: what a command writes with the operator's rights never comes from the cluster.
type state struct {
	Items []storedItem `json:"items"`
	// Others are objects of others that have the name of an object of Crane.
	Others  []*Object `json:"others,omitempty"`
	Desired []*Object `json:"desired"`
	// Metrics are the annotation keys of loads, Continued those that Crane writes as well.
	Metrics   []string `json:"metrics,omitempty"`
	Continued []string `json:"continued,omitempty"`
	// Requested are the extended resources that pods request, by node.
	Requested map[string][]string `json:"requested,omitempty"`
	// Templates are requests of running pods that templates lack, where Crane is removed.
	Templates []TemplateRequests `json:"templates,omitempty"`
}

// storedItem is an item with its object.
type storedItem struct {
	Component string  `json:"component"`
	Fate      Fate    `json:"fate"`
	Object    *Object `json:"object"`
}

// originals returns the objects as they were, by reference.
func (s *state) originals() map[Ref]*Object {
	out := map[Ref]*Object{}
	for _, o := range s.Others {
		out[RefOf(o)] = o
	}

	for _, item := range s.Items {
		out[RefOf(item.Object)] = item.Object
	}

	return out
}

// isToken reports whether a Secret is a credential of Kubernetes: the token of a ServiceAccount or a bootstrap token.
func isToken(o *Object) bool {
	if o.GetKind() != "Secret" {
		return false
	}

	kind := stringAt(o, "type")
	return kind == "kubernetes.io/service-account-token" || kind == "bootstrap.kubernetes.io/token" || o.GetAnnotations()[annotationAccount] != ""
}

// stored reports whether an item belongs into the state. Controllers make pods and ReplicaSets, and of Secrets only those that a step deletes are needed.
func (i Item) stored() bool {
	switch i.Kind {
	case "Pod", "ReplicaSet":
		return false
	case "Secret":
		return i.Fate == FateRemoved && !isToken(i.object)
	}

	return true
}
