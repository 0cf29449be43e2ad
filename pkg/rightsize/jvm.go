// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"strconv"
	"strings"

	"crane.io/crane/pkg/units"
)

// javaOptionVariables returns the environment variables with JVM options: those that take effect before the command line and
// those after it.
func javaOptionVariables() (before, after []string) {
	return []string{"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "JAVA_OPTIONS"}, []string{"_JAVA_OPTIONS"}
}

// FindJVM parses the heap settings in the command line and environment of a container: -Xmx, -XX:MaxHeapSize and
// -XX:MaxRAMPercentage, as flags or in JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, JAVA_OPTS, JAVA_OPTIONS and _JAVA_OPTIONS. The
// last one takes precedence, and a fixed size over a percentage, as in the JVM. Values that the JVM would reject are
// ignored. It returns nil if there are none.
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
		// The whole command may be one argument of a shell.
		options = append(options, strings.Fields(arg)...)
	}

	add(after)
	jvm := JVM{}
	for _, option := range options {
		option = strings.Trim(option, `"'`)
		if size, ok := strings.CutPrefix(option, "-Xmx"); ok {
			jvm.MaxHeap = javaSize(size, jvm.MaxHeap)
		}
		if size, ok := strings.CutPrefix(option, "-XX:MaxHeapSize="); ok {
			jvm.MaxHeap = javaSize(size, jvm.MaxHeap)
		}

		if share, ok := strings.CutPrefix(option, "-XX:MaxRAMPercentage="); ok {
			if v, err := strconv.ParseFloat(share, 64); err == nil && v > 0 && v <= 100 {
				jvm.MaxRAMPercentage = units.Ratio(v / 100)
			}
		}
	}

	if jvm == (JVM{}) {
		return nil
	}

	// The JVM ignores the percentage beside a fixed size.
	if jvm.MaxHeap > 0 {
		jvm.MaxRAMPercentage = 0
	}

	return &jvm
}

// javaSize parses a size as the JVM does (512m, 2g, 1048576); it returns before if it is invalid.
func javaSize(text string, before units.Bytes) units.Bytes {
	if text == "" {
		return before
	}

	// The suffix is case-insensitive: bit 0x20 makes a letter lower case.
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
	const maxSize = 1 << 50
	if err != nil || n == 0 || n > maxSize>>shift {
		return before
	}

	return units.Bytes(n << shift)
}
