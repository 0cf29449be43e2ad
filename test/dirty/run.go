// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"crane.io/crane/pkg/rightsize"
)

// Case is one workload with a fault. Seed is that of its round.
type Case struct {
	Kind string
	Seed uint64
	// Wrong is why the answer is wrong; empty for a right one.
	Wrong string
	// Faults are the fewest faults that still fail, where a wrong case has several.
	Faults []string
}

func newCase(kind string, seed uint64, wrong []string) Case {
	return Case{Kind: kind, Seed: seed, Wrong: strings.Join(wrong, "; ")}
}

// String names the case so that it can be run alone.
func (c Case) String() string {
	if len(c.Faults) > 0 {
		return fmt.Sprintf("%s, seed %d, fails with %s alone: %s", c.Kind, c.Seed, strings.Join(c.Faults, " and "), c.Wrong)
	}

	return fmt.Sprintf("%s, seed %d: %s", c.Kind, c.Seed, c.Wrong)
}

// firstSeed is the seed of the round with the default policy; the others follow.
const firstSeed = 1

// kinds returns the faults of one workload.
func kinds() []Kind {
	out := usageKinds()
	out = append(out, processKinds()...)
	out = append(out, killKinds()...)
	out = append(out, moreKinds()...)
	out = append(out, stackKinds()...)
	return append(out, severalKind())
}

// pair is a workload with a fault and the same without it, in namespaces of their own.
type pair struct {
	kind          Kind
	faulty, clean *Workload
	faultySeries  []*Series
	cleanSeries   []*Series
	expectation   Expectation
}

// seedOf returns the seed of a kind in a round, so that a kind that runs alone has the same cases.
func seedOf(round uint64, kind string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", kind, round)
	return h.Sum64()
}

// newPair returns a workload with a fault for a round.
func newPair(k Kind, round uint64, i int) *pair {
	seed := seedOf(round, k.Name)
	r := rand.New(rand.NewPCG(seed, 2))
	k = k.choose(round)
	p := &pair{
		kind:   k,
		faulty: newWorkload(seed, fmt.Sprintf("faulty-%03d", i)),
		clean:  newWorkload(seed, fmt.Sprintf("clean-%03d", i)),
	}

	if k.process != nil {
		k.process(r, p.faulty, p.clean)
	}

	p.cleanSeries = record(p.clean)
	p.faultySeries = record(p.faulty)
	if k.damage != nil {
		p.faultySeries = k.damage(r, p.faulty, p.faultySeries, p.clean.Namespace)
	}
	for _, part := range k.parts {
		// Each part has a source of its own, so that a smaller set has the same faults.
		source := rand.New(rand.NewPCG(seed, seedOf(round, part.Name)))
		p.faultySeries = part.damage(source, p.faulty, p.faultySeries, p.clean.Namespace)
	}
	if k.expect != nil {
		p.expectation = k.expect(p.faulty)
	}

	return p
}

// policyOf returns the policy of a round.
func policyOf(round uint64) string {
	names := []string{rightsize.DefaultPolicy, rightsize.BatchPolicy, rightsize.CalibratedPolicy, rightsize.LatencySensitivePolicy}
	return names[(round-firstSeed)%uint64(len(names))]
}

// runWorkloads runs one case of each kind: once on a server of the clean workloads, once on one of all. A case is wrong as well if it
// changes the answer for the clean workload, or if a rule or an EffectiveVPA has another answer.
func runWorkloads(ctx context.Context, dir string, all []Kind, round uint64) ([]Case, error) {
	var pairs []*pair
	cleanSeries := recordNode()
	for i, k := range all {
		p := newPair(k, round, i)
		pairs = append(pairs, p)
		cleanSeries = append(cleanSeries, p.cleanSeries...)
	}

	clean, err := answersOf(ctx, dir, cleanSeries, policyOf(round))
	if err != nil {
		return nil, err
	}

	mixedSeries := cleanSeries
	for _, p := range pairs {
		mixedSeries = append(mixedSeries, p.faultySeries...)
	}

	server, err := serve(ctx, dir, mixedSeries)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }()

	mixed, err := recommend(ctx, server, policyOf(round), "")
	if err != nil {
		return nil, err
	}

	var out []Case
	for _, p := range pairs {
		before := clean.ByNamespace[p.clean.Namespace]
		wrong := judge(p.expectation, before, mixed.ByNamespace[p.faulty.Namespace], mixed.Notes)
		if after := mixed.ByNamespace[p.clean.Namespace]; after != before {
			wrong = append(wrong, fmt.Sprintf("the answer of a neighbor was %+v and is %+v", before, after))
		}

		different, err := compareWays(ctx, server, p, round, mixed)
		if err != nil {
			return nil, err
		}

		out = append(out, newCase(p.kind.Name, round, append(wrong, different...)))
	}

	return out, nil
}

// fewestFaults returns the names of the fewest faults of a kind with several that still fail, each set on a server of its own.
func fewestFaults(ctx context.Context, dir string, k Kind, round uint64) ([]string, error) {
	k = k.choose(round)
	found, err := smallest(k.parts, func(parts []Kind) (bool, error) {
		fewer := k
		fewer.parts = parts
		cases, err := runWorkloads(ctx, dir, []Kind{fewer}, round)
		return err == nil && cases[0].Wrong != "", err
	})

	var names []string
	for _, part := range found {
		names = append(names, part.Name)
	}

	return names, err
}

// compareWays compares the answer of the command line with those of a rule and of an EffectiveVPA.
func compareWays(ctx context.Context, server serverURL, p *pair, round uint64, from Answers) (different []string, err error) {
	got := from.ByNamespace[p.faulty.Namespace]
	rule, autoscaler, err := ruleAndAutoscaler(ctx, server, policyOf(round), p.faulty.Namespace, from)
	if err != nil {
		return nil, err
	}

	if rule.CPU != got.CPU || rule.Memory != got.Memory {
		different = append(different, fmt.Sprintf("crane recommend has %+v, a rule %+v", got, rule))
	}

	if autoscaler.CPU != got.CPU || autoscaler.Memory != got.Memory {
		different = append(different, fmt.Sprintf("crane recommend has %+v, an EffectiveVPA %+v", got, autoscaler))
	}

	return different, nil
}

// answersOf returns the answers of a server with some series.
func answersOf(ctx context.Context, dir string, all []*Series, policyName string) (Answers, error) {
	server, err := serve(ctx, dir, all)
	if err != nil {
		return Answers{}, err
	}
	defer func() { _ = server.Close() }()

	return recommend(ctx, server, policyName, "")
}

// serverURL is a server that answers queries.
type serverURL interface{ URL() string }

// workloadsOfServer is the number of workloads of a server with a fault.
const workloadsOfServer = 4

// runServer runs the cases of one fault of a server.
func runServer(ctx context.Context, dir string, k ServerKind, round uint64) ([]Case, error) {
	seed := seedOf(round, k.Name)
	r := rand.New(rand.NewPCG(seed, 3))
	all := recordNode()
	var namespaces []string
	for i := range workloadsOfServer {
		w := newWorkload(seed+uint64(i), fmt.Sprintf("team-%d", i))
		if i%2 == 1 {
			leader(r, w, nil)
		}

		namespaces = append(namespaces, w.Namespace)
		all = append(all, record(w)...)
	}

	clean, err := answersOf(ctx, dir, all, policyOf(round))
	if err != nil {
		return nil, err
	}

	all = k.damage(r, all)
	server, err := serve(ctx, dir, all)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }()

	if k.append != nil {
		if err := k.append(ctx, server, all); err != nil {
			return nil, err
		}
	}

	found, err := recommend(ctx, server, policyOf(round), "")
	if err != nil {
		return nil, err
	}

	cases := k.judge(namespaces, clean, found, k.refusals, round)
	if k.matchers == nil {
		return cases, nil
	}

	if found, err = recommend(ctx, server, policyOf(round), k.matchers(all)); err != nil {
		return nil, err
	}

	return append(cases, k.judge(namespaces, clean, found, nil, round)...), nil
}

func (k ServerKind) judge(namespaces []string, clean, found Answers, refusals []string, round uint64) []Case {
	var out []Case
	for _, ns := range namespaces {
		wrong := judge(Expectation{Refusals: refusals}, clean.ByNamespace[ns], found.ByNamespace[ns], found.Notes)
		out = append(out, newCase(k.Name, round, wrong))
	}

	return out
}
