// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/pkg/adoption"
)

const (
	// neverRoom is the cause for which the API server refuses a resize that is more than the node has, whoever else is on it; older
	// ones say so in words alone.
	neverRoom, neverRoomText = metav1.CauseType("NodeCapacity"), "enough allocatable"
	// refusalAge is how long a refusal is believed, mostRefusals how many are: what is forgotten is asked again.
	refusalAge   = 10 * time.Minute
	mostRefusals = 10_000
)

// refusals remembers which pods could never be given a size in place, because the API server has said so: such a pod keeps its
// size, so that nothing in it tells of the refusal.
type refusals struct {
	mu    sync.Mutex
	byPod map[types.UID]refusal
}

type refusal struct {
	size adoption.Size
	why  string
	at   time.Time
}

// note remembers a refusal for lack of room for good. Other refusals, as of a quota, would refuse a new pod as well.
func (r *refusals) note(c adoption.Change, err error, now time.Time) {
	if !apierrors.HasStatusCause(err, neverRoom) && !strings.Contains(err.Error(), neverRoomText) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPod == nil || len(r.byPod) >= mostRefusals {
		r.byPod = map[types.UID]refusal{}
	}
	r.byPod[types.UID(c.UID)] = refusal{c.To, "the API server says that its node can never give it " + c.To.String(), now}
}

// tell marks the pods of which a refusal is remembered.
func (r *refusals) tell(pods []adoption.Pod, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range pods {
		uid := types.UID(pods[i].UID)
		one, known := r.byPod[uid]
		switch {
		case !known:
		case now.Sub(one.at) > refusalAge:
			delete(r.byPod, uid)
		default:
			pods[i].Refused, pods[i].RefusedSize = one.why, one.size
		}
	}
}
