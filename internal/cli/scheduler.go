// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
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

	"crane.io/crane/pkg/nodeload"
)

const (
	// schedulerSelector finds the pods of crane-scheduler, as config/crane-scheduler labels them.
	schedulerSelector = "app.kubernetes.io/name=crane-scheduler"
	// explainPath is where the scheduler answers.
	explainPath = "/explain/scheduling"
	// largestAnswer bounds what is read: some hundred bytes for each node.
	largestAnswer = 64 << 20
	// schedulerTimeout bounds one answer.
	schedulerTimeout = 30 * time.Second
)

// errNotRemembered tells that a scheduler answered and does not know the pod.
var errNotRemembered = errors.New("not among the latest attempts that the scheduler remembers")

// ask returns what schedulers say of a pod. Only the one that leads has tried any.
func (o *explainOptions) ask(ctx context.Context, namespace, name string) ([]nodeload.Explanation, error) {
	pod := namespace + "/" + name
	if o.scheduler != "" {
		found, err := askAt(ctx, strings.TrimSuffix(o.scheduler, "/"), pod)
		return found, notFound(pod, err)
	}
	config, err := o.kubernetes.config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: schedulerSelector, FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, fmt.Errorf("looking for crane-scheduler at %s: %w", config.Host, err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no running pod has the label %s: name the address with --scheduler", schedulerSelector)
	}
	var errs []error
	for i := range pods.Items {
		found, err := o.askPod(ctx, client, config, &pods.Items[i], pod)
		if err == nil {
			return found, nil
		}
		errs = append(errs, fmt.Errorf("%s/%s: %w", pods.Items[i].Namespace, pods.Items[i].Name, err))
	}
	return nil, notFound(pod, errors.Join(errs...))
}

// notFound gives an exit code to what is no failure of anything.
func notFound(pod string, err error) error {
	if errors.Is(err, errNotRemembered) {
		return &exitError{code: exitNothing, err: fmt.Errorf("pod %s: %w", pod, err)}
	}
	return err
}

// askPod asks through a forwarded port.
func (o *explainOptions) askPod(ctx context.Context, client kubernetes.Interface, config *rest.Config, scheduler *corev1.Pod, pod string) ([]nodeload.Explanation, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	to := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(scheduler.Namespace).Name(scheduler.Name).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", o.port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d: %w", o.port, err)
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	defer close(stop)
	select {
	case <-ready:
	case err := <-failed:
		return nil, fmt.Errorf("forwarding port %d: %w", o.port, err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d: %w", o.port, err)
	}
	return askAt(ctx, fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local), pod)
}

// askAt asks a scheduler at its address.
func askAt(ctx context.Context, address, pod string) ([]nodeload.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, schedulerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+explainPath+"?pod="+url.QueryEscape(pod), nil)
	if err != nil {
		return nil, usageError(fmt.Errorf("--scheduler: %w", err))
	}
	// Straight to the scheduler, whatever proxies the environment names.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the scheduler: %w", err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, largestAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the scheduler: %w", err)
	}
	var answer struct {
		Explanations []nodeload.Explanation `json:"explanations"`
		Error        string                 `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s answers %s, and nothing that a crane-scheduler says: %w", address, reply.Status, err)
	}
	switch {
	case reply.StatusCode == http.StatusNotFound && answer.Error != "":
		return nil, errNotRemembered
	case reply.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the scheduler answers %s: %s", reply.Status, answer.Error)
	}
	return answer.Explanations, nil
}
