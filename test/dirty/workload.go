// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/series"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	// historyDays is the window of the default policy.
	historyDays = 14
	minutesADay = 24 * 60
	minutes     = historyDays * minutesADay

	nodeCPU    = 8
	nodeMemory = 32 * gib
)

// end is within an hour of a Wednesday, so that the weekdays of the history are the same in each run.
func end() time.Time { return time.Date(2026, 3, 18, 12, 34, 0, 0, time.UTC) }

func start() time.Time { return end().AddDate(0, 0, -historyDays) }

func timeOf(minute int) time.Time { return start().Add(time.Duration(minute) * time.Minute) }

// Workload is a simulated workload with one container, app, that is sized.
type Workload struct {
	Namespace, Name string
	// Kind is the kind of its controller; Pod for pods without one.
	Kind string
	// RequestCPU and LimitCPU are in cores, Request and Limit in bytes; 0 for none.
	RequestCPU, LimitCPU, Request, Limit float64
	Pods                                 []*Pod

	// cpu and memory are the typical need of a pod.
	cpu, memory float64
	// peak is the CPU of a rare peak; 0 for none.
	peak float64
}

// Pod is the life of one pod: what its process required in each minute of the history.
type Pod struct {
	Name string
	// Owner is the name of the ReplicaSet or Job between the pod and its workload; empty without one.
	Owner string
	// From is the minute of the history in which it starts.
	From int
	// Cores and Bytes have one value per minute of its life; a gap while the process does not run.
	Cores, Bytes []float64
	// Cache is the page cache in the working set beside Bytes; nil for none.
	Cache []float64
}

// newWorkload returns a service of the given seed. The same seed gives the same process in each namespace.
func newWorkload(seed uint64, namespace string) *Workload {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &Workload{
		Namespace: namespace,
		Name:      "web",
		Kind:      "Deployment",
		cpu:       0.1 + 0.4*r.Float64(),
		memory:    math.Round((200 + 800*r.Float64())) * mib,
	}
	w.RequestCPU = math.Round(3000*w.cpu) / 1000
	w.Request = 2 * w.memory
	w.Limit = 2 * w.memory

	for i := range 2 {
		w.addPod(r, fmt.Sprintf("web-5d4f8c7b9d-%s", suffix(i)), "web-5d4f8c7b9d", 0, minutes)
	}

	return w
}

// addPod adds a pod with a daily cycle and noise.
func (w *Workload) addPod(r *rand.Rand, name, owner string, from, to int) *Pod {
	p := &Pod{
		Name:  name,
		Owner: owner,
		From:  from,
		Cores: gaps(to - from),
		Bytes: gaps(to - from),
	}

	for i := range p.Cores {
		m := from + i
		wave := 0.75 + 0.25*math.Cos(2*math.Pi*(float64(timeOf(m).Hour())-14)/24)
		p.Cores[i] = w.cpu * wave * math.Exp(0.08*r.NormFloat64())
		p.Bytes[i] = math.Round(w.memory * (0.95 + 0.04*wave + 0.01*r.Float64()))
	}

	w.Pods = append(w.Pods, p)
	return p
}

// gaps returns some minutes without samples.
func gaps(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = series.Gap()
	}

	return out
}

// suffix returns the i-th generated suffix of a pod's name.
func suffix(i int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, 5)
	for k := range out {
		out[k] = letters[(i*7+k*3+i/len(letters))%len(letters)]
		i /= 2
	}

	return string(out)
}
