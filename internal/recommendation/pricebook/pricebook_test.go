// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pricebook

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/pkg/cost"
)

func TestDefault(t *testing.T) {
	book, err := Default()
	if err != nil {
		t.Fatal(err)
	}

	size := cost.Amounts{CPU: 1000, Memory: 1 << 30}
	for name, c := range map[string]struct {
		labels   map[string]string
		capacity string
		hour     float64
	}{
		"no labels":       {nil, cost.OnDemand, 0.031611 + 0.004237},
		"Karpenter":       {map[string]string{"karpenter.sh/capacity-type": "spot"}, "spot", 0.006655 + 0.000892},
		"on demand":       {map[string]string{"karpenter.sh/capacity-type": "on-demand"}, cost.OnDemand, 0.031611 + 0.004237},
		"reserved":        {map[string]string{"karpenter.sh/capacity-type": "reserved"}, "reserved", 0.031611 + 0.004237},
		"EKS":             {map[string]string{"eks.amazonaws.com/capacityType": "SPOT"}, "spot", 0.006655 + 0.000892},
		"EKS on demand":   {map[string]string{"eks.amazonaws.com/capacityType": "ON_DEMAND"}, cost.OnDemand, 0.031611 + 0.004237},
		"GKE":             {map[string]string{"cloud.google.com/gke-spot": "true"}, "spot", 0.006655 + 0.000892},
		"GKE preemptible": {map[string]string{"cloud.google.com/gke-preemptible": "true"}, "spot", 0.006655 + 0.000892},
		"AKS":             {map[string]string{"kubernetes.azure.com/scalesetpriority": "spot"}, "spot", 0.006655 + 0.000892},
	} {
		q, err := book.Quote(cost.Node{Labels: c.labels, Size: size})
		if err != nil || q.CapacityType != c.capacity || math.Abs(q.Cost.Total().PerHour()-c.hour) > 1e-9 {
			t.Errorf("%s: %+v, %v; want %s at %v", name, q, err, c.capacity, c.hour)
		}
	}

	if book.Source == "" || book.Date == "" {
		t.Errorf("the default price book has source %q and date %q, want both", book.Source, book.Date)
	}
}

// TestExample keeps the example in the repository one that is read.
func TestExample(t *testing.T) {
	book, err := Load(filepath.Join("..", "..", "..", "examples", "pricebook.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if len(book.Groups) == 0 || len(book.CapacityTypes) == 0 {
		t.Errorf("the example is %+v, want groups and capacity types", book)
	}
}

func TestLoadFails(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	for name, c := range map[string]struct{ path, says string }{
		"missing":      {filepath.Join(dir, "none.yaml"), "none.yaml"},
		"a directory":  {dir, "directory"},
		"empty":        {write("empty.yaml", ""), "empty.yaml"},
		"not YAML":     {write("broken.yaml", "a: [b"), "broken.yaml"},
		"twice":        {write("twice.yaml", "currency: USD\ncurrency: EUR\n"), "currency"},
		"zero":         {write("zero.yaml", "currency: USD\nsource: s\ndate: '2026-01-01'\ndefault: {prices: {cpu: 0, memory: 1}}\n"), "zero.yaml: default.prices.cpu: \"0\""},
		"a bare date":  {write("date.yaml", "currency: USD\nsource: s\ndate: 2026-13-01\ndefault: {prices: {cpu: 1, memory: 1}}\n"), "date"},
		"far too long": {write("long.yaml", "#"+strings.Repeat("x", maxFile)), "larger"},
	} {
		if book, err := Load(c.path); book != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Load = %v, error %v, want an error with %q", name, book, err, c.says)
		}
	}

	if book, err := Load(""); err != nil || book.Currency != "USD" {
		t.Errorf("Load of no path = %+v, error %v, want prices in USD", book, err)
	}
}
