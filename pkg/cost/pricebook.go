// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"crane.io/crane/pkg/settings"
)

// DefaultGroup is the group of nodes that no group selects.
const DefaultGroup = "default"

// OnDemand is the capacity type of nodes that no capacity type of the book selects.
const OnDemand = "on-demand"

// Discount is the share of a price that a capacity type takes off: 0.6 leaves 40 % of the price. 0 means none.
type Discount float64

// PriceBook lists what nodes cost. A node has the price of the first group that selects it, otherwise of Default, and
// within that group of the first capacity type that selects it. A node without labels is therefore an on-demand node of
// the default group. ParsePriceBook creates one; Validate checks one that was created otherwise.
type PriceBook struct {
	// Currency is an ISO 4217 code or another unit of account. Nothing is converted.
	Currency string `json:"currency"`
	// Source and Date (YYYY-MM-DD) document the origin of the figures.
	Source  string  `json:"source"`
	Date    string  `json:"date"`
	Default Group   `json:"default"`
	Groups  []Group `json:"groups"`
	// CapacityTypes are the ways of buying a node, such as spot or reserved, recognized by labels.
	CapacityTypes []CapacityType `json:"capacityTypes"`
}

// CapacityType is a way of buying a node that its labels show.
type CapacityType struct {
	Name string `json:"name"`
	// Selectors are alternatives: a node has the type if one of them matches.
	Selectors []Selector `json:"selectors"`
	// Discount applies in groups without a price for the type; 0 means the on-demand price.
	Discount Discount `json:"discount"`
}

// Group is a set of nodes with the same prices.
type Group struct {
	Name     string   `json:"name"`
	Selector Selector `json:"selector"`
	Price
	// Capacity overrides the price by the name of a capacity type.
	Capacity map[string]CapacityPrice `json:"capacity"`
	// Source and Date default to those of the book.
	Source string `json:"source"`
	Date   string `json:"date"`
}

// Price is the price of an on-demand node: of its parts, or of the node as a whole.
type Price struct {
	// Rates price the parts. Beside Node they only define how its price is split; if all are zero, the rates of the
	// default group apply.
	Rates Rates `json:"prices"`
	// Node is the price of the whole node; 0 if the parts are priced.
	Node PerNodeHour `json:"node"`
}

// CapacityPrice is the price of a capacity type within a group: a discount, or a price of its own.
type CapacityPrice struct {
	Discount Discount `json:"discount"`
	Price
}

// Quote is the price of one node.
type Quote struct {
	Node, Group, CapacityType string
	// Size is that of the node.
	Size Amounts
	// Cost is the hourly cost of the node by resource.
	Cost Split
	// Note describes the parts without a price; empty if there are none.
	Note string
}

// Node holds the fields of a node that determine its price.
type Node struct {
	Name   string
	Labels map[string]string
	// Size is the capacity, including the part reserved for the system, which is paid for too.
	Size Amounts
}

// Quote prices a node. A price of the whole node is split in proportion to the cost of its parts at the rates of the group,
// as OpenCost does by the ratio of CPU and memory prices. The error names a node whose price is out of range.
func (b *PriceBook) Quote(n Node) (Quote, error) {
	group := b.groupOf(n.Labels)
	capacity := b.capacityTypeOf(n.Labels)
	q := Quote{
		Node:         n.Name,
		Group:        group.Name,
		CapacityType: OnDemand,
		Size:         n.Size.clamped(),
	}

	price := group.Price
	factor := 1.0
	if capacity != nil {
		q.CapacityType = capacity.Name
		factor = 1 - float64(capacity.Discount)
		if override, ok := group.Capacity[capacity.Name]; ok {
			factor = 1 - float64(override.Discount)
			if override.Price != (Price{}) {
				price = override.Price
				factor = 1
			}
		}
	}

	weights := price.Rates
	if weights.CPU == 0 {
		weights = b.Default.Rates
	}
	if weights.GPU == 0 {
		weights.GPU = b.gpuRate(group)
	}

	cpu := cores(q.Size.CPU) * float64(weights.CPU)
	memory := gib(q.Size.Memory) * float64(weights.Memory)
	gpu := float64(q.Size.GPU) * float64(weights.GPU)

	if q.Size.GPU > 0 && weights.GPU == 0 {
		q.Note = "the price book has no price for its GPUs"
	}

	if price.Node > 0 {
		total := cpu + memory + gpu
		if total == 0 { // A node of unknown size still has its price, but its parts have none.
			q.Note = "its size is not known"
			cpu, total = 1, 1
		}

		scale := float64(price.Node) / total
		cpu *= scale
		memory *= scale
		gpu *= scale
	} else if cpu+memory == 0 {
		q.Note = "its size is not known: it has no price"
	}

	if all := cpu + memory + gpu; all > maxPrice || math.IsNaN(all) {
		return Quote{}, fmt.Errorf("node %s: %s %s an hour is out of range: at most %s", n.Name, formatFloat(all), b.Currency, formatFloat(maxPrice))
	}

	q.Cost = Split{CPU: nanos(cpu * factor), Memory: nanos(memory * factor), GPU: nanos(gpu * factor)}
	return q, nil
}

// gpuRate returns the price of a GPU for a group without one.
func (b *PriceBook) gpuRate(g *Group) PerGPUHour {
	if g.Rates.GPU > 0 {
		return g.Rates.GPU
	}

	return b.Default.Rates.GPU
}

// LabelKeys returns the keys of all labels that the selectors of the book use, sorted, each once.
func (b *PriceBook) LabelKeys() []string {
	var keys []string
	add := func(s Selector) {
		keys = slices.AppendSeq(keys, maps.Keys(s.MatchLabels))
		for _, r := range s.MatchExpressions {
			keys = append(keys, r.Key)
		}
	}

	for _, g := range b.Groups {
		add(g.Selector)
	}

	for _, c := range b.CapacityTypes {
		for _, s := range c.Selectors {
			add(s)
		}
	}

	slices.Sort(keys)
	return slices.Compact(keys)
}

func (b *PriceBook) groupOf(labels map[string]string) *Group {
	for i := range b.Groups {
		if b.Groups[i].Selector.Matches(labels) {
			return &b.Groups[i]
		}
	}

	return &b.Default
}

func (b *PriceBook) capacityTypeOf(labels map[string]string) *CapacityType {
	for i := range b.CapacityTypes {
		for _, s := range b.CapacityTypes[i].Selectors {
			if s.Matches(labels) {
				return &b.CapacityTypes[i]
			}
		}
	}

	return nil
}

// Validate returns everything that is wrong with the book, joined, each a *settings.FieldError; nil if it is valid.
func (b *PriceBook) Validate() error { return b.problems().Err() }

func (b *PriceBook) problems() settings.Errors {
	v := validator{types: map[string]bool{OnDemand: true}}
	v.text("currency", b.Currency, 16)
	v.provenance("", b.Source, b.Date)
	v.capacityTypes(b.CapacityTypes)

	if b.Default.Node != 0 {
		v.Fail("default.node", formatFloat(float64(b.Default.Node)), "the default needs prices of cpu and memory, since its nodes may have any size")
	} else if b.Default.Rates == (Rates{}) {
		v.Fail("default.prices", "", "must be given")
	}

	v.group("default", &b.Default)
	names := map[string]bool{DefaultGroup: true}
	for i := range b.Groups {
		g := &b.Groups[i]
		path := fmt.Sprintf("groups[%d]", i)
		v.name(path+".name", g.Name, names)
		v.Check(!g.Selector.empty(), path+".selector", "", "must match labels; nodes that no group selects have the default prices")
		v.selector(path+".selector", g.Selector)
		v.Check(g.Price != (Price{}), path, "", "needs prices, or node")
		v.group(path, g)
	}

	return v.Errors
}
