// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// chunkBytes is the size of the content of one Secret of the backup; a Secret has at most 1 MiB.
const chunkBytes = 700 << 10

// maxBackupBytes limits the decompressed backup.
const maxBackupBytes = 1 << 30

// state is what the steps of a migration are made of: everything as it was before, and the manifests of Crane. It is stored in
// the cluster, so that another machine, or another version of the program, continues with the same.
type state struct {
	Items []storedItem `json:"items"`
	// Others are objects of others that have the name of an object of Crane.
	Others  []*Object `json:"others,omitempty"`
	Desired []*Object `json:"desired"`
	// Metrics are the annotation keys of loads, Continued those that Crane writes as well.
	Metrics   []string `json:"metrics,omitempty"`
	Continued []string `json:"continued,omitempty"`
	// Requested are the extended resources that pods request, by node.
	Requested map[string][]string `json:"requested,omitempty"`
	// Templates are requests of running pods that templates lack, where Crane is removed.
	Templates []TemplateRequests `json:"templates,omitempty"`
}

// storedItem is an item with its object.
type storedItem struct {
	Component string  `json:"component"`
	Fate      Fate    `json:"fate"`
	Object    *Object `json:"object"`
}

// originals returns the objects as they were, by reference.
func (s *state) originals() map[Ref]*Object {
	out := map[Ref]*Object{}
	for _, o := range s.Others {
		out[RefOf(o)] = o
	}

	for _, item := range s.Items {
		out[RefOf(item.Object)] = item.Object
	}

	return out
}

func chunkRef(namespace string, n int) Ref {
	return namespacedRef("v1", "Secret", namespace, fmt.Sprintf("%s-backup-%d", JournalName, n))
}

// store writes the state into Secrets and records it in the journal.
func (s *state) store(ctx context.Context, e *env, j *Journal) error {
	content, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("failed to encode the backup: %w", err)
	}

	zipped, err := zip(content)
	if err != nil {
		return fmt.Errorf("failed to compress the backup: %w", err)
	}

	sum := sha256.Sum256(content)
	n := 0
	for ; len(zipped) > 0; n++ {
		part := zipped[:min(chunkBytes, len(zipped))]
		zipped = zipped[len(part):]
		o := chunkRef(j.namespace, n).empty()
		o.SetNamespace(j.namespace)
		o.SetName(chunkRef(j.namespace, n).Name)
		o.SetLabels(map[string]string{labelMigration: "backup"})

		o.Object["data"] = map[string]any{"content": base64.StdEncoding.EncodeToString(part)}
		if err := e.put(ctx, o); err != nil {
			return err
		}
	}

	if e.dryRun {
		return nil
	}

	j.Chunks = n
	j.Checksum = hex.EncodeToString(sum[:])
	return j.save(ctx, e)
}

// loadState reads the backup of a journal and checks it.
func loadState(ctx context.Context, c client.Reader, j *Journal) (*state, error) {
	var zipped []byte
	for n := range j.Chunks {
		ref := chunkRef(j.namespace, n)
		o := ref.empty()
		if err := c.Get(ctx, ref.key(), o); err != nil {
			return nil, fmt.Errorf("failed to read the backup: %w", err)
		}

		part, err := base64.StdEncoding.DecodeString(stringAt(o, "data", "content"))
		if err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", ref, err)
		}

		zipped = append(zipped, part...)
	}

	content, err := unzip(zipped, maxBackupBytes)
	if err != nil {
		return nil, fmt.Errorf("the backup is damaged: %w", err)
	}

	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != j.Checksum {
		return nil, fmt.Errorf("the backup of %d Secrets does not have the checksum of the journal", j.Chunks)
	}

	s := &state{}
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("the backup is damaged: %w", err)
	}

	return s, nil
}

// removeBackup deletes the Secrets of the backup, whether or not the journal counts them.
func removeBackup(ctx context.Context, e *env, j *Journal) error {
	for n := 0; ; n++ {
		ref := chunkRef(j.namespace, n)
		o, err := e.get(ctx, ref)
		if err != nil {
			return err
		}

		if o == nil && n >= j.Chunks {
			return nil
		}

		if err := e.remove(ctx, ref, propagateDefault); err != nil {
			return err
		}
	}
}
