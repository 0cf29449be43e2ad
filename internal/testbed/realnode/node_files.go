// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// Paths in a node.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	kubeletPath      = "/opt/crane/kubelet"
	imagesPath       = "/opt/crane/images.tar"
	pluginDir        = "/usr/lib/cni"
	configDir        = "/etc/crane"
	// kubeletConfig is the path that kubeadm uses, for agents that read it. JSON is valid YAML.
	kubeletConfig = "/var/lib/kubelet/config.yaml"
)

// Steps of a node.
const (
	stepContainerd = "containerd"
	stepImages     = "images"
	stepKubelet    = "kubelet"
)

// nodeSpec returns the specification of node i without the parts that depend on the host.
func (c *Cluster) nodeSpec(ctx context.Context, i int, o NodeOptions) (nodespec.Node, error) {
	address := bridge.Address(i)
	files, err := c.identity(ctx, o, address.Addr().String())
	if err != nil {
		return nodespec.Node{}, err
	}

	configuration, configured, err := kubeletFiles(o, c.services)
	if err != nil {
		return nodespec.Node{}, err
	}

	maps.Copy(files, configuration)
	runtime, steps, err := c.runtime(o)
	if err != nil {
		return nodespec.Node{}, err
	}

	maps.Copy(files, runtime)
	if c.services {
		proxy, err := c.kubeconfig(ctx, controlplane.CertificateUser("system:kube-proxy"))
		if err != nil {
			return nodespec.Node{}, err
		}

		files[kubeProxyKubeconfig] = proxy
		steps = append(steps, proxyStep(o))
	}

	users := ""
	groups := ""
	if o.systemd() {
		users = assets.SystemdUsers
		groups = assets.SystemdGroups
	}

	files["/etc/cni/net.d/10-nodes.conflist"] = nodespec.File{Content: cniConfiguration(i)}
	files["/etc/hosts"] = nodespec.File{Content: "127.0.0.1 localhost\n" + address.Addr().String() + " " + o.Name + "\n"}

	// Nodes have no name server, but the kubelet requires the file.
	files["/etc/resolv.conf"] = nodespec.File{Content: "options timeout:1 attempts:1\n"}
	files["/etc/passwd"] = nodespec.File{Content: "root:x:0:0:root:/root:/bin/sh\n" + users}
	files["/etc/group"] = nodespec.File{Content: "root:x:0:\n" + groups}
	files["/etc/os-release"] = nodespec.File{Content: "PRETTY_NAME=\"Crane test node\"\n"}
	labels := map[string]string{"crane.io/cgroup": fmt.Sprintf("v%d", o.Cgroup)}
	maps.Copy(labels, o.Labels)

	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}

	return nodespec.Node{
		Name:      o.Name,
		Address:   address,
		Gateway:   bridge.Gateway(),
		Machine:   o.Machine,
		DiskBytes: o.DiskBytes,
		SwapMiB:   o.SwapMiB,
		Files:     files,
		Steps: append(steps, nodespec.Step{
			Name:    stepKubelet,
			Daemon:  true,
			Restart: o.Restart,
			Args: o.service(stepKubelet, append([]string{
				kubeletPath, "--kubeconfig", configDir + "/kubeconfig",
				"--hostname-override", o.Name, "--node-ip", address.Addr().String(), "--node-labels", strings.Join(pairs, ","),
			}, configured...)...),
		}),
	}, nil
}

// runtime returns the files of the container runtime and the steps that start it and import the images.
func (c *Cluster) runtime(o NodeOptions) (map[string]nodespec.File, []nodespec.Step, error) {
	if o.crio() {
		files, err := crioFiles(o)
		return files, crioSteps(o), err
	}

	configuration := c.containerd
	if o.systemd() {
		configuration += systemdCgroup(c.containerd)
	}

	return map[string]nodespec.File{configDir + "/containerd.toml": {Content: configuration}}, []nodespec.Step{
		{
			Name: stepContainerd, Args: o.service(stepContainerd, "containerd", "-c", configDir+"/containerd.toml"),
			Daemon: true, Restart: o.Restart, Socket: containerdSocket,
		},
		// In a virtual machine, which is slow, the import runs concurrently. In a namespace node the kubelet would
		// mistake a mount of the import for the root file system, which is the same tmpfs.
		{Name: stepImages, Background: o.Machine, Args: []string{"ctr", "-n", "k8s.io", "images", "import", imagesPath}},
	}, nil
}

// service returns the command line of a program, run as a systemd service of that name if the node uses systemd.
func (o NodeOptions) service(name string, command ...string) []string {
	if !o.systemd() {
		return command
	}

	return append([]string{
		"systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--service-type=exec", "--unit=" + name,
		"--property=Delegate=yes", "--property=KillMode=process", "--property=TasksMax=infinity", "--property=LimitNOFILE=1048576", "--setenv=HOME=/root", "--",
	}, command...)
}

// identity issues the kubelet's certificates.
func (c *Cluster) identity(ctx context.Context, o NodeOptions, address string) (map[string]nodespec.File, error) {
	kubeconfig, err := c.kubeconfig(ctx, controlplane.CertificateUser("system:node:"+o.Name, "system:nodes"))
	if err != nil {
		return nil, fmt.Errorf("issuing the identity of %s: %w", o.Name, err)
	}

	cert, key, err := c.control.IssueServing(o.Name, address)
	if err != nil {
		return nil, fmt.Errorf("issuing the identity of %s: %w", o.Name, err)
	}

	return map[string]nodespec.File{
		configDir + "/kubeconfig":  kubeconfig,
		configDir + "/ca.crt":      {Content: string(c.control.CAPEM())},
		configDir + "/kubelet.crt": {Content: string(cert)},
		configDir + "/kubelet.key": secret(key),
	}, nil
}

// kubeconfig returns a kubeconfig of a user for a program in a node.
func (c *Cluster) kubeconfig(ctx context.Context, user controlplane.User) (nodespec.File, error) {
	config, err := c.control.ConfigFor(ctx, user)
	if err != nil {
		return nodespec.File{}, err
	}

	const name = "crane"
	cluster := &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(controlplane.ServiceIP, servicePort), CertificateAuthorityData: config.CAData}
	if c.services {
		// Without kube-proxy's rules, which change while it starts.
		cluster.Server = "https://" + net.JoinHostPort(bridge.Gateway().String(), servicePort)
		cluster.TLSServerName = "kubernetes.default.svc"
	}

	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
	})

	return secret(kubeconfig), err
}

func secret(content []byte) nodespec.File {
	return nodespec.File{Content: string(content), Mode: 0o600}
}

// kubeletConfiguration returns a production configuration except for intervals that are too long for tests and for
// features that the host's kernel or the network does not offer.
func kubeletConfiguration(o NodeOptions, services bool) *kubeletconfig.KubeletConfiguration {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	k := &kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: configDir + "/ca.crt"},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: new(true)},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: new(false)},
		},
		Authorization:            kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		TLSCertFile:              configDir + "/kubelet.crt",
		TLSPrivateKeyFile:        configDir + "/kubelet.key",
		ContainerRuntimeEndpoint: "unix://" + o.socket(),
		CgroupDriver:             CgroupFS,
		FailCgroupV1:             new(false),
		// A container may not be allowed to set a lower score, and the kubelet exits if it cannot set it.
		OOMScoreAdj:            new(int32(0)),
		MakeIPTablesUtilChains: new(false),
		// The default is below /usr.
		VolumePluginDir: "/var/lib/kubelet/volumeplugins",
		EvictionHard: map[string]string{
			"memory.available": o.EvictMemoryBelow, "nodefs.available": "1%", "imagefs.available": "1%",
		},
		// The default is a minute.
		EvictionPressureTransitionPeriod: seconds(5),
		NodeStatusUpdateFrequency:        seconds(2),
		NodeStatusReportFrequency:        seconds(60),
		SyncFrequency:                    seconds(5),
		CPUManagerPolicy:                 o.CPUManagerPolicy,
		CPUManagerReconcilePeriod:        seconds(2),
		ReservedSystemCPUs:               o.ReservedCPUs,
		TopologyManagerPolicy:            o.TopologyPolicy,
		FailSwapOn:                       new(false),
		RegisterWithTaints:               o.Taints,
		EnableServer:                     new(true),
		ResolverConfig:                   new("/etc/resolv.conf"),
	}

	if services {
		k.ClusterDNS = []string{dnsIP}
		k.ClusterDomain = clusterDomain
	}

	if o.systemd() {
		k.CgroupDriver = Systemd
	}

	if o.MemoryThrottling > 0 {
		k.FeatureGates = map[string]bool{"MemoryQoS": true}
		k.MemoryThrottlingFactor = &o.MemoryThrottling
	}

	if o.SwapMiB > 0 {
		k.MemorySwap.SwapBehavior = "LimitedSwap"
	}

	if o.OwnCertificate {
		k.TLSCertFile = ""
		k.TLSPrivateKeyFile = ""
	}

	if o.Machine {
		// Periodic work is expensive on an emulated machine.
		k.NodeStatusUpdateFrequency = seconds(10)
		k.SyncFrequency = seconds(20)
		k.CPUManagerReconcilePeriod = seconds(5)
	}

	if len(o.Reserved) > 0 {
		k.SystemReserved = map[string]string{}
		for name, quantity := range o.Reserved {
			k.SystemReserved[string(name)] = quantity.String()
		}
	}

	return k
}

// cniConfiguration returns a CNI configuration that assigns pods of node i addresses to which every node has a route.
func cniConfiguration(i int) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "nodes",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]]}
  }]
}
`, bridge.Pods(i))
}

// containerdConfiguration returns the configuration for the installed version of containerd.
func containerdConfiguration(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "containerd", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("reading the version of containerd: %w", err)
	}

	version := regexp.MustCompile(`\bv?(\d+)\.\d+\.\d+`).FindSubmatch(out)
	if version == nil {
		return "", fmt.Errorf("version of containerd: no number in %q", out)
	}

	pause := assets.ImageName("pause")
	// restrict_oom_score_adj: negative scores may not be allowed.
	if string(version[1]) == "1" {
		return fmt.Sprintf(`version = 2
oom_score = 0
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, pause, pluginDir), nil
	}

	return fmt.Sprintf(`version = 3
oom_score = 0
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
`, pause, pluginDir), nil
}

// systemdCgroup returns the suffix of a containerd configuration that selects the systemd cgroup driver.
func systemdCgroup(configuration string) string {
	if strings.HasPrefix(configuration, "version = 2") {
		return "    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n      SystemdCgroup = true\n"
	}

	const runc = `[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc`
	return "  " + runc + "]\n    runtime_type = \"io.containerd.runc.v2\"\n  " + runc + ".options]\n    SystemdCgroup = true\n"
}
