// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "time"

// Sizes of the state. They bound its memory: 1,344 units and 504 blocks of twelve bytes are 22,176 bytes.
const (
	// historyDays is how much history is kept in full: two weeks, so that every weekday is seen twice.
	historyDays = 14
	// maxUnits is how many units of 15 minutes two weeks have; coarser units need fewer.
	maxUnits = historyDays * 96
	// maxBlocks is how many blocks of an hour the three weeks before have.
	maxBlocks = olderDays * 24
	// maxRows bounds how many seasons are looked at, whatever their length.
	maxRows = 28
	// maxSub is how many sub-slots a unit has at most.
	maxSub = 3
	// unitAtoms is how many atoms summarise the samples of a unit: maxSub medians, a high and the maximum.
	unitAtoms = maxSub + 2
)

// day is the season that people live by.
const day = 24 * time.Hour

// tuning holds every default of the model in one place. The values were chosen on synthetic families and on production
// traces together; the results are flat around them: doubling or halving any one moves the mean loss by about 2 %.
type tuning struct {
	// replays is how many past seasons the gate replays. A week holds each kind of day once.
	replays int
	// replayHalfLife is the age, in seasons, at which a replayed season counts half in the gate: a method that failed
	// last week but works now must be able to come back.
	replayHalfLife float64
	// sharpness is how strongly the gate prefers a candidate for the median by its relative loss: one that is 10 % worse
	// than the best weighs exp(-sharpness/10). tailSharpness is the same for the upper quantiles.
	sharpness, tailSharpness float64
	// trim is the share of weight cut off at each end when candidates for the median are combined.
	trim float32
	// margin shrinks the share above each upper level. Quantiles of few, changing seasons cover less of the future than
	// of the past; asking for 0.9625 where 0.95 is wanted makes up for it.
	margin float32
	// tolerated is the share of samples above the 0.95 quantile in the replays up to which the margin stays as it is, where
	// there are marginReplays replays at least; beyond, it shrinks in proportion, to leastMargin of itself.
	tolerated, leastMargin float64
	marginReplays          int
	// shiftFactor and shiftShare say when an older level is given up: this share of a day lies outside of the newest
	// day's range, widened by the factor.
	shiftFactor, shiftShare float64
	// likeness is how strongly days that do not look like the same weekday of last week are discounted.
	likeness float64
	// oddity is how much less unlike other days an older row of a weekday must be to stand for it in place of the newest.
	oddity float64
	// A season other than a day must show an autocorrelation above seasonStrength, higher than at a day by seasonMargin
	// and than the valley before it by seasonDepth, and must repeat seasonRepeats times, wholeDayRepeats times where
	// it is of whole days.
	seasonStrength, seasonMargin, seasonDepth, seasonRepeats, wholeDayRepeats float64
	// exceptional is what a replayed holiday counts in the gate.
	exceptional float64
	// surprise is how many times the usual error of the newest hours makes a day strange, and recognised how near, relative
	// to that error, a day of another kind must be to be followed.
	surprise, recognised float64
	// capFactor bounds every forecast by this multiple of the largest value seen.
	capFactor float64
}

func defaultTuning() tuning {
	return tuning{
		replays:        7,
		replayHalfLife: 4,
		sharpness:      10,
		tailSharpness:  16,
		trim:           0.1,
		margin:         0.75,
		tolerated:      0.1,
		leastMargin:    0.3,
		marginReplays:  3,
		shiftFactor:    1.3,
		shiftShare:     0.95,
		likeness:       3,
		oddity:         0.6,
		seasonStrength: 0.5,
		seasonMargin:   0.1,
		seasonDepth:    0.3,
		seasonRepeats:  3,

		wholeDayRepeats: 5,
		exceptional:     0.25,
		surprise:        3,
		recognised:      0.25,
		capFactor:       2,
	}
}

// gateAbove returns the shares above the levels that the gate judges upper quantiles by, descending. All three levels
// that consumers use are judged together: one alone hangs on too few points.
func gateAbove() []float32 { return []float32{0.1, 0.05, 0.01} }

// judgedLevel is the place of the 0.95 quantile among them.
const judgedLevel = 1
