// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedulerclient reads the explanations of crane-scheduler, directly or through a forwarded port.
package schedulerclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/component/usererror"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/pkg/nodeload"
)

const (
	// schedulerSelector selects the pods of crane-scheduler in config/crane-scheduler.
	schedulerSelector = "app.kubernetes.io/name=crane-scheduler"
	// explainPath is the URL path of the scheduler's explanations.
	explainPath = "/explain/scheduling"
	// maxResponseBytes limits a response, which has some hundred bytes per node.
	maxResponseBytes = 64 << 20
	// schedulerTimeout limits one request.
	schedulerTimeout = 30 * time.Second
	// DefaultPort is the port of the scheduler's explainAddress.
	DefaultPort = 10260
)

// ErrNoScheduler is returned if no pod of crane-scheduler runs.
var ErrNoScheduler = errors.New("no running pod has the label " + schedulerSelector)

// ErrPodNotRecorded is returned if the scheduler has no record of the pod.
var ErrPodNotRecorded = errors.New("the scheduler has no record of a recent attempt")

// Client reads the explanations of crane-scheduler.
type Client struct {
	// Access finds the pods of the scheduler in Namespace, which is that of Crane, and forwards Port.
	Access    *clusteraccess.Access
	Namespace string
	Port      int
	// Address is that of the scheduler; if empty, its pods are found.
	Address string
}

// Explanations returns the explanations of a pod. It queries all schedulers, because only the leader has
// records.
func (c Client) Explanations(ctx context.Context, namespace, name string) ([]nodeload.Explanation, error) {
	pod := namespace + "/" + name
	if c.Address != "" {
		found, err := fetchFrom(ctx, strings.TrimSuffix(c.Address, "/"), pod)
		return found, notRecordedError(pod, err)
	}

	client, config, err := c.Access.Clientset()
	if err != nil {
		return nil, err
	}

	// A pod of another namespace may have the label as well, and would explain what its owner likes.
	pods, err := client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: schedulerSelector, FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of crane-scheduler at %s: %w", config.Host, err)
	}

	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("namespace %s: %w: set the namespace with --craned-namespace, or the address with --scheduler", c.Namespace, ErrNoScheduler)
	}

	// Only the leader has records, and no label shows which pod it is.
	var errs []error
	for i := range pods.Items {
		found, err := c.fetchFromPod(ctx, client, config, &pods.Items[i], pod)
		if err == nil {
			return found, nil
		}

		errs = append(errs, fmt.Errorf("%s/%s: %w", pods.Items[i].Namespace, pods.Items[i].Name, err))
	}

	return nil, notRecordedError(pod, errors.Join(errs...))
}

// notRecordedError adds the pod to ErrPodNotRecorded and marks it as a request for something that does not exist.
func notRecordedError(pod string, err error) error {
	if errors.Is(err, ErrPodNotRecorded) {
		return usererror.NotFound(fmt.Errorf("pod %s: %w", pod, err))
	}

	return err
}

// fetchFromPod fetches the explanations through a forwarded port.
func (c Client) fetchFromPod(ctx context.Context, client kubernetes.Interface, config *rest.Config, scheduler *corev1.Pod, pod string) ([]nodeload.Explanation, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}

	to := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(scheduler.Namespace).Name(scheduler.Name).SubResource("portforward").URL()
	stop := make(chan struct{})

	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", c.Port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d: %w", c.Port, err)
	}

	failed := make(chan error, 1)
	go func() { failed <- recovery.Call(ctx, forwarder.ForwardPorts) }()
	defer close(stop)

	select {
	case <-ready:
	case err := <-failed:
		return nil, fmt.Errorf("forwarding port %d: %w", c.Port, err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d: %w", c.Port, err)
	}

	return fetchFrom(ctx, fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local), pod)
}

// fetchFrom fetches the explanations from an address.
func fetchFrom(ctx context.Context, address, pod string) ([]nodeload.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, schedulerTimeout)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+explainPath+"?pod="+url.QueryEscape(pod), nil)
	if err != nil {
		return nil, usererror.Invalid(fmt.Errorf("--scheduler: %w", err))
	}

	// Connect directly, not through a proxy of the environment, and to no other address that the answer names.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("querying the scheduler: %w", err)
	}
	defer response.Body.Close()

	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if err != nil {
		return nil, fmt.Errorf("reading the response of the scheduler: %w", err)
	}

	var content struct {
		Explanations []nodeload.Explanation `json:"explanations"`
		Error        string                 `json:"error"`
	}

	if err := json.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("%s returned %s, not a response of crane-scheduler: %w", address, response.Status, err)
	}

	switch {
	case response.StatusCode == http.StatusNotFound && content.Error != "":
		return nil, ErrPodNotRecorded
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the scheduler returned %s: %s", response.Status, content.Error)
	}

	return content.Explanations, nil
}

// BasisText returns the source of an estimate.
func BasisText(basis string) string {
	texts := map[string]string{
		"history": "workload's Recommendation", "request": "requests", "limit": "limits", "nothing": "lack of requests",
	}

	return cmp.Or(texts[basis], basis)
}
