// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poddryrun tries the creation of pods in a dry run, so that the whole chain of admission answers whether pods of another size are
// created.
package poddryrun

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/adoption/targetsnapshot"
)

const (
	// timeout bounds one dry run: slow webhooks leave the answer unknown.
	timeout = 5 * time.Second
	// An answer is reused for answerTTL, an unknown one for unknownTTL.
	answerTTL  = 10 * time.Minute
	unknownTTL = time.Minute
	// maxAnswers bounds the answers of a namespace, and maxPerMinute its dry runs: a tenant cannot use up what others need.
	maxAnswers   = 200
	maxPerMinute = 30
)

// Texts of the API server by which an answer is no refusal of the pod.
const (
	textNoDryRun = "does not support dry run"
	// textNoRight is part of the answer for a client without the right to create pods.
	textNoRight = `cannot create resource "pods"`
)

// tooManyRuns is the answer above maxPerMinute.
const tooManyRuns = "too many dry runs in this namespace; the next ones wait"

// quotaAnswer matches the answer of the quota, which is asked last. The caller compares quotas itself: a replacement uses what the pod before it
// no longer does. Policies and webhooks may repeat a text of the pod in theirs, but not at the beginning.
var quotaAnswer = regexp.MustCompile(`^pods "[^"]*" is forbidden: exceeded quota: `)

// recheck is the time between two checks of the permission, and retryPermission that after a failed one.
const (
	recheck         = 10 * time.Minute
	retryPermission = 10 * time.Second
)

// Checker implements targetsnapshot.PodChecker and manager.Runnable.
type Checker struct {
	// dry sends dry runs alone; client and live review the permission.
	dry       client.Client
	client    client.Client
	live      client.Reader
	namespace string
	clock     clock.WithTicker

	mu          sync.Mutex
	namespaces  map[string]*answers
	unavailable string
	// reviewed reports that the permission is known.
	reviewed bool
}

// answers are the recent answers about one namespace.
type answers struct {
	byPods map[[sha256.Size]byte]answer
	// minute is the start of the minute in which runs dry runs were sent.
	minute time.Time
	runs   int
}

type answer struct {
	refused, unknown string
	until            time.Time
}

// New returns a checker for craned in a namespace. It tries nothing before it was started.
func New(c client.Client, live client.Reader, namespace string, clk clock.WithTicker) *Checker {
	return &Checker{
		dry:        client.NewDryRunClient(c),
		client:     c,
		live:       live,
		namespace:  namespace,
		clock:      clk,
		namespaces: map[string]*answers{},
	}
}

// Start reviews the permission until ctx ends. It implements manager.Runnable.
func (c *Checker) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("adoption")
	for {
		wait := recheck
		reason, err := Permitted(ctx, c.client, c.live, c.namespace)
		if err != nil {
			wait = retryPermission
			log.Error(err, "reviewing the right to try the creation of pods")
		} else if c.setPermission(reason) {
			log.Info("sizes are tried on pods in dry runs", "tried", reason == "", "reason", reason)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-c.clock.After(wait):
		}
	}
}

// setPermission reports whether the permission is another than before.
func (c *Checker) setPermission(reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	changed := !c.reviewed || c.unavailable != reason
	c.reviewed = true
	c.unavailable = reason

	return changed
}

// Unavailable implements targetsnapshot.PodChecker.
func (c *Checker) Unavailable() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.unavailable
}

// Check implements targetsnapshot.PodChecker. It answers once for each pair of pods for a while.
func (c *Checker) Check(ctx context.Context, check targetsnapshot.PodCheck) (refused, unknown string) {
	if !c.isReviewed() {
		return "", "the right to try the creation of pods is being reviewed"
	}

	key, err := keyOf(check)
	if err != nil {
		return "", err.Error()
	}

	namespace := check.Next.Namespace
	if cached, ok := c.known(namespace, key); ok {
		return cached.refused, cached.unknown
	}

	if !c.spend(namespace) {
		return "", tooManyRuns
	}

	next := c.create(ctx, check.Next)
	if next.refused != "" {
		next = c.compare(ctx, check.Pod, next)
	}

	c.remember(namespace, key, next)
	return next.refused, next.unknown
}

// compare returns the refusal of a new size if a pod of the present size is admitted. A refusal of both is none of the new size.
func (c *Checker) compare(ctx context.Context, present *corev1.Pod, refusal answer) answer {
	if !c.spend(present.Namespace) {
		return answer{unknown: tooManyRuns}
	}

	if got := c.create(ctx, present); got.refused != "" || got.unknown != "" {
		return answer{unknown: "a pod of the present size is not admitted in a dry run either"}
	}

	return refusal
}

func (c *Checker) isReviewed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.reviewed
}

// keyOf returns a hash of both pods, so that no template is kept.
func keyOf(check targetsnapshot.PodCheck) (key [sha256.Size]byte, err error) {
	text, err := json.Marshal([]*corev1.Pod{check.Pod, check.Next})
	if err != nil {
		return key, errors.New("the pod cannot be encoded")
	}

	return sha256.Sum256(text), nil
}

func (c *Checker) known(namespace string, key [sha256.Size]byte) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	a := c.namespaces[namespace]
	if a == nil {
		return answer{}, false
	}

	found, ok := a.byPods[key]
	return found, ok && c.clock.Now().Before(found.until)
}

// spend reports whether the namespace may have another dry run, and counts it.
func (c *Checker) spend(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	a := c.answersOf(namespace)
	now := c.clock.Now()
	if now.Sub(a.minute) >= time.Minute {
		a.minute = now
		a.runs = 0
	}

	a.runs++
	return a.runs <= maxPerMinute
}

// answersOf returns the answers of a namespace, and makes room for those of a new one. The caller locks.
func (c *Checker) answersOf(namespace string) *answers {
	a := c.namespaces[namespace]
	if a == nil {
		c.dropExpired()
		a = &answers{byPods: map[[sha256.Size]byte]answer{}}
		c.namespaces[namespace] = a
	}

	return a
}

// dropExpired forgets namespaces without an answer that is still used.
func (c *Checker) dropExpired() {
	now := c.clock.Now()
	for namespace, a := range c.namespaces {
		for key, cached := range a.byPods {
			if !now.Before(cached.until) {
				delete(a.byPods, key)
			}
		}

		if len(a.byPods) == 0 && now.Sub(a.minute) >= time.Minute {
			delete(c.namespaces, namespace)
		}
	}
}

func (c *Checker) remember(namespace string, key [sha256.Size]byte, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()

	a.until = c.clock.Now().Add(answerTTL)
	if a.unknown != "" {
		a.until = c.clock.Now().Add(unknownTTL)
	}

	answers := c.answersOf(namespace)
	if len(answers.byPods) >= maxAnswers {
		clear(answers.byPods)
	}

	answers.byPods[key] = a
}

// create tries the creation of a pod.
func (c *Checker) create(ctx context.Context, pod *corev1.Pod) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	return interpret(c.dry.Create(ctx, pod.DeepCopy()))
}

// interpret returns what an answer of the API server says about a pod: only a refusal of the request by admission or validation is one.
func interpret(err error) answer {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return answer{}
	case !errors.As(err, &status):
		return answer{unknown: "the dry run got no answer"}
	}

	message := status.Status().Message
	code := status.Status().Code
	switch {
	case quotaAnswer.MatchString(message):
		return answer{} // All others have admitted it.
	case strings.Contains(message, textNoDryRun), strings.Contains(message, textNoRight):
		return answer{unknown: message}
	case code == http.StatusForbidden || code == http.StatusUnprocessableEntity || code == http.StatusBadRequest:
		return answer{refused: message}
	}

	return answer{unknown: "the dry run failed: " + message}
}
