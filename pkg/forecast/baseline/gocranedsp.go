// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"cmp"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/dsp/fourier"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// The defaults of gocrane's spectrum method. Thresholds are in the unit of the series, as there.
const (
	gocraneHighFrequency = 1.0 / 3600 // Hz
	gocraneFloor         = 0.01
	gocraneShuffles      = 100
	gocraneThreshold     = 98 // index among the sorted shuffles
	gocraneLongestGap    = time.Hour
)

// GocraneDSP reproduces gocrane's dsp predictor with its defaults and defects: it forecasts only if it finds a period
// of exactly a day or a week; its filter treats mirrored frequencies as high ones; its amplitude threshold has a
// unit; and it returns the last period, low-passed, at every level.
type GocraneDSP struct{}

// Name implements forecast.Algorithm.
func (GocraneDSP) Name() string { return "gocrane-dsp" }

// Forecast implements forecast.Algorithm. It declines if the original returns nothing.
func (GocraneDSP) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}

	values, err := gocranePrepare(history)
	if err != nil {
		return forecast.Forecast{}, err
	}

	rate := 1 / history.Step.Seconds()
	period := gocranePeriod(values, history.Step)

	perDay := int(24 * time.Hour / history.Step)
	if period == 0 || period != perDay && period != 7*perDay {
		return forecast.Forecast{}, fmt.Errorf("%w: not periodic by a day or a week", forecast.ErrDeclined)
	}

	values = values[len(values)%period:]
	if len(values) < 2*period {
		return forecast.Forecast{}, fmt.Errorf("%w: fewer than two periods", forecast.ErrDeclined)
	}

	// The estimator with the lowest error on the last period forecasts the next one.
	past := values[:len(values)-period]

	actual := values[len(values)-period:]
	var best gocraneEstimator
	lowestError := math.Inf(1)
	for _, e := range gocraneEstimators() {
		if err := gocraneError(actual, e.estimate(past, period, rate)); err < lowestError {
			best = e
			lowestError = err
		}
	}

	estimate := best.estimate(values, period, rate)
	out := forecast.Forecast{
		Start:   history.End(),
		Step:    history.Step,
		Model:   "gocrane-dsp",
		Period:  time.Duration(period) * history.Step,
		Periods: len(values) / period,
		Skill:   math.NaN(),
		Values:  make([]forecast.Quantiles, forecast.Steps(horizon, history.Step)),
	}

	for i := range out.Values {
		out.Values[i] = forecast.Constant(estimate[i%period])
	}

	return out, nil
}

// gocranePrepare drops the samples before a long gap, interpolates short gaps, trims the start to whole hours and
// replaces outliers by the previous sample.
func gocranePrepare(history series.Series) ([]float64, error) {
	maxGap := int(gocraneLongestGap / history.Step)
	values := make([]float64, 0, len(history.Values))
	gap := 0
	for _, v := range history.Values {
		if !forecast.Usable(v) {
			gap++
			continue
		}

		if gap > 0 {
			values = bridge(values, v, gap, maxGap)
		}

		values = append(values, v)
		gap = 0
	}

	perHour := max(1, int(time.Hour/history.Step))
	values = values[len(values)%perHour:]
	if len(values) == 0 {
		return nil, fmt.Errorf("%w: less than an hour of samples", forecast.ErrDeclined)
	}

	sorted := slices.Clone(values)
	slices.Sort(sorted)

	low := gocranePercentile(sorted, 0.001)
	high := gocranePercentile(sorted, 0.999)

	// As in the original, the first value is never replaced.
	for i := 1; i < len(values); i++ {
		if values[i] > high || values[i] < low {
			values[i] = values[i-1]
		}
	}

	return values, nil
}

// gocranePercentile is the value at a rank that is whole, else the mean of its two neighbors.
func gocranePercentile(sorted []float64, share float64) float64 {
	rank := share * float64(len(sorted))
	index := int(rank)
	switch {
	case index < 1:
		return sorted[0]
	case rank == float64(index):
		return sorted[index-1]
	}

	return (sorted[index-1] + sorted[index]) / 2
}

// bridge interpolates a gap before next, or drops the values before a gap that is too long.
func bridge(values []float64, next float64, gap, maxGap int) []float64 {
	if len(values) == 0 || gap >= maxGap {
		return values[:0]
	}

	last := values[len(values)-1]
	for j := 1; j <= gap; j++ {
		values = append(values, last+(next-last)*float64(j)/float64(gap+1))
	}

	return values
}

// gocranePeriod returns the period in samples, 0 if there is none. Weeks are tested if the history has at least two,
// days otherwise.
func gocranePeriod(values []float64, step time.Duration) int {
	perDay := int(24 * time.Hour / step)
	for _, unit := range []int{7 * perDay, perDay} {
		if units := len(values) / unit; units > 1 {
			return findPeriod(values[len(values)-units*unit:], step)
		}
	}

	return 0
}

// findPeriod selects the frequencies whose amplitude exceeds that of nearly all shuffled series, and returns the one
// with the highest peak of the circular autocorrelation.
func findPeriod(values []float64, step time.Duration) int {
	n := len(values)
	fft := fourier.NewFFT(n)
	coefficients := make([]complex128, n/2+1)
	shuffled := slices.Clone(values)

	// Seeded, so that a back-test repeats; the original is not.
	source := rand.New(rand.NewPCG(1, 2))

	peaks := make([]float64, gocraneShuffles)
	for i := range peaks {
		source.Shuffle(n, func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
		fft.Coefficients(coefficients, shuffled)

		for _, c := range coefficients[1 : n/2] {
			peaks[i] = max(peaks[i], cmplx.Abs(c))
		}
	}

	slices.Sort(peaks)
	correlation := circularCorrelation(fft, values)
	fft.Coefficients(coefficients, values)

	bestLag := 0
	highest := 0.0 // A frequency whose autocorrelation is not positive is not a period.
	last := n
	for k := 2; k < n/2; k++ {
		hint := n / k
		if cmplx.Abs(coefficients[k]) <= peaks[gocraneThreshold] || hint >= last {
			continue
		}

		last = hint
		reach := min(int(4*time.Hour/step), hint/2)
		if isPeak(correlation, hint, reach) && correlation[hint] > highest {
			bestLag = hint
			highest = correlation[hint]
		}
	}

	return bestLag
}

func circularCorrelation(fft *fourier.FFT, values []float64) []float64 {
	n := float64(len(values))
	mean := 0.0
	square := 0.0

	for _, v := range values {
		mean += v / n
	}

	for _, v := range values {
		square += (v - mean) * (v - mean) / n
	}

	// Values that do not vary stay zero: they have no correlation.
	deviation := math.Sqrt(square)

	standard := make([]float64, len(values))
	if deviation > 0 {
		for i, v := range values {
			standard[i] = (v - mean) / deviation
		}
	}

	coefficients := fft.Coefficients(nil, standard)
	for i, c := range coefficients {
		coefficients[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}

	out := fft.Sequence(nil, coefficients)
	for i := range out {
		out[i] /= n * n
	}

	return out
}

// isPeak reports whether a line through the values before a place rises and one through those after it falls.
func isPeak(values []float64, place, reach int) bool {
	if reach < 1 || place-reach < 0 || place+reach >= len(values) {
		return false
	}

	return slope(values[place-reach:place+1]) > 0 && slope(values[place:place+reach+1]) < 0
}

// slope is the least-squares slope over equidistant places.
func slope(values []float64) float64 {
	n := float64(len(values))
	middle := (n - 1) / 2
	sum := 0.0
	for i, v := range values {
		sum += (float64(i) - middle) * v
	}

	return sum
}

// gocraneEstimator is one of the eight that gocrane tries.
type gocraneEstimator struct {
	minItems, maxItems int
	amplitude          float64
	margin             float64
}

func gocraneEstimators() []gocraneEstimator {
	var out []gocraneEstimator
	for _, margin := range []float64{0.01, 0.10, 0.15, 0.20} {
		out = append(out, gocraneEstimator{3, 100, 1.0, margin}, gocraneEstimator{50, 100, 0.05, margin})
	}

	return out
}

// estimate low-passes the values and returns their last period with the margin.
func (e gocraneEstimator) estimate(values []float64, period int, rate float64) []float64 {
	n := len(values)
	fft := fourier.NewCmplxFFT(n)

	sequence := make([]complex128, n)
	for i, v := range values {
		sequence[i] = complex(v, 0)
	}

	coefficients := fft.Coefficients(nil, sequence)
	amplitudes := make([]float64, 0, n/2)
	for k := 1; k < n/2; k++ {
		amplitudes = append(amplitudes, cmplx.Abs(coefficients[k])/float64(n))
	}

	slices.SortFunc(amplitudes, func(a, b float64) int { return cmp.Compare(b, a) })
	threshold := max(amplitudes[min(e.maxItems, len(amplitudes))-1], e.amplitude)
	threshold = min(threshold, amplitudes[min(e.minItems, len(amplitudes))-1])
	for k := range coefficients {
		// The defect: for k beyond n/2 this is no frequency, so weak low ones lose their mirror half.
		frequency := float64(k) * rate / float64(n)
		if cmplx.Abs(coefficients[k])/float64(n) < threshold && frequency > gocraneHighFrequency {
			coefficients[k] = 0
		}
	}

	fft.Sequence(sequence, coefficients)
	out := make([]float64, period)
	for i := range out {
		v := real(sequence[n-period+i]) / float64(n)
		if v <= 0 {
			v = gocraneFloor
		}

		out[i] = v * (1 + e.margin)
	}

	return out
}

// gocraneError weighs forecasts below the actual value much more than those above; where an actual value is nearly zero
// it is the plain mean absolute error of all.
func gocraneError(actual, estimate []float64) float64 {
	n := float64(len(actual))
	relative := 0.0
	absolute := 0.0

	tiny := false
	for i, a := range actual {
		p := estimate[i]
		absolute += math.Abs(p-a) / n

		switch {
		case a < 1e-3:
			tiny = true
		case p >= a:
			relative += (p - a) / a / n
		default:
			relative += -math.Log(1-(a-p)/a) / math.Log(1.25) / n
		}
	}

	if tiny {
		return absolute
	}

	return relative
}
