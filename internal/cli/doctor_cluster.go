// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"crane.io/crane/internal/component/shellquote"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/installation"
)

// Names of the cluster checks.
const (
	checkKubeconfig      = "kubeconfig"
	checkAPIServer       = "API server"
	checkPermissionsName = "permissions"
)

// doctorTimeout limits one request to the API server, shorter than for other commands so that a diagnosis is fast.
const doctorTimeout = 15 * time.Second

// checkCluster returns a client, or nil if no API server is reachable.
func (d *diagnosis) checkCluster(ctx context.Context) kubernetes.Interface {
	k := d.options.kubernetes
	config, err := k.Config()
	if err != nil {
		severity := installation.Missing
		if d.options.prometheus.Address != "" && errors.Is(err, clusteraccess.ErrNoKubeconfig) {
			severity = installation.Warn // kube-state-metrics replaces the API server.
		}

		d.add(checkKubeconfig, severity, err.Error(),
			"set $KUBECONFIG or --kubeconfig, or set --prometheus to read workloads from kube-state-metrics in Prometheus")
		return nil
	}

	d.add(checkKubeconfig, installation.OK, contextName(k), "")
	config.Timeout = doctorTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		d.add(checkAPIServer, installation.Missing, err.Error(), "correct the kubeconfig")
		return nil
	}

	version, err := serverVersion(ctx, client)
	if err != nil {
		d.add(checkAPIServer, installation.Missing, fmt.Sprintf("%s: %v", config.Host, err), "check that the cluster is running and reachable and that the context is correct (--context)")
		return nil
	}

	d.add(checkAPIServer, installation.OK, fmt.Sprintf("%s, Kubernetes %s", config.Host, version), "")
	return client
}

// serverVersion returns the version of the API server. Unlike the client, it observes ctx.
func serverVersion(ctx context.Context, client kubernetes.Interface) (string, error) {
	type result struct {
		version string
		err     error
	}

	done := make(chan result, 1) // The goroutine ends with the timeout of the client.
	go func() {
		v, err := client.Discovery().ServerVersion()
		if err != nil {
			done <- result{err: err}
			return
		}

		done <- result{version: v.GitVersion}
	}()

	select {
	case r := <-done:
		return r.version, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// contextName returns the name of the context and its kubeconfig file.
func contextName(k *clusteraccess.Access) string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Kubeconfig
	raw, err := rules.Load()
	if err != nil || raw.CurrentContext == "" && k.Context == "" {
		return "service account of this pod"
	}

	name := k.Context
	if name == "" {
		name = raw.CurrentContext
	}

	from := ""
	if c := raw.Contexts[name]; c != nil && c.LocationOfOrigin != "" {
		from = " of " + c.LocationOfOrigin
	}

	return "context " + name + from
}

// rbacGroup is the API group of the objects that prove which namespaces are for monitoring.
const rbacGroup = "rbac.authorization.k8s.io"

// permission is an API permission that crane uses.
type permission struct {
	group, resource, subresource, verb string
	// clusterWide permissions are not namespaced.
	clusterWide bool
	// impact describes the effect of a missing permission.
	impact string
	// required permissions are necessary for any recommendation.
	required bool
}

func (r permission) String() string {
	name := r.resource
	if r.subresource != "" {
		name += "/" + r.subresource
	}
	if r.group != "" {
		name += "." + r.group
	}

	return r.verb + " " + name
}

// requiredPermissions returns the permissions used by internal/kube/workload and internal/metrics/discover.
func (o *doctorOptions) requiredPermissions() []permission {
	out := []permission{}
	for _, r := range [][2]string{
		{"apps", "deployments"},
		{"apps", "statefulsets"},
		{"apps", "daemonsets"},
		{"apps", "replicasets"},
		{"batch", "cronjobs"},
		{"batch", "jobs"},
		{"", "pods"},
	} {
		out = append(out, permission{
			group:    r[0],
			resource: r[1],
			verb:     "list",
			required: true,
			impact:   "workloads cannot be listed",
		})
	}

	out = append(out, permission{
		group:    "autoscaling",
		resource: "horizontalpodautoscalers",
		verb:     "list",
		impact:   "autoscalers are read from kube-state-metrics",
	})

	out = append(out, permission{
		resource:    "nodes",
		verb:        "list",
		clusterWide: true,
		impact:      "nodes are read from kube-state-metrics",
	})

	// Services are needed only to find Prometheus or to reach it through the API server.
	if o.prometheus.Address == "" {
		if o.prometheus.Service == "" {
			for _, r := range [][2]string{{"", "services"}, {rbacGroup, "clusterroles"}, {rbacGroup, "clusterrolebindings"}} {
				out = append(out, permission{
					group:       r[0],
					resource:    r[1],
					verb:        "list",
					clusterWide: true,
					required:    true,
					impact:      "Prometheus cannot be discovered; set its address",
				})
			}
		}

		out = append(out, permission{
			resource:    "services",
			subresource: "proxy",
			verb:        "get",
			clusterWide: true,
			impact:      "Prometheus cannot be reached through the API server, unless a Role in its namespace allows it",
		})
	}

	return out
}

// checkPermissions requests access reviews from the API server.
func (d *diagnosis) checkPermissions(ctx context.Context, client kubernetes.Interface) {
	namespaces := d.options.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}

	var denied []permission
	permissions := d.options.requiredPermissions()
	for _, r := range permissions {
		// A permission that is missing in one of the namespaces is missing.
		allowed := true
		for _, ns := range namespaces {
			if r.clusterWide {
				ns = metav1.NamespaceAll
			}

			ok, err := isAllowed(ctx, client, r, ns)
			if err != nil {
				d.add(checkPermissionsName, installation.Warn, fmt.Sprintf("the permission to %s cannot be checked: %v", r, err), "grant create on selfsubjectaccessreviews.authorization.k8s.io, which every user has by default")
				return
			}

			allowed = allowed && ok
		}

		if !allowed {
			denied = append(denied, r)
		}
	}

	if len(denied) == 0 {
		d.add(checkPermissionsName, installation.OK, fmt.Sprintf("all %d required permissions are granted", len(permissions)), "")
		return
	}

	for _, r := range denied {
		severity := installation.Warn
		if r.required {
			severity = installation.Missing
		}

		d.add(checkPermissionsName, severity, fmt.Sprintf("cannot %s: %s", r, r.impact), d.options.grantAdvice(r))
	}
}

// grantAdvice returns how to grant a permission. ClusterRole view exists in every cluster and includes all lists of
// namespaced kinds.
func (o *doctorOptions) grantAdvice(r permission) string {
	switch {
	case r.subresource == "proxy":
		return "grant it in a Role in the namespace of Prometheus, or set --prometheus URL"
	case r.group == rbacGroup:
		return "grant it in a ClusterRole, or set --prometheus URL or --prometheus-service NAMESPACE/NAME"
	case r.resource == "nodes":
		return "grant get and list of nodes in a ClusterRole"
	case len(o.namespaces) > 0 && !r.clusterWide:
		return "bind ClusterRole view with a RoleBinding in " + strings.Join(o.namespaces, ", ")
	}

	return "bind ClusterRole view with a ClusterRoleBinding, or restrict the namespaces (-n)"
}

func isAllowed(ctx context.Context, client kubernetes.Interface, r permission, namespace string) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace:   namespace,
			Verb:        r.verb,
			Group:       r.group,
			Resource:    r.resource,
			Subresource: r.subresource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}

	return review.Status.Allowed, nil
}

// checkComponents checks optional components.
func (d *diagnosis) checkComponents(ctx context.Context, client kubernetes.Interface) {
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		d.add("API groups", installation.Warn, err.Error(), "check the permissions of the user: system:discovery is granted to every user by default")
		return
	}

	served := func(group string) bool {
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	}
	if served("metrics.k8s.io") {
		d.add("metrics-server", installation.OK, "metrics.k8s.io is served", "")
	} else {
		d.add("metrics-server", installation.OK, "not installed; crane recommend does not need it", "install it for the HPA and kubectl top")
	}

	// Optional components are ok if they are absent: crane recommend does not need them.
	if !served("analysis.crane.io") {
		d.add("craned", installation.OK, "not installed; crane recommend does not need it", "for recommendations as objects and their adoption: kubectl apply -k config")
		return
	}

	// What has the label in another namespace may be anyone's.
	deployments, err := client.AppsV1().Deployments(d.options.cranedNamespace).List(ctx, metav1.ListOptions{LabelSelector: installation.CranedSelector})
	switch {
	case apierrors.IsForbidden(err):
		d.add("craned", installation.OK, "the CRDs are installed; no permission to check whether craned runs", "")

	case err != nil:
		d.add("craned", installation.Warn, err.Error(), "")

	case len(deployments.Items) == 0:
		d.checkLeader(ctx, client)

	default:
		item := deployments.Items[0]
		text := fmt.Sprintf("%s/%s, %d of %d ready", item.Namespace, item.Name, item.Status.ReadyReplicas, item.Status.Replicas)
		if item.Status.ReadyReplicas == 0 {
			d.add("craned", installation.Warn, text, shellquote.Command([]string{"kubectl", "-n", item.Namespace, "logs"}, "deployment/"+item.Name))
			return
		}

		d.add("craned", installation.OK, text, "")
	}
}

// checkLeader checks the leader lease for a craned that runs outside the cluster.
func (d *diagnosis) checkLeader(ctx context.Context, client kubernetes.Interface) {
	lease, err := client.CoordinationV1().Leases(d.options.cranedNamespace).Get(ctx, installation.CranedLease, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		d.add("craned", installation.Warn, "the CRDs are installed; craned has no Deployment, and there is no permission to check whether it runs outside the cluster", "kubectl apply -k config")
		return
	}

	if err == nil && installation.Renewed(lease, d.now) {
		d.add("craned", installation.OK, "runs outside the cluster and holds the lease "+lease.Namespace+"/"+lease.Name, "")
		return
	}

	d.add("craned", installation.Warn, "the CRDs are installed and craned does not run in namespace "+d.options.cranedNamespace+": no rule is executed", "kubectl apply -k config, or name its namespace with --craned-namespace")
}
