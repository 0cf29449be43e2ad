// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/workload"
)

const (
	// pageSize is how many objects one answer of the API server holds.
	pageSize = 500
	// apiTimeout bounds one answer.
	apiTimeout = time.Minute
	apiQPS     = 50
	apiBurst   = 100
)

// errNoKubeconfig tells that no file, variable or service account leads to an API server.
var errNoKubeconfig = errors.New("no kubeconfig found")

// kubernetesFlags say which cluster is meant.
type kubernetesFlags struct {
	kubeconfig string
	context    string
}

func (k *kubernetesFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&k.context, "context", "", "context of the kubeconfig")
}

// named reports whether the user asked for a cluster, so that one that does not answer is an error.
func (k *kubernetesFlags) named() bool { return k.kubeconfig != "" || k.context != "" }

// config follows kubectl's loading rules. It wraps errNoKubeconfig where there is nothing to load.
func (k *kubernetesFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoKubeconfig
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.UserAgent = "crane/" + version.String()
	config.QPS, config.Burst, config.Timeout = apiQPS, apiBurst, apiTimeout
	return config, nil
}

// defaultNamespace is that of the kubeconfig's context.
func (k *kubernetesFlags) defaultNamespace() (string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	name, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context}).Namespace()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return name, nil
}

// lister reads the cluster, page by page. host is its address, for messages.
func (k *kubernetesFlags) lister() (lister *workload.Lister, host string, err error) {
	config, err := k.config()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, "", fmt.Errorf("building the scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("API server %s: %w", config.Host, err)
	}
	direct := workload.Source{Reader: c, PageSize: pageSize}
	return &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return direct }, Scales: c, Scheme: scheme,
	}, config.Host, nil
}

// inventory lists the workloads of the cluster.
func (k *kubernetesFlags) inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error) {
	lister, host, err := k.lister()
	if err != nil {
		return nil, err
	}
	workloads, err := lister.Inventory(ctx, namespaces)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", host, err)
	}
	return workloads, nil
}

// constraints lists nodes, and the autoscalers of some namespaces.
func (k *kubernetesFlags) constraints(ctx context.Context, namespaces []string) (workload.Constraints, error) {
	lister, host, err := k.lister()
	if err != nil {
		return workload.Constraints{}, err
	}
	out, err := lister.Constraints(ctx, namespaces)
	if err != nil {
		return workload.Constraints{}, fmt.Errorf("API server %s: %w", host, err)
	}
	return out, nil
}

// namespace returns nil where it is there; the error is the API's own.
func (k *kubernetesFlags) namespace(ctx context.Context, name string) error {
	lister, _, err := k.lister()
	if err != nil {
		return err
	}
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	return lister.Sources(kind).Reader.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
}

// server names the API server, for people.
func (k *kubernetesFlags) server() string {
	config, err := k.config()
	if err != nil {
		return "Kubernetes API"
	}
	return "Kubernetes API " + config.Host
}

// cluster lists nodes, and pods of some namespaces.
func (k *kubernetesFlags) cluster(ctx context.Context, namespaces []string) (workload.Cluster, error) {
	lister, host, err := k.lister()
	if err != nil {
		return workload.Cluster{}, err
	}
	cluster, err := lister.Cluster(ctx, namespaces)
	if err != nil {
		return workload.Cluster{}, fmt.Errorf("API server %s: %w", host, err)
	}
	return cluster, nil
}
