// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Minute: "1m", 15 * time.Second: "15s", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 10 * time.Minute: "10m", 0: "0s"} {
		if got := units.FormatShortDuration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
