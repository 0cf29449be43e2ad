// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// exposition collects metric families in the text format.
type exposition struct{ out bytes.Buffer }

// add writes a family: its head once, then what samples emits.
func (e *exposition) add(name, kind, help string, samples func(emit func(value float64, at time.Time, labels ...string))) {
	started := false
	samples(func(value float64, at time.Time, labels ...string) {
		if !started {
			e.out.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
			started = true
		}
		e.out.WriteString(name)
		for i := 0; i+1 < len(labels); i += 2 {
			sep := byte(',')
			if i == 0 {
				sep = '{'
			}
			e.out.WriteByte(sep)
			e.out.WriteString(labels[i] + "=\"" + escape(labels[i+1]) + "\"")
		}
		if len(labels) > 0 {
			e.out.WriteByte('}')
		}
		e.out.WriteByte(' ')
		e.out.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
		if !at.IsZero() {
			e.out.WriteString(" " + strconv.FormatInt(at.UnixMilli(), 10))
		}
		e.out.WriteByte('\n')
	})
}

// escape makes a label value safe, as the text format asks.
func escape(s string) string {
	if !strings.ContainsAny(s, "\\\"\n") {
		return s
	}
	return strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n").Replace(s)
}
