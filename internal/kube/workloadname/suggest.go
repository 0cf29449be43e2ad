// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadname

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxSuggestions is the maximum number of names that an error suggests.
const maxSuggestions = 3

// DidYouMean returns the candidates that resemble a name, as the end of an error message: "; did you mean a or b?". It is empty if none does.
func DidYouMean(name string, candidates []string) string {
	type ranked struct {
		name     string
		distance int
	}

	var near []ranked
	for _, candidate := range candidates {
		distance := editDistance(strings.ToLower(name), strings.ToLower(candidate))
		// Short names resemble too many: a part counts from three letters on.
		contained := len(name) >= 3 && strings.Contains(strings.ToLower(candidate), strings.ToLower(name))
		if distance == 0 || distance > max(1, len(name)/3) && !contained {
			continue
		}

		near = append(near, ranked{candidate, distance})
	}

	slices.SortFunc(near, func(a, b ranked) int { return cmp.Or(a.distance-b.distance, strings.Compare(a.name, b.name)) })
	near = slices.CompactFunc(near, func(a, b ranked) bool { return a.name == b.name })
	if len(near) == 0 {
		return ""
	}

	names := make([]string, 0, maxSuggestions)
	for _, n := range near[:min(maxSuggestions, len(near))] {
		names = append(names, n.name)
	}

	return fmt.Sprintf("; did you mean %s?", strings.Join(names, " or "))
}

// editDistance returns the least number of letters to insert, delete, replace or swap with the next one that turns a into b.
func editDistance(a, b string) int {
	from := []rune(a)
	to := []rune(b)
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
	}

	for j := range rows[0] {
		rows[0][j] = j
	}

	// rows[i][j] is the distance of the first i letters of a and the first j letters of b.
	for i := 1; i <= len(from); i++ {
		for j := 1; j <= len(to); j++ {
			replace := rows[i-1][j-1]
			if from[i-1] != to[j-1] {
				replace++
			}

			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}

	return rows[len(from)][len(to)]
}
