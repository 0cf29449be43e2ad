// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"fmt"
	"maps"
	"slices"

	"crane.io/crane/pkg/forecast/registry"
)

// Sizes of models in bytes, measured as heap in use per series.
const (
	// autoBytes is a model of auto with its reference and log.
	autoBytes = 29 << 10
	// ringBytes is a ring of samples without its samples.
	ringBytes = 13 << 10
	// maxCacheBytes bounds the forecasts that an entry keeps.
	maxCacheBytes = 64 << 10
)

// seriesBytes returns the memory of one series of a plan, in bytes.
func (p plan) seriesBytes() int64 {
	if p.name == registry.Auto {
		return autoBytes
	}

	return ringBytes + 4*int64(p.history/p.step)*17/16
}

// bytes returns the memory of an entry. An entry that was not read yet counts as one series.
func (e *entry) bytes() int64 {
	out := e.plan.seriesBytes() * int64(max(1, e.models))
	if e.plan.isCacheable() {
		out += maxCacheBytes
	}

	return out
}

// budgets counts the memory of models in bytes. Predictor.mu guards it.
type budgets struct {
	total int64
	// byNamespace holds what the objects of each namespace request. Each namespace is charged with the whole of a shared entry, so that no
	// namespace gains by copying the request of another.
	byNamespace map[string]int64
}

// namespaces returns the namespaces whose objects request an entry; the objects of Crane's own namespace have an empty one.
func (e *entry) namespaces() []string {
	return slices.Compact(slices.Sorted(maps.Values(e.callers)))
}

// recordOwner updates the owner after callers changed.
func (e *entry) recordOwner() {
	all := e.namespaces()
	e.owner = ""
	e.isShared = len(all) > 1
	if len(all) > 0 {
		e.owner = all[0]
	}
}

// charge adds bytes to the total, and to the budgets of namespaces.
func (b *budgets) charge(bytes int64, namespaces ...string) {
	b.total += bytes
	b.chargeNamespaces(bytes, namespaces...)
}

func (b *budgets) chargeNamespaces(bytes int64, namespaces ...string) {
	for _, ns := range namespaces {
		if ns == "" {
			continue
		}

		b.byNamespace[ns] += bytes

		if b.byNamespace[ns] <= 0 {
			delete(b.byNamespace, ns)
		}
	}
}

// requested has the entries by key and by caller, and decides how many the limits allow. Predictor.mu guards it.
type requested struct {
	config  *Config
	entries map[Key]*entry
	callers map[string]map[Key]struct{}
	models  int // number of models of all entries
	budgets budgets
}

// checkBudget returns an error if bytes do not fit into the budget of a namespace.
func (r *requested) checkBudget(bytes int64, namespace string) error {
	if namespace != "" && r.budgets.byNamespace[namespace]+bytes > r.config.MaxNamespaceBytes {
		return fmt.Errorf("the limit of %d MiB for the forecasts of namespace %s is reached", r.config.MaxNamespaceBytes>>20, namespace)
	}

	return nil
}

// checkLimits returns an error if bytes of another series exceed the limits of all forecasts.
func (r *requested) checkLimits(bytes int64) error {
	switch c := r.config; {
	case len(r.entries) >= c.MaxSeries || r.models >= c.MaxSeries:
		return fmt.Errorf("the limit of %d series is reached", c.MaxSeries)
	case r.budgets.total+bytes > c.MaxBytes:
		return fmt.Errorf("the limit of %d MiB for all forecasts is reached", c.MaxBytes>>20)
	}

	return nil
}

// makeRoom deletes entries of the namespaces that use the most memory until the limits of all forecasts allow bytes for a namespace.
// It stops at namespaces that would use less than the given one, so that each of many namespaces gets an equal share, whichever came first.
// It returns the keys of deleted entries.
func (r *requested) makeRoom(bytes int64, namespace string) ([]Key, error) {
	var deleted []Key
	err := r.checkLimits(bytes)
	for ; err != nil; err = r.checkLimits(bytes) {
		largest := ""
		for ns, used := range r.budgets.byNamespace {
			if used > r.budgets.byNamespace[largest] || used == r.budgets.byNamespace[largest] && ns < largest {
				largest = ns
			}
		}

		// Taking from a namespace that would then use less than this one would only exchange their places.
		victim := r.entryOf(largest)
		if victim == nil || r.budgets.byNamespace[largest]-victim.bytes() < r.budgets.byNamespace[namespace]+bytes {
			return deleted, err
		}

		for caller := range victim.callers {
			delete(r.callers[caller], victim.plan.key)
		}

		r.deleteEntry(victim)
		r.budgets.chargeNamespaces(-victim.bytes(), largest)
		deleted = append(deleted, victim.plan.key)
	}

	return deleted, nil
}

// entryOf returns an entry that only objects of a namespace request; nil if there is none.
func (r *requested) entryOf(namespace string) *entry {
	if namespace == "" {
		return nil
	}

	for _, e := range r.entries { // In a random order, so that few are compared.
		if e.owner == namespace && !e.isShared {
			return e
		}
	}

	return nil
}

// deleteEntry deletes an entry from the totals.
func (r *requested) deleteEntry(e *entry) {
	delete(r.entries, e.plan.key)
	r.models -= e.models
	r.budgets.charge(-e.bytes())
}

// seriesAllowance returns how many series an entry may have, as the budgets allow. Of several namespaces the one with the largest
// allowance decides, so that none can starve the request of another by joining it.
func (r *requested) seriesAllowance(e *entry) int {
	size := e.plan.seriesBytes()
	used := e.bytes()
	limit := int64(0)
	for _, ns := range e.namespaces() {
		allowance := r.config.MaxBytes - r.budgets.total
		if ns != "" {
			allowance = min(allowance, r.config.MaxNamespaceBytes-r.budgets.byNamespace[ns])
		}

		limit = max(limit, (allowance+used)/size)
	}

	return min(int(limit), r.config.MaxSeries-r.models+e.models)
}

// setModels records the number of series of an entry.
func (r *requested) setModels(e *entry, n int) {
	if r.entries[e.plan.key] != e { // It has no caller any more.
		return
	}

	before := e.bytes()
	r.models += n - e.models
	e.models = n
	r.budgets.charge(e.bytes()-before, e.namespaces()...)
}
