// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// Placement is the answer of PathPlacement: the latest attempts of crane-scheduler to place a pod.
type Placement struct {
	Origin
	// Pod is namespace/name.
	Pod      string             `json:"pod"`
	Attempts []PlacementAttempt `json:"attempts"`
}

// PlacementAttempt is one attempt.
type PlacementAttempt struct {
	At       int64  `json:"at"`
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Outcome is the result in words; Node is the selected node.
	Outcome string `json:"outcome"`
	Node    string `json:"node,omitempty"`
	// CPUMilli and MemoryBytes are the expected usage of the pod, by Basis.
	CPUMilli    int64  `json:"cpuMilli"`
	MemoryBytes int64  `json:"memoryBytes"`
	Basis       string `json:"basis"`
	// FreshNodes, StaleNodes and AbsentNodes count nodes by the state of their load; OtherNodes were not evaluated.
	FreshNodes  int `json:"freshNodes"`
	StaleNodes  int `json:"staleNodes"`
	AbsentNodes int `json:"absentNodes"`
	OtherNodes  int `json:"otherNodes"`
	// Nodes are the evaluated nodes, the best first, at most 200 of NodeCount.
	Nodes     []PlacementNode `json:"nodes"`
	NodeCount int             `json:"nodeCount"`
}

// PlacementNode is how one node was filtered or scored.
type PlacementNode struct {
	Name string `json:"name"`
	// Verdict is Scored, Passed (not scored) or Closed (excluded by its load).
	Verdict string `json:"verdict"`
	// Score is from 0 to 100, for a scored node.
	Score  *int64 `json:"score,omitempty"`
	Reason string `json:"reason"`
}
