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
)

// Names of the checks of a cluster.
const (
	checkKubeconfig = "kubeconfig"
	checkAPIServer  = "API server"
	checkRights     = "rights"
)

// doctorTimeout bounds one answer of the API server: who asks what is wrong does not want to wait for a minute.
const doctorTimeout = 15 * time.Second

// cranedSelector is how config/craned labels its Deployment.
const cranedSelector = "app.kubernetes.io/name=craned"

// lookAtCluster returns nil where there is no API server to ask.
func (d *diagnosis) lookAtCluster(ctx context.Context) kubernetes.Interface {
	k := d.options.kubernetes
	config, err := k.config()
	if err != nil {
		severity := statusMissing
		if d.options.prometheus.address != "" && errors.Is(err, errNoKubeconfig) {
			severity = statusWarn // kube-state-metrics' metrics stand in.
		}
		d.add(checkKubeconfig, severity, err.Error(),
			"set $KUBECONFIG or give --kubeconfig; without one, workloads are taken from kube-state-metrics' metrics in Prometheus, which --prometheus must then name")
		return nil
	}
	d.add(checkKubeconfig, statusOK, k.describe(), "")
	config.Timeout = doctorTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		d.add(checkAPIServer, statusMissing, err.Error(), "correct the kubeconfig")
		return nil
	}
	version, err := serverVersion(ctx, client)
	if err != nil {
		d.add(checkAPIServer, statusMissing, fmt.Sprintf("%s: %v", config.Host, err), "check that the cluster runs, that it can be reached from here, and that the context is the right one (--context)")
		return nil
	}
	d.add(checkAPIServer, statusOK, fmt.Sprintf("%s, Kubernetes %s", config.Host, version), "")
	return client
}

// serverVersion asks in a way that a context can end.
func serverVersion(ctx context.Context, client kubernetes.Interface) (string, error) {
	type answer struct {
		version string
		err     error
	}
	done := make(chan answer, 1) // Ends with the client's own time limit.
	go func() {
		v, err := client.Discovery().ServerVersion()
		if err != nil {
			done <- answer{err: err}
			return
		}
		done <- answer{version: v.GitVersion}
	}()
	select {
	case a := <-done:
		return a.version, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// describe names the context that is used and the file that it comes from.
func (k *kubernetesFlags) describe() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	raw, err := rules.Load()
	if err != nil || raw.CurrentContext == "" && k.context == "" {
		return "the service account of this pod"
	}
	name := k.context
	if name == "" {
		name = raw.CurrentContext
	}
	from := ""
	if c := raw.Contexts[name]; c != nil && c.LocationOfOrigin != "" {
		from = " of " + c.LocationOfOrigin
	}
	return "context " + name + from
}

// right is something that crane must be let do.
type right struct {
	group, resource, subresource, verb string
	// clusterWide rights are not of a namespace.
	clusterWide bool
	// cost is what is lost without it.
	cost string
	// needed tells that there is no recommendation without it.
	needed bool
}

func (r right) String() string {
	name := r.resource
	if r.subresource != "" {
		name += "/" + r.subresource
	}
	if r.group != "" {
		name += "." + r.group
	}
	return r.verb + " " + name
}

// rights lists what is read of the API server: by internal/kube/workload, and by internal/metrics/discover.
func (o *doctorOptions) rights() []right {
	out := []right{}
	for _, r := range [][2]string{
		{"apps", "deployments"},
		{"apps", "statefulsets"},
		{"apps", "daemonsets"},
		{"apps", "replicasets"},
		{"batch", "cronjobs"},
		{"batch", "jobs"},
		{"", "pods"},
	} {
		out = append(out, right{group: r[0], resource: r[1], verb: "list", needed: true, cost: "workloads cannot be listed"})
	}
	out = append(out, right{group: "autoscaling", resource: "horizontalpodautoscalers", verb: "list", cost: "autoscalers are those that kube-state-metrics exports"})
	out = append(out, right{resource: "nodes", verb: "list", clusterWide: true, cost: "nodes are those that kube-state-metrics exports"})
	if o.prometheus.address == "" {
		if o.prometheus.service == "" {
			out = append(out, right{resource: "services", verb: "list", clusterWide: true, needed: true, cost: "Prometheus cannot be looked for; name it"})
		}
		out = append(out, right{resource: "services", subresource: "proxy", verb: "get", clusterWide: true, cost: "Prometheus cannot be reached through the API server, unless a Role in its namespace says so"})
	}
	return out
}

// lookAtRights asks the API server whether we may, without trying.
func (d *diagnosis) lookAtRights(ctx context.Context, client kubernetes.Interface) {
	namespaces := d.options.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var denied []right
	wanted := d.options.rights()
	for _, r := range wanted {
		allowed := true
		for _, ns := range namespaces {
			if r.clusterWide {
				ns = metav1.NamespaceAll
			}
			ok, err := mayI(ctx, client, r, ns)
			if err != nil {
				d.add(checkRights, statusWarn, fmt.Sprintf("whether we may %s cannot be asked: %v", r, err), "let the user create selfsubjectaccessreviews.authorization.k8s.io, as every user may by default")
				return
			}
			allowed = allowed && ok
		}
		if !allowed {
			denied = append(denied, r)
		}
	}
	if len(denied) == 0 {
		d.add(checkRights, statusOK, fmt.Sprintf("all %d that crane needs", len(wanted)), "")
		return
	}
	for _, r := range denied {
		severity := statusWarn
		if r.needed {
			severity = statusMissing
		}
		d.add(checkRights, severity, fmt.Sprintf("may not %s: %s", r, r.cost), d.options.grant(r))
	}
}

// grant says how to get a right. ClusterRole view is in every cluster and holds all lists of namespaced kinds.
func (o *doctorOptions) grant(r right) string {
	switch {
	case r.subresource == "proxy":
		return "grant a Role with it in the namespace of Prometheus, or give --prometheus URL"
	case r.resource == "nodes":
		return "grant a ClusterRole with get and list of nodes"
	case len(o.namespaces) > 0 && !r.clusterWide:
		return "bind ClusterRole view by a RoleBinding in " + strings.Join(o.namespaces, ", ")
	}
	return "bind ClusterRole view by a ClusterRoleBinding, or look at some namespaces alone (-n)"
}

func mayI(ctx context.Context, client kubernetes.Interface, r right, namespace string) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// lookAtExtras looks for what crane recommend does without.
func (d *diagnosis) lookAtExtras(ctx context.Context, client kubernetes.Interface) {
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		d.add("API groups", statusWarn, err.Error(), "check the rights of the user: system:discovery is granted to every user by default")
		return
	}
	has := func(group string) bool {
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	}
	if has("metrics.k8s.io") {
		d.add("metrics-server", statusOK, "metrics.k8s.io is served", "")
	} else {
		d.add("metrics-server", statusOK, "not installed; crane recommend does without", "HPA and kubectl top need it")
	}
	if !has("analysis.crane.io") {
		d.add("craned", statusOK, "not installed; crane recommend does without", "to have recommendations as objects, and applied: kubectl apply -k config")
		return
	}
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: cranedSelector})
	switch {
	case apierrors.IsForbidden(err):
		d.add("craned", statusOK, "the CRDs are installed; whether craned runs may not be seen", "")
	case err != nil:
		d.add("craned", statusWarn, err.Error(), "")
	case len(deployments.Items) == 0:
		d.lookForLeader(ctx, client)
	default:
		item := deployments.Items[0]
		text := fmt.Sprintf("%s/%s, %d of %d ready", item.Namespace, item.Name, item.Status.ReadyReplicas, item.Status.Replicas)
		if item.Status.ReadyReplicas == 0 {
			d.add("craned", statusWarn, text, fmt.Sprintf("kubectl -n %s logs deployment/%s", item.Namespace, item.Name))
			return
		}
		d.add("craned", statusOK, text, "")
	}
}

// lookForLeader finds a craned that runs outside of the cluster: it holds a lease all the same.
func (d *diagnosis) lookForLeader(ctx context.Context, client kubernetes.Interface) {
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + cranedLease})
	if err != nil {
		d.add("craned", statusWarn, "the CRDs are installed; there is no Deployment of craned, and whether it runs outside of the cluster may not be seen", "kubectl apply -k config")
		return
	}
	for _, l := range leases.Items {
		if l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		if age := d.now.Sub(l.Spec.RenewTime.Time); age < leaseFresh {
			d.add("craned", statusOK, "runs outside of the cluster: it holds the lease "+l.Namespace+"/"+l.Name, "")
			return
		}
	}
	d.add("craned", statusWarn, "the CRDs are installed and craned does not run: no rule is carried out", "kubectl apply -k config")
}

// cranedLease is what the leader of craned holds; leaseFresh is how old its last renewal may be.
const (
	cranedLease = "craned"
	leaseFresh  = time.Minute
)
