// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/baseline"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// The recipe of the gate, which hack/train-gate.sh follows.
const (
	gateEpochs = 8
	gateBatch  = 16
	gateRate   = 0.003
	gateDecay  = 0.01
	// gateBlend is the weight of a network in the mean with the hedge during training. A network is used with 1/2, so that it may go
	// less far than it was trained to.
	gateBlend = 0.7
	// gateRandom is the number of random series, gateDays the length of all generated ones, and gateEvery the number of days from an origin
	// of a random one to the next.
	gateRandom, gateDays, gateEvery = 720, 29, 5
	// gateShare is the weight of a generated series; that of a recorded one is 1.
	gateShare = 0.5
	// slotStride is how many slots of the last segment share a step of the training.
	slotStride = 4
)

// gateOrigin is what the gate is trained on at an origin.
type gateOrigin struct {
	bounds   [segmentCount][2]int
	in       [segmentCount][]gateInputs
	hedge    [segmentCount][]float64 // weights
	forecast []float32               // by slot, then by expert of the median
	order    []uint8                 // by slot: the experts by forecast, ascending
	first    []int                   // by slot: the index of its first sample; then the number of samples
	actual   []float32
	scale    float64
	plain    float64 // sum of the errors of plain
}

// newGateOrigin returns the origin of a forecast of the day after some history; false where the gate is not used.
func newGateOrigin(past series.Series, actual []float64) (gateOrigin, bool) {
	var out gateOrigin
	plain, err := baseline.Plain{}.Forecast(past, day)
	if err != nil {
		return out, false
	}
	m, whole, rows := rowsOf(past)
	if !rows.sampled {
		return out, false
	}
	o := newOutlook(rows, 1)
	h := newHedge(o, defaultTuning(), nil)
	in, ok := h.readGate(defaultTuning(), o.replayLosses())
	if !ok {
		return out, false
	}
	out.in, out.scale = in, m.scale
	used := medianExperts()
	for s := range segmentCount {
		out.bounds[s][0], out.bounds[s][1] = o.bounds(s)
		for _, e := range used {
			out.hedge[s] = append(out.hedge[s], h.weights[s][0][e])
		}
	}
	for x := range rows.slots {
		ids := make([]uint8, len(used))
		for i, e := range used {
			out.forecast = append(out.forecast, h.days[e][0][x])
			ids[i] = uint8(i)
		}
		values := out.forecast[x*len(used):]
		slices.SortStableFunc(ids, func(a, b uint8) int { return cmp.Compare(values[a], values[b]) })
		out.order = append(out.order, ids...)
	}
	origin := time.Unix(whole.head*m.layout.seconds(), 0)
	for i, y := range actual {
		slot := min(rows.slots-1, int(max(0, m.now().Add(time.Duration(i)*past.Step).Sub(origin))/m.layout.slot))
		for len(out.first) <= slot {
			out.first = append(out.first, len(out.actual))
		}
		if forecast.Usable(y) {
			out.actual = append(out.actual, float32(y/m.scale))
			out.plain += math.Abs(y - plain.Values[i].At(0.5))
		}
	}
	for len(out.first) <= rows.slots {
		out.first = append(out.first, len(out.actual))
	}
	return out, true
}

// gateOrigins returns origins from a week on.
func gateOrigins(s series.Series, every int) []gateOrigin {
	var out []gateOrigin
	perDay := int(day / s.Step)
	for at := 7 * perDay; at+perDay <= len(s.Values); at += every * perDay {
		from := max(0, at-historyDays*perDay)
		past := series.Series{Start: s.Time(from), Step: s.Step, Values: s.Values[from:at]}
		if o, ok := newGateOrigin(past, s.Values[at:at+perDay]); ok {
			out = append(out, o)
		}
	}
	return out
}

// trainingSeries are the origins of a series, and the group of families that it is from; none for what is generated.
type trainingSeries struct {
	group   string
	weight  float64
	origins []gateOrigin
}

// trainingData returns the origins of all recorded series, of two of each synthetic family, and of random series.
func trainingData(tb testing.TB) []trainingSeries {
	tb.Helper()
	var out []trainingSeries
	var prepare []func()
	add := func(group string, weight float64, every int, s func() series.Series) {
		i := len(out)
		out = append(out, trainingSeries{group: group, weight: weight})
		prepare = append(prepare, func() { out[i].origins = gateOrigins(s(), every) })
	}
	for _, f := range families.Recorded() {
		for _, s := range f.Read(tb, 1) {
			add(f.Group, 1, 1, func() series.Series { return s.Series })
		}
	}
	for _, f := range families.All() {
		for seed := range uint64(2) {
			add("", gateShare, 1, func() series.Series { return f.Make(100+seed, gateDays, 5*time.Minute) })
		}
	}
	for seed := range uint64(gateRandom) {
		add("", gateShare, gateEvery, func() series.Series { return families.Random(seed, gateDays, 5*time.Minute) })
	}
	families.OnAllCores(prepare)
	return out
}

// gateItem is an origin and its weight in the sum of losses.
type gateItem struct {
	*gateOrigin
	weight float64
}

// itemsWithout returns the origins of the series that are not of a group; of all for an empty one. Each series weighs by its errors relative
// to those of plain.
func itemsWithout(group string, data []trainingSeries) []gateItem {
	var out []gateItem
	for _, s := range data {
		total := 0.0
		for i := range s.origins {
			total += s.origins[i].plain
		}
		if group != "" && s.group == group || !(total > 0) {
			continue
		}
		for i := range s.origins {
			out = append(out, gateItem{&s.origins[i], 20 * s.weight * s.origins[i].scale / total})
		}
	}
	return out
}

// trainGates returns networks for each group, trained without it.
func trainGates(data []trainingSeries, groups []string) map[string][]network {
	out := map[string][]network{}
	var train []func()
	for _, g := range groups {
		items, networks := itemsWithout(g, data), make([]network, gateNetworks)
		out[g] = networks
		for k := range networks {
			train = append(train, func() { networks[k] = trainGate(items, uint64(k+1)) })
		}
	}
	families.OnAllCores(train)
	return out
}

// loss returns the sum of the absolute errors of the mixture over every stride-th slot of a segment. It adds the derivatives by the weights,
// which sum to 1, to gradient.
func (o *gateOrigin) loss(segment int, weights []float64, stride, phase int, gradient []float64) float64 {
	n, sum := len(weights), 0.0
	for x := o.bounds[segment][0] + phase; x < o.bounds[segment][1]; x += stride {
		values, order := o.forecast[x*n:(x+1)*n], o.order[x*n:(x+1)*n]
		seen, mean := 0.0, 0.0
		for _, id := range order {
			from := max(0.25, seen)
			seen += weights[id]
			if to := min(0.75, seen); to > from {
				mean += 2 * (to - from) * float64(values[id])
			}
		}
		sign := 0.0
		for _, y := range o.actual[o.first[x]:o.first[x+1]] {
			d := mean - float64(y)
			sum += math.Abs(d)
			sign += float64(cmp.Compare(d, 0))
		}
		// The mean is twice the integral of the quantiles from 1/4 to 3/4. More weight on an expert lowers the quantiles above its
		// forecast by the distance to the next one, as far as they are in that range.
		above, below := 0.0, seen
		for k := n - 1; k >= 0 && sign != 0; k-- {
			if k < n-1 && below > 0.25 && below < 0.75 {
				above += float64(values[order[k+1]] - values[order[k]])
			}
			gradient[order[k]] -= 2 * sign * above
			below -= weights[order[k]]
		}
	}
	return sum
}

// backpropagate adds the derivatives of a loss by the weights of the network, given that by its correction of an expert.
func (n *network) backpropagate(in *gateInputs, id int, units []float32, d float32, gradient []float32) {
	size := len(n.weights)/n.hidden - 1
	unitWeights := n.weights[n.hidden*size:]
	for j := range n.hidden {
		slope := 1 - max(units[j], -units[j])
		gradient[n.hidden*size+j] += d * units[j]
		v := d * unitWeights[j] * slope * slope
		g := gradient[j*size : (j+1)*size]
		g[gateScalars+id] += v
		g[size-1] += v
		for k, x := range in {
			g[k] += v * x
		}
	}
}

// trainGate returns a network that is trained on some origins: Adam with a rate that falls as a cosine.
func trainGate(items []gateItem, seed uint64) network {
	items = slices.Clone(items)
	r := rand.New(rand.NewPCG(seed, 77))
	size := unitSize()
	n := network{hidden: gateUnits, weights: make([]float32, gateUnits*(size+1))}
	for i := range gateUnits * size {
		n.weights[i] = float32(r.NormFloat64() / math.Sqrt(gateScalars))
	}
	gradient := make([]float32, len(n.weights))
	first, second := make([]float64, len(n.weights)), make([]float64, len(n.weights))
	batches := (len(items) + gateBatch - 1) / gateBatch
	for step := range gateEpochs * batches {
		at := step % batches * gateBatch
		if at == 0 {
			r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		}
		clear(gradient)
		for _, item := range items[at:min(len(items), at+gateBatch)] {
			for s := range segmentCount {
				n.learn(item, s, r, gradient)
			}
		}
		rate := gateRate * (0.02 + 0.49*(1+math.Cos(math.Pi*float64(step+1)/float64(gateEpochs*batches))))
		firstBias, secondBias := 1-math.Pow(0.9, float64(step+1)), 1-math.Pow(0.999, float64(step+1))
		for i, g := range gradient {
			g := float64(g) / gateBatch
			first[i] = 0.9*first[i] + 0.1*g
			second[i] = 0.999*second[i] + 0.001*g*g
			move := first[i]/firstBias/(math.Sqrt(second[i]/secondBias)+1e-8) + gateDecay*float64(n.weights[i])
			n.weights[i] -= float32(rate * move)
		}
	}
	return n
}

// learn adds the derivatives of the loss of a segment.
func (n *network) learn(item gateItem, s int, r *rand.Rand, gradient []float32) {
	if item.in[s] == nil {
		return
	}
	stride, phase := 1, 0
	if s == segmentCount-1 && item.bounds[s][1] >= 288 {
		stride, phase = slotStride, r.IntN(slotStride)
	}
	units := make([]float32, n.hidden)
	count := len(item.in[s])
	weights, blended, derivatives := make([]float64, count), make([]float64, count), make([]float64, count)
	n.weigh(item.hedge[s], item.in[s], units, weights)
	for i, w := range weights {
		blended[i] = gateBlend*w + (1-gateBlend)*item.hedge[s][i]
	}
	item.loss(s, blended, stride, phase, derivatives)
	mean := 0.0
	for i, w := range weights {
		mean += w * derivatives[i]
	}
	for i, w := range weights {
		if d := w * (derivatives[i] - mean) * gateBlend * item.weight * float64(stride); d != 0 {
			n.correct(&item.in[s][i], i, units)
			n.backpropagate(&item.in[s][i], i, units, float32(d), gradient)
		}
	}
}

// formatGate returns networks as a Go file, a line for each unit, with three digits of each weight.
func formatGate(networks []network) string {
	var body strings.Builder
	var all []float32
	for _, n := range networks {
		for line := range slices.Chunk(n.weights, len(n.weights)/n.hidden-1) {
			body.WriteByte('\t')
			for i, v := range line {
				text := fmt.Sprintf("%.3g", v)
				if i > 0 {
					body.WriteByte(' ')
				}
				body.WriteString(text + ",")
				rounded, _ := strconv.ParseFloat(text, 32)
				all = append(all, float32(rounded))
			}
			body.WriteByte('\n')
		}
	}
	return fmt.Sprintf(gateFile, gateChecksum(all), &body)
}

// gateFile is the file of the weights.
const gateFile = `// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Code generated by hack/train-gate.sh. DO NOT EDIT.

package auto

// gateWeightsChecksum is the CRC-32 (IEEE) of the names of the experts of the median and of gateWeights.
const gateWeightsChecksum = 0x%08x

// gateWeights are the weights of the networks of the gate: of each, the weights of each unit, then those of the units.
var gateWeights = []float32{
%s}
`

// gateChecksum returns the CRC-32 (IEEE) of the names of the experts and of weights.
func gateChecksum(weights []float32) uint32 {
	var data []byte
	for _, e := range medianExperts() {
		data = append(data, experts()[e].name+"\n"...)
	}
	for _, v := range weights {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return crc32.ChecksumIEEE(data)
}

// BenchmarkTrainGate trains the gate and writes its weights to the file $CRANE_GATE.
func BenchmarkTrainGate(b *testing.B) {
	path := os.Getenv("CRANE_GATE")
	if path == "" {
		b.Skip("CRANE_GATE names no file to write")
	}
	networks := trainGates(trainingData(b), []string{""})[""]
	if err := os.WriteFile(path, []byte(formatGate(networks)), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
	}
}
