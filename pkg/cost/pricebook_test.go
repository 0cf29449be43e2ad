// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/settings"
)

const oneGiB = 1 << 30

// book is a price book with something of everything.
const book = `{"currency": "EUR", "source": "contract 7", "date": "2026-01-31",
  "default": {"prices": {"cpu": 0.03, "memory": 0.005, "gpu": 1}, "capacity": {"reserved": {"discount": 0.25}}},
  "capacityTypes": [
    {"name": "spot", "discount": 0.6, "selectors": [
      {"matchLabels": {"karpenter.sh/capacity-type": "spot"}}, {"matchExpressions": [{"key": "cheap", "operator": "Exists"}]}]},
    {"name": "reserved", "selectors": [{"matchLabels": {"reserved": "true"}}]}],
  "groups": [
    {"name": "whole", "selector": {"matchLabels": {"pool": "big", "zone": "a"}}, "node": 1.4,
     "capacity": {"spot": {"node": 0.35}, "reserved": {"discount": 0.5}}},
    {"name": "parts", "source": "list price", "date": "2026-02-01", "selector": {"matchLabels": {"pool": "big"},
      "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]},
     "prices": {"cpu": 0.01, "memory": 0.002}, "capacity": {"spot": {"prices": {"cpu": 0.004, "memory": 0.001}}}}]}`

func mustParse(t testing.TB, file string) *PriceBook {
	t.Helper()

	b, err := ParsePriceBook([]byte(file))
	if err != nil {
		t.Fatal(err)
	}

	return b
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-8 }

func TestQuote(t *testing.T) {
	b := mustParse(t, book)
	byParts := 4*0.03 + 16*0.005
	for name, c := range map[string]struct {
		labels          map[string]string
		gpus            int64
		group, capacity string
		hour            float64
		note            string
	}{
		"without labels":           {group: "default", capacity: OnDemand, hour: byParts},
		"another pool":             {labels: map[string]string{"pool": "x"}, group: "default", capacity: OnDemand, hour: byParts},
		"spot":                     {labels: map[string]string{"karpenter.sh/capacity-type": "spot"}, group: "default", capacity: "spot", hour: 0.4 * byParts},
		"second selector":          {labels: map[string]string{"cheap": ""}, group: "default", capacity: "spot", hour: 0.4 * byParts},
		"first capacity type":      {labels: map[string]string{"cheap": "", "reserved": "true"}, group: "default", capacity: "spot", hour: 0.4 * byParts},
		"discount of the group":    {labels: map[string]string{"reserved": "true"}, group: "default", capacity: "reserved", hour: 0.75 * byParts},
		"whole node":               {labels: map[string]string{"pool": "big", "zone": "a"}, group: "whole", capacity: OnDemand, hour: 1.4},
		"whole node, own price":    {labels: map[string]string{"pool": "big", "zone": "a", "cheap": "1"}, group: "whole", capacity: "spot", hour: 0.35},
		"whole node, discount":     {labels: map[string]string{"pool": "big", "zone": "a", "reserved": "true"}, group: "whole", capacity: "reserved", hour: 0.7},
		"first group that matches": {labels: map[string]string{"pool": "big", "zone": "b"}, group: "parts", capacity: OnDemand, hour: 4*0.01 + 16*0.002},
		"label that is missing":    {labels: map[string]string{"pool": "big"}, group: "parts", capacity: OnDemand, hour: 4*0.01 + 16*0.002},
		"own prices of spot":       {labels: map[string]string{"pool": "big", "cheap": ""}, group: "parts", capacity: "spot", hour: 4*0.004 + 16*0.001},
		"no own price":             {labels: map[string]string{"pool": "big", "reserved": "true"}, group: "parts", capacity: "reserved", hour: 4*0.01 + 16*0.002},
		"excluded value":           {labels: map[string]string{"pool": "big", "zone": "c"}, group: "default", capacity: OnDemand, hour: byParts},
		"gpu":                      {gpus: 2, group: "default", capacity: OnDemand, hour: byParts + 2},
		"gpu at the default price": {labels: map[string]string{"pool": "big"}, gpus: 1, group: "parts", capacity: OnDemand, hour: 4*0.01 + 16*0.002 + 1},
	} {
		q, err := b.Quote(Node{Name: name, Labels: c.labels, Size: Amounts{CPU: 4000, Memory: 16 * oneGiB, GPU: c.gpus}})
		if err != nil {
			t.Fatal(err)
		}

		if q.Group != c.group || q.CapacityType != c.capacity || !near(q.Cost.Total().PerHour(), c.hour) || q.Note != c.note {
			t.Errorf("%s: %+v, %v an hour, want %v", name, q, q.Cost.Total().PerHour(), c.hour)
		}
	}
}

func TestLabelKeys(t *testing.T) {
	want := []string{"cheap", "karpenter.sh/capacity-type", "pool", "reserved", "zone"}
	if got := mustParse(t, book).LabelKeys(); !slices.Equal(got, want) {
		t.Errorf("LabelKeys = %q, want %q", got, want)
	}
	if got := (&PriceBook{}).LabelKeys(); len(got) != 0 {
		t.Errorf("LabelKeys of an empty book = %q, want none", got)
	}
}

// TestQuote_SplitsNodePrice checks that the parts of a whole price have the ratio of the parts at the rates.
func TestQuote_SplitsNodePrice(t *testing.T) {
	b := mustParse(t, book)
	q, err := b.Quote(Node{Labels: map[string]string{"pool": "big", "zone": "a"}, Size: Amounts{CPU: 4000, Memory: 16 * oneGiB}})
	if err != nil {
		t.Fatal(err)
	}

	if !near(q.Cost.CPU.PerHour(), 1.4*0.12/0.2) || !near(q.Cost.Memory.PerHour(), 1.4*0.08/0.2) {
		t.Errorf("Quote splits the node into %v for CPU and %v for memory, want 0.84 and 0.56", q.Cost.CPU.PerHour(), q.Cost.Memory.PerHour())
	}
}

func TestQuote_OddNodes(t *testing.T) {
	b := mustParse(t, book)
	q, err := b.Quote(Node{Name: "empty"})
	if err != nil || q.Cost != (Split{}) || !strings.Contains(q.Note, "no price") {
		t.Errorf("Quote of a node without a size = %+v, %v, want no cost and a note", q, err)
	}

	q, err = b.Quote(Node{Name: "empty", Labels: map[string]string{"pool": "big", "zone": "a"}})
	if err != nil || !near(q.Cost.Total().PerHour(), 1.4) || q.Note == "" {
		t.Errorf("Quote of a node without a size but with a node price = %+v, %v, want 1.4 and a note", q, err)
	}

	q, err = b.Quote(Node{Name: "below", Size: Amounts{CPU: -1000, Memory: -5}})
	if err != nil || q.Cost != (Split{}) {
		t.Errorf("Quote of a node with a negative size = %+v, %v, want no cost", q, err)
	}

	_, err = b.Quote(Node{Name: "huge", Size: Amounts{CPU: math.MaxInt64, Memory: 1}})
	if err == nil || !strings.Contains(err.Error(), "node huge") {
		t.Errorf("Quote of a node out of range: %v, want an error that names the node", err)
	}

	b.Default.Rates.GPU = 0
	q, err = b.Quote(Node{Size: Amounts{CPU: 1000, Memory: oneGiB, GPU: 1}})
	if err != nil || !strings.Contains(q.Note, "GPU") || q.Cost.GPU != 0 {
		t.Errorf("Quote of a node with a GPU without a price = %+v, %v, want a note and no GPU cost", q, err)
	}
}

// replaced is the good book with one text replaced.
func replaced(t *testing.T, old, with string) string {
	t.Helper()

	if !strings.Contains(book, old) {
		t.Fatalf("the book has no %s", old)
	}

	return strings.Replace(book, old, with, 1)
}

func TestParsePriceBookRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		old, with string
		paths     []string
	}{
		"zero":                     {`"cpu": 0.03`, `"cpu": 0`, []string{"default.prices.cpu"}},
		"all zero":                 {`"cpu": 0.01, "memory": 0.002`, `"cpu": 0, "memory": 0`, []string{"groups[1].prices.cpu", "groups[1].prices.memory"}},
		"below zero":               {`"memory": 0.002`, `"memory": -0.002`, []string{"groups[1].prices.memory"}},
		"zero for a GPU":           {`"gpu": 1`, `"gpu": 0`, []string{"default.prices.gpu"}},
		"zero for a node":          {`"node": 1.4`, `"node": 0`, []string{"groups[0].node"}},
		"beyond all machines":      {`"node": 1.4`, `"node": 1e7`, []string{"groups[0].node"}},
		"infinite":                 {`"node": 1.4`, `"node": 1e999`, []string{"groups[0].node"}},
		"text":                     {`"node": 1.4`, `"node": "1.4"`, []string{"groups[0].node"}},
		"memory without a price":   {`"cpu": 0.01, "memory": 0.002`, `"cpu": 0.01`, []string{"groups[1].prices.memory"}},
		"unknown field":            {`"currency"`, `"color": 1, "currency"`, []string{"color"}},
		"unknown field below":      {`"gpu": 1`, `"gpus": 1`, []string{"default.prices.gpus"}},
		"unknown field of a group": {`"node": 1.4`, `"nodes": 1.4`, []string{"groups[0].nodes"}},
		"given twice":              {`"currency": "EUR"`, `"currency": "EUR", "currency": "USD"`, []string{"currency"}},
		"given twice below":        {`"cpu": 0.01`, `"cpu": 0.01, "cpu": 0.02`, []string{"groups[1].prices.cpu"}},
		"null":                     {`"node": 1.4`, `"node": null`, []string{"groups[0].node"}},
		"no currency":              {`"currency": "EUR", `, ``, []string{"currency"}},
		"a currency with a break":  {`"currency": "EUR"`, `"currency": "EU\nR"`, []string{"currency"}},
		"no source":                {`"source": "contract 7", `, ``, []string{"source"}},
		"no date":                  {`"date": "2026-01-31",`, ``, []string{"date"}},
		"not a date":               {`"2026-02-01"`, `"2026-02-30"`, []string{"groups[1].date"}},
		"discount of all":          {`"discount": 0.6`, `"discount": 1`, []string{"capacityTypes[0].discount"}},
		"discount of nothing":      {`"discount": 0.5`, `"discount": 0`, []string{"groups[0].capacity.reserved.discount"}},
		"discount and price":       {`"spot": {"node": 0.35}`, `"spot": {"node": 0.35, "discount": 0.1}`, []string{"groups[0].capacity.spot"}},
		"capacity type unknown":    {`"spot": {"node": 0.35}`, `"sport": {"node": 0.35}`, []string{"groups[0].capacity.sport"}},
		"on demand twice":          {`"spot": {"node": 0.35}`, `"on-demand": {"node": 0.35}`, []string{"groups[0].capacity.on-demand"}},
		"name taken":               {`"name": "parts"`, `"name": "whole"`, []string{"groups[1].name"}},
		"name reserved":            {`"name": "parts"`, `"name": "default"`, []string{"groups[1].name"}},
		"capacity name taken":      {`"name": "reserved"`, `"name": "spot"`, []string{"capacityTypes[1].name", "default.capacity.reserved", "groups[0].capacity.reserved"}},
		"selects everything":       {`"selector": {"matchLabels": {"pool": "big", "zone": "a"}}`, `"selector": {}`, []string{"groups[0].selector"}},
		"capacity of everything":   {`{"matchLabels": {"reserved": "true"}}`, `{}`, []string{"capacityTypes[1].selectors[0]"}},
		"no selectors":             {`"selectors": [{"matchLabels": {"reserved": "true"}}]`, `"selectors": []`, []string{"capacityTypes[1].selectors"}},
		"a label that is no text":  {`"reserved": "true"`, `"reserved": true`, []string{"capacityTypes[1].selectors[0].matchLabels.reserved"}},
		"operator":                 {`"NotIn"`, `"Outside"`, []string{"groups[1].selector"}},
		"operator without values":  {`, "values": ["c"]`, ``, []string{"groups[1].selector"}},
		"operator with values":     {`"Exists"`, `"Exists", "values": ["a"]`, []string{"capacityTypes[0].selectors[1]"}},
		"neither price":            {`"node": 1.4,`, ``, []string{"groups[0]"}},
		"default by the node":      {`"default": {`, `"default": {"node": 1, `, []string{"default.node"}},
		"a list that is none":      {`"selectors": [{"matchLabels": {"reserved": "true"}}]`, `"selectors": 1`, []string{"capacityTypes[1].selectors"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePriceBook([]byte(replaced(t, c.old, c.with)))
			if got := paths(err); strings.Join(got, " ") != strings.Join(c.paths, " ") {
				t.Errorf("ParsePriceBook reports errors at %v, want %v: %v", got, c.paths, err)
			}
		})
	}

	for _, file := range []string{"", "[]", "null", "1", book + "{}", `{"currency":`, `{"currency": "EUR"`, `{"a"}`} {
		if _, err := ParsePriceBook([]byte(file)); err == nil {
			t.Errorf("ParsePriceBook(%q) succeeds, want an error", file)
		}
	}
}

// paths lists the fields that an error complains of.
func paths(err error) []string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}

	var out []string
	for _, e := range joined.Unwrap() {
		var field *settings.FieldError
		if errors.As(e, &field) {
			out = append(out, field.Path)
		}
	}

	return out
}

func FuzzParsePriceBook(f *testing.F) {
	f.Add([]byte(book))
	f.Add([]byte(`{"currency":"USD","source":"s","date":"2026-01-01","default":{"prices":{"cpu":1,"memory":1}}}`))
	f.Add([]byte(`{"groups":[{"capacity":{"":{}}}]}`))

	f.Fuzz(func(t *testing.T, file []byte) {
		b, err := ParsePriceBook(file)
		if (b == nil) != (err != nil) {
			t.Fatalf("ParsePriceBook = %v, %v, want either a book or an error", b, err)
		}

		if err != nil {
			if err.Error() == "" {
				t.Fatal("ParsePriceBook returns an error without a text, want one")
			}

			return
		}

		for _, labels := range []map[string]string{nil, {"pool": "big"}, {"cheap": ""}} {
			q, err := b.Quote(Node{Name: "n", Labels: labels, Size: Amounts{CPU: 1000, Memory: oneGiB}})
			if err != nil {
				continue // Out of range, with an error.
			}

			if q.Cost.CPU < 0 || q.Cost.Memory < 0 || q.Group == "" || q.CapacityType == "" {
				t.Fatalf("Quote = %+v, want no negative cost, a group and a capacity type", q)
			}
		}
	})
}
