// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// account returns an account of 1000 replica hours and 100 minutes under capacity, with levels that each spare a share of the minutes
// for a share of the hours. It paid what a fleet with the default budget and testRules aims at, for a tenth of the minutes.
func account(levels ...[2]float64) Account {
	a := Account{reactive: scalingCost{3.6e6, 6000}, actual: scalingCost{3.6e6 * (1 + testRules().Aim*DefaultBudget), 5400}, valid: true}
	for i := range a.levels {
		a.levels[i] = a.reactive
	}

	for i, l := range levels {
		a.levels[targetLevels+i] = scalingCost{3.6e6 * (1 + l[1]), 6000 * (1 - l[0])}
	}

	return a
}

// testRules are rules that do not change when the default ones are chosen anew.
func testRules() PriceRules { return PriceRules{MinPrice: 0.005, Aim: 0.8, MaxCorrection: 0.5} }

func fleet(t *testing.T, budget float64) *Fleet {
	t.Helper()

	f, err := NewFleetWith(budget, testRules())
	if err != nil {
		t.Fatal(err)
	}

	return f
}

// extra returns the additional replica hours of accounts at a price, as a share of the hours of the HPAs.
func extra(price float64, all ...Account) float64 {
	sum := 0.0
	for _, a := range all {
		if i, _ := a.best(price, targetLevels); i >= 0 {
			sum += a.levels[i].replicaSeconds - a.reactive.replicaSeconds
		}
	}

	return sum / (3.6e6 * float64(len(all)))
}

// TestFleet_SharedBudget checks that a workload may exceed the budget where the fleet stays within it.
func TestFleet_SharedBudget(t *testing.T) {
	f := fleet(t, 0.1)
	bursty := account([2]float64{0.9, 0.23})
	calm := account([2]float64{0.2, 0.15})
	idle := account()
	f.Update("", "bursty", bursty, noon(), time.Time{})
	f.Update("", "calm", calm, noon(), time.Time{})

	price := f.Update("", "idle", idle, noon(), time.Time{})
	if i, _ := bursty.best(price, targetLevels); i != targetLevels {
		t.Errorf("at %v minutes for a replica hour the bursty workload uses level %d, want %d", price, i, targetLevels)
	}
	if i, _ := calm.best(price, targetLevels); i != -1 {
		t.Errorf("at %v minutes for a replica hour the calm workload uses level %d, want none", price, i)
	}
	if got := extra(price, bursty, calm, idle); got > testRules().Aim*0.1+1e-9 {
		t.Errorf("the fleet spends %v, want at most %v", got, testRules().Aim*0.1)
	}
}

func TestFleet_Budgets(t *testing.T) {
	all := make([]Account, 50)
	for i := range all {
		x := float64(i+1) / 50
		all[i] = account([2]float64{x, 0.02}, [2]float64{x + (1-x)/2, 0.1}, [2]float64{1, 0.4})
	}

	last := math.Inf(1)
	for _, budget := range []float64{0, 0.01, 0.05, 0.1, 0.2, 10} {
		f := fleet(t, budget)
		for i, a := range all {
			a.actual.replicaSeconds = 3.6e6 * (1 + testRules().Aim*budget)
			f.Update("", fmt.Sprint(i), a, noon(), time.Time{})
		}

		price := f.Price("")
		if got := extra(price, all...); got > testRules().Aim*budget+1e-9 || budget > 0 && got < testRules().Aim*math.Min(budget, 0.2)/2 {
			t.Errorf("with a budget of %v it spends %v at %v minutes for a replica hour, want near %v", budget, got, price, testRules().Aim*budget)
		}
		if price > last {
			t.Errorf("with a budget of %v the price is %v, want at most the %v of a smaller one", budget, price, last)
		}

		last = price
	}
}

// TestFleet_CorrectsBudget checks that a fleet spends less after it paid too much, and more after it paid too little, within bounds.
func TestFleet_CorrectsBudget(t *testing.T) {
	const budget = 0.1
	last := math.Inf(1)
	for _, c := range []struct{ paid, least, most float64 }{
		{0, budget, testRules().Aim * (1 + testRules().MaxCorrection) * budget},
		{testRules().Aim * budget, 0.9 * testRules().Aim * budget, testRules().Aim * budget},
		{0.11, 0.04, 0.05},
		{5, 0.03, testRules().Aim * (1 - testRules().MaxCorrection) * budget},
	} {
		f := fleet(t, budget)
		all := make([]Account, 50)
		for i := range all {
			x := float64(i+1) / 50
			all[i] = account([2]float64{x, 0.02}, [2]float64{x + (1-x)/2, 0.1}, [2]float64{1, 0.4})
			all[i].actual.replicaSeconds = 3.6e6 * (1 + c.paid)
			f.Update("shop", fmt.Sprint(i), all[i], noon(), time.Time{})
		}

		got := extra(f.Price("shop"), all...)
		if !(got >= c.least && got <= c.most+1e-9 && got <= last) {
			t.Errorf("after %v was paid, it spends %v, want %v to %v and no more than %v", c.paid, got, c.least, c.most, last)
		}

		last = got
	}
}

// TestFleet_InvalidAccounts checks that accounts without numbers or history, and those that are out of date, change no price.
func TestFleet_InvalidAccounts(t *testing.T) {
	f := fleet(t, 0.1)
	good := account([2]float64{0.5, 0.15})
	want := f.Update("", "good", good, noon(), time.Time{})
	if want <= testRules().MinPrice {
		t.Fatalf("the budget does not bind: %v", want)
	}

	young := account()
	young.valid = false

	for _, v := range []float64{math.NaN(), math.Inf(1), -1} {
		bad := account()
		bad.reactive.replicaSeconds = v
		for i := range bad.levels {
			bad.levels[i].replicaSeconds = v
		}

		f.Update("", "bad", bad, noon(), time.Time{})
	}

	if got := f.Update("", "young", young, noon(), time.Time{}); got != want || len(f.members) != 1 {
		t.Errorf("the price is %v with %d members, want %v with one", got, len(f.members), want)
	}

	// The hours of an idle workload raise the budget of the fleet until its account expires.
	idle := account()
	if got := f.Update("", "idle", idle, noon(), noon().Add(time.Hour)); got >= want {
		t.Errorf("Update of an idle workload = price %v, want less than %v", got, want)
	}
	if got := f.Update("", "good", good, noon().Add(2*time.Hour), time.Time{}); got != want {
		t.Errorf("the price is %v after the other account expired, want %v", got, want)
	}

	for _, budget := range []float64{-0.1, math.NaN(), 11} {
		if _, err := NewFleet(budget); err == nil {
			t.Errorf("NewFleet(%v) succeeds, want an error", budget)
		}
	}
}

// TestFleet_TenantPrices checks that a tenant spends up to the budget of its own replica hours whatever others ask for, and
// more only of what they leave.
func TestFleet_TenantPrices(t *testing.T) {
	f := fleet(t, 0.1)
	small := account([2]float64{0.2, 0.07}) // affordable alone
	alone := f.Update("shop", "shop/web", small, noon(), time.Time{})
	if i, _ := small.best(alone, targetLevels); i != targetLevels {
		t.Fatalf("at %v minutes for a replica hour the workload alone uses level %d, want %d", alone, i, targetLevels)
	}

	greedy := account([2]float64{0.5, 0.05}, [2]float64{0.9, 0.2})
	for i := range 50 {
		f.Update("batch", fmt.Sprint("batch/", i), greedy, noon(), time.Time{})
	}

	price := f.Update("shop", "shop/web", small, noon(), time.Time{})
	theirs := f.Price("batch")

	if i, _ := small.best(price, targetLevels); i != targetLevels {
		t.Errorf("beside a tenant of 50 workloads, at %v, it uses level %d, want %d", price, i, targetLevels)
	}
	if !(price < theirs) {
		t.Errorf("the small tenant pays %v and the large one %v, want the small one to pay less", price, theirs)
	}

	sum := extra(price, small)
	for range 50 {
		sum += extra(theirs, greedy)
	}

	if sum > 51*testRules().Aim*0.1+1e-9 {
		t.Errorf("together they spend %v of the replica hours of 51 workloads, want at most %v", sum, 51*testRules().Aim*0.1)
	}

	// What a tenant leaves, another may take: the bursty one alone exceeds the budget of its own hours.
	pooled := fleet(t, 0.1)
	bursty := account([2]float64{0.9, 0.29})

	for i := range 5 {
		pooled.Update("calm", fmt.Sprint("calm/", i), account(), noon(), time.Time{})
	}

	if got := pooled.Update("shop", "shop/web", bursty, noon(), time.Time{}); got > maxPrice/2 {
		t.Errorf("the price of the bursty workload is %v, want an affordable one", got)
	} else if i, _ := bursty.best(got, targetLevels); i != targetLevels {
		t.Errorf("at %v the bursty workload uses level %d, want %d", got, i, targetLevels)
	}
}

// TestChoose_UselessForecast checks that a workload whose forecast cost replicas and spared nothing scales by the HPA alone, and that
// others get what it leaves of the budget.
func TestChoose_UselessForecast(t *testing.T) {
	for name, c := range map[string]struct {
		extra, spared float64
		used          bool
	}{
		"nothing spared":              {0.02, 0, false},
		"more time under capacity":    {0.02, -60, false},
		"nothing spared, but cheap":   {0.01, 0, true},
		"a minute spared for as much": {0.02, 60, true},
	} {
		a := account([2]float64{0.9, 0.05})
		a.actual = scalingCost{3.6e6 * (1 + c.extra), 6000 - c.spared}
		if i, reason := a.choose(testRules().MinPrice); (i >= 0) != c.used {
			t.Errorf("%s: choose = level %d: %s, want a level %t", name, i, reason, c.used)
		}
		if extra, _ := spending([]*Account{&a}, testRules().MinPrice); (extra > 0) != c.used {
			t.Errorf("%s: spending = %v of the budget, want some %t", name, extra, c.used)
		}
	}
}
