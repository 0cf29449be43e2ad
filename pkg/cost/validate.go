// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"crane.io/crane/pkg/settings"
)

// validator collects the errors of a price book.
type validator struct {
	settings.Errors
	// types are the names of capacity types.
	types map[string]bool
}

// text requires 1 to longest printable characters, without space around them.
func (v *validator) text(path, value string, longest int) {
	switch {
	case value == "":
		v.Fail(path, "", "must be given")
	case len(value) > longest:
		v.Fail(path, value[:longest]+"...", fmt.Sprintf("must have at most %d characters", longest))
	case strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(value) != value:
		v.Fail(path, value, "must be printable, with no space around it")
	}
}

// name requires a text that is not in names, and adds it there.
func (v *validator) name(path, name string, names map[string]bool) {
	v.text(path, name, 63)
	v.Check(!names[name], path, name, "is taken: another one has this name, or it is reserved")
	names[name] = true
}

// provenance checks source and date, which groups (all paths but the empty one) may omit.
func (v *validator) provenance(path, source, date string) {
	if path == "" || source != "" {
		v.text(settings.Join(path, "source"), source, 500)
	}

	if path != "" && date == "" {
		return
	}

	_, err := time.Parse(time.DateOnly, date)
	v.Check(err == nil, settings.Join(path, "date"), date, "must be a date such as 2026-01-31")
}

func (v *validator) capacityTypes(all []CapacityType) {
	for i, c := range all {
		path := fmt.Sprintf("capacityTypes[%d]", i)
		v.name(path+".name", c.Name, v.types)
		v.Check(len(c.Selectors) > 0, path+".selectors", "", "must have at least one")

		for j, s := range c.Selectors {
			selectorPath := fmt.Sprintf("%s.selectors[%d]", path, j)
			v.Check(!s.empty(), selectorPath, "", "must match labels; an empty one would select every node")
			v.selector(selectorPath, s)
		}

		if c.Discount != 0 {
			v.discount(path+".discount", c.Discount)
		}
	}
}

func (v *validator) selector(path string, s Selector) {
	_, unnamed := s.MatchLabels[""]
	v.Check(!unnamed, path, "", "a label needs a key")

	for _, r := range s.MatchExpressions {
		v.Check(r.Key != "", path, "", "a label needs a key")
		switch r.Operator {
		case In, NotIn:
			v.Check(len(r.Values) > 0, path, r.Key, "operator "+string(r.Operator)+" needs values")
		case Exists, DoesNotExist:
			v.Check(len(r.Values) == 0, path, r.Key, "operator "+string(r.Operator)+" has no values")
		default:
			v.Fail(path, string(r.Operator), "must be In, NotIn, Exists or DoesNotExist")
		}
	}
}

func (v *validator) discount(path string, d Discount) {
	v.Check(d > 0 && d < 1, path, formatFloat(float64(d)), "must lie between 0 and 1: 0.6 takes 60 % off")
}

func (v *validator) group(path string, g *Group) {
	v.provenance(path, g.Source, g.Date)
	v.price(path, g.Price)

	for _, name := range slices.Sorted(maps.Keys(g.Capacity)) {
		c := g.Capacity[name]
		capacityPath := path + ".capacity." + name
		if name == OnDemand {
			v.Fail(capacityPath, "", "the prices of the group are the on-demand prices")
		} else {
			v.Check(v.types[name], capacityPath, "", "capacityTypes has none of this name")
		}

		switch {
		case c.Discount != 0 && c.Price != (Price{}):
			v.Fail(capacityPath, "", "discount contradicts prices and node: give one of them")
		case c.Price != (Price{}):
			v.price(capacityPath, c.Price)
		default:
			v.discount(capacityPath+".discount", c.Discount)
		}
	}
}

// price checks the prices that are given; cpu and memory require each other.
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
	v.Check(price > 0 && price <= maxPrice, path, formatFloat(price), "a price must be above zero and at most "+formatFloat(maxPrice)+" per hour")
}
