// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// event is a step in the life of a node's containers. The numbers choose pod, container and amount, so that a shorter list of events has the
// same meaning.
type event struct {
	kind        string
	pod, choice int
}

func (e event) String() string { return fmt.Sprintf("%s(%d,%d)", e.kind, e.pod, e.choice) }

// eventKinds returns the kinds of events, frequent ones several times.
func eventKinds() []string {
	return []string{
		"create", "create", "delete", "exit", "exit", "crash", "crash", "kill", "load", "load", "load", "busy", "calm", "resize", "resize",
		"resize-pod", "debug", "time", "time", "time", "restart-agent", "restart-agent-alone", "hand-over", "restart-kubelet", "restart-runtime",
		"scale", "late-status", "offline", "online",
	}
}

func newEvents(seed uint64, n int) []event {
	random := rand.New(rand.NewPCG(seed, 1))
	kinds := eventKinds()
	out := make([]event, n)
	for i := range out {
		out[i] = event{kinds[random.IntN(len(kinds))], random.IntN(lifePods), random.IntN(1000)}
	}

	return out
}

// shrink returns a short list of events that still fails, by leaving out ever smaller parts.
func shrink(events []event, fails func([]event) bool) []event {
	const maxAttempts = 60
	attempts := 0
	for size := len(events) / 2; size > 0; {
		shorter := false
		for start := 0; start+size <= len(events) && attempts < maxAttempts; attempts++ {
			candidate := slices.Delete(slices.Clone(events), start, start+size)
			if fails(candidate) {
				events = candidate
				shorter = true
			} else {
				start += size
			}
		}

		if !shorter || size > len(events) || attempts >= maxAttempts {
			size /= 2
		}
	}

	return events
}

// TestLifeOfContainers runs seeded sequences of what happens to pods, containers, the kubelet, the runtime and the agent while rules throttle
// and elastic resources come and go, on both cgroup versions, and checks the invariants of lifeOf after each event. CRANE_LIFE_STEPS sets the
// number of events, CRANE_LIFE_SEED a single seed.
func TestLifeOfContainers(t *testing.T) {
	steps, seeds := 60, []uint64{1, 2, 3}
	if text := os.Getenv("CRANE_LIFE_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}

		const perSeed = 500
		seeds = nil
		for i := range max(n/perSeed/2, 1) {
			seeds = append(seeds, uint64(i+1))
		}
		steps = min(n, perSeed)
	}

	if text := os.Getenv("CRANE_LIFE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{n}
	}

	for _, v1 := range []bool{false, true} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("v1=%t/seed=%d", v1, seed), func(t *testing.T) {
				t.Parallel()

				events := newEvents(seed, steps)
				violation := liveOnce(t, v1, events)
				if violation == "" {
					return
				}

				short := shrink(events, func(list []event) bool { return liveOnce(t, v1, list) != "" })
				var text []string
				for _, e := range short {
					text = append(text, e.String())
				}

				t.Fatalf("seed %d, cgroup v1 %t: %s\nshortest: %s\nwith: %s", seed, v1, violation, strings.Join(text, " "), liveOnce(t, v1, short))
			})
		}
	}
}

// TestLifeOfContainers_Recorded lives through the shortest sequences that violated an invariant once.
func TestLifeOfContainers_Recorded(t *testing.T) {
	for name, text := range map[string]string{
		"the pod of an inherited limit requests more": "calm(1,564) exit(1,247) exit(4,831) restart-agent-alone(5,986) restart-runtime(2,240) time(2,318) " +
			"hand-over(2,461) resize-pod(1,788) delete(5,970)",
		"the kernel scales the throttle of an elastic container": "resize-pod(1,359) time(4,983) delete(5,165) exit(4,751) late-status(3,906) " +
			"kill(0,32) restart-agent(3,686) load(0,489) online(3,49) resize(3,374) crash(3,479) scale(5,560) restart-runtime(3,767) late-status(0,111)",
		"a throttled elastic pod gets an ordinary request": "time(3,802) exit(3,934) crash(0,439) resize-pod(3,629) calm(3,401)",
	} {
		for _, v1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/v1=%t", name, v1), func(t *testing.T) {
				t.Parallel()

				if violation := liveOnce(t, v1, parseEvents(t, text)); violation != "" {
					t.Errorf("liveOnce(%s) = %s, want no violation", text, violation)
				}
			})
		}
	}
}

// parseEvents is the reverse of event.String.
func parseEvents(t *testing.T, text string) []event {
	t.Helper()

	var out []event
	for field := range strings.FieldsSeq(text) {
		kind, numbers, _ := strings.Cut(field, "(")
		e := event{kind: kind}
		if _, err := fmt.Sscanf(numbers, "%d,%d)", &e.pod, &e.choice); err != nil {
			t.Fatalf("parsing event %q: %v", field, err)
		}

		out = append(out, e)
	}

	return out
}
