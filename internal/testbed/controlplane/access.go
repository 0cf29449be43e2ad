// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/internal/kube/pki"
	"crane.io/crane/internal/testbed/loopback"
)

// tokenLifetime is the validity of a service account token in a kubeconfig. KubeconfigFor issues a new one.
const tokenLifetime = 365 * 24 * time.Hour

// User is the identity of a client, created by CertificateUser or ServiceAccount.
type User struct {
	name      string
	groups    []string
	namespace string // of a service account; empty for a certificate user
}

// CertificateUser returns a user that authenticates with a client certificate of this name and these groups, such as
// ("system:node:n1", "system:nodes").
func CertificateUser(name string, groups ...string) User { return User{name: name, groups: groups} }

// ServiceAccount returns the identity of a service account, which must exist when the identity is used.
func ServiceAccount(namespace, name string) User { return User{name: name, namespace: namespace} }

// access has the addresses and the identities of a control plane.
type access struct {
	layout    layout
	port      int
	authority *pki.Authority
	admin     *rest.Config
}

// Config returns a new client configuration of a cluster administrator without client-side rate limit.
func (a *access) Config() *rest.Config { return rest.CopyConfig(a.admin) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (a *access) Kubeconfig() string { return a.layout.kubeconfig("admin") }

// ConfigFor returns a client configuration for user. A service account token is valid for a year, or until the account
// is deleted.
func (a *access) ConfigFor(ctx context.Context, user User) (*rest.Config, error) {
	if user.namespace == "" {
		return a.certificateConfig(user)
	}

	client, err := kubernetes.NewForConfig(a.admin)
	if err != nil {
		return nil, fmt.Errorf("creating the client for the token of service account %s/%s: %w", user.namespace, user.name, err)
	}

	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	reply, err := client.CoreV1().ServiceAccounts(user.namespace).CreateToken(ctx, user.name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token of service account %s/%s: %w", user.namespace, user.name, err)
	}

	config := a.anonymousConfig()
	config.BearerToken = reply.Status.Token
	return config, nil
}

// KubeconfigFor writes a kubeconfig for user, readable by the file owner only, and returns its path. An existing file
// of that name is replaced. See ConfigFor for the validity of the credentials.
func (a *access) KubeconfigFor(ctx context.Context, name string, user User) (string, error) {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return "", fmt.Errorf("kubeconfig name %q is not a plain file name", name)
	}

	config, err := a.ConfigFor(ctx, user)
	if err != nil {
		return "", err
	}

	path := a.layout.kubeconfig(name)
	return path, writeKubeconfig(path, user.name, config)
}

// IssueServing issues a server certificate, signed by the cluster CA, for hosts: DNS names or IP addresses. Kubelets
// and aggregated API servers on loopback use it.
func (a *access) IssueServing(hosts ...string) (certPEM, keyPEM []byte, err error) {
	pair, err := a.authority.IssueServing(hosts...)
	return pair.CertPEM, pair.KeyPEM, err
}

// CAPEM returns the certificate of the cluster CA, which signs server and client certificates.
func (a *access) CAPEM() []byte { return a.authority.CertPEM() }

// CAFile returns the path of the file that contains CAPEM. Kubelets use it as their client CA, because the API server
// authenticates with a certificate signed by it.
func (a *access) CAFile() string { return a.layout.pki("ca.crt") }

// FrontProxy returns what an aggregated API server needs to trust the user headers set by the API server: the CA file
// and the allowed names of its client certificate. ConfigMap kube-system/extension-apiserver-authentication contains
// the same data.
func (a *access) FrontProxy() (caFile string, allowedNames []string) {
	return a.layout.pki("front-proxy-ca.crt"), []string{frontProxyName}
}

// URL returns the address of the API server.
func (a *access) URL() string { return fmt.Sprintf("https://%s:%d", loopback.IP, a.port) }

// Port returns the API server's port on 127.0.0.1.
func (a *access) Port() int { return a.port }

// anonymousConfig returns a client configuration that trusts the API server and has no identity.
func (a *access) anonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            a.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: a.authority.CertPEM()},
		QPS:             -1,
	}
}

func (a *access) certificateConfig(user User) (*rest.Config, error) {
	pair, err := a.authority.IssueClient(user.name, user.groups...)
	if err != nil {
		return nil, err
	}

	config := a.anonymousConfig()
	config.CertData = pair.CertPEM
	config.KeyData = pair.KeyPEM

	return config, nil
}

// makeIdentities loads or creates the CAs and keys, which stay the same for the life of the directory, and issues new
// certificates for the components.
func (a *access) makeIdentities() error {
	dir := a.layout.pki("")
	var err error
	if a.authority, err = pki.LoadOrCreate(dir, "ca", "crane-control-plane", time.Now); err != nil {
		return err
	}

	// Aggregated API servers trust only this CA for user headers, so it signs nothing else.
	frontProxy, err := pki.LoadOrCreate(dir, "front-proxy-ca", "crane-front-proxy", time.Now)
	if err != nil {
		return err
	}

	if err := pki.EnsureKey(dir, "service-account"); err != nil {
		return err
	}

	// The keys stay; certificates are issued at each start, so that none expires in an old directory.
	serving, err1 := a.authority.IssueServing(loopback.IP, "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", ServiceIP)

	proxy, err2 := frontProxy.IssueClient(frontProxyName)
	kubelet, err3 := a.authority.IssueClient("kube-apiserver-kubelet-client", "system:masters")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}

	return errors.Join(serving.Write(dir, "apiserver"), proxy.Write(dir, frontProxyName), kubelet.Write(dir, "kubelet-client"))
}

// writeKubeconfigs writes the kubeconfigs of the administrator and of the components for the port of this run.
func (a *access) writeKubeconfigs() error {
	users := map[string]User{
		"admin":                   CertificateUser("crane-admin", "system:masters"),
		string(ControllerManager): CertificateUser("system:kube-controller-manager"),
		string(Scheduler):         CertificateUser("system:kube-scheduler"),
	}

	for name, user := range users {
		config, err := a.certificateConfig(user)
		if err != nil {
			return err
		}

		if err := writeKubeconfig(a.layout.kubeconfig(name), user.name, config); err != nil {
			return err
		}

		if name == "admin" {
			a.admin = config
		}
	}

	return nil
}

// writeKubeconfig writes config for user to path atomically.
func writeKubeconfig(path, user string, config *rest.Config) error {
	const name = "crane"
	kubeconfig := clientcmdapi.Config{
		CurrentContext: name,
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts: map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
	}

	data, err := clientcmd.Write(kubeconfig)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", user, err)
	}

	// Components read it while it is written.
	if err := atomicfile.Write(path, data); err != nil {
		return fmt.Errorf("writing kubeconfig of %s: %w", user, err)
	}

	return nil
}
