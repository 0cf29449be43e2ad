// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// clusterCheckLifetime is how long a result is used, and how long a server that rejects the questions is not asked again.
	clusterCheckLifetime = time.Hour
	// maxMixed is the number of namespaces with series of several clusters from which on all are taken for mixed.
	maxMixed = 20
)

// systemNamespaces are those of each cluster in which only administrators run pods.
func systemNamespaces() []string { return []string{"kube-node-lease", "kube-public", "kube-system"} }

// clusterCheck detects several clusters. It is safe for concurrent use.
//
// Who runs pods in a namespace can write series of this namespace, with any other label, so that they look like those of several clusters. They are
// evidence for their namespace alone, which is then left out of reads. The whole server is refused by the series of a namespace of the system, or by
// those of many namespaces.
type clusterCheck struct {
	*queries

	// running has an element while a caller asks; the others wait for its result.
	running chan struct{}
	// last is the last result, which is used until nextCheck, and longer if the server does not answer then.
	last      mixedClusters
	nextCheck time.Time
}

// mixedClusters are the namespaces whose series are of several clusters, each with an example. err is one of them if the whole server is mixed.
type mixedClusters struct {
	byNamespace map[string]*SeveralClustersError
	err         error
}

// refusesAll reports whether the whole server is mixed.
func (m *mixedClusters) refusesAll() bool { return m.err != nil }

// add adds a namespace.
func (m *mixedClusters) add(namespace string, found *SeveralClustersError) {
	m.byNamespace[namespace] = found
	if m.err == nil && (len(m.byNamespace) > maxMixed || slices.Contains(systemNamespaces(), namespace)) {
		m.err = found
	}
}

func newClusterCheck(q *queries) *clusterCheck {
	return &clusterCheck{queries: q, running: make(chan struct{}, 1)}
}

// check returns a SeveralClustersError where the selected series of the last days mix several clusters in all namespaces.
func (c *clusterCheck) check(ctx context.Context) error {
	mixed, err := c.read(ctx)
	if err != nil {
		return err
	}

	return mixed.err
}

// narrow returns a scope without the namespaces whose series are of several clusters. A scope of which nothing is left is an error, as is a server
// that is mixed as a whole.
func (c *clusterCheck) narrow(ctx context.Context, in scope) (scope, error) {
	mixed, err := c.read(ctx)
	if err != nil || mixed.err != nil || len(mixed.byNamespace) == 0 {
		return in, cmp.Or(err, mixed.err)
	}

	isMixed := func(namespace string) bool { return mixed.byNamespace[namespace] != nil }
	out := scope{names: slices.DeleteFunc(slices.Clone(in.names), isMixed), all: in.all}
	if in.all {
		out.without = slices.Sorted(maps.Keys(mixed.byNamespace))
	}

	if !in.all && len(out.names) == 0 && len(in.names) > 0 {
		return in, mixed.byNamespace[in.names[0]]
	}

	return out, nil
}

// read returns the mixed namespaces of the last days. It asks at most once per hour. A server that refuses these questions, which it would do
// again, is used without an answer; one that is out of order is asked again by the next caller, as the queries that follow report its failure.
func (c *clusterCheck) read(ctx context.Context) (mixedClusters, error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return mixedClusters{}, context.Cause(ctx)
	}

	if c.now().Before(c.nextCheck) {
		return c.last, nil
	}

	result := mixedClusters{byNamespace: map[string]*SeveralClustersError{}}
	// A cluster that has moved elsewhere is still in the history.
	for _, age := range []time.Duration{0, 2 * day, 9 * day} {
		err := c.checkAt(ctx, c.now().Add(-age), &result)
		if ctx.Err() != nil {
			return mixedClusters{}, context.Cause(ctx)
		}

		// The last answer, if there was one, holds until there is another.
		if err != nil && !isRefused(err) {
			return c.last, nil
		}

		if err != nil {
			result = c.last
		}
		if err != nil || result.err != nil {
			break
		}
	}

	c.warn(result)
	c.last = result
	c.nextCheck = c.now().Add(clusterCheckLifetime)

	return result, nil
}

// warn adds a warning to the statistics for each namespace that is left out.
func (c *clusterCheck) warn(found mixedClusters) {
	for _, text := range found.leftOut(nil) {
		c.client.warn(text)
	}
}

// leftOut returns a text for each of some namespaces, or of all without any, that is left out; none if the whole server is mixed.
func (m *mixedClusters) leftOut(namespaces []string) []string {
	if m.refusesAll() {
		return nil
	}

	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(m.byNamespace)) {
		if len(namespaces) > 0 && !slices.Contains(namespaces, namespace) {
			continue
		}

		out = append(out, "namespace "+namespace+" is left out: "+m.byNamespace[namespace].Error())
	}

	return out
}
