// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// untilKey is the key of Record.Until in the encoded record; the other keys are months.
const untilKey = "until"

// Encode returns the record as texts by key: one for each month, and the end of the observed time. The oldest months are removed until
// the texts have at most maxBytes.
func (r *Record) Encode() (map[string]string, error) {
	out := map[string]string{}
	size := 0

	if !r.Until.IsZero() {
		out[untilKey] = r.Until.UTC().Format(time.RFC3339)
	}

	months := slices.Sorted(maps.Keys(r.Months))
	for _, month := range slices.Backward(months) {
		text, err := json.Marshal(rounded(r.Months[month]))
		if err != nil {
			return nil, fmt.Errorf("month %s: %w", month, err)
		}

		size += len(text) + len(month)
		if size > maxBytes {
			break
		}

		out[month] = string(text)
	}

	return out, nil
}

// digits is the factor to which numbers are rounded: six decimals.
const digits = 1e6

// rounded returns the accounts with rounded numbers.
func rounded(accounts []Account) []Account {
	out := make([]Account, 0, len(accounts))
	for _, a := range accounts {
		copied := Account{Currency: a.Currency, Days: map[int]Day{}, Namespaces: map[string]Amounts{}}
		for n, day := range a.Days {
			day.Amounts = day.rounded()
			day.Hours = math.Round(day.Hours*digits) / digits
			copied.Days[n] = day
		}

		for name, amounts := range a.Namespaces {
			copied.Namespaces[name] = amounts.rounded()
		}
		out = append(out, copied)
	}

	return out
}

func (a Amounts) rounded() Amounts {
	round := func(v float64) float64 { return math.Round(v*digits) / digits }
	return Amounts{
		Cost:      round(a.Cost),
		Promised:  round(a.Promised),
		Realized:  round(a.Realized),
		Available: round(a.Available),
	}
}

// Parse reads the texts of Encode. A key that cannot be read is an error that names it: an amount is never replaced by zero. The record has
// the other months.
func Parse(data map[string]string) (*Record, error) {
	r := &Record{Months: map[string][]Account{}}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var err error
		if key == untilKey {
			r.Until, err = time.Parse(time.RFC3339, data[key])
			r.Until = r.Until.UTC()
		} else {
			err = r.parseMonth(key, data[key])
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", key, err))
		}
	}

	return r, errors.Join(errs...)
}

func (r *Record) parseMonth(key, text string) error {
	if _, err := ParseMonth(key); err != nil {
		return err
	}

	var accounts []Account
	// A field of a later version is an error: encoding the record again would lose it.
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(&accounts); err != nil {
		return err
	}

	if len(accounts) > maxAccounts {
		return fmt.Errorf("%d currencies: at most %d are allowed", len(accounts), maxAccounts)
	}

	for i := range accounts {
		if err := accounts[i].validate(); err != nil {
			return fmt.Errorf("currency %q: %w", accounts[i].Currency, err)
		}

		// Samples are added to both maps, and JSON's null leaves them nil.
		if accounts[i].Namespaces == nil {
			accounts[i].Namespaces = map[string]Amounts{}
		}
		if accounts[i].Days == nil {
			accounts[i].Days = map[int]Day{}
		}
	}

	r.Months[key] = accounts
	return nil
}

// ParseMonth parses a month as 2026-11.
func ParseMonth(text string) (time.Time, error) {
	month, err := time.Parse(MonthLayout, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a month, for example 2026-11", text)
	}

	return month, nil
}

func (a Account) validate() error {
	if a.Currency == "" || len(a.Currency) > 16 {
		return errors.New("the currency must have 1 to 16 characters")
	}

	if len(a.Namespaces) > MaxNamespaces+1 {
		return fmt.Errorf("%d namespaces: at most %d are allowed", len(a.Namespaces), MaxNamespaces+1)
	}

	// Hours are rounded sums of spans, so a whole day may have a little more than 24.
	for n, day := range a.Days {
		if n < 1 || n > 31 || math.IsNaN(day.Hours) || day.Hours < 0 || day.Hours > 24.01 || day.Unknown < 0 {
			return fmt.Errorf("day %d: %v hours, %d unknown", n, day.Hours, day.Unknown)
		}

		if err := day.validate(); err != nil {
			return fmt.Errorf("day %d: %w", n, err)
		}
	}

	for name, amounts := range a.Namespaces {
		if err := amounts.validate(); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}

	return nil
}
