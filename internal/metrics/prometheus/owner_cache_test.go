// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"strconv"
	"testing"
	"time"
)

func TestOwnerCache(t *testing.T) {
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	end := midnight.Add(10*time.Hour + 5*time.Minute)
	some := func(n int) *owners {
		o := &owners{pods: map[objectName]owner{}}
		for i := range n {
			o.pods[objectName{"shop", strconv.Itoa(i)}] = owner{"ReplicaSet", "web"}
		}

		return o
	}

	shop := scope{names: []string{"shop"}}
	var cache ownerCache
	first := some(3)
	cache.add(midnight, end, shop, first)

	for name, c := range map[string]struct {
		from, to time.Time
		in       scope
		found    bool
	}{
		"the same":             {midnight, end, shop, true},
		"within":               {midnight.Add(time.Hour), end.Truncate(time.Hour), shop, true},
		"later":                {midnight, end.Add(time.Minute), shop, false},
		"earlier":              {midnight.Add(-time.Minute), end, shop, false},
		"other namespaces":     {midnight, end, scope{names: []string{"bank", "shop"}}, false},
		"all namespaces":       {midnight, end, scope{names: []string{"shop"}, all: true}, false},
		"all, whatever is met": {midnight, end.Add(-24 * time.Hour), scope{all: true}, false},
	} {
		if got := cache.find(c.from, c.to, c.in); (got == first) != c.found || got != nil && got != first {
			t.Errorf("%s: find = %v, want the first owners: %v", name, got, c.found)
		}
	}

	cache.add(midnight, end, scope{all: true, names: []string{"a"}}, first)
	if cache.find(midnight, end, scope{all: true, names: []string{"b"}}) != first {
		t.Error("find in all namespaces of others than when added: not found, want the first owners")
	}
	if cache.find(midnight, end, scope{names: []string{"shop"}}) != first || !(scope{all: true}).covers(shop) {
		t.Error("find in shop after all namespaces: not found, want the first owners")
	}

	two := scope{names: []string{"bank", "shop"}}
	if !two.covers(shop) || !two.covers(scope{}) || shop.covers(two) || two.covers(scope{all: true}) {
		t.Error("covers is wrong for two, one, no and all namespaces, want two to cover one and none, but not the reverse, nor all")
	}

	large := some(maxCachedOwners)
	cache.add(midnight.AddDate(0, 0, 1), end.AddDate(0, 0, 1), shop, large)

	if cache.find(midnight.AddDate(0, 0, 1), end.AddDate(0, 0, 1), shop) != nil {
		t.Error("the cache keeps more owners than maxCachedOwners, want them dropped")
	}

	var none *ownerCache
	none.add(midnight, end, shop, first)

	if none.find(midnight, end, shop) != nil {
		t.Error("find in a nil cache returned owners, want nil")
	}
}
