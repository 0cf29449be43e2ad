// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"strconv"
	"strings"

	"crane.io/crane/pkg/series"
)

// javaOptionVariables are the environment variables that JVMs read options from, in the order in which they take effect;
// the command line comes between the first two and the last.
func javaOptionVariables() (before, after []string) {
	return []string{"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "JAVA_OPTIONS"}, []string{"_JAVA_OPTIONS"}
}

// FindJVM looks for heap settings in a container's command line and environment: -Xmx, -XX:MaxHeapSize and
// -XX:MaxRAMPercentage, as JVM flags or in JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, JAVA_OPTS, JAVA_OPTIONS and
// _JAVA_OPTIONS. The last one given wins, and a fixed size wins over a percentage, as in the JVM. It returns nil where
// there is none; a value that the JVM would refuse counts as none.
func FindJVM(args []string, env map[string]string) *JVM {
	before, after := javaOptionVariables()
	var options []string
	add := func(names []string) {
		for _, name := range names {
			options = append(options, strings.Fields(env[name])...)
		}
	}
	add(before)
	for _, arg := range args {
		// A shell may hold the whole command in one argument.
		options = append(options, strings.Fields(arg)...)
	}
	add(after)
	found := JVM{}
	for _, option := range options {
		option = strings.Trim(option, `"'`)
		if size, ok := strings.CutPrefix(option, "-Xmx"); ok {
			found.MaxHeap = javaSize(size, found.MaxHeap)
		}
		if size, ok := strings.CutPrefix(option, "-XX:MaxHeapSize="); ok {
			found.MaxHeap = javaSize(size, found.MaxHeap)
		}
		if share, ok := strings.CutPrefix(option, "-XX:MaxRAMPercentage="); ok {
			if v, err := strconv.ParseFloat(share, 64); err == nil && v > 0 && v <= 100 {
				found.MaxRAMPercentage = series.Ratio(v / 100)
			}
		}
	}
	if found == (JVM{}) {
		return nil
	}
	return &found
}

// javaSize reads a size as the JVM does (512m, 2g, 1048576), otherwise keeps the one before.
func javaSize(text string, before series.Bytes) series.Bytes {
	if text == "" {
		return before
	}
	shift := 0
	switch text[len(text)-1] | 0x20 {
	case 'k':
		shift = 10
	case 'm':
		shift = 20
	case 'g':
		shift = 30
	case 't':
		shift = 40
	}
	if shift > 0 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseUint(text, 10, 63)
	const most = 1 << 50
	if err != nil || n == 0 || n > most>>shift {
		return before
	}
	return series.Bytes(n << shift)
}
