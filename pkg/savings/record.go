// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Bounds of a Record. With all of them at their maximum the text of a month has about 21 KB; maxBytes bounds the sum.
const (
	// MaxMonths is the number of months that are kept.
	MaxMonths = 36
	// MaxNamespaces is the number of namespaces of a month with amounts of their own; the others are summed as Other.
	MaxNamespaces = 100
	// maxAccounts is the number of currencies in a month.
	maxAccounts = 4
	// maxBytes leaves room in an object of at most 1 MiB.
	maxBytes = 900 << 10
	// maxAmount bounds each amount of money.
	maxAmount = 1e12
	// Other is the sum of further namespaces. It is not a valid name of a namespace.
	Other = "(other)"
)

// MonthLayout is the layout of the key of a month, in UTC.
const MonthLayout = "2006-01"

// Amounts are amounts of money: per hour in a Sample, of a span of time in a Record.
type Amounts struct {
	// Cost is the share in the price of the nodes by request; of a day it is the price of all nodes.
	Cost float64 `json:"cost"`
	// Promised is the price of the difference between the requests before the adoption and the recommended ones. Realized is that of
	// the difference to the requests of the running pods. Both are of adopted workloads alone, and negative where requests grow.
	Promised float64 `json:"promised"`
	Realized float64 `json:"realised"`
	// Available is the sum of the positive savings that are recommended and not adopted.
	Available float64 `json:"available"`
}

// Plus returns the sums.
func (a Amounts) Plus(b Amounts) Amounts { return a.plus(b, 1) }

// plus returns a plus b times a factor.
func (a Amounts) plus(b Amounts, factor float64) Amounts {
	return Amounts{
		Cost:      a.Cost + b.Cost*factor,
		Promised:  a.Promised + b.Promised*factor,
		Realized:  a.Realized + b.Realized*factor,
		Available: a.Available + b.Available*factor,
	}
}

func (a Amounts) validate() error {
	for name, v := range map[string]float64{"cost": a.Cost, "promised": a.Promised, "realised": a.Realized, "available": a.Available} {
		if math.IsNaN(v) || math.Abs(v) > maxAmount {
			return fmt.Errorf("%s: %v is not an amount of at most %g", name, v, maxAmount)
		}
	}

	if a.Cost < 0 || a.Available < 0 {
		return fmt.Errorf("cost %v, available %v: must not be negative", a.Cost, a.Available)
	}

	return nil
}

// Sample is the state of a cluster at one time, in money per hour.
type Sample struct {
	Currency string
	// Cluster is the price of all nodes.
	Cluster    float64
	Namespaces map[string]Amounts
	// Unknown is the number of adopted workloads whose saving cannot be determined. Their amounts are in no sum.
	Unknown int
}

// Day is one day in UTC.
type Day struct {
	Amounts
	// Hours is the part of the day that was observed. The amounts are those of that part.
	Hours float64 `json:"hours"`
	// Unknown is the largest number of adopted workloads of the day whose saving could not be determined.
	Unknown int `json:"unknown,omitempty"`
}

// Account has the amounts of a month in one currency.
type Account struct {
	Currency string `json:"currency"`
	// Days are by the day of the month, Namespaces by name.
	Days       map[int]Day        `json:"days"`
	Namespaces map[string]Amounts `json:"namespaces"`
}

// Total returns the sum of the days.
func (a Account) Total() Day {
	var sum Day
	for _, day := range a.Days {
		sum.Amounts = sum.Plus(day.Amounts)
		sum.Hours += day.Hours
		sum.Unknown = max(sum.Unknown, day.Unknown)
	}

	return sum
}

// Idle returns the price of the nodes that is no namespace's, at least 0.
func (a Account) Idle() float64 {
	idle := a.Total().Cost
	for _, ns := range a.Namespaces {
		idle -= ns.Cost
	}

	return max(idle, 0)
}

// Record is what was saved, by month.
type Record struct {
	// Until is the end of the observed time; zero before the first sample.
	Until time.Time
	// Months are the accounts by month in MonthLayout, one for each currency.
	Months map[string][]Account
}

// Add adds a sample that holds from the end of the record to a time. A span that is longer than maxGap was not observed and is left out, as
// is a time before the end of the record, after a clock was set back.
func (r *Record) Add(end time.Time, maxGap time.Duration, s Sample) error {
	if err := s.validate(); err != nil {
		return err
	}

	end = end.UTC().Truncate(time.Second)
	from := r.Until

	// The clock may be set back: a step of at most maxGap counts nothing twice, after a larger one the record goes on from there.
	switch span := end.Sub(from); {
	case from.IsZero() || span > maxGap || span < -maxGap:
		r.Until = end
		return nil
	case span <= 0:
		return nil
	}

	// Each day has an account of its own, so the span is split at midnight.
	for from.Before(end) {
		to := from.AddDate(0, 0, 1).Truncate(24 * time.Hour)
		if to.After(end) {
			to = end
		}

		if err := r.addSpan(from, to, s); err != nil {
			return err
		}

		from = to
	}

	r.Until = end
	r.prune()
	return nil
}

func (s Sample) validate() error {
	if s.Currency == "" || len(s.Currency) > 16 {
		return fmt.Errorf("currency %q: must have 1 to 16 characters", s.Currency)
	}

	sum := Amounts{Cost: s.Cluster}
	if err := sum.validate(); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}

	for name, a := range s.Namespaces {
		if err := a.validate(); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}

	return nil
}

// addSpan adds a sample to the account of a span within one day.
func (r *Record) addSpan(from, to time.Time, s Sample) error {
	account, err := r.account(from.Format(MonthLayout), s.Currency)
	if err != nil {
		return err
	}

	day := account.Days[from.Day()]
	hours := min(to.Sub(from).Hours(), 24-day.Hours) // Less after a clock was set back to a time that is recorded.
	if hours <= 0 {
		return nil
	}

	sum := Amounts{Cost: s.Cluster}
	for _, name := range byCost(s.Namespaces) {
		rate := s.Namespaces[name]
		sum.Promised += rate.Promised
		sum.Realized += rate.Realized
		sum.Available += rate.Available

		if _, listed := account.Namespaces[name]; !listed && len(account.Namespaces) >= MaxNamespaces {
			name = Other
		}
		account.Namespaces[name] = account.Namespaces[name].plus(rate, hours)
	}

	day.Amounts = day.plus(sum, hours)
	day.Hours += hours
	day.Unknown = max(day.Unknown, s.Unknown)
	account.Days[from.Day()] = day

	return nil
}

// byCost returns the names of the namespaces that have amounts, highest cost first.
func byCost(namespaces map[string]Amounts) []string {
	names := slices.Collect(maps.Keys(namespaces))
	names = slices.DeleteFunc(names, func(name string) bool { return namespaces[name] == Amounts{} })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(namespaces[b].Cost, namespaces[a].Cost), cmp.Compare(a, b))
	})

	return names
}

// account returns the account of a month in a currency, which is created if it does not exist.
func (r *Record) account(month, currency string) (*Account, error) {
	if r.Months == nil {
		r.Months = map[string][]Account{}
	}

	accounts := r.Months[month]
	i := slices.IndexFunc(accounts, func(a Account) bool { return a.Currency == currency })
	if i < 0 {
		if len(accounts) == maxAccounts {
			return nil, fmt.Errorf("month %s has %d currencies already; %s is not recorded", month, maxAccounts, currency)
		}

		i = len(accounts)
		accounts = append(accounts, Account{Currency: currency, Days: map[int]Day{}, Namespaces: map[string]Amounts{}})
		r.Months[month] = accounts
	}

	return &accounts[i], nil
}

// prune removes the oldest months beyond MaxMonths.
func (r *Record) prune() {
	months := slices.Sorted(maps.Keys(r.Months))
	for _, month := range months[:max(len(months)-MaxMonths, 0)] {
		delete(r.Months, month)
	}
}
