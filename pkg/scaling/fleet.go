// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

const (
	// DefaultBudget is the default of the additional replica hours of all workloads, as a fraction of those of the HPAs alone.
	DefaultBudget = 0.10
	// maxPrice is a price at which no forecast is worth its replicas.
	maxPrice = 1e9
	// maxMembers bounds the workloads of a fleet; further ones use its price and do not contribute to it.
	maxMembers = 100_000
	// repriceShare is the share of the accounts that have to change before the price is computed anew.
	repriceShare = 0.01
)

// PriceRules are the parameters by which a Fleet spends its budget. docs/explanation/autoscaling-ahead.md explains them; docs/experiments has how they were chosen.
type PriceRules struct {
	// MinPrice is the lowest price, in minutes under capacity for a replica hour: forecasts that buy less are not used even if the budget
	// is not spent.
	MinPrice float64
	// Aim is the share of the budget that the levels may cost on the past days. On the next days they cost up to a tenth more of the
	// replica hours of an HPA alone where the load changes, and the budget is for these.
	Aim float64
	// MaxCorrection bounds how much more or less than Aim the levels may cost after days on which less or more was paid, as a share of it.
	MaxCorrection float64
}

// DefaultPriceRules returns the rules of craned.
func DefaultPriceRules() PriceRules { return PriceRules{MinPrice: 0.005, Aim: 0.7, MaxCorrection: 0.5} }

// Fleet sets one price of a minute under capacity for all workloads, such that the levels that are worth it stay within a budget of
// additional replica hours on the past days. A tenant, such as a namespace, never pays more than the price at which it stays within the
// budget of its own replica hours, so other tenants can take what it leaves of the budget, and nothing else. It is safe for concurrent use.
type Fleet struct {
	budget float64
	rules  PriceRules

	mu      sync.Mutex
	members map[string]fleetMember
	price   float64
	// ownPrices are those of the tenants that are lower than price.
	ownPrices map[string]float64
	changes   int // accounts that changed since the price was computed
}

type fleetMember struct {
	tenant  string
	account Account
	expires time.Time
}

// NewFleet returns a fleet without workloads and with the default rules. The budget is a fraction of the replica hours of the HPAs alone,
// from 0 to 10.
func NewFleet(budget float64) (*Fleet, error) { return NewFleetWith(budget, DefaultPriceRules()) }

// NewFleetWith is NewFleet with rules.
func NewFleetWith(budget float64, rules PriceRules) (*Fleet, error) {
	const maxBudget = 10
	if !(budget >= 0 && budget <= maxBudget) {
		return nil, fmt.Errorf("budget %v: must be from 0 to %d", budget, maxBudget)
	}

	if !(rules.MinPrice > 0) {
		return nil, fmt.Errorf("lowest price %v: must be positive", rules.MinPrice)
	}

	return &Fleet{
		budget:  budget,
		rules:   rules,
		members: map[string]fleetMember{},
		price:   rules.MinPrice,
	}, nil
}

// Update sets the account of a tenant's workload and returns the tenant's price in minutes under capacity for a replica hour. The name is
// unique among all tenants. The account expires at a time, so that workloads whose samples are missing lose their share of the budget; it
// never expires at the zero time. Accounts of too short a history or with invalid numbers are removed.
func (f *Fleet) Update(tenant, name string, a Account, now, expires time.Time) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()

	_, isMember := f.members[name]
	switch {
	case !a.usable():
		delete(f.members, name)
	case isMember || len(f.members) < maxMembers:
		f.members[name] = fleetMember{tenant, a, expires}
	}

	f.changes++

	if f.changes > int(repriceShare*float64(len(f.members))) {
		maps.DeleteFunc(f.members, func(_ string, m fleetMember) bool { return !m.expires.IsZero() && m.expires.Before(now) })
		f.reprice()
		f.changes = 0
	}

	return f.priceOf(tenant)
}

// Price returns the latest price of a tenant in minutes under capacity for a replica hour.
func (f *Fleet) Price(tenant string) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.priceOf(tenant)
}

func (f *Fleet) priceOf(tenant string) float64 {
	if price, ok := f.ownPrices[tenant]; ok {
		return price
	}

	return f.price
}

// reprice sets the price to the lowest one at which the budget suffices, given that each tenant pays at most its own.
func (f *Fleet) reprice() {
	tenants := map[string][]*Account{}
	for _, m := range f.members {
		tenants[m.tenant] = append(tenants[m.tenant], &m.account)
	}

	// No tenant pays more than the price at which its own replica hours suffice.
	prices := make(map[string]float64, len(tenants))

	var all []*Account
	for tenant, accounts := range tenants {
		all = append(all, accounts...)
		budget := f.corrected(accounts)
		prices[tenant] = f.clearingPrice(func(price float64) bool {
			extra, total := spending(accounts, price)
			return extra <= budget*total
		})
	}

	budget := f.corrected(all)
	f.price = f.clearingPrice(func(price float64) bool {
		extra, total := 0.0, 0.0
		for tenant, accounts := range tenants {
			e, t := spending(accounts, min(price, prices[tenant]))
			extra += e
			total += t
		}

		return extra <= budget*total
	})

	f.ownPrices = prices
	maps.DeleteFunc(prices, func(_ string, price float64) bool { return price >= f.price })
}

// corrected returns the budget of the levels of accounts. What was not paid on the past days adds to it, and what was paid too much reduces
// it: a level costs on the next days what it cost on the past ones only by chance, and few workloads have few levels to spend a budget on.
func (f *Fleet) corrected(accounts []*Account) float64 {
	extra, total := 0.0, 0.0
	for _, a := range accounts {
		extra += a.actual.replicaSeconds - a.reactive.replicaSeconds
		total += a.reactive.replicaSeconds
	}

	aim := f.rules.Aim * f.budget
	if total <= 0 {
		return aim
	}

	return aim + min(f.rules.MaxCorrection*aim, max(-f.rules.MaxCorrection*aim, aim-extra/total))
}

// clearingPrice returns the lowest price from MinPrice on that is affordable; a higher one always is.
func (f *Fleet) clearingPrice(affordable func(price float64) bool) float64 {
	if affordable(f.rules.MinPrice) {
		return f.rules.MinPrice
	}

	low := math.Log(f.rules.MinPrice)
	high := math.Log(maxPrice)
	const halvings = 40
	for range halvings {
		if mid := (low + high) / 2; affordable(math.Exp(mid)) {
			high = mid
		} else {
			low = mid
		}
	}

	return math.Exp(high)
}

// spending returns the additional replica seconds of the levels that are worth a price, and those of the HPAs alone.
func spending(accounts []*Account, price float64) (extra, total float64) {
	for _, a := range accounts {
		total += a.reactive.replicaSeconds
		if i, _ := a.best(price, targetLevels); i >= 0 {
			extra += a.levels[i].replicaSeconds - a.reactive.replicaSeconds
		}
	}

	return extra, total
}

// usable reports whether an account is of a long enough history and all its numbers are finite and not negative.
func (a *Account) usable() bool {
	valid := func(c scalingCost) bool {
		return c.replicaSeconds >= 0 && c.shortageSeconds >= 0 && !math.IsInf(c.replicaSeconds, 0) && !math.IsInf(c.shortageSeconds, 0)
	}
	for _, c := range a.levels {
		if !valid(c) {
			return false
		}
	}

	return a.valid && valid(a.reactive) && valid(a.actual)
}
