// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"crane.io/crane/pkg/series"
)

// validator gathers what is wrong with a price book.
type validator struct {
	types map[string]bool
	errs  []error
}

func (v *validator) fail(path, value, allowed string) {
	v.errs = append(v.errs, &FieldError{Path: path, Value: value, Allowed: allowed})
}

// text wants a few printable characters.
func (v *validator) text(path, value string, most int) {
	switch {
	case value == "":
		v.fail(path, "", "must be given")
	case len(value) > most:
		v.fail(path, strconv.Quote(value[:most])+"...", fmt.Sprintf("must have at most %d characters", most))
	case strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(value) != value:
		v.fail(path, strconv.Quote(value), "must be printable, with no space around it")
	}
}

// name wants a text that is not taken, and takes it.
func (v *validator) name(path, name string, taken map[string]bool) {
	v.text(path, name, 63)
	if taken[name] {
		v.fail(path, strconv.Quote(name), "is taken: another one has this name, or it is reserved")
	}
	taken[name] = true
}

// provenance may be empty for a group; the date must be one.
func (v *validator) provenance(path, source, date string) {
	if path == "" || source != "" {
		v.text(join(path, "source"), source, 500)
	}
	if path != "" && date == "" {
		return
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		v.fail(join(path, "date"), strconv.Quote(date), "must be a date such as 2026-01-31")
	}
}

func (v *validator) capacityTypes(all []CapacityType) {
	for i, c := range all {
		path := fmt.Sprintf("capacityTypes[%d]", i)
		v.name(path+".name", c.Name, v.types)
		if len(c.Selectors) == 0 {
			v.fail(path+".selectors", "", "must have at least one")
		}
		for j, s := range c.Selectors {
			at := fmt.Sprintf("%s.selectors[%d]", path, j)
			if len(s) == 0 {
				v.fail(at, "", "must name labels; it would select every node")
			}
			v.selector(at, s)
		}
		if c.Discount != 0 {
			v.discount(path+".discount", c.Discount)
		}
	}
}

func (v *validator) selector(path string, s Selector) {
	for _, r := range s {
		if r.Key == "" {
			v.fail(path, "", "a label needs a key")
		}
		switch r.Operator {
		case In, NotIn:
			if len(r.Values) == 0 {
				v.fail(path, r.Key, "operator "+string(r.Operator)+" needs values")
			}
		case Exists, DoesNotExist:
			if len(r.Values) > 0 {
				v.fail(path, r.Key, "operator "+string(r.Operator)+" takes no values")
			}
		default:
			v.fail(path, strconv.Quote(string(r.Operator)), "must be In, NotIn, Exists or DoesNotExist")
		}
	}
}

func (v *validator) discount(path string, d series.Ratio) {
	if !(d > 0 && d < 1) { // NaN is neither.
		v.fail(path, formatFloat(float64(d)), "must lie between 0 and 1: 0.6 takes 60 % off")
	}
}

func (v *validator) group(path string, g *Group) {
	v.provenance(path, g.Source, g.Date)
	v.price(path, g.Price)
	for _, name := range slices.Sorted(maps.Keys(g.Capacity)) {
		c, at := g.Capacity[name], path+".capacity."+name
		if name == OnDemand {
			v.fail(at, "", "the prices of the group are those on demand")
		} else if !v.types[name] {
			v.fail(at, "", "capacityTypes has none of this name")
		}
		switch {
		case c.Discount != 0 && c.Price != (Price{}):
			v.fail(at, "", "discount contradicts prices and node: give one of them")
		case c.Price != (Price{}):
			v.price(at, c.Price)
		default:
			v.discount(at+".discount", c.Discount)
		}
	}
}

// price checks what is given; cpu and memory come together.
func (v *validator) price(path string, p Price) {
	if p.Node != 0 {
		v.amount(path+".node", float64(p.Node))
	}
	if p.Rates == (Rates{}) {
		return
	}
	v.amount(path+".prices.cpu", float64(p.Rates.CPU))
	v.amount(path+".prices.memory", float64(p.Rates.Memory))
	if p.Rates.GPU != 0 {
		v.amount(path+".prices.gpu", float64(p.Rates.GPU))
	}
}

func (v *validator) amount(path string, price float64) {
	switch {
	case price == 0:
		v.fail(path, "0", "a price must be above zero")
	case !(price > 0 && price <= maxPrice): // NaN is neither.
		v.fail(path, formatFloat(price), "a price must be above zero and at most "+formatFloat(maxPrice)+" an hour")
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
