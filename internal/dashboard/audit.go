// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"crane.io/crane/internal/dashboard/contract"
)

// auditLog records writes with the persons who made them.
type auditLog struct {
	log *slog.Logger
	// user is the name of the single user, for requests without a person.
	user string
}

// record records a write with its user and result.
func (a auditLog) record(ctx context.Context, err error, values ...any) {
	person, _ := PersonOf(ctx)
	result := "ok"
	if err != nil {
		result = FailureOf(err).Body.Message
	}

	a.log.Info("write", slices.Concat([]any{"user", cmp.Or(person.Name, a.user)}, values, []any{"result", result})...)
}

// recordItems records each write of an action with its user, object and result.
func (a auditLog) recordItems(ctx context.Context, action string, results []contract.ItemResult) {
	for _, result := range results {
		a.record(ctx, itemError(result), "action", action, "cluster", result.Item.Cluster, "namespace", result.Item.Namespace, "recommendation", result.Item.Name)
	}
}
