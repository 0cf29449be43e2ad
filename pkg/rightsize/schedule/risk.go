// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math"
	"time"

	"crane.io/crane/pkg/forecast"
)

// curve is the distribution of one step of a forecast: exponential between quantiles, and above the highest one at the rate
// between the two highest, since a bounded tail would make the last bit of safety look free. Linear pieces between quantiles
// would make every price choose one of their ends.
type curve struct {
	quantiles forecast.Quantiles
	// logs are the logarithms of the shares above the quantiles, which fall at rates from each quantile on.
	logs, rates [forecast.NumLevels]float64
	// scale is 1/rate above the highest quantile.
	scale float64
}

// smallestScale is the minimum width of the tail if the two highest quantiles are equal, as a share of the value.
const smallestScale = 0.005

func newCurve(q forecast.Quantiles) curve {
	c := curve{quantiles: q}
	for i, level := range forecast.Levels() {
		c.logs[i] = math.Log(1 - level)
		if i > 0 && q[i] > q[i-1] {
			c.rates[i-1] = (c.logs[i-1] - c.logs[i]) / (q[i] - q[i-1])
		}
	}

	const top = forecast.NumLevels - 1
	c.scale = smallestScale * q[top]
	if rate := c.rates[top-1]; rate > 0 {
		c.scale = math.Max(c.scale, 1/rate)
	}
	if c.scale > 0 {
		c.rates[top] = 1 / c.scale
	}

	return c
}

// above returns the probability that the usage of the step exceeds the request; 1 below half of the median.
func (c *curve) above(request float64) float64 {
	lowest := c.quantiles[0]
	if request < lowest {
		if request <= lowest/2 {
			return 1
		}

		return 1 - forecast.Levels()[0]*(request-lowest/2)/(lowest/2)
	}

	i := forecast.NumLevels - 1
	for request < c.quantiles[i] {
		i--
	}

	if i == forecast.NumLevels-1 && c.scale <= 0 {
		return 0 // the forecast is zero
	}

	return math.Exp(c.logs[i] - (request-c.quantiles[i])*c.rates[i])
}

// cell is one hour of the horizon (the first may be longer).
type cell struct {
	from, to time.Time
	// weight is the share of the plan's time.
	weight float64
	// median is the mean of the forecast medians.
	median float64
	steps  []curve
}

// risk returns the expected share of the cell's time above the request.
func (c cell) risk(request float64) float64 {
	sum := 0.0
	for i := range c.steps {
		sum += c.steps[i].above(request)
	}

	return sum / float64(len(c.steps))
}

// maxCurvesPerCell bounds the steps of a cell that are used; further ones add nothing.
const maxCurvesPerCell = 60

// cells splits a forecast, with the margin added, at whole hours. A first part of an hour belongs to the hour after it, and
// a last one to the hour before, so that no step is shorter than an hour.
func cells(f forecast.Forecast, margin float64) []cell {
	length := max(f.Step, MinStep)
	var out []cell
	n := len(f.Values)
	for i := 0; i < n; {
		from := f.Start.Add(time.Duration(i) * f.Step)
		end := from.Truncate(MinStep).Add(length)
		if end.Sub(from) < length {
			end = end.Add(MinStep)
		}

		j := min(n, i+int((end.Sub(from)+f.Step-1)/f.Step))
		if f.End().Sub(f.Start.Add(time.Duration(j)*f.Step)) < length {
			j = n
		}

		out = append(out, newCell(f, i, j, margin))
		i = j
	}

	return out
}

func newCell(f forecast.Forecast, i, j int, margin float64) cell {
	c := cell{
		from: f.Start.Add(time.Duration(i) * f.Step), to: f.Start.Add(time.Duration(j) * f.Step),
		weight: float64(j-i) / float64(len(f.Values)),
	}

	stride := max(1, (j-i)/maxCurvesPerCell)
	for k := i; k < j; k += stride {
		q := f.Values[k].Ordered()
		for l := range q {
			q[l] *= 1 + margin
		}

		c.median += q[0]
		c.steps = append(c.steps, newCurve(q))
	}

	c.median /= float64(len(c.steps)) * (1 + margin)
	return c
}
