// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// AuditEnv is the environment variable with the directory that receives an audit log of each API server: of the requests of ServiceAccounts
// in crane-system, in JSON lines. Without it nothing is logged.
const AuditEnv = "CRANE_AUDIT_DIR"

// auditPolicy logs the requests of Crane alone.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:crane-system"]}
- {level: None}
`

// auditArgs returns the arguments of an API server that logs requests into the directory that AuditEnv names.
func (l layout) auditArgs() []string {
	dir := os.Getenv(AuditEnv)
	if dir == "" {
		return nil
	}

	return []string{
		"--audit-policy-file=" + l.auditPolicy(),
		"--audit-log-path=" + filepath.Join(dir, fmt.Sprintf("%d-%d.log", os.Getpid(), time.Now().UnixNano())),
		"--audit-log-mode=blocking",
	}
}

func (l layout) auditPolicy() string { return filepath.Join(l.root, "audit-policy.yaml") }

func (l layout) writeAuditPolicy() error {
	if os.Getenv(AuditEnv) == "" {
		return nil
	}

	if err := os.WriteFile(l.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}

	return nil
}
