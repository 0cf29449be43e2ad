// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// Mode is the way in which the server was started.
type Mode string

// The modes.
const (
	// ModeLocal uses the rights of a kubeconfig; the login is the one-time token in the printed address.
	ModeLocal Mode = "local"
	// ModeFiles reads CSV series; there is no cluster.
	ModeFiles Mode = "files"
	// ModeCluster runs in the cluster; users log in with their own token.
	ModeCluster Mode = "cluster"
)

// Session describes the session of the request.
type Session struct {
	Authenticated bool `json:"authenticated"`
	// User is the name by which the API server knows the user; empty without a cluster.
	User string `json:"user,omitempty"`
	Mode Mode   `json:"mode"`
	// LoginMethods are "token" (PathLogin), "proxy" (an OIDC proxy in front forwards the token: reload the page), "link" (open the
	// address that crane dashboard prints).
	LoginMethods []string `json:"loginMethods"`
	// Clusters is empty before the login.
	Clusters []Cluster `json:"clusters"`
	// CSRFToken is the value of the header X-CSRF-Token.
	CSRFToken string `json:"csrfToken,omitempty"`
	// Expires is the end of the session, 0 if it lasts as long as the server.
	Expires int64  `json:"expires,omitempty"`
	Version string `json:"version"`
	// Pages are the pages that this server can fill, by the last element of their path: overview, worklist, workload, autoscaling, nodes,
	// cost, rules, health.
	Pages []string `json:"pages"`
}

// Cluster is one cluster of the session.
type Cluster struct {
	// Name is the context of the kubeconfig, or the name in the configuration of the server.
	Name string `json:"name"`
	// Error is the reason why the cluster cannot be read; empty if it can.
	Error string `json:"error,omitempty"`
	// Currency is the currency of its price book.
	Currency string `json:"currency"`
	// CraneInstalled is false if the cluster has no Recommendations: the server computes the numbers itself, and nothing can be adopted.
	CraneInstalled bool `json:"craneInstalled"`
	// History is true if there is a Prometheus, or files: series, steps and what-if are served.
	History bool   `json:"history"`
	Rights  Rights `json:"rights"`
}

// Rights are what the user may do, as far as the UI has to know before a click. Every request is checked again.
type Rights struct {
	// ClusterTotals is true if the user may read the totals of the cluster: on a laptop by listing Recommendations of all namespaces, in a
	// cluster by listing all nodes and pods.
	ClusterTotals bool `json:"clusterTotals"`
	// Nodes is true if the user may list nodes.
	Nodes bool `json:"nodes"`
	// Adopt is true if the user may patch Recommendations in at least one namespace.
	Adopt bool `json:"adopt"`
	// Rules and CreateRules are true if the user may list and create RecommendationRules.
	Rules       bool `json:"rules"`
	CreateRules bool `json:"createRules"`
	// Namespaces are the namespaces whose Recommendations the user may read; absent for all.
	Namespaces []string `json:"namespaces,omitempty"`
}

// LoginRequest is the body of PathLogin.
type LoginRequest struct {
	// Token is a bearer token of the cluster, such as that of kubectl create token.
	Token string `json:"token"`
}
