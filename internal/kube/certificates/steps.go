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

// Lifetimes say how long certificates are valid and how early they are renewed.
type Lifetimes struct {
	// Authority is the life of an authority, AuthorityRenewal how long before its end the next one is made.
	Authority, AuthorityRenewal time.Duration
	// Serving is the life of a serving certificate, ServingRenewal how long before its end the next one is made.
	Serving, ServingRenewal time.Duration
	// Overlap is how long a new authority is told to callers before it signs, and how long an old one stays after the last
	// certificate that it signed went out of use.
	Overlap time.Duration
}

// DefaultLifetimes renew a serving certificate every two months and an authority every eight: often enough that it is no rare event,
// early enough that a craned that was away for a month comes back in time. An authority outlives what it signs. An hour is a
// thousand times what an API server needs to learn of a new bundle.
func DefaultLifetimes() Lifetimes {
	const day = 24 * time.Hour
	return Lifetimes{
		Authority: 365 * day, AuthorityRenewal: 120 * day,
		Serving: 90 * day, ServingRenewal: 30 * day,
		Overlap: time.Hour,
	}
}

// maxHosts bounds the hosts of a serving certificate, those of other replicas included.
const maxHosts = 20

// authorityName is what an authority calls itself.
const authorityName = "crane"

// step is one change of the material.
type step int

const (
	// stepNone leaves it as it is.
	stepNone step = iota
	// stepAuthority makes a new authority; the old ones stay trusted and the serving certificate stays.
	stepAuthority
	// stepServing makes a new serving certificate.
	stepServing
	// stepTrim ends the trust in authorities that are not in use.
	stepTrim
	// stepRecreate makes an authority and a serving certificate, because nothing that is there could be used.
	stepRecreate
)

// String is the step in the log.
func (s step) String() string {
	return [...]string{
		stepNone: "Nothing to do", stepAuthority: "New authority", stepServing: "New serving certificate",
		stepTrim: "Old authority dropped", stepRecreate: "New authority and serving certificate",
	}[s]
}

// stepDecision is a step and why it is taken.
type stepDecision struct {
	step   step
	reason string
}

// nextStep says what comes next. nil is no material at all. trusted tells whether every caller knows the authority that signs.
//
// What works is never replaced before what follows it is known to all callers; what does not work is replaced at once. Whether a
// certificate is valid is judged by the own clock: where that was set back before the making of a certificate, it is made again,
// and nothing that other clocks may still find valid is taken from the bundle.
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

// servingEnd is when a serving certificate that is made now would end.
func (l Lifetimes) servingEnd(signer *x509.Certificate, now time.Time) time.Time {
	if end := now.Add(l.Serving); end.Before(signer.NotAfter) {
		return end
	}
	return signer.NotAfter
}

// issuedAt is when a certificate was made.
func issuedAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(pki.Backdate) }

// expiredAt tells whether a certificate has ended.
func expiredAt(now time.Time) func(*x509.Certificate) bool {
	return func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) }
}

// validityProblem says why a certificate is not valid at a time, or nothing.
func validityProblem(c *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(c.NotBefore):
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case expiredAt(now)(c):
		return "ended on " + c.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// servingProblem says why nobody would accept the serving certificate, or nothing.
func (m *material) servingProblem(now time.Time) string {
	if m.serving == nil {
		return "cannot be read"
	}
	if fault := validityProblem(m.serving.Leaf, now); fault != "" {
		return fault
	}
	if !slices.ContainsFunc(m.authorities(), func(a *x509.Certificate) bool { return m.signedBy(a) && validityProblem(a, now) == "" }) {
		return "is signed by nobody who is trusted"
	}
	return ""
}

// applyStep carries out a step.
func (l Lifetimes) applyStep(s step, m *material, now func() time.Time, hosts []string) (*material, error) {
	next := &material{}
	if m != nil {
		*next = *m
	}
	at := now()
	switch s {
	case stepNone:
		return m, nil
	case stepTrim:
		next.older = slices.DeleteFunc(slices.Clone(m.older), func(c *x509.Certificate) bool { return expiredAt(at)(c) || !m.signedBy(c) })
		return next, nil
	case stepAuthority, stepRecreate:
		if m != nil {
			next.older = slices.DeleteFunc(m.authorities(), expiredAt(at))
			next.older = next.older[:min(len(next.older), maxAuthorities-1)]
		}
		var err error
		if next.signer, err = pki.NewAuthority(authorityName, l.Authority, now); err != nil {
			return nil, fmt.Errorf("making an authority: %w", err)
		}
	}
	if s == stepAuthority {
		return next, nil
	}
	// An authority that was read earlier may know another clock.
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

// mergeHosts adds the hosts that other replicas asked for, so that two of them do not replace each other's certificate for ever.
func mergeHosts(own, others []string) []string {
	all := slices.Clone(own)
	for _, h := range others {
		if len(all) < maxHosts && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}
