// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calltrace records the calls between instrumented functions. No production code imports it: test/pathlength/instrument adds the
// calls of Enter and Yield to copies of the sources.
package calltrace

import (
	"bytes"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// frame is an active call. A closure has the name of the function that declares it.
type frame struct {
	name, folder string
	iterator     bool
}

// Call is a call between two functions of different folders.
type Call struct{ From, To string }

// Trace is what a recording has seen.
type Trace struct {
	// Functions are the declared functions and methods that were entered, by folder.
	Functions map[string][]string
	// Path are those that were active when a folder was entered for the first time, and at each Mark.
	Path map[string]bool
	// TurnBacks are the calls into a folder that is already on the stack of the caller but is not the caller's own.
	TurnBacks []Call
}

// recorder is a global variable, because instrumented functions have no other access.
var recorder = struct {
	sync.Mutex

	recording bool
	stacks    map[uint64][]frame
	entered   map[string]string
	folders   map[string]bool // of calls that were active at the start, or entered since
	path      map[string]bool
	turnBacks map[Call]bool
}{stacks: map[uint64][]frame{}}

// Start forgets what was recorded and starts recording. The active calls of the calling goroutine belong to the path.
func Start() {
	id := goroutine()
	recorder.Lock()
	defer recorder.Unlock()

	recorder.recording = true
	recorder.entered = map[string]string{}
	recorder.path = map[string]bool{}
	recorder.turnBacks = map[Call]bool{}
	recorder.folders = map[string]bool{}
	markPath(recorder.stacks[id])

	for _, f := range recorder.stacks[id] {
		recorder.folders[f.folder] = true
	}
}

// Pause interrupts a recording until Resume.
func Pause() {
	recorder.Lock()
	defer recorder.Unlock()

	recorder.recording = false
}

// Resume continues a recording.
func Resume() {
	recorder.Lock()
	defer recorder.Unlock()

	recorder.recording = recorder.entered != nil
}

// Stop ends the recording and returns it.
func Stop() Trace {
	recorder.Lock()
	defer recorder.Unlock()

	recorder.recording = false
	out := Trace{Functions: map[string][]string{}, Path: maps.Clone(recorder.path)}
	for name, folder := range recorder.entered {
		out.Functions[folder] = append(out.Functions[folder], name)
	}

	for _, names := range out.Functions {
		slices.Sort(names)
	}

	out.TurnBacks = slices.SortedFunc(maps.Keys(recorder.turnBacks), func(a, b Call) int {
		return bytes.Compare([]byte(a.From+a.To), []byte(b.From+b.To))
	})

	return out
}

// Enter records a call; the returned function ends it. closure marks a function literal, iterator one with a parameter named yield.
func Enter(name, folder string, closure, iterator bool) func() {
	id := goroutine()
	recorder.Lock()
	defer recorder.Unlock()

	stack := recorder.stacks[id]
	if recorder.recording {
		recordCall(stack, name, folder)
		if !closure {
			recorder.entered[name] = folder
		}
	}

	recorder.stacks[id] = append(stack, frame{name, folder, iterator})
	return func() {
		recorder.Lock()
		defer recorder.Unlock()

		if len(stack) == 0 {
			delete(recorder.stacks, id)
			return
		}

		recorder.stacks[id] = stack
	}
}

// Mark adds the active calls of the calling goroutine to the path.
func Mark() {
	id := goroutine()
	recorder.Lock()
	defer recorder.Unlock()

	if recorder.recording {
		markPath(recorder.stacks[id])
	}
}

// markPath adds calls to the path; the caller holds the lock.
func markPath(stack []frame) {
	for _, f := range stack {
		recorder.path[f.name] = true
	}
}

// recordCall records a call that begins a folder or turns back; the caller holds the lock.
func recordCall(stack []frame, name, folder string) {
	if !recorder.folders[folder] {
		recorder.folders[folder] = true
		markPath(append(slices.Clip(stack), frame{name: name}))
	}

	if len(stack) == 0 {
		return
	}

	from := stack[len(stack)-1]
	if from.folder != folder && slices.ContainsFunc(stack, func(f frame) bool { return f.folder == folder }) {
		recorder.turnBacks[Call{from.name, name}] = true
	}
}

// Yield calls the body of a range loop over an iterator. The calls of the body are the loop's, not the iterator's.
func Yield(body func() bool) bool {
	id := goroutine()
	recorder.Lock()

	before := recorder.stacks[id]
	loop := before
	for i := range slices.Backward(before) {
		if before[i].iterator {
			loop = slices.Clone(before[:i])
			break
		}
	}

	recorder.stacks[id] = loop
	recorder.Unlock()
	defer func() {
		recorder.Lock()
		defer recorder.Unlock()

		recorder.stacks[id] = before
	}()

	return body()
}

// goroutine returns the number of the calling goroutine.
func goroutine() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	id, err := strconv.ParseUint(string(text[:bytes.IndexByte(text, ' ')]), 10, 64)
	if err != nil {
		panic(err)
	}

	return id
}
