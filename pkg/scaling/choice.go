// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import "fmt"

const (
	// minSparedShare is the minimum share of the time under capacity that a level has to spare: less is within the error of a replay.
	minSparedShare = 0.05
	// minSparedSeconds is the minimum time that a level has to spare in the accounts.
	minSparedSeconds = 120
	// maxUselessCost is the share of the replica hours that the levels in use may cost on the past days without sparing any time under
	// capacity. A load that fell needs no forecast of what it was before, however much that would have spared.
	maxUselessCost = 0.015
)

// Account is what each level cost and avoided on the history of a workload.
type Account struct {
	reactive scalingCost
	actual   scalingCost // of the levels that were in use at the time
	levels   [levelCount]scalingCost
	valid    bool // enough of the past was observed
}

// Account returns the present account of the ledger.
func (l *Ledger) Account() Account {
	return Account{l.reactive, l.actual, l.levels, l.observed >= ledgerMinHistory}
}

// Balance compares a way of scaling with the HPA alone.
type Balance struct {
	// ExtraCost is the additional cost as a fraction of the replica hours without it.
	ExtraCost float64
	// SparedShortage is the fraction of the time under capacity that it avoids; 0 where there is none to avoid.
	SparedShortage float64
}

func (a *Account) balance(c scalingCost) Balance {
	var b Balance
	if a.reactive.replicaSeconds > 0 {
		b.ExtraCost = c.replicaSeconds/a.reactive.replicaSeconds - 1
	}
	if a.reactive.shortageSeconds > 0 {
		b.SparedShortage = 1 - c.shortageSeconds/a.reactive.shortageSeconds
	}

	return b
}

// useless reports whether the levels that were in use on the past days spared nothing for more than maxUselessCost.
func (a *Account) useless() bool {
	extra := a.actual.replicaSeconds - a.reactive.replicaSeconds
	return a.reactive.shortageSeconds-a.actual.shortageSeconds < 1 && extra > maxUselessCost*a.reactive.replicaSeconds
}

// best returns the index of the level with the largest benefit at a price, which is the spared time less the price times the additional
// replica hours, and the benefit in seconds; -1 where no level has one. Levels from first on are compared.
func (a *Account) best(price float64, first int) (level int, benefit float64) {
	level = -1
	if !a.valid || a.useless() {
		return level, 0
	}

	for i := first; i < levelCount; i++ {
		c := &a.levels[i]
		spared := a.reactive.shortageSeconds - c.shortageSeconds
		if spared < minSparedSeconds || spared < minSparedShare*a.reactive.shortageSeconds {
			continue
		}

		if v := spared - price/minutesPerHour*(c.replicaSeconds-a.reactive.replicaSeconds); v > benefit {
			level = i
			benefit = v
		}
	}

	return level, benefit
}

// minutesPerHour converts a price in minutes for a replica hour to seconds for a replica-second.
const minutesPerHour = 60

// Choice is the level that a Ledger recommends.
type Choice struct {
	// Use is false where the forecast should be ignored.
	Use   bool
	Level Level
	// Balance is that of the level on the past days.
	Balance
	// Actual is the balance of the levels that were in use on the past days.
	Actual Balance
	Reason string
}

// Choose selects the level with the largest benefit at a price in minutes under capacity for a replica hour, see Fleet, and none without
// a benefit or with too short a history.
func (l *Ledger) Choose(price float64) Choice {
	a := l.Account()
	out := Choice{Actual: a.balance(a.actual)}

	var i int
	i, out.Reason = a.choose(price)
	if out.Actual != (Balance{}) {
		out.Reason += fmt.Sprintf("; what was used on the past days spared %.0f %% for %.1f %% more replica hours",
			100*out.Actual.SparedShortage, 100*out.Actual.ExtraCost)
	}

	l.inUse = i
	if i >= 0 {
		out.Use = true
		out.Level = Levels()[i]
		out.Balance = a.balance(a.levels[i])
	}

	return out
}

// choose returns the index of the best level, -1 for none, and the reason.
func (a *Account) choose(price float64) (int, string) {
	switch {
	case !a.valid:
		// The observed hours are omitted, because each change of the text would cause a status update.
		return -1, fmt.Sprintf("learning: less than %d hours of the past are known, so the HPA scales alone", int(ledgerMinHistory.Hours()))
	case a.reactive.shortageSeconds < 1:
		return -1, "the HPA alone was never under capacity"
	}

	if a.useless() {
		return -1, "the forecast spared no time under capacity on the past days, so the HPA scales alone until the cost of these days has decayed"
	}

	i, benefit := a.best(price, targetLevels)
	if i < 0 {
		return -1, fmt.Sprintf("on the past days no level of the forecast was worth its replica hours at the price of %.2g minutes under capacity for a replica hour", price)
	}

	b := a.balance(a.levels[i])
	text := fmt.Sprintf("on the past days %s would have spared %.0f %% of the time under capacity for %.1f %% more replica hours",
		Levels()[i], 100*b.SparedShortage, 100*b.ExtraCost)

	if t, more := a.best(price, 0); t >= 0 && t < targetLevels && more > benefit {
		b = a.balance(a.levels[t])
		text += fmt.Sprintf("; %s would have been better: %.0f %% for %.1f %%", Levels()[t], 100*b.SparedShortage, 100*b.ExtraCost)
	}

	return i, text
}
