// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/slimclient"
)

const (
	// checkInterval is the interval between two checks of the clock. A check sends no request; a timer to the next renewal would
	// be wrong after a jump of the wall clock.
	checkInterval = time.Minute
	// minRetry and maxRetry bound the delay after an error.
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
	// maxSteps is the maximum number of steps of one reconcile; two are enough.
	maxSteps = 4
)

// Config are the settings of a Rotator.
type Config struct {
	Clients slimclient.Interface
	Dynamic dynamic.Interface
	// Namespace and Secret name the object that replicas share.
	Namespace, Secret string
	// Hosts are the names and addresses under which this replica is called.
	Hosts []string
	// Targets receive the bundle of authorities.
	Targets []Target
	// Manager is the field manager of writes.
	Manager   string
	Lifetimes Lifetimes
	Clock     clock.WithTicker
}

// Rotator renews certificates and distributes their authorities. Every replica runs one; all may write, with the resource version
// that they have read.
type Rotator struct {
	config Config

	mu       sync.Mutex
	current  *material // the served certificate, nil at first
	renewals map[step]int
}

// New returns a Rotator, which has no certificate before Run has read or created one.
func New(c Config) (*Rotator, error) {
	if c.Clients == nil || c.Dynamic == nil || c.Clock == nil || c.Namespace == "" || c.Secret == "" || len(c.Hosts) == 0 {
		return nil, errors.New("certificates: clients, a clock, the name of the Secret and hosts are needed")
	}

	if len(c.Hosts) > maxHosts {
		return nil, fmt.Errorf("certificates: %d hosts, more than %d", len(c.Hosts), maxHosts)
	}

	return &Rotator{config: c, renewals: map[step]int{}}, nil
}

// GetCertificate implements the callback of tls.Config. It fails while there is no certificate.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.current == nil {
		return nil, errors.New("there is no serving certificate yet")
	}

	return r.current.serving, nil
}

// Check returns why a caller would not accept the serving certificate now, nil if it would.
func (r *Rotator) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.current == nil {
		return errors.New("there is no serving certificate yet")
	}

	if fault := r.current.servingProblem(r.config.Clock.Now()); fault != "" {
		return errors.New("the serving certificate " + fault)
	}

	return nil
}

// Run watches the Secret and the targets until ctx ends. It returns nil then.
func (r *Rotator) Run(ctx context.Context) error {
	view, err := r.watch(ctx)
	if err != nil || view == nil {
		return err
	}
	defer view.stop()

	log := logr.FromContextOrDiscard(ctx).WithName("certificates").WithValues("secret", r.config.Namespace+"/"+r.config.Secret)
	ctx = logr.NewContext(ctx, log)

	// An error that persists is logged once, not after each retry.
	retry := minRetry

	reported := ""
	for {
		wait := checkInterval
		if err := r.reconcile(ctx, view); err == nil {
			retry = minRetry
			reported = ""
		} else if ctx.Err() == nil {
			if err.Error() != reported {
				log.Error(err, "reconciling certificates; trying again")
				reported = err.Error()
			}

			wait = retry
			retry = min(2*retry, maxRetry)
		}

		timer := r.config.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-view.changed:
		case <-timer.C():
		}

		timer.Stop()
	}
}

// reconcile takes the steps that are possible at this time.
func (r *Rotator) reconcile(ctx context.Context, view *informers) error {
	secret, err := view.secret(r.config.Clock.Now())
	if err != nil {
		return err
	}

	seen := secret
	m, err := r.readSecret(ctx, secret)
	if err != nil {
		return err
	}

	for range maxSteps {
		// A target that cannot be patched does not delay the replacement of an expired certificate.
		trusted, distributeErr := r.distributeBundle(ctx, view, secret, m)
		if errors.Is(distributeErr, errStale) {
			return distributeErr
		}

		d := r.config.Lifetimes.nextStep(m, r.config.Clock.Now(), r.config.Hosts, trusted)
		if d.step == stepNone {
			return distributeErr
		}

		next, err := r.config.Lifetimes.applyStep(d.step, m, r.config.Clock.Now, r.config.Hosts)
		if err != nil {
			return err
		}

		logr.FromContextOrDiscard(ctx).Info("changing the certificate", "step", d.step.String(), "reason", d.reason)
		secret, err = r.writeSecret(ctx, secret, next)
		if err != nil {
			return err
		}

		view.markStale(seen, r.config.Clock.Now())
		m = next
		r.setCurrent(m, d.step)
	}

	return nil
}

// readSecret returns the content of the Secret. Invalid content is replaced by the previous one. If the Secret was deleted,
// everything is issued anew, which is how an administrator requests that.
func (r *Rotator) readSecret(ctx context.Context, secret *corev1.Secret) (*material, error) {
	if secret == nil {
		return nil, nil
	}

	m, err := parse(secret.Data, r.config.Clock.Now)
	if err == nil {
		if m.serving != nil {
			r.setCurrent(m, stepNone)
		}

		return m, nil
	}

	// The content cannot be decoded. This replica may still hold what it was before.
	r.mu.Lock()
	previous := r.current
	r.mu.Unlock()

	log := logr.FromContextOrDiscard(ctx)
	if previous == nil {
		log.Error(err, "decoding the Secret; issuing everything anew")
		return nil, nil
	}

	log.Error(err, "decoding the Secret; restoring its previous content")
	if _, err := r.writeSecret(ctx, secret, previous); err != nil {
		return nil, err
	}

	return nil, errStale
}

// setCurrent makes new connections use a certificate.
func (r *Rotator) setCurrent(m *material, s step) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.current = m
	if s != stepNone {
		r.renewals[s]++
	}
}

// errStale reports that the observed object is outdated: the event of the newer one has not arrived yet.
var errStale = errors.New("the Secret has changed meanwhile")

// writeSecret creates the Secret or updates the version that was read.
func (r *Rotator) writeSecret(ctx context.Context, current *corev1.Secret, m *material) (*corev1.Secret, error) {
	secrets := r.config.Clients.CoreV1().Secrets(r.config.Namespace)
	var written *corev1.Secret
	var err error
	if current == nil {
		written, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.config.Namespace, Name: r.config.Secret},
			Type:       corev1.SecretTypeTLS, Data: m.data(nil),
		}, metav1.CreateOptions{FieldManager: r.config.Manager})
	} else {
		next := current.DeepCopy() // UID and resourceVersion are those of the version that was read.
		next.Data = m.data(current.Data)
		written, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: r.config.Manager})
	}

	switch {
	case err == nil:
		return written, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), current != nil && apierrors.IsNotFound(err):
		return nil, errStale
	}

	return nil, fmt.Errorf("writing Secret %s/%s: %w", r.config.Namespace, r.config.Secret, err)
}

// distributeBundle patches the bundle into all targets and returns whether all of them have it.
func (r *Rotator) distributeBundle(ctx context.Context, view *informers, secret *corev1.Secret, m *material) (bool, error) {
	if m == nil {
		return false, nil
	}

	bundle := m.bundle()
	checked := false
	var errs []error
	for _, t := range r.config.Targets {
		o, synced, err := view.target(t)
		if err != nil || !synced {
			return false, err
		}

		if o == nil {
			continue
		}

		ops, err := t.patch(o, bundle)
		if err != nil || len(ops) == 0 {
			errs = append(errs, err)
			continue
		}

		// An outdated Secret must not overwrite a newer bundle.
		if !checked {
			now, err := r.config.Clients.CoreV1().Secrets(r.config.Namespace).Get(ctx, r.config.Secret, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("reading Secret %s/%s: %w", r.config.Namespace, r.config.Secret, err)
			}

			if now.ResourceVersion != secret.ResourceVersion || now.UID != secret.UID {
				return false, errStale
			}

			checked = true
		}

		if err := t.apply(ctx, r.config.Dynamic, r.config.Manager, o, ops); err != nil {
			errs = append(errs, err)
			continue
		}

		logr.FromContextOrDiscard(ctx).Info("distributed the bundle of authorities", "target", t.String())
	}

	err := errors.Join(errs...)
	return err == nil, err
}

var (
	expiryDesc = prometheus.NewDesc("crane_certificate_expiry_timestamp_seconds",
		"When a certificate ends: that which is served, and the authority that signs.", []string{"secret", "certificate"}, nil)
	renewalsDesc = prometheus.NewDesc("crane_certificate_renewals_total",
		"Changes that this replica made to its certificates, by kind.", []string{"secret", "change"}, nil)
)

// Describe implements prometheus.Collector.
func (r *Rotator) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc; ch <- renewalsDesc }

// Collect implements prometheus.Collector.
func (r *Rotator) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if m := r.current; m != nil {
		for kind, end := range map[string]float64{
			"serving": float64(m.serving.Leaf.NotAfter.Unix()), "authority": float64(m.signer.Certificate().NotAfter.Unix()),
		} {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, end, r.config.Secret, kind)
		}
	}

	for s, kind := range map[step]string{stepAuthority: "authority", stepServing: "serving", stepTrim: "trim", stepRecreate: "anew"} {
		ch <- prometheus.MustNewConstMetric(renewalsDesc, prometheus.CounterValue, float64(r.renewals[s]), r.config.Secret, kind)
	}
}
