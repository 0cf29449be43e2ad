// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"slices"
	"strconv"

	"crane.io/crane/pkg/settings"
)

// Operator compares a label with the values of a requirement.
type Operator string

// The operators of a Kubernetes label selector.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Requirement is one condition on a label.
type Requirement struct {
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	// Values belong to In and NotIn; the other operators have none.
	Values []string `json:"values"`
}

// Selector is a Kubernetes label selector: every label and every requirement must match. An empty selector matches
// everything.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []Requirement     `json:"matchExpressions"`
}

func (s Selector) empty() bool { return len(s.MatchLabels)+len(s.MatchExpressions) == 0 }

// Matches reports whether the labels fulfill the selector. A missing label fulfills NotIn and DoesNotExist.
func (s Selector) Matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if value, exists := labels[key]; !exists || value != want {
			return false
		}
	}

	for _, r := range s.MatchExpressions {
		value, exists := labels[r.Key]
		var ok bool
		switch r.Operator {
		case In:
			ok = exists && slices.Contains(r.Values, value)
		case NotIn:
			ok = !exists || !slices.Contains(r.Values, value)
		case Exists:
			ok = exists
		case DoesNotExist:
			ok = !exists
		}

		if !ok {
			return false
		}
	}

	return true
}

// ParsePriceBook reads a price book from JSON; the caller converts YAML to JSON. Unknown and repeated fields, values of
// another type, prices of zero or below and fields that contradict each other are errors. All errors are returned together,
// each a *settings.FieldError. docs/reference/cost.md lists the fields.
func ParsePriceBook(data []byte) (*PriceBook, error) {
	b := &PriceBook{}
	errs := settings.Decode(data, b)
	d := &b.Default
	for field, present := range map[string]bool{"name": d.Name != "", "selector": !d.Selector.empty(), "source": d.Source != "", "date": d.Date != ""} {
		errs.Check(!present, "default."+field, "", "unknown field; the default group has none")
	}

	d.Name = DefaultGroup
	errs.AddUnreported(b.problems())

	if err := errs.Err(); err != nil {
		return nil, err
	}

	return b, nil
}

// DecodeField implements settings.Field.
func (p *PerCoreHour) DecodeField(raw json.RawMessage) string { return decodePrice(raw, p) }

// DecodeField implements settings.Field.
func (p *PerGiBHour) DecodeField(raw json.RawMessage) string { return decodePrice(raw, p) }

// DecodeField implements settings.Field.
func (p *PerGPUHour) DecodeField(raw json.RawMessage) string { return decodePrice(raw, p) }

// DecodeField implements settings.Field.
func (p *PerNodeHour) DecodeField(raw json.RawMessage) string { return decodePrice(raw, p) }

// decodePrice rejects prices of zero, which later mean that no price is given.
func decodePrice[T ~float64](raw json.RawMessage, target *T) (allowed string) {
	v, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil:
		return "must be a number: units of the currency per hour"
	case v <= 0:
		return "a price must be above zero"
	}

	*target = T(v)
	return ""
}

// DecodeField implements settings.Field. It rejects zero, which later means that no discount is given.
func (d *Discount) DecodeField(raw json.RawMessage) string {
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || v <= 0 || v >= 1 {
		return "must be a number between 0 and 1: 0.6 takes 60 % off"
	}

	*d = Discount(v)
	return ""
}
