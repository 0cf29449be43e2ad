// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/kube/pki"
)

// Lifetimes are the lifetimes of certificates and when they are renewed.
type Lifetimes struct {
	// Authority is the lifetime of an authority, AuthorityRenewal how long before its end the next one is created.
	Authority, AuthorityRenewal time.Duration
	// Serving is the lifetime of a serving certificate, ServingRenewal how long before its end the next one is created.
	Serving, ServingRenewal time.Duration
	// Overlap is how long a new authority is distributed before it signs, and how long an old one is trusted after the last
	// certificate that it signed is no longer served.
	Overlap time.Duration
}

// DefaultLifetimes renew a serving certificate every two months and an authority every eight: a renewal is no rare event, and a
// craned that was down for a month still renews in time. An authority outlives the certificates that it signs. An API server
// needs far less than an hour to use a new bundle.
func DefaultLifetimes() Lifetimes {
	const day = 24 * time.Hour
	return Lifetimes{
		Authority:        365 * day,
		AuthorityRenewal: 120 * day,
		Serving:          90 * day,
		ServingRenewal:   30 * day,
		Overlap:          time.Hour,
	}
}

// maxHosts is the maximum number of hosts of a serving certificate, including those of other replicas.
const maxHosts = 20

// authorityName is the common name of an authority.
const authorityName = "crane"

// step is one change of the material.
type step int

const (
	// stepNone changes nothing.
	stepNone step = iota
	// stepAuthority adds a new authority; the old ones stay trusted and the serving certificate stays.
	stepAuthority
	// stepServing issues a new serving certificate.
	stepServing
	// stepTrim removes the authorities that are not in use.
	stepTrim
	// stepRecreate creates an authority and a serving certificate, because the existing ones are unusable.
	stepRecreate
)

// String returns the name of the step in the log.
func (s step) String() string {
	return [...]string{
		stepNone: "Nothing to do", stepAuthority: "New authority", stepServing: "New serving certificate",
		stepTrim: "Old authority dropped", stepRecreate: "New authority and serving certificate",
	}[s]
}

// stepDecision is a step and its reason.
type stepDecision struct {
	step   step
	reason string
}

// nextStep returns the next step. m is nil if there is no material; trusted reports whether every caller has the signing
// authority.
//
// A valid certificate is never replaced before all callers trust the next authority; an invalid one is replaced at once. Validity
// is judged by the local clock: a certificate that is not yet valid by it is issued again, and authorities that may still be
// valid by other clocks stay in the bundle.
func (l Lifetimes) nextStep(m *material, now time.Time, hosts []string, trusted bool) stepDecision {
	if m == nil {
		return stepDecision{stepRecreate, "there is none"}
	}

	signer := m.signer.Certificate()
	servingFault := m.servingProblem(now)
	if fault := validityProblem(signer, now); fault != "" {
		if servingFault != "" {
			return stepDecision{stepRecreate, "the authority " + fault + " and the serving certificate " + servingFault}
		}

		return stepDecision{stepAuthority, "the authority " + fault}
	}

	// The authority is valid. The cases are in the order of their urgency.
	current := m.signedBy(signer)

	settled := trusted && now.Sub(issuedAt(signer)) >= l.Overlap
	switch {
	case servingFault != "":
		return stepDecision{stepServing, "it " + servingFault}
	case len(m.missing(hosts)) > 0 && (current || trusted):
		return stepDecision{stepServing, "it does not hold for " + strings.Join(m.missing(hosts), ", ")}
	case !current && settled:
		return stepDecision{stepServing, "callers know the new authority"}

	case current && m.serving.Leaf.NotAfter.Sub(now) <= l.ServingRenewal && l.servingEnd(signer, now).After(m.serving.Leaf.NotAfter):
		return stepDecision{stepServing, "it ends on " + m.serving.Leaf.NotAfter.UTC().Format(time.DateOnly)}
	case current && signer.NotAfter.Sub(now) <= l.AuthorityRenewal:
		return stepDecision{stepAuthority, "the authority ends on " + signer.NotAfter.UTC().Format(time.DateOnly)}
	case len(m.older) > 0 && (current && now.Sub(issuedAt(m.serving.Leaf)) >= l.Overlap || slices.ContainsFunc(m.older, expiredAt(now))):
		return stepDecision{stepTrim, "the old authority is out of use"}
	}

	return stepDecision{}
}

// servingEnd returns the end of a serving certificate that is issued now.
func (l Lifetimes) servingEnd(signer *x509.Certificate, now time.Time) time.Time {
	if end := now.Add(l.Serving); end.Before(signer.NotAfter) {
		return end
	}

	return signer.NotAfter
}

// issuedAt returns the time at which a certificate was issued.
func issuedAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(pki.Backdate) }

// expiredAt reports whether a certificate has expired.
func expiredAt(now time.Time) func(*x509.Certificate) bool {
	return func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) }
}

// validityProblem returns why a certificate is not valid at a time, or "".
func validityProblem(c *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(c.NotBefore):
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case expiredAt(now)(c):
		return "ended on " + c.NotAfter.UTC().Format(time.RFC3339)
	}

	return ""
}

// servingProblem returns why the serving certificate is not usable, or "".
func (m *material) servingProblem(now time.Time) string {
	if m.serving == nil {
		return "cannot be read"
	}

	if fault := validityProblem(m.serving.Leaf, now); fault != "" {
		return fault
	}

	if !slices.ContainsFunc(m.authorities(), func(a *x509.Certificate) bool { return m.signedBy(a) && validityProblem(a, now) == "" }) {
		return "is not signed by a trusted authority"
	}

	return ""
}

// applyStep returns the material after a step.
func (l Lifetimes) applyStep(s step, m *material, now func() time.Time, hosts []string) (*material, error) {
	next := &material{}
	if m != nil {
		*next = *m
	}

	current := now()
	switch s {
	case stepNone:
		return m, nil

	case stepTrim:
		next.older = slices.DeleteFunc(slices.Clone(m.older), func(c *x509.Certificate) bool { return expiredAt(current)(c) || !m.signedBy(c) })
		return next, nil

	case stepAuthority, stepRecreate:
		if m != nil {
			next.older = slices.DeleteFunc(m.authorities(), expiredAt(current))
			next.older = next.older[:min(len(next.older), maxAuthorities-1)]
		}

		authority, err := pki.NewAuthority(authorityName, l.Authority, now)
		if err != nil {
			return nil, fmt.Errorf("making an authority: %w", err)
		}

		next.signer = authority
	}

	if s == stepAuthority {
		return next, nil
	}

	// An authority that was read earlier may have been issued by another clock.
	signer, err := pki.ParseAuthority(pki.Pair{CertPEM: next.signer.CertPEM(), KeyPEM: next.signer.KeyPEM()}, now)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}

	pair, err := signer.IssueServingFor(l.Serving, mergeHosts(hosts, next.hosts())...)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}

	next.setServing(pair)
	return next, nil
}

// mergeHosts adds the hosts of other replicas, so that replicas do not replace each other's certificate forever.
func mergeHosts(hosts, others []string) []string {
	all := slices.Clone(hosts)
	for _, h := range others {
		if len(all) < maxHosts && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}

	return all
}
