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

// certificatePollInterval is the time between two checks for a renewed certificate. A check compares two pointers.
const certificatePollInterval = time.Second

// apiServices returns the aggregated APIs whose CA bundle is set.
func apiServices() []string {
	return []string{"v1beta1.external.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"}
}

// newCertificateKeeper returns the component that creates and renews the certificate of the adapter.
func newCertificateKeeper(config *rest.Config, o *Options) (*certificates.Rotator, error) {
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
		targets = append(targets, certificates.APIService(name, o.Namespace, o.Service))
	}

	host := o.Service + "." + o.Namespace
	keeper, err := certificates.New(certificates.Config{
		Clients:   clients,
		Dynamic:   objects,
		Namespace: o.Namespace,
		Secret:    o.CertificateSecret,
		Hosts:     []string{host + ".svc", host},
		Targets:   targets,
		Manager:   "metric-adapter",
		Lifetimes: certificates.DefaultLifetimes(),
		Clock:     clock.RealClock{},
	})
	if err != nil {
		return nil, fmt.Errorf("keeping a certificate: %w", err)
	}

	return keeper, nil
}

// certificateProvider provides the current certificate of a keeper to the API server library.
type certificateProvider struct {
	current func() (*tls.Certificate, error)

	mu              sync.Mutex
	lastCertificate *tls.Certificate
	cert, key       []byte
	listeners       []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = (*certificateProvider)(nil)

// Name implements dynamiccertificates.CertKeyContentProvider.
func (p *certificateProvider) Name() string { return "kept-certificate" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (p *certificateProvider) CurrentCertKeyContent() (cert, key []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.cert, p.key
}

// AddListener implements dynamiccertificates.Notifier.
func (p *certificateProvider) AddListener(l dynamiccertificates.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.listeners = append(p.listeners, l)
}

// refresh adopts a renewed certificate. It returns an error while there is none.
func (p *certificateProvider) refresh() error {
	current, err := p.current()
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if current == p.lastCertificate {
		return nil
	}

	cert, key, err := encodePEM(current)
	if err != nil {
		return err
	}

	p.lastCertificate = current
	p.cert = cert
	p.key = key
	for _, l := range p.listeners {
		l.Enqueue()
	}

	return nil
}

// run polls the keeper until ctx ends.
func (p *certificateProvider) run(ctx context.Context) {
	ticker := time.NewTicker(certificatePollInterval)
	defer ticker.Stop()

	for {
		if err := p.refresh(); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("no serving certificate", "reason", err.Error())
		}

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// waitUntilValid returns when the certificate passes the check.
func (p *certificateProvider) waitUntilValid(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(certificatePollInterval / 10)
	defer ticker.Stop()

	for {
		if check() == nil && p.refresh() == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func encodePEM(c *tls.Certificate) (cert, key []byte, err error) {
	for _, der := range c.Certificate {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}

	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of the certificate: %w", err)
	}

	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
