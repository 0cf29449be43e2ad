// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/workload"
)

const (
	// pageSize is the number of objects per response of the API server.
	pageSize = 500
	// apiTimeout limits one request.
	apiTimeout = time.Minute
	apiQPS     = 50
	apiBurst   = 100
)

// errNoKubeconfig is returned if there is no kubeconfig and no service account.
var errNoKubeconfig = errors.New("no kubeconfig found")

// kubernetesFlags select the cluster.
type kubernetesFlags struct {
	kubeconfig string
	context    string
	// fixed is used instead of a kubeconfig, nil for none.
	fixed *fixedAccess
}

// fixedAccess is the access of a server in the cluster.
type fixedAccess struct {
	config *rest.Config
	mapper meta.RESTMapper
	// personal is set if each request has the token of the person who caused it. What that person may not read is then not read from
	// elsewhere either.
	personal bool
}

// explicit reports whether the user selected a cluster, so that failing to reach it is an error.
func (k *kubernetesFlags) explicit() bool {
	return k.kubeconfig != "" || k.context != "" || k.fixed != nil
}

// personal reports whether each request has the rights of the person who caused it.
func (k *kubernetesFlags) personal() bool { return k.fixed != nil && k.fixed.personal }

// newClient returns a client of the kinds of a scheme.
func (k *kubernetesFlags) newClient(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	options := client.Options{Scheme: scheme}
	if k.fixed != nil {
		options.Mapper = k.fixed.mapper
	}

	c, err := client.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return c, nil
}

func (k *kubernetesFlags) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context})
}

// config returns the client configuration by kubectl's loading rules, or errNoKubeconfig.
func (k *kubernetesFlags) config() (*rest.Config, error) {
	if k.fixed != nil {
		return rest.CopyConfig(k.fixed.config), nil
	}

	config, err := k.clientConfig().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoKubeconfig
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}

	config.UserAgent = "crane/" + version.String()
	config.QPS = apiQPS
	config.Burst = apiBurst
	config.Timeout = apiTimeout

	return config, nil
}

// objectClient returns a client of Kubernetes' own kinds, recommendations and autoscalers.
func (k *kubernetesFlags) objectClient() (client.Client, error) {
	return k.objectClientWith(func(*rest.Config) {})
}

// objectClientWith returns such a client with a changed configuration.
func (k *kubernetesFlags) objectClientWith(change func(*rest.Config)) (client.Client, error) {
	config, err := k.config()
	if err != nil {
		return nil, err
	}

	change(config)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), topologyv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("failed to build the scheme: %w", err)
	}

	return k.newClient(config, scheme)
}

// clientset returns a typed client of Kubernetes' own kinds, and its configuration.
func (k *kubernetesFlags) clientset() (kubernetes.Interface, *rest.Config, error) {
	config, err := k.config()
	if err != nil {
		return nil, nil, err
	}

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return clients, config, nil
}

// defaultNamespace returns the namespace of the kubeconfig's context.
func (k *kubernetesFlags) defaultNamespace() (string, error) {
	name, _, err := k.clientConfig().Namespace()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}

	return name, nil
}

// lister returns a lister with paging and the address of the API server for messages.
func (k *kubernetesFlags) lister() (lister *workload.Lister, host string, err error) {
	config, err := k.config()
	if err != nil {
		return nil, "", err
	}

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, "", fmt.Errorf("failed to build the scheme: %w", err)
	}

	c, err := k.newClient(config, scheme)
	if err != nil {
		return nil, "", err
	}

	direct := workload.Source{Reader: c, PageSize: pageSize}
	return &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return direct }, Scales: c, Scheme: scheme,
	}, config.Host, nil
}

// listFrom lists objects of the cluster with list.
func listFrom[T any](k *kubernetesFlags, list func(*workload.Lister) (T, error)) (T, error) {
	var none T
	lister, host, err := k.lister()
	if err != nil {
		return none, err
	}

	found, err := list(lister)
	if err != nil {
		return none, fmt.Errorf("API server %s: %w", host, err)
	}

	return found, nil
}

// listWorkloads lists the workloads of the namespaces.
func (k *kubernetesFlags) listWorkloads(ctx context.Context, namespaces []string) ([]workload.Workload, error) {
	return listFrom(k, func(l *workload.Lister) ([]workload.Workload, error) { return l.Inventory(ctx, namespaces) })
}

// listConstraints lists the nodes, and the autoscalers of the namespaces.
func (k *kubernetesFlags) listConstraints(ctx context.Context, namespaces []string) (workload.Constraints, error) {
	return listFrom(k, func(l *workload.Lister) (workload.Constraints, error) { return l.Constraints(ctx, namespaces) })
}

// listCluster lists the nodes, and the pods of the namespaces.
func (k *kubernetesFlags) listCluster(ctx context.Context, namespaces []string) (workload.Cluster, error) {
	return listFrom(k, func(l *workload.Lister) (workload.Cluster, error) { return l.Cluster(ctx, namespaces) })
}

// serverName returns the name of the API server for messages.
func (k *kubernetesFlags) serverName() string {
	config, err := k.config()
	if err != nil {
		return "Kubernetes API"
	}

	return "Kubernetes API " + config.Host
}
