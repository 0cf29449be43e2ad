// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"crane.io/crane/pkg/series"
)

// DefaultGroup is the name under which nodes go that no group selects.
const DefaultGroup = "default"

// OnDemand is the name of the capacity type of nodes that none of the book's capacity types selects.
const OnDemand = "on-demand"

// PriceBook says what nodes cost. A node takes its price from the first group that selects it, else from Default, and
// within that group the price of the first capacity type that selects it. A node without labels is therefore an
// on-demand node of the default group. Make one with ParsePriceBook, or call Validate.
type PriceBook struct {
	// Currency is an ISO 4217 code, or another unit in which costs are counted; nothing is ever converted.
	Currency string
	// Source and Date (YYYY-MM-DD) tell where the figures come from and of when they are.
	Source, Date string
	Default      Group
	Groups       []Group
	// CapacityTypes are the ways of buying a node, such as spot or reserved, by labels.
	CapacityTypes []CapacityType
}

// CapacityType is a way of buying a node that labels tell.
type CapacityType struct {
	Name string
	// Selectors are alternatives: a node is of the type if one of them selects it.
	Selectors []Selector
	// Discount is what groups take off that have no price of their own for the type: 0.6 leaves 40 % of the price. 0
	// means that the type is priced as on demand.
	Discount series.Ratio
}

// Group is a set of nodes with the same prices.
type Group struct {
	Name     string
	Selector Selector
	Price
	// Capacity overrides the price by capacity type.
	Capacity map[string]CapacityPrice
	// Source and Date are the book's where they are empty.
	Source, Date string
}

// Price is what an on-demand node costs: by its parts, or as a whole.
type Price struct {
	// Rates price the parts. Beside Node they only say how its price splits; all zero takes those of the default group.
	Rates Rates
	// Node is the price of the whole node; 0 where the parts are priced.
	Node PerNodeHour
}

// CapacityPrice is what a capacity type costs within a group: a discount on its price, or a price of its own.
type CapacityPrice struct {
	Discount series.Ratio
	Price
}

// Quote is the price of one node.
type Quote struct {
	Node, Group, CapacityType string
	// Size is that of the node.
	Size Amounts
	// Cost is what the node costs, split by resource.
	Cost Split
	// Note says what could not be priced, empty where all was.
	Note string
}

// Node is a node as far as its price goes.
type Node struct {
	Name   string
	Labels map[string]string
	// Size is its capacity, the part that the system keeps for itself included: that is what is paid for.
	Size Amounts
}

// Quote prices a node. Where a price for the whole node is given it is split by what its parts would cost at the
// group's rates, as OpenCost splits it (by the ratio of its CPU and memory prices). The error names a node whose price
// is out of range.
func (b *PriceBook) Quote(n Node) (Quote, error) {
	group := b.groupOf(n.Labels)
	capacity := b.capacityTypeOf(n.Labels)
	q := Quote{Node: n.Name, Group: group.Name, CapacityType: OnDemand, Size: n.Size.clamped()}
	price, factor := group.Price, 1.0
	if capacity != nil {
		q.CapacityType = capacity.Name
		factor = 1 - float64(capacity.Discount)
		if own, ok := group.Capacity[capacity.Name]; ok {
			factor = 1 - float64(own.Discount)
			if own.Price != (Price{}) {
				price, factor = own.Price, 1
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
		if total == 0 { // A node of unknown size still costs its price; nobody can be charged for a part of it.
			q.Note = "its size is not known"
			cpu, total = 1, 1
		}
		scale := float64(price.Node) / total
		cpu, memory, gpu = cpu*scale, memory*scale, gpu*scale
	} else if cpu+memory == 0 {
		q.Note = "its size is not known: it has no price"
	}
	if all := cpu + memory + gpu; all > maxPrice || math.IsNaN(all) {
		return Quote{}, fmt.Errorf("node %s: %s %s an hour is out of range: at most %s", n.Name, formatFloat(all), b.Currency, formatFloat(maxPrice))
	}
	q.Cost = Split{CPU: nanos(cpu * factor), Memory: nanos(memory * factor), GPU: nanos(gpu * factor)}
	return q, nil
}

// gpuRate is the price of a GPU where the price that holds for a node names none.
func (b *PriceBook) gpuRate(g *Group) PerGPUHour {
	if g.Rates.GPU > 0 {
		return g.Rates.GPU
	}
	return b.Default.Rates.GPU
}

// LabelKeys are the labels that the selectors of the book look at, sorted, each once.
func (b *PriceBook) LabelKeys() []string {
	var keys []string
	see := func(s Selector) {
		for _, r := range s {
			keys = append(keys, r.Key)
		}
	}
	for _, g := range b.Groups {
		see(g.Selector)
	}
	for _, c := range b.CapacityTypes {
		for _, s := range c.Selectors {
			see(s)
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

// FieldError is something wrong with a field of a price book.
type FieldError struct {
	// Path leads to the field, for example groups[1].prices.cpu.
	Path string
	// Value is what stands there.
	Value string
	// Allowed says what may stand there.
	Allowed string
}

// Error is the path, the value and what is allowed.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return e.Path + ": " + e.Allowed
	}
	return fmt.Sprintf("%s: %s: %s", e.Path, e.Value, e.Allowed)
}

// Validate checks the book as a whole; each error is a *FieldError, all are returned together. ParsePriceBook calls it.
func (b *PriceBook) Validate() error {
	v := validator{types: map[string]bool{OnDemand: true}}
	v.text("currency", b.Currency, 16)
	v.provenance("", b.Source, b.Date)
	v.capacityTypes(b.CapacityTypes)
	if b.Default.Node != 0 {
		v.fail("default.node", formatFloat(float64(b.Default.Node)), "the default needs prices of cpu and memory, since its nodes may have any size")
	} else if b.Default.Rates == (Rates{}) {
		v.fail("default.prices", "", "must be given")
	}
	v.group("default", &b.Default)
	names := map[string]bool{DefaultGroup: true}
	for i := range b.Groups {
		g := &b.Groups[i]
		path := fmt.Sprintf("groups[%d]", i)
		v.name(path+".name", g.Name, names)
		if len(g.Selector) == 0 {
			v.fail(path+".selector", "", "must name labels; what no group selects has the default's prices")
		}
		v.selector(path+".selector", g.Selector)
		if g.Price == (Price{}) {
			v.fail(path, "", "needs prices, or node")
		}
		v.group(path, g)
	}
	return errors.Join(v.errs...)
}
