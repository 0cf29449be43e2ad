// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"testing"
)

// TestPageCacheIsReclaimed: page cache above a limit is reclaimed first; other memory above it is OOM-killed.
func TestPageCacheIsReclaimed(t *testing.T) {
	for name, c := range map[string]struct {
		use   Use
		limit float64
		want  Use
	}{
		"no limit":        {Use{Memory: 10, Cache: 4}, 0, Use{Memory: 10, Cache: 4}},
		"below":           {Use{Memory: 10, Cache: 4}, 10, Use{Memory: 10, Cache: 4}},
		"part of it":      {Use{Memory: 10, Cache: 4}, 8, Use{Memory: 8, Cache: 2}},
		"not enough":      {Use{Memory: 10, Cache: 4}, 5, Use{Memory: 6}},
		"no cache at all": {Use{Memory: 10}, 5, Use{Memory: 10}},
	} {
		if got := c.use.Within(c.limit); got != c.want {
			t.Errorf("%s: Within(%v) of %+v = %+v, want %+v", name, c.limit, c.use, got, c.want)
		}
	}

	if got := (Use{Memory: 1, Cache: 5, Known: true}).sane(); got.Cache != 1 {
		t.Errorf("sane() of more cache than memory = %+v, want a cache of 1", got)
	}
	if got := (Use{Memory: 1, Cache: math.NaN(), Known: true}).sane(); got.Known {
		t.Errorf("sane() of a NaN cache = %+v, want an unknown use", got)
	}
}
