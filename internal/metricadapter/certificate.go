// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/certificates"
)

// certificateLook is the time between two looks at whether the keeper has another certificate. A look compares two pointers.
const certificateLook = time.Second

// apiServices are the aggregated APIs that are told whom to trust.
func apiServices() []string {
	return []string{"v1beta1.external.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"}
}

// newKeeper returns what makes and renews the certificate of the adapter.
func newKeeper(config *rest.Config, o *Options) (*certificates.Keeper, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	var targets []certificates.Target
	for _, name := range apiServices() {
		targets = append(targets, certificates.APIService(name))
	}
	host := o.Service + "." + o.Namespace
	keeper, err := certificates.New(certificates.Config{
		Clients: clients, Dynamic: objects, Namespace: o.Namespace, Secret: o.CertificateSecret,
		Hosts: []string{host + ".svc", host}, Targets: targets, Manager: "metric-adapter",
		Lives: certificates.DefaultLives(), Clock: clock.RealClock{},
	})
	if err != nil {
		return nil, fmt.Errorf("keeping a certificate: %w", err)
	}
	return keeper, nil
}

// kept is a certificate that follows its keeper, as the API server wants one.
type kept struct {
	current func() (*tls.Certificate, error)

	mu        sync.Mutex
	last      *tls.Certificate
	cert, key []byte
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = (*kept)(nil)

// Name implements dynamiccertificates.CertKeyContentProvider.
func (k *kept) Name() string { return "kept-certificate" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (k *kept) CurrentCertKeyContent() (cert, key []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cert, k.key
}

// AddListener implements dynamiccertificates.Notifier.
func (k *kept) AddListener(l dynamiccertificates.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, l)
}

// look takes over another certificate of the keeper. It returns an error while there is none.
func (k *kept) look() error {
	current, err := k.current()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if current == k.last {
		return nil
	}
	cert, key, err := encode(current)
	if err != nil {
		return err
	}
	k.last, k.cert, k.key = current, cert, key
	for _, l := range k.listeners {
		l.Enqueue()
	}
	return nil
}

// run follows the keeper until ctx ends.
func (k *kept) run(ctx context.Context) {
	ticker := time.NewTicker(certificateLook)
	defer ticker.Stop()
	for {
		if err := k.look(); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("No certificate to serve with", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// await returns when there is a certificate that callers would accept.
func (k *kept) await(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(certificateLook / 10)
	defer ticker.Stop()
	for {
		if check() == nil && k.look() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func encode(c *tls.Certificate) (cert, key []byte, err error) {
	for _, der := range c.Certificate {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of the certificate: %w", err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
