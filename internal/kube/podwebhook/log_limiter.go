// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// logInterval is how often the failure of a mutator is logged for the pods of one workload.
	logInterval = time.Minute
	// maxLoggedKeys bounds the memory of a limiter, and the lines that it lets pass in an interval.
	maxLoggedKeys = 1000
)

// logLimiter allows one log line for a key and interval.
type logLimiter struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	lastLogged map[string]time.Time
}

// allow reports whether a line about key may be logged now.
func (l *logLimiter) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.clock.Now()
	isOld := func(_ string, logged time.Time) bool { return now.Sub(logged) >= logInterval }
	if logged, ok := l.lastLogged[key]; ok && !isOld(key, logged) {
		return false
	}

	if len(l.lastLogged) >= maxLoggedKeys {
		maps.DeleteFunc(l.lastLogged, isOld)
	}

	if len(l.lastLogged) >= maxLoggedKeys {
		return false
	}

	if l.lastLogged == nil {
		l.lastLogged = map[string]time.Time{}
	}

	l.lastLogged[key] = now
	return true
}
