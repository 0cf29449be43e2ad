// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"strings"

	"crane.io/crane/internal/testbed/loopback"
)

const (
	// serviceCIDR is the range of ClusterIPs. No route leads to it on this machine.
	serviceCIDR = "10.96.0.0/16"
	// ServiceIP is the ClusterIP of service default/kubernetes. Pods reach the API server as in any cluster where this
	// address is assigned to the API server's host, as internal/testbed/realnode does.
	ServiceIP = "10.96.0.1"
	issuer    = "https://kubernetes.default.svc"
	// gcPercent is GOGC of the components: memory is scarcer than CPU time in a test bed.
	gcPercent = "50"
	// frontProxyName is the common name with which the API server calls aggregated API servers.
	frontProxyName = "front-proxy-client"
)

// controllers lists the controllers that workloads, quotas, budgets and autoscaling need. It includes the two
// protection controllers because the API server's default admission adds finalizers that only they remove.
const controllers = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller," +
	"job-controller,cronjob-controller,ttl-after-finished-controller," +
	"endpoints-controller,endpointslice-controller," +
	"namespace-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller," +
	"garbage-collector-controller,pod-garbage-collector-controller," +
	"node-lifecycle-controller,taint-eviction-controller," +
	"disruption-controller,resourcequota-controller,horizontal-pod-autoscaler-controller,clusterrole-aggregation-controller," +
	"persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller"

// arguments has the settings from which the arguments of the components follow.
type arguments struct {
	options Options
	layout  layout
	port    int
}

// args returns the arguments of the controlplane binary for a component.
func (a arguments) args(component Component) []string {
	var args []string
	switch component {
	case APIServer:
		args = append([]string{string(APIServer), "--data-dir=" + a.layout.data(), "--"}, a.apiServerArgs()...)
		args = append(args, a.layout.auditArgs()...)
	case ControllerManager:
		args = append([]string{string(ControllerManager), "--"}, a.controllerManagerArgs()...)
	case Scheduler:
		args = append([]string{string(Scheduler), "--"}, a.clientArgs(Scheduler)...)
	}

	return append(args, a.options.ExtraArgs[component]...)
}

func (a arguments) apiServerArgs() []string {
	pki := a.layout.pki
	args := []string{
		"--bind-address=" + loopback.IP,
		"--advertise-address=" + loopback.IP,
		fmt.Sprintf("--secure-port=%d", a.port),
		// The endpoint of service default/kubernetes must not be a loopback address, so there is none.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + pki("service-account.pub"),
		"--service-account-signing-key-file=" + pki("service-account.key"),
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("kubelet-client.crt"),
		"--kubelet-client-key=" + pki("kubelet-client.key"),
		// Simulated nodes have an external address if the API server reaches them through a tunnel.
		"--kubelet-preferred-address-types=ExternalIP,InternalIP",
		"--profiling=false",
		// On SIGTERM end the open watches, wait for the other requests, then close what is still open after 2 s; without
		// these two flags a single watch keeps the server for a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--shutdown-send-retry-after",
	}

	if disabled := a.unusedAdmissionPlugins(); len(disabled) > 0 {
		args = append(args, "--disable-admission-plugins="+strings.Join(disabled, ","))
	}

	return args
}

// unusedAdmissionPlugins returns the admission plugins that depend on the controller manager where it does not run:
// without it pods cannot be created (their service account is missing), nodes keep their not-ready taint, and claims
// keep their finalizer.
func (a arguments) unusedAdmissionPlugins() []string {
	if a.options.has(ControllerManager) {
		return nil
	}

	return []string{"ServiceAccount", "TaintNodesByCondition", "StorageObjectInUseProtection"}
}

func (a arguments) controllerManagerArgs() []string {
	return append(a.clientArgs(ControllerManager),
		"--controllers="+controllers,
		// Each controller acts as its own service account, with the rights that upstream gives it.
		"--use-service-account-credentials",
		"--service-account-private-key-file="+a.layout.pki("service-account.key"),
		"--root-ca-file="+a.layout.pki("ca.crt"),
	)
}

// clientArgs returns the flags of a client of the API server that runs without leader election and without a port.
func (a arguments) clientArgs(component Component) []string {
	return []string{
		"--kubeconfig=" + a.layout.kubeconfig(string(component)),
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
}
