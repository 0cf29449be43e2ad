// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"crane.io/crane/pkg/series"
)

// ParsePriceBook reads a price book from JSON (YAML is turned into JSON by the caller). It is strict: an unknown or
// repeated field, a text where a number belongs, a price of zero or below and fields that contradict each other are
// errors, each a *FieldError with the path of the field; all are returned together. docs/cost.md lists the fields.
func ParsePriceBook(data []byte) (*PriceBook, error) {
	p := &parser{}
	b := &PriceBook{}
	for key, raw := range p.object("", data, "currency", "source", "date", "default", "groups", "capacityTypes") {
		switch key {
		case "currency":
			b.Currency = p.text(key, raw)
		case "source":
			b.Source = p.text(key, raw)
		case "date":
			b.Date = p.text(key, raw)
		case "default":
			b.Default = p.group(key, raw, "prices", "node", "capacity")
		case "groups":
			for i, item := range p.list(key, raw) {
				b.Groups = append(b.Groups, p.group(index(key, i), item,
					"name", "selector", "prices", "node", "capacity", "source", "date"))
			}
		case "capacityTypes":
			for i, item := range p.list(key, raw) {
				b.CapacityTypes = append(b.CapacityTypes, p.capacityType(index(key, i), item))
			}
		}
	}
	b.Default.Name = DefaultGroup
	p.also(b.Validate())
	slices.SortStableFunc(p.errs, func(a, b *FieldError) int { return strings.Compare(a.Path, b.Path) })
	var errs []error
	for _, e := range p.errs {
		errs = append(errs, e)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b, nil
}

// parser gathers what is wrong with a file.
type parser struct{ errs []*FieldError }

func (p *parser) fail(path, value, allowed string) {
	p.errs = append(p.errs, &FieldError{Path: path, Value: value, Allowed: allowed})
}

// also takes over errors about fields that reading has not complained of already, in them or around them: one mistake
// is one message.
func (p *parser) also(err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return
	}
	read := slices.Clone(p.errs)
	for _, e := range joined.Unwrap() {
		var field *FieldError
		if !errors.As(e, &field) {
			continue
		}
		about := func(r *FieldError) bool {
			return r.Path == "" || r.Path == field.Path || below(r.Path, field.Path) || below(field.Path, r.Path)
		}
		if !slices.ContainsFunc(read, about) {
			p.errs = append(p.errs, field)
		}
	}
}

func below(path, parent string) bool {
	return strings.HasPrefix(path, parent+".") || strings.HasPrefix(path, parent+"[")
}

// object returns the fields of an object that are known.
func (p *parser) object(path string, raw json.RawMessage, known ...string) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	fail := func(err error) map[string]json.RawMessage {
		allowed := "must be an object"
		if path == "" {
			allowed = fmt.Sprintf("a price book is one JSON or YAML object: %v", err)
		}
		p.fail(path, short(raw), allowed)
		return nil
	}
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return fail(errors.Join(err, errors.New("it is something else")))
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fail(err)
		}
		key, isText := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil || !isText {
			return fail(err)
		}
		_, repeated := fields[key]
		switch {
		case repeated:
			p.fail(join(path, key), "", "is given more than once")
		case !slices.Contains(known, key):
			p.fail(join(path, printable(key)), short(value), "unknown field; known are "+strings.Join(known, ", "))
		case string(value) == "null":
			p.fail(join(path, key), "null", "must have a value, or be left out")
		default:
			fields[key] = value
		}
	}
	if _, err := decoder.Token(); err != nil {
		return fail(err)
	}
	if decoder.More() {
		return fail(errors.New("something follows it"))
	}
	return fields
}

func (p *parser) list(path string, raw json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	if json.Unmarshal(raw, &out) != nil {
		p.fail(path, short(raw), "must be a list")
	}
	return out
}

func (p *parser) text(path string, raw json.RawMessage) string {
	var out string
	if json.Unmarshal(raw, &out) != nil {
		p.fail(path, short(raw), "must be a text")
	} else if out == "" {
		p.fail(path, `""`, "must not be empty")
	}
	return out
}

func (p *parser) texts(path string, raw json.RawMessage) []string {
	var out []string
	for i, item := range p.list(path, raw) {
		var text string
		if json.Unmarshal(item, &text) != nil {
			p.fail(index(path, i), short(item), "must be a text")
		}
		out = append(out, text)
	}
	return out
}

// price is refused where it is not above zero: it would stand for "not given" later.
func (p *parser) price(path string, raw json.RawMessage) float64 {
	out, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil:
		p.fail(path, short(raw), "must be a number: units of the currency for an hour")
	case out <= 0:
		p.fail(path, short(raw), "a price must be above zero")
	default:
		return out
	}
	return 0
}

func (p *parser) discount(path string, raw json.RawMessage) series.Ratio {
	out, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || out <= 0 || out >= 1 {
		p.fail(path, short(raw), "must be a number between 0 and 1: 0.6 takes 60 % off")
		return 0
	}
	return series.Ratio(out)
}

func (p *parser) rates(path string, raw json.RawMessage) Rates {
	var out Rates
	for key, value := range p.object(path, raw, "cpu", "memory", "gpu") {
		switch price := p.price(join(path, key), value); key {
		case "cpu":
			out.CPU = PerCoreHour(price)
		case "memory":
			out.Memory = PerGiBHour(price)
		case "gpu":
			out.GPU = PerGPUHour(price)
		}
	}
	return out
}

func (p *parser) group(path string, raw json.RawMessage, known ...string) Group {
	var g Group
	for key, value := range p.object(path, raw, known...) {
		at := join(path, key)
		switch key {
		case "name":
			g.Name = p.text(at, value)
		case "selector":
			g.Selector = p.selector(at, value)
		case "prices":
			g.Rates = p.rates(at, value)
		case "node":
			g.Node = PerNodeHour(p.price(at, value))
		case "source":
			g.Source = p.text(at, value)
		case "date":
			g.Date = p.text(at, value)
		case "capacity":
			g.Capacity = map[string]CapacityPrice{}
			for name, price := range p.open(at, value) {
				g.Capacity[name] = p.capacityPrice(join(at, name), price)
			}
		}
	}
	return g
}

func (p *parser) capacityPrice(path string, raw json.RawMessage) CapacityPrice {
	var c CapacityPrice
	for key, value := range p.object(path, raw, "discount", "prices", "node") {
		at := join(path, key)
		switch key {
		case "discount":
			c.Discount = p.discount(at, value)
		case "prices":
			c.Rates = p.rates(at, value)
		case "node":
			c.Node = PerNodeHour(p.price(at, value))
		}
	}
	return c
}

func (p *parser) capacityType(path string, raw json.RawMessage) CapacityType {
	var c CapacityType
	for key, value := range p.object(path, raw, "name", "selectors", "discount") {
		at := join(path, key)
		switch key {
		case "name":
			c.Name = p.text(at, value)
		case "selectors":
			for i, item := range p.list(at, value) {
				c.Selectors = append(c.Selectors, p.selector(index(at, i), item))
			}
		case "discount":
			c.Discount = p.discount(at, value)
		}
	}
	return c
}

func (p *parser) selector(path string, raw json.RawMessage) Selector {
	var s Selector
	for key, value := range p.object(path, raw, "matchLabels", "matchExpressions") {
		at := join(path, key)
		if key == "matchLabels" {
			for label, v := range p.open(at, value) {
				var text string
				if json.Unmarshal(v, &text) != nil { // An empty text is a value that labels may have.
					p.fail(join(at, label), short(v), "must be a text; true and numbers need quotes")
				}
				s = append(s, Requirement{Key: label, Operator: In, Values: []string{text}})
			}
			continue
		}
		for i, item := range p.list(at, value) {
			s = append(s, p.requirement(index(at, i), item))
		}
	}
	slices.SortStableFunc(s, func(a, b Requirement) int { return strings.Compare(a.Key, b.Key) })
	return s
}

func (p *parser) requirement(path string, raw json.RawMessage) Requirement {
	var r Requirement
	for key, value := range p.object(path, raw, "key", "operator", "values") {
		at := join(path, key)
		switch key {
		case "key":
			r.Key = p.text(at, value)
		case "operator":
			r.Operator = Operator(p.text(at, value))
		case "values":
			r.Values = p.texts(at, value)
		}
	}
	return r
}

// open returns the fields of an object whose keys are free.
func (p *parser) open(path string, raw json.RawMessage) map[string]json.RawMessage {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		p.fail(path, short(raw), "must be an object")
		return nil
	}
	known := make([]string, 0, len(keys))
	for key := range keys {
		known = append(known, key)
	}
	return p.object(path, raw, known...)
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// printable keeps a key from breaking a message over lines.
func printable(key string) string {
	quoted := strconv.Quote(key)
	if quoted == `"`+key+`"` && len(key) <= 60 {
		return key
	}
	return short(json.RawMessage(quoted))
}

// short is a value for a message, cut where it is long.
func short(raw json.RawMessage) string {
	const most = 60
	text := strings.ToValidUTF8(strings.Join(strings.Fields(string(raw)), " "), "?")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
