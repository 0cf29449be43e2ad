// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusteraccess opens the clients of a cluster: of a kubeconfig, or of a server in the cluster.
package clusteraccess

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// PageSize is the number of objects per response of the API server.
	PageSize = 500
	// apiTimeout limits one request.
	apiTimeout = time.Minute
	apiQPS     = 50
	apiBurst   = 100
)

// ErrNoKubeconfig is returned if there is no kubeconfig and no service account.
var ErrNoKubeconfig = errors.New("no kubeconfig found")

// Access select the cluster.
type Access struct {
	Kubeconfig string
	Context    string
	// Fixed is used instead of a kubeconfig, nil for none.
	Fixed *Fixed
}

// Fixed is the access of a server in the cluster.
type Fixed struct {
	Config *rest.Config
	Mapper meta.RESTMapper
	// Personal is set if each request has the token of the person who caused it. What that person may not read is then not read from
	// elsewhere either.
	Personal bool
}

// Explicit reports whether the user selected a cluster, so that failing to reach it is an error.
func (a *Access) Explicit() bool {
	return a.Kubeconfig != "" || a.Context != "" || a.Fixed != nil
}

// Personal reports whether each request has the rights of the person who caused it.
func (a *Access) Personal() bool { return a.Fixed != nil && a.Fixed.Personal }

// newClient returns a client of the kinds of a scheme.
func (a *Access) newClient(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	options := client.Options{Scheme: scheme}
	if a.Fixed != nil {
		options.Mapper = a.Fixed.Mapper
	}

	c, err := client.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return c, nil
}

// ClientConfig returns the kubeconfig with the context, read when it is needed.
func (a *Access) ClientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context})
}

// Config returns the client configuration by kubectl's loading rules, or ErrNoKubeconfig.
func (a *Access) Config() (*rest.Config, error) {
	if a.Fixed != nil {
		return rest.CopyConfig(a.Fixed.Config), nil
	}

	config, err := a.ClientConfig().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoKubeconfig
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

// ObjectClient returns a client of Kubernetes' own kinds, recommendations and autoscalers.
func (a *Access) ObjectClient() (client.Client, error) {
	return a.ObjectClientWith(func(*rest.Config) {})
}

// ObjectClientWith returns such a client with a changed configuration.
func (a *Access) ObjectClientWith(change func(*rest.Config)) (client.Client, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}

	change(config)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), topologyv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	return a.newClient(config, scheme)
}

// Clientset returns a typed client of Kubernetes' own kinds, and its configuration.
func (a *Access) Clientset() (kubernetes.Interface, *rest.Config, error) {
	config, err := a.Config()
	if err != nil {
		return nil, nil, err
	}

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return clients, config, nil
}

// DefaultNamespace returns the namespace of the kubeconfig's context.
func (a *Access) DefaultNamespace() (string, error) {
	name, _, err := a.ClientConfig().Namespace()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}

	return name, nil
}

// Lister returns a lister with paging and the address of the API server for messages.
func (a *Access) Lister() (lister *workload.Lister, host string, err error) {
	config, err := a.Config()
	if err != nil {
		return nil, "", err
	}

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, "", fmt.Errorf("building the scheme: %w", err)
	}

	c, err := a.newClient(config, scheme)
	if err != nil {
		return nil, "", err
	}

	direct := workload.Source{Reader: c, PageSize: PageSize}
	return &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return direct }, Scales: c, Scheme: scheme,
		WithoutDefaults: func(error) {},
	}, config.Host, nil
}

// listFrom lists objects of the cluster with list.
func listFrom[T any](k *Access, list func(*workload.Lister) (T, error)) (T, error) {
	var none T
	lister, host, err := k.Lister()
	if err != nil {
		return none, err
	}

	found, err := list(lister)
	if err != nil {
		return none, fmt.Errorf("API server %s: %w", host, err)
	}

	return found, nil
}

// ListWorkloads lists the workloads of the namespaces. withoutDefaults is called once where LimitRanges may not be read.
func (a *Access) ListWorkloads(ctx context.Context, namespaces []string, withoutDefaults func(error)) ([]workload.Workload, error) {
	return listFrom(a, func(l *workload.Lister) ([]workload.Workload, error) {
		var once sync.Once
		l.WithoutDefaults = func(err error) { once.Do(func() { withoutDefaults(err) }) }
		return l.Inventory(ctx, namespaces)
	})
}

// ListConstraints lists the nodes, and the autoscalers of the namespaces.
func (a *Access) ListConstraints(ctx context.Context, namespaces []string) (workload.Constraints, error) {
	return listFrom(a, func(l *workload.Lister) (workload.Constraints, error) { return l.Constraints(ctx, namespaces) })
}

// ListCluster lists the nodes, and the pods of the namespaces.
func (a *Access) ListCluster(ctx context.Context, namespaces []string) (workload.Cluster, error) {
	return listFrom(a, func(l *workload.Lister) (workload.Cluster, error) { return l.Cluster(ctx, namespaces) })
}

// ServerName returns the name of the API server for messages, without its address where persons of different rights read them.
func (a *Access) ServerName() string {
	if a.Fixed != nil && a.Fixed.Personal {
		return "Kubernetes API"
	}

	config, err := a.Config()
	if err != nil {
		return "Kubernetes API"
	}

	return "Kubernetes API " + config.Host
}
