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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// checkInterval is the time between two looks at the clock. A look asks nobody; the wall clock may jump, so that a timer to
	// the next renewal would not do.
	checkInterval = time.Minute
	// minRetry and maxRetry bound the pause after an error.
	minRetry, maxRetry = 500 * time.Millisecond, 30 * time.Second
	// maxSteps bounds the steps of one look; there are never more than two to take.
	maxSteps = 4
)

// Config is what a Keeper needs.
type Config struct {
	Clients kubernetes.Interface
	Dynamic dynamic.Interface
	// Namespace and Secret name the object that replicas share.
	Namespace, Secret string
	// Hosts are the names and addresses under which this replica is called.
	Hosts []string
	// Targets are told the authorities.
	Targets []Target
	// Manager is the field manager of what is written.
	Manager   string
	Lifetimes Lifetimes
	Clock     clock.WithTicker
}

// Rotator keeps certificates valid and known. Every replica runs one; all may write, each write on what it has read.
type Rotator struct {
	config Config

	mu       sync.Mutex
	current  *material // what is served, nil at first
	renewals map[step]int
}

// New returns a Keeper that has no certificate before Run has found or made one.
func New(c Config) (*Rotator, error) {
	if c.Clients == nil || c.Dynamic == nil || c.Clock == nil || c.Namespace == "" || c.Secret == "" || len(c.Hosts) == 0 {
		return nil, errors.New("certificates: clients, a clock, the name of the Secret and hosts are needed")
	}
	if len(c.Hosts) > maxHosts {
		return nil, fmt.Errorf("certificates: %d hosts, more than %d", len(c.Hosts), maxHosts)
	}
	return &Rotator{config: c, renewals: map[step]int{}}, nil
}

// GetCertificate is for tls.Config. It fails while there is no certificate.
func (k *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil, errors.New("there is no serving certificate yet")
	}
	return k.current.serving, nil
}

// Check returns why no caller would accept the serving certificate now, nil if one would.
func (k *Rotator) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return errors.New("there is no serving certificate yet")
	}
	if fault := k.current.servingProblem(k.config.Clock.Now()); fault != "" {
		return errors.New("the serving certificate " + fault)
	}
	return nil
}

// Run follows the Secret and the targets until ctx ends. It returns nil then.
func (k *Rotator) Run(ctx context.Context) error {
	view, err := k.watch(ctx)
	if err != nil || view == nil {
		return err
	}
	defer view.stop()
	log := logr.FromContextOrDiscard(ctx).WithName("certificates").WithValues("secret", k.config.Namespace+"/"+k.config.Secret)
	ctx = logr.NewContext(ctx, log)
	retry, told := minRetry, ""
	for {
		wait := checkInterval
		if err := k.reconcile(ctx, view); err == nil {
			retry, told = minRetry, ""
		} else if ctx.Err() == nil {
			if err.Error() != told {
				log.Info("Certificates are not as they should be; trying again", "reason", err.Error())
				told = err.Error()
			}
			wait, retry = retry, min(2*retry, maxRetry)
		}
		timer := k.config.Clock.NewTimer(wait)
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

// reconcile brings everything to where it should be, as far as it can be at this time.
func (k *Rotator) reconcile(ctx context.Context, view *informers) error {
	secret, err := view.secret(k.config.Clock.Now())
	if err != nil {
		return err
	}
	seen := secret
	m, err := k.readSecret(ctx, secret)
	if err != nil {
		return err
	}
	for range maxSteps {
		// Who cannot be told is no reason to serve what has expired.
		trusted, telling := k.distributeBundle(ctx, view, secret, m)
		if errors.Is(telling, errStale) {
			return telling
		}
		d := k.config.Lifetimes.nextStep(m, k.config.Clock.Now(), k.config.Hosts, trusted)
		if d.step == stepNone {
			return telling
		}
		next, err := k.config.Lifetimes.applyStep(d.step, m, k.config.Clock.Now, k.config.Hosts)
		if err != nil {
			return err
		}
		logr.FromContextOrDiscard(ctx).Info(d.step.String(), "reason", d.reason)
		if secret, err = k.writeSecret(ctx, secret, next); err != nil {
			return err
		}
		view.markStale(seen, k.config.Clock.Now())
		m = next
		k.setCurrent(m, d.step)
	}
	return nil
}

// readSecret returns what the Secret holds. Where somebody has written nonsense into it, what was served before is put back; where the
// Secret is gone, everything is made anew: that is how an administrator asks for it.
func (k *Rotator) readSecret(ctx context.Context, secret *corev1.Secret) (*material, error) {
	if secret == nil {
		return nil, nil
	}
	m, err := parse(secret.Data, k.config.Clock.Now)
	if err == nil {
		if m.serving != nil {
			k.setCurrent(m, stepNone)
		}
		return m, nil
	}
	k.mu.Lock()
	last := k.current
	k.mu.Unlock()
	log := logr.FromContextOrDiscard(ctx)
	if last == nil {
		log.Info("The Secret cannot be read; making everything anew", "reason", err.Error())
		return nil, nil
	}
	log.Info("The Secret cannot be read; putting back what it held", "reason", err.Error())
	if _, err := k.writeSecret(ctx, secret, last); err != nil {
		return nil, err
	}
	return nil, errStale
}

// setCurrent makes a certificate the one that new connections see.
func (k *Rotator) setCurrent(m *material, s step) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = m
	if s != stepNone {
		k.renewals[s]++
	}
}

// errStale says that what was looked at is no longer what is: the event that tells so is on its way.
var errStale = errors.New("the Secret has changed meanwhile")

// writeSecret creates the Secret or changes the one that was read, and no other.
func (k *Rotator) writeSecret(ctx context.Context, had *corev1.Secret, m *material) (*corev1.Secret, error) {
	secrets := k.config.Clients.CoreV1().Secrets(k.config.Namespace)
	var written *corev1.Secret
	var err error
	if had == nil {
		written, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.config.Namespace, Name: k.config.Secret},
			Type:       corev1.SecretTypeTLS, Data: m.data(nil),
		}, metav1.CreateOptions{FieldManager: k.config.Manager})
	} else {
		next := had.DeepCopy() // UID and resourceVersion are those of the one that was read.
		next.Data = m.data(had.Data)
		written, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: k.config.Manager})
	}
	switch {
	case err == nil:
		return written, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), had != nil && apierrors.IsNotFound(err):
		return nil, errStale
	}
	return nil, fmt.Errorf("writing Secret %s/%s: %w", k.config.Namespace, k.config.Secret, err)
}

// distributeBundle brings the bundle into all targets and returns whether it stands in all of them.
func (k *Rotator) distributeBundle(ctx context.Context, view *informers, secret *corev1.Secret, m *material) (bool, error) {
	if m == nil {
		return false, nil
	}
	bundle := m.bundle()
	checked := false
	var errs []error
	for _, t := range k.config.Targets {
		o, known, err := view.target(t)
		if err != nil || !known {
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
		// A view of the Secret that lags must not bring back a bundle of yesterday.
		if !checked {
			now, err := k.config.Clients.CoreV1().Secrets(k.config.Namespace).Get(ctx, k.config.Secret, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("reading Secret %s/%s: %w", k.config.Namespace, k.config.Secret, err)
			}
			if now.ResourceVersion != secret.ResourceVersion || now.UID != secret.UID {
				return false, errStale
			}
			checked = true
		}
		if err := t.apply(ctx, k.config.Dynamic, k.config.Manager, o, ops); err != nil {
			errs = append(errs, err)
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Told who is to be trusted", "target", t.String())
	}
	err := errors.Join(errs...)
	return err == nil, err
}
