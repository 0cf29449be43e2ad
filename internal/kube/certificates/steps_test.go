// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"testing"
	"time"
)

const day = 24 * time.Hour

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hosts = []string{"svc.crane-system.svc", "127.0.0.1"}
)

// verifyServing is an API server: it verifies the serving certificate with the bundle that it has, by its own clock, for all
// hosts or the given ones.
func verifyServing(bundle []byte, m *material, now time.Time, names ...string) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)

	if len(names) == 0 {
		names = hosts
	}

	for _, h := range names {
		if _, err := m.serving.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: h}); err != nil {
			return fmt.Errorf("for %s: %w", h, err)
		}
	}

	return nil
}

// converge takes steps until none is left, as a Rotator does whose targets have the bundle.
func converge(t *testing.T, l Lifetimes, m *material, now time.Time, took map[step]int) *material {
	t.Helper()

	for range maxSteps {
		d := l.nextStep(m, now, hosts, m != nil)
		if d.step == stepNone {
			return m
		}

		took[d.step]++
		next, err := l.applyStep(d.step, m, func() time.Time { return now }, hosts)
		if err != nil {
			t.Fatal(err)
		}

		if next, err = parse(next.data(nil), func() time.Time { return now }); err != nil {
			t.Fatalf("parse after %s: %v, want readable data", d.step, err)
		}

		m = next
	}

	t.Fatalf("%s: the next step is %+v, want none", now, l.nextStep(m, now, hosts, true))
	return nil
}

// TestNextStep_ThreeYears simulates three years. No caller ever refuses the certificate, though its bundle is half an hour old.
func TestNextStep_ThreeYears(t *testing.T) {
	const look = 10 * time.Minute
	lives := DefaultLifetimes()
	took := map[step]int{}

	m := converge(t, lives, nil, epoch, took)
	known := [][]byte{m.bundle(), m.bundle(), m.bundle()}
	authorities := 0
	for now := epoch; now.Before(epoch.Add(3 * 365 * day)); now = now.Add(look) {
		// No step can be due for long: most of the time is skipped.
		for _, leap := range []time.Duration{2 * day, 4 * time.Hour} {
			if lives.nextStep(m, now.Add(leap), hosts, true).step == stepNone && len(m.older) == 0 {
				now = now.Add(leap)
				known = [][]byte{m.bundle(), m.bundle(), m.bundle()}
				break
			}
		}

		m = converge(t, lives, m, now, took)
		known = append(known[1:], m.bundle())
		if err := verifyServing(known[0], m, now); err != nil {
			t.Fatalf("%s: verifyServing = %v, want a trusted certificate", now, err)
		}

		// And by clocks that differ by an hour.
		for _, off := range []time.Duration{-59 * time.Minute, time.Hour} {
			if err := verifyServing(known[0], m, now.Add(off), hosts[0]); err != nil {
				t.Fatalf("%s: verifyServing by a clock at %s = %v, want a trusted certificate", now, off, err)
			}
		}

		authorities = max(authorities, len(m.authorities()))
	}

	if took[stepRecreate] != 1 {
		t.Errorf("issued anew %d times, want once at the beginning", took[stepRecreate])
	}
	if authorities != 2 || len(m.older) > 1 {
		t.Errorf("up to %d authorities at once, want 2", authorities)
	}
	// 365 - 120 days an authority, 90 - 30 a serving certificate; the first of each authority shortens the last.
	if n := took[stepAuthority]; n < 4 || n > 5 {
		t.Errorf("%d new authorities in three years, want 4 or 5", n)
	}

	if n := took[stepServing]; n < 16 || n > 26 {
		t.Errorf("%d new serving certificates in three years, want 16 to 26", n)
	}
	if took[stepTrim] != took[stepAuthority] && took[stepTrim] != took[stepAuthority]-1 {
		t.Errorf("%d authorities dropped, want as many as the %d made, or one less", took[stepTrim], took[stepAuthority])
	}
}

func TestNextStep(t *testing.T) {
	lives := DefaultLifetimes()
	fresh := converge(t, lives, nil, epoch, map[step]int{})
	renewing, err := lives.applyStep(stepAuthority, fresh, func() time.Time { return epoch.Add(250 * day) }, hosts)
	if err != nil {
		t.Fatal(err)
	}

	unreadable := *fresh
	unreadable.serving = nil
	foreign := *fresh
	foreign.setServing(converge(t, lives, nil, epoch, map[step]int{}).pair)

	for name, test := range map[string]struct {
		m       *material
		now     time.Time
		hosts   []string
		trusted bool
		want    step
	}{
		"none":                               {nil, epoch, hosts, false, stepRecreate},
		"fresh":                              {fresh, epoch, hosts, true, stepNone},
		"untold":                             {fresh, epoch, hosts, false, stepNone},
		"serving unreadable":                 {&unreadable, epoch, hosts, false, stepServing},
		"serving of another authority":       {&foreign, epoch, hosts, false, stepServing},
		"another host":                       {fresh, epoch, append(slices.Clone(hosts), "new"), false, stepServing},
		"serving nearly over":                {fresh, epoch.Add(60 * day), hosts, true, stepServing},
		"serving over":                       {fresh, epoch.Add(91 * day), hosts, true, stepServing},
		"all over":                           {fresh, epoch.Add(400 * day), hosts, true, stepRecreate},
		"clock back by half an hour":         {fresh, epoch.Add(-30 * time.Minute), hosts, true, stepNone},
		"clock back by a day":                {fresh, epoch.Add(-day), hosts, true, stepRecreate},
		"new authority, too young":           {renewing, epoch.Add(250*day + 59*time.Minute), hosts, true, stepServing}, // its serving is over
		"authority nearly over, serving new": {renewServing(t, lives, fresh, epoch.Add(250*day)), epoch.Add(250 * day), hosts, true, stepAuthority},
	} {
		t.Run(name, func(t *testing.T) {
			if d := lives.nextStep(test.m, test.now, test.hosts, test.trusted); d.step != test.want {
				t.Errorf("%s (%s), want %s", d.step, d.reason, test.want)
			} else if (d.reason == "") != (d.step == stepNone) {
				t.Errorf("step %s has the reason %q, want one for each step and none without", d.step, d.reason)
			}
		})
	}
}

func renewServing(t *testing.T, l Lifetimes, m *material, now time.Time) *material {
	t.Helper()

	next, err := l.applyStep(stepServing, m, func() time.Time { return now }, hosts)
	if err != nil {
		t.Fatal(err)
	}

	return next
}

// TestNextStep_AuthorityRenewal checks the steps of a renewal of the authority.
func TestNextStep_AuthorityRenewal(t *testing.T) {
	lives := DefaultLifetimes()
	at := epoch.Add(250 * day)

	old := renewServing(t, lives, converge(t, lives, nil, epoch, map[step]int{}), at)
	m := converge(t, lives, old, at, map[step]int{})
	if len(m.older) != 1 || !bytes.Equal(m.pair.CertPEM, old.pair.CertPEM) {
		t.Fatalf("after the first look: %d old authorities, want 1 and the old serving certificate", len(m.older))
	}

	if d := lives.nextStep(m, at.Add(lives.Overlap), hosts, false); d.step != stepNone {
		t.Errorf("the next step is %s, want none while a caller lacks the new authority", d.step)
	}
	if d := lives.nextStep(m, at.Add(lives.Overlap-time.Second), hosts, true); d.step != stepNone {
		t.Errorf("the next step is %s, want none before the end of the overlap", d.step)
	}

	m = converge(t, lives, m, at.Add(lives.Overlap), map[step]int{})
	if len(m.older) != 1 || !m.signedBy(m.signer.Certificate()) {
		t.Fatalf("%d old authorities, want 1 and a serving certificate of the new one", len(m.older))
	}

	if m = converge(t, lives, m, at.Add(2*lives.Overlap), map[step]int{}); len(m.older) != 0 {
		t.Errorf("%d old authorities after the overlap, want none", len(m.older))
	}
}

// TestNextStep_ClockJumps checks that certificates that other clocks find valid stay in the bundle, and that steps end whichever way the
// clock jumps.
func TestNextStep_ClockJumps(t *testing.T) {
	lives := DefaultLifetimes()
	m := converge(t, lives, nil, epoch, map[step]int{})
	before := m.signer.Certificate()
	for i, jump := range []time.Duration{-day, day, -400 * day, 2000 * day, -2000 * day, 0, 3 * time.Hour} {
		took := map[step]int{}
		now := epoch.Add(jump)
		m = converge(t, lives, m, now, took)
		if err := verifyServing(m.bundle(), m, now); err != nil {
			t.Errorf("jump by %s: verifyServing = %v, want a trusted certificate", jump, err)
		}
		if n := len(m.authorities()); n > maxAuthorities {
			t.Errorf("jump by %s: %d authorities, want at most %d", jump, n, maxAuthorities)
		}

		if i == 0 && !slices.ContainsFunc(m.older, before.Equal) {
			t.Error("the authority of the other clock is no longer trusted, want it kept")
		}
	}
}

func TestApplyStep_HostsOfReplicas(t *testing.T) {
	lives := DefaultLifetimes()
	now := func() time.Time { return epoch }
	a, err := lives.applyStep(stepRecreate, nil, now, []string{"svc", "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}

	b, err := lives.applyStep(stepServing, a, now, []string{"svc", "10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}

	for _, own := range [][]string{{"svc", "10.0.0.1"}, {"svc", "10.0.0.2"}} {
		if d := lives.nextStep(b, epoch, own, true); d.step != stepNone {
			t.Errorf("a replica at %v: %s, %s, want no step", own, d.step, d.reason)
		}
	}
}

func FuzzParse(f *testing.F) {
	m, err := DefaultLifetimes().applyStep(stepRecreate, nil, func() time.Time { return epoch }, hosts)
	if err != nil {
		f.Fatal(err)
	}

	d := m.data(nil)
	f.Add(d[keyBundle], d[keyAuthority], d[keyServing], d[keyServingKey])
	f.Add([]byte("x"), []byte(nil), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{0})
	f.Add(bytes.Repeat(d[keyBundle], maxAuthorities+1), d[keyAuthority], d[keyServingKey], d[keyServing])

	f.Fuzz(func(t *testing.T, bundle, key, cert, certKey []byte) {
		got, err := parse(map[string][]byte{keyBundle: bundle, keyAuthority: key, keyServing: cert, keyServingKey: certKey},
			func() time.Time { return epoch })
		if err != nil {
			return
		}

		if n := len(got.authorities()); n < 1 || n > maxAuthorities {
			t.Fatalf("%d authorities, want 1 to %d", n, maxAuthorities)
		}

		converge(t, DefaultLifetimes(), got, epoch, map[step]int{})
	})
}
