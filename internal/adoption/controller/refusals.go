// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/pkg/adoption"
)

const (
	// causeNodeCapacity is the cause with which the API server refuses a resize that exceeds the capacity of the node, whatever
	// else runs there; older versions have only the text.
	causeNodeCapacity = metav1.CauseType("NodeCapacity")
	textNodeCapacity  = "enough allocatable"
	// refusalTTL is how long a refusal is valid, maxRefusals how many are kept. A forgotten resize is sent again.
	refusalTTL  = 10 * time.Minute
	maxRefusals = 10_000
)

// refusals records the pods that do not get a size in place according to the API server. The pod itself does not show a
// refused resize.
type refusals struct {
	mu    sync.Mutex
	byPod map[types.UID]refusal
}

type refusal struct {
	size   adoption.Size
	reason string
	// anyNode is set for refusals, such as that of a quota, that would affect a new pod as well.
	anyNode bool
	at      time.Time
}

// exceedsNode reports whether the API server refused a resize because of the node's capacity.
func exceedsNode(err error) bool {
	return apierrors.HasStatusCause(err, causeNodeCapacity) || strings.Contains(err.Error(), textNodeCapacity)
}

// record stores a refusal.
func (r *refusals) record(c adoption.PodResize, err error, now time.Time) {
	next := refusal{
		size:    c.To,
		reason:  "the API server reports that its node can never provide " + c.To.String(),
		anyNode: !exceedsNode(err),
		at:      now,
	}
	if next.anyNode {
		next.reason = "the API server refused " + c.To.String()
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.byPod == nil || len(r.byPod) >= maxRefusals {
		r.byPod = map[types.UID]refusal{}
	}
	r.byPod[types.UID(c.UID)] = next
}

// mark returns the pods with the refusals that are recorded for them.
func (r *refusals) mark(pods []adoption.Pod, now time.Time) []adoption.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()

	marked := slices.Clone(pods)
	for i := range marked {
		p := &marked[i]
		recorded, found := r.byPod[types.UID(p.UID)]
		switch {
		case !found:
		case now.Sub(recorded.at) > refusalTTL:
			delete(r.byPod, types.UID(p.UID))
		default:
			p.Refused = recorded.reason
			p.RefusedSize = recorded.size
			p.RefusedOnAnyNode = recorded.anyNode
		}
	}

	return marked
}
