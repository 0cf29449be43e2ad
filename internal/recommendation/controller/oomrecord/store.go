// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/oom"
)

// Names of the stored ledger.
const (
	ConfigMapName = oom.ConfigMapName
	dataKey       = oom.ConfigMapKey
	// stateKey holds the state of the ledger beside the records.
	stateKey = "state"
	// UnreadableConfigMapName is the ConfigMap to which unreadable records are moved.
	UnreadableConfigMapName = "oom-record-unreadable"
	// maxUnreadableBytes bounds the size of that ConfigMap; the API server rejects objects above 1 MiB.
	maxUnreadableBytes = 900 << 10

	fieldManager = "craned-oom"
	// maxConflictRetries is the number of attempts of a write that conflicts with another one.
	maxConflictRetries = 5

	reasonUnreadable = "UnreadableOOMRecords"
)

// state is the content of stateKey.
type state struct {
	// DroppedThrough is the time for all namespaces that earlier versions stored.
	DroppedThrough time.Time            `json:"droppedThrough,omitzero"`
	ByNamespace    map[string]time.Time `json:"droppedThroughByNamespace,omitempty"`
}

// storedLedger is the ledger as read from the API server.
type storedLedger struct {
	ledger *oom.Ledger
	// object is nil if there is no ConfigMap yet.
	object *corev1.ConfigMap
	// unreadable are the parts that are not valid records.
	unreadable []oom.UnreadableRecord
}

// storeKills adds kills to the ledger and returns it with the new ones. It writes nothing if nothing changes.
func (r *Recorder) storeKills(ctx context.Context, kills []oom.Kill) (*oom.Ledger, []oom.Kill, error) {
	for try := 1; ; try++ {
		ledger, added, err := r.tryStoreKills(ctx, kills)
		if err == nil || try == maxConflictRetries || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return ledger, added, err
		}
	}
}

func (r *Recorder) tryStoreKills(ctx context.Context, kills []oom.Kill) (*oom.Ledger, []oom.Kill, error) {
	b, err := r.read(ctx)
	if err != nil {
		return nil, nil, err
	}

	if len(b.unreadable) > 0 {
		if err := r.saveUnreadable(ctx, b); err != nil {
			return nil, nil, err
		}
	}

	now := r.cfg.Clock.Now()
	added := b.ledger.Add(kills, now, r.cfg.Limits)

	dropped := b.ledger.Prune(now, r.cfg.Limits)
	if len(added) == 0 && dropped == 0 && len(b.unreadable) == 0 {
		return b.ledger, nil, nil
	}

	return b.ledger, added, r.save(ctx, b)
}

// read reads the ledger from the API server. If all of it is unreadable, it returns the last known ledger.
func (r *Recorder) read(ctx context.Context) (storedLedger, error) {
	object, err := r.cfg.ConfigMaps.ConfigMaps(r.cfg.Namespace).Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return storedLedger{ledger: &oom.Ledger{}}, nil
	}
	if err != nil {
		return storedLedger{}, fmt.Errorf("reading ConfigMap %s/%s: %w", r.cfg.Namespace, ConfigMapName, err)
	}

	ledger, bad, err := oom.Parse(object.Data[dataKey])
	if err != nil {
		bad = []oom.UnreadableRecord{{Text: object.Data[dataKey], Err: err}}
		r.mu.Lock()

		if r.ledger != nil {
			ledger.Add(r.ledger.Kills(), r.cfg.Clock.Now(), r.cfg.Limits)
		}
		r.mu.Unlock()
	}

	var s state
	// A time in the future would reject every kill; an unreadable time means that nothing was dropped.
	if err := json.Unmarshal([]byte(object.Data[stateKey]), &s); err == nil {
		through := map[string]time.Time{"": s.DroppedThrough}
		maps.Copy(through, s.ByNamespace)

		for namespace, t := range through {
			if !t.IsZero() && !t.After(r.cfg.Clock.Now()) {
				ledger.SetDroppedThrough(namespace, t)
			}
		}
	}

	return storedLedger{ledger: ledger, object: object, unreadable: bad}, nil
}

// save overwrites the ledger that was read; it fails if the ledger has changed meanwhile. Other keys of the ConfigMap stay.
func (r *Recorder) save(ctx context.Context, b storedLedger) error {
	text, err := b.ledger.Encode()
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", r.cfg.Namespace, ConfigMapName, err)
	}

	data := map[string]string{dataKey: text}
	if through := b.ledger.DroppedThrough(); len(through) > 0 {
		all := through[""]
		delete(through, "")

		raw, err := json.Marshal(state{DroppedThrough: all.UTC(), ByNamespace: through})
		if err != nil {
			return fmt.Errorf("ConfigMap %s/%s: %w", r.cfg.Namespace, ConfigMapName, err)
		}

		data[stateKey] = string(raw)
	}

	configMaps := r.cfg.ConfigMaps.ConfigMaps(r.cfg.Namespace)
	if b.object == nil {
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: ConfigMapName}, Data: data,
		}, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		next := b.object.DeepCopy() // DeepCopy keeps UID and resourceVersion.
		if next.Data == nil {
			next.Data = map[string]string{}
		}

		maps.Copy(next.Data, data)
		_, err = configMaps.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	}

	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", r.cfg.Namespace, ConfigMapName, err)
	}

	return nil
}

// saveUnreadable copies the unreadable records to another ConfigMap, before they are overwritten, and emits an event.
func (r *Recorder) saveUnreadable(ctx context.Context, b storedLedger) error {
	fresh := map[string]string{}
	for _, bad := range b.unreadable {
		sum := sha256.Sum256([]byte(bad.Text))
		fresh[hex.EncodeToString(sum[:8])] = bad.Text
	}

	configMaps := r.cfg.ConfigMaps.ConfigMaps(r.cfg.Namespace)
	aside, err := configMaps.Get(ctx, UnreadableConfigMapName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		aside = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: UnreadableConfigMapName}, Data: fresh}
		_, err = configMaps.Create(ctx, aside, metav1.CreateOptions{FieldManager: fieldManager})

	case err == nil:
		all := maps.Clone(aside.Data)
		if all == nil || size(all)+size(fresh) > maxUnreadableBytes {
			all = map[string]string{} // Only the latest records fit; events reported the earlier ones.
		}

		maps.Copy(all, fresh)
		aside.Data = all
		_, err = configMaps.Update(ctx, aside, metav1.UpdateOptions{FieldManager: fieldManager})
	}

	if err != nil {
		return fmt.Errorf("moving unreadable OOM records to ConfigMap %s/%s: %w", r.cfg.Namespace, UnreadableConfigMapName, err)
	}

	r.cfg.Metrics.unreadable.Add(float64(len(b.unreadable)))
	r.cfg.Events.Eventf(b.object, nil, corev1.EventTypeWarning, reasonUnreadable, "Read",
		"%d records could not be read and were moved to ConfigMap %s; the first: %v", len(b.unreadable), UnreadableConfigMapName, b.unreadable[0].Err)

	return nil
}

func size(data map[string]string) int {
	n := 0
	for key, value := range data {
		n += len(key) + len(value)
	}

	return n
}
