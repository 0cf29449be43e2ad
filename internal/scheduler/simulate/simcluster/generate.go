// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"crane.io/crane/internal/scheduler/simulate/simscenario"
	"crane.io/crane/pkg/units"
)

// Streams of random numbers, one for each matter, so that a change in one leaves the others as they were.
const (
	streamNodes = iota + 1
	streamWorkloads
	streamPods
	streamMetrics
	streamDeaths
)

// maxPods bounds what a scenario may ask for: each pod is an object of Kubernetes.
const maxPods = 5_000_000

// fill is the time over which the pods that are there from the start arrive.
const fill = 10 * time.Minute

// Generate draws the world of a scenario without a trace. It depends on nothing but its arguments. The error names the
// part that exceeds a bound.
func Generate(s *simscenario.Scenario, seed uint64) (*World, error) {
	if s.Trace != nil {
		return nil, fmt.Errorf("scenario %s needs a trace", s.Name)
	}

	w := empty(s)
	w.drawNodes(s.Nodes, rand.New(rand.NewPCG(seed, streamNodes)))
	rng := rand.New(rand.NewPCG(seed, streamWorkloads))
	shares := w.drawWorkloads(s.Workloads, rng)

	for i := range w.Workloads {
		shape := pick(s.Workloads.Requests, func(p simscenario.PodShape) float64 { return p.Weight }, rng)
		w.Workloads[i].CPU = units.MilliCPU(shape.CPU.MilliValue())
		w.Workloads[i].Memory = units.Bytes(shape.Memory.Value())
	}

	w.scale(shares, s.Load.Used/s.Load.Requested, s.Workloads.UsePerRequest.Max)
	if err := w.drawPods(s, shares, rand.New(rand.NewPCG(seed, streamPods))); err != nil {
		return nil, err
	}

	return w, nil
}

func empty(s *simscenario.Scenario) *World {
	return &World{
		start:       s.Time.Start.Duration,
		startup:     s.Workloads.Startup.Duration,
		noise:       s.Workloads.Noise.Share,
		noisePeriod: s.Workloads.Noise.Period.Duration,
	}
}

func (w *World) drawNodes(n simscenario.Nodes, rng *rand.Rand) {
	w.Nodes = make([]Node, n.Count)
	for i := range w.Nodes {
		shape := pick(n.Shapes, func(s simscenario.NodeShape) float64 { return s.Weight }, rng)
		w.Nodes[i] = Node{
			Name: fmt.Sprintf("node-%05d", i),
			CPU:  units.MilliCPU(shape.CPU.MilliValue()), Memory: units.Bytes(shape.Memory.Value()),
		}
	}
}

// drawWorkloads draws everything of workloads but their requests, and returns how many of the pods each has: shares, which
// are lognormal with a sigma of 0.5 and add up to 1.
func (w *World) drawWorkloads(k simscenario.Workloads, rng *rand.Rand) []float64 {
	w.Workloads = make([]Workload, k.Count)
	shares := make([]float64, k.Count)
	var sum float64
	for i := range w.Workloads {
		shares[i] = math.Exp(0.5 * rng.NormFloat64())
		sum += shares[i]
		work := &w.Workloads[i]
		work.PerRequest = math.Exp(k.UsePerRequest.Sigma * rng.NormFloat64())
		work.MemoryPerRequest = min(1, k.MemoryPerRequest*math.Exp(0.2*rng.NormFloat64()))

		cyclic := rng.Float64() < k.Diurnal.Share
		jitter := rng.NormFloat64()
		if cyclic {
			work.amplitude = k.Diurnal.Amplitude
			work.peak = k.Diurnal.Peak.Duration + time.Duration(jitter*float64(k.Diurnal.Jitter.Duration))
		}
	}

	for i := range shares {
		shares[i] /= sum
	}

	return shares
}

// scale scales the mean use per request, weighted by requests and shares, to mean. No workload exceeds mean by more than maxFactor.
func (w *World) scale(shares []float64, mean, maxFactor float64) {
	// The others compensate for what is cut off at the top: two iterations come close, ten are exact for all purposes.
	for range 10 {
		var used, requested float64
		for i, work := range w.Workloads {
			requested += shares[i] * float64(work.CPU)
			used += shares[i] * float64(work.CPU) * work.PerRequest
		}

		factor := mean * requested / used
		for i := range w.Workloads {
			w.Workloads[i].PerRequest = min(w.Workloads[i].PerRequest*factor, maxFactor*mean)
		}
	}
}

// drawPods draws arrivals: those that are there from the start with what is left of their lifetimes, then a Poisson process of
// batches that keeps their number.
func (w *World) drawPods(s *simscenario.Scenario, shares []float64, rng *rand.Rand) error {
	var request float64
	for i, work := range w.Workloads {
		request += shares[i] * float64(work.CPU)
	}

	running := s.Load.Requested * float64(w.CPU()) / request
	mean := s.Workloads.Lifetime.Mean.Duration

	rate := running / mean.Seconds()
	if all := running + rate*s.Length().Seconds(); all > maxPods {
		return fmt.Errorf("scenario %s has %.0f pods, more than %d: fewer nodes, larger requests or longer lifetimes", s.Name, all, maxPods)
	}

	batches := newChooser(shares)
	lifetimes := lifetime{mean: mean, sigma: s.Workloads.Lifetime.Sigma}
	for drawn := 0; drawn < int(running); {
		batches.draw(rng)
		at := time.Duration(rng.Float64() * float64(fill))
		for range min(batchSize(s.Workloads.Batch, rng), int(running)-drawn) {
			drawn++
			// What is left counts from the start, although it takes some minutes until all have arrived.
			w.addPod(batches.index, at, max(time.Second, lifetimes.remaining(rng)-at), s.Workloads.PodSpread, rng)
		}
	}

	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() * s.Workloads.Batch / rate * float64(time.Second))
		if at >= s.Length() {
			break
		}

		batches.draw(rng)
		for range batchSize(s.Workloads.Batch, rng) {
			w.addPod(batches.index, at, lifetimes.full(rng), s.Workloads.PodSpread, rng)
		}
	}

	slices.SortStableFunc(w.Pods, func(a, b Pod) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return nil
}

func (w *World) addPod(workload int, at, lifespan time.Duration, spread float64, rng *rand.Rand) {
	work := &w.Workloads[workload]
	w.Pods = append(w.Pods, Pod{
		Workload: workload, CPU: work.CPU, Memory: work.Memory, Arrival: at, Lifetime: lifespan,
		// The mean of this lognormal distribution is 1.
		factor: math.Exp(spread*rng.NormFloat64() - spread*spread/2), seed: rng.Uint64(),
	})
}

// batchSize is geometric with the given mean, at least 1.
func batchSize(mean float64, rng *rand.Rand) int {
	if mean <= 1 {
		return 1
	}

	return 1 + int(math.Log(1-rng.Float64())/math.Log(1-1/mean))
}

// lifetime is lognormal with its mean.
type lifetime struct {
	mean  time.Duration
	sigma float64
}

func (l lifetime) full(rng *rand.Rand) time.Duration {
	return max(time.Second, time.Duration(float64(l.mean)*math.Exp(l.sigma*rng.NormFloat64()-l.sigma*l.sigma/2)))
}

// remaining is what is left of the lifetime of a pod that is met at a random time: long ones are met more often, which shifts the
// logarithm by sigma squared, and a uniform part of it is over.
func (l lifetime) remaining(rng *rand.Rand) time.Duration {
	length := float64(l.mean) * math.Exp(l.sigma*rng.NormFloat64()+l.sigma*l.sigma/2)
	return max(time.Second, time.Duration(length*rng.Float64()))
}

// pick draws one of items in proportion to its weight.
func pick[T any](items []T, weight func(T) float64, rng *rand.Rand) T {
	var sum float64
	for _, item := range items {
		sum += weight(item)
	}

	x := rng.Float64() * sum
	for _, item := range items {
		if x -= weight(item); x < 0 {
			return item
		}
	}

	return items[len(items)-1]
}

// chooser draws indices in proportion to shares.
type chooser struct {
	upTo  []float64
	index int
}

func newChooser(shares []float64) *chooser {
	c := &chooser{upTo: make([]float64, len(shares))}
	var sum float64
	for i, s := range shares {
		sum += s
		c.upTo[i] = sum
	}

	return c
}

func (c *chooser) draw(rng *rand.Rand) {
	i, _ := slices.BinarySearch(c.upTo, rng.Float64()*c.upTo[len(c.upTo)-1])
	c.index = min(i, len(c.upTo)-1)
}

// Burst is a cluster of which one node idles, and many equal pods that come at once.
type Burst struct {
	*World
	// On is the node of each pod that is there already; the pods after those are the burst.
	On []int
}

// Sizes of the nodes and pods of a burst.
const (
	burstCPU     = 16_000
	burstMemory  = 64 << 30
	burstRequest = 500
	burstUse     = 0.6
	residents    = 4
	idle         = 0.1
	busy         = 0.5
)

// NewBurst makes nodes of which the first uses 10 % and all others 50 %, whatever their pods request: that is uneven, from 30 to
// 60 % of the node. size pods come at the time at; each uses 60 % of its request of half a core.
func NewBurst(nodes, size int, at time.Duration) *Burst {
	b := &Burst{World: &World{noisePeriod: time.Minute}}
	for i := range nodes {
		b.Nodes = append(b.Nodes, Node{Name: fmt.Sprintf("node-%05d", i), CPU: burstCPU, Memory: burstMemory})
		load := busy
		if i == 0 {
			load = idle
		}

		// Requests vary between nodes, so that a scheduler that counts requests is misled.
		requested := 0.3 + 0.3*float64(Hash(0, uint64(i), 0)>>11)/(1<<53)
		request := units.MilliCPU(requested * burstCPU / residents)
		b.Workloads = append(b.Workloads, Workload{
			CPU:              request,
			Memory:           burstMemory / 20,
			PerRequest:       load * burstCPU / residents / float64(request),
			MemoryPerRequest: 0.5,
		})

		for range residents {
			b.Pods = append(b.Pods, Pod{
				Workload: i,
				CPU:      request,
				Memory:   burstMemory / 20,
				Lifetime: day,
				factor:   1,
			})

			b.On = append(b.On, i)
		}
	}

	b.Workloads = append(b.Workloads, Workload{
		CPU:              burstRequest,
		Memory:           1 << 28,
		PerRequest:       burstUse,
		MemoryPerRequest: 0.5,
	})

	for range size {
		b.Pods = append(b.Pods, Pod{
			Workload: nodes,
			CPU:      burstRequest,
			Memory:   1 << 28,
			Arrival:  at,
			Lifetime: day,
			factor:   1,
		})
	}

	return b
}

// PodShare is what one pod of the burst adds to the load of a node.
func (b *Burst) PodShare() float64 { return burstRequest * burstUse / burstCPU }
