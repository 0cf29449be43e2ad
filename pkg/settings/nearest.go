// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"strings"
)

// nearest returns a hint at the known names that are most similar to name, "did you mean a or b?", or at all of them if none
// is similar.
func nearest(name string, known []string) string {
	slices.Sort(known)
	best, near := len(name)/2+1, []string(nil)
	for _, k := range known {
		switch d := editDistance(name, k); {
		case d < best:
			best, near = d, []string{k}
		case d == best && len(near) > 0:
			near = append(near, k)
		}
	}
	if len(near) == 0 {
		return "known are " + strings.Join(known, ", ")
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// editDistance returns the Levenshtein distance: the least number of bytes inserted, deleted or replaced that turns a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
