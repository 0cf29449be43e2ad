// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/test/controlplanetest"
)

func putConfigMap(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func getConfigMap(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	return err
}

func TestAPIServerStopsAndComesBack(t *testing.T) {
	c := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
	})

	client := clientFor(t, c.Config())
	if err := putConfigMap(t.Context(), client, "kept"); err != nil {
		t.Fatal(err)
	}

	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	url := c.URL()
	pid := c.PID(controlplane.APIServer)

	if err := c.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatalf("stop: %v", err)
	}

	if alive(pid) || c.PID(controlplane.APIServer) != 0 {
		t.Error("the API server still runs after its stop, want its end")
	}
	if err := getConfigMap(t.Context(), client, "kept"); err == nil {
		t.Error("a stopped API server answered, want an error")
	}

	eventually(t, "end of the watch", func(context.Context) error {
		select {
		case _, open := <-watch.ResultChan():
			if !open {
				return nil
			}
		default:
		}

		return errors.New("still open")
	})

	if err := c.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatalf("start: %v", err)
	}

	if c.URL() != url {
		t.Errorf("URL is %s after the restart, want %s", c.URL(), url)
	}
	if err := getConfigMap(t.Context(), client, "kept"); err != nil {
		t.Errorf("the old client after the restart: %v", err)
	}
	if err := c.StartComponent(t.Context(), controlplane.APIServer); err == nil {
		t.Error("a second start of a running API server returned no error, want one")
	}

	// The other components survive the restart.
	readyNode(t, client, "after-restart")

	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment("web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "pods on the node", func(ctx context.Context) error { return podsOn(ctx, client, "default", 2, true) })
}

func TestStoppedComponentDoesNothing(t *testing.T) {
	c := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.Scheduler}, Restart: true,
	})
	client := clientFor(t, c.Config())

	if err := c.StopComponent(t.Context(), controlplane.Scheduler); err != nil {
		t.Fatal(err)
	}

	readyNode(t, client, "no-scheduler")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: deployment("x", 1).Spec.Template.Spec}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if c.PID(controlplane.Scheduler) != 0 {
		t.Error("a stopped component was restarted, want it stopped")
	}
	if err := podsOn(t.Context(), client, "default", 1, true); err == nil {
		t.Error("the pod was scheduled without a scheduler, want it unscheduled")
	}
	if err := c.StartComponent(t.Context(), controlplane.Scheduler); err != nil {
		t.Fatal(err)
	}

	eventually(t, "pod on the node", func(ctx context.Context) error { return podsOn(ctx, client, "default", 1, true) })
	if err := c.StartComponent(t.Context(), controlplane.ControllerManager); err == nil {
		t.Error("the start of an unconfigured component returned no error, want one")
	}
}

// TestPortTakenMeanwhile: another process binds the free port before the API server does.
func TestPortTakenMeanwhile(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "controlplane")
	const body = `#!/bin/sh
if [ ! -e "$0.tried" ]; then
	touch "$0.tried"
	echo 'listen tcp 127.0.0.1: bind: address already in use' >&2
	exit 1
fi
exec %s "$@"
`

	if err := os.WriteFile(script, fmt.Appendf(nil, body, binary(t)), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, restart := range []bool{false, true} {
		c := controlplanetest.ForTest(t, controlplane.Options{Binary: script, Restart: restart})
		if _, err := clientFor(t, c.Config()).Discovery().ServerVersion(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(script + ".tried"); err != nil {
			t.Error(err)
		}
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	o := controlplane.Options{Dir: t.TempDir()}
	var url, token string
	t.Run("first", func(t *testing.T) {
		c := controlplanetest.ForTest(t, o)
		url = c.URL()

		client := clientFor(t, c.Config())
		if err := putConfigMap(t.Context(), client, "kept"); err != nil {
			t.Fatal(err)
		}

		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
		if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		config, err := c.ConfigFor(t.Context(), controlplane.ServiceAccount("default", "robot"))
		if err != nil {
			t.Fatal(err)
		}

		token = config.BearerToken
		second := o
		second.Binary = "/bin/true"
		if _, err := controlplane.Start(t.Context(), second); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a second control plane in the same directory: %v, want an error", err)
		}
	})

	t.Run("second", func(t *testing.T) {
		c := controlplanetest.ForTest(t, o)
		if c.URL() != url {
			t.Errorf("URL %s, want %s: the port was free", c.URL(), url)
		}
		if err := getConfigMap(t.Context(), clientFor(t, c.Config()), "kept"); err != nil {
			t.Error(err)
		}

		old := c.Config()
		old.CertData = nil
		old.KeyData = nil
		old.BearerToken = token

		review, err := clientFor(t, old).Discovery().ServerVersion()
		if err != nil {
			t.Errorf("token of the first run: %v, %v, want it accepted", review, err)
		}
	})
}

func TestStopLeavesNothing(t *testing.T) {
	c := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.Scheduler},
	})
	pids := []int{c.PID(controlplane.APIServer), c.PID(controlplane.Scheduler)}
	dir := c.Dir()

	for range 2 {
		if err := c.Stop(t.Context()); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}

	for _, pid := range pids {
		if pid == 0 || alive(pid) {
			t.Errorf("process %d is left, want its end", pid)
		}
	}

	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after the end: %v, want it removed", dir, err)
	}
}

func TestComponentThatDiesIsReportedAndRestarted(t *testing.T) {
	exits := make(chan process.Exit, 10)
	c := controlplanetest.ForTest(t, controlplane.Options{
		Components: []controlplane.Component{controlplane.Scheduler},
		Restart:    true,
		OnExit:     func(e process.Exit) { exits <- e },
	})

	for _, component := range []controlplane.Component{controlplane.Scheduler, controlplane.APIServer} {
		pid := c.PID(component)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		select {
		case e := <-exits:
			if e.Name != string(component) || e.PID != pid || e.RestartIn <= 0 {
				t.Errorf("report %v, want one of the killed process with a restart", e)
			}
		case <-t.Context().Done():
			t.Fatal("no report of the killed component, want one")
		}

		eventually(t, "restart of "+string(component), func(context.Context) error {
			if now := c.PID(component); now == 0 || now == pid {
				return fmt.Errorf("pid %d, was %d", now, pid)
			}

			return nil
		})
	}

	client := clientFor(t, c.Config())
	eventually(t, "answer of the restarted API server", func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func TestStartFailures(t *testing.T) {
	failing := filepath.Join(t.TempDir(), "failing")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\necho no disk here >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		options controlplane.Options
		want    string
	}{
		"binary missing":     {controlplane.Options{Binary: "/does/not/exist"}, "/does/not/exist"},
		"binary ends":        {controlplane.Options{Binary: failing}, "no disk here"},
		"unknown component":  {controlplane.Options{Components: []controlplane.Component{"kubelet"}}, "kubelet"},
		"arguments for none": {controlplane.Options{ExtraArgs: map[controlplane.Component][]string{controlplane.Scheduler: {"-v=2"}}}, "scheduler"},
		"port":               {controlplane.Options{APIServerPort: 70000}, "70000"},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Dir = t.TempDir()
			if _, err := controlplane.Start(t.Context(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// parentEnv makes the test binary a parent process that starts a control plane, prints the process IDs and waits to be
// killed.
const parentEnv = "CRANE_TEST_PARENT"

func runParent() int {
	ctx := context.Background()
	c, err := controlplane.Start(ctx, controlplane.Options{
		Dir: os.Getenv(parentEnv), Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	fmt.Println(c.PID(controlplane.APIServer), c.PID(controlplane.ControllerManager), c.PID(controlplane.Scheduler))
	select {}
}

func TestKilledParentLeavesNoChild(t *testing.T) {
	dir := t.TempDir()
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+dir, controlplane.BinaryEnv+"="+binary(t))

	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = parent.Process.Kill()
		t.Fatalf("the parent ended with %v, %v, want process IDs", err, parent.Wait())
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = parent.Wait()
	for field := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid == 0 {
			t.Fatalf("the parent printed %q, want process IDs", line)
		}

		eventually(t, "end of child "+field, func(context.Context) error {
			if alive(pid) {
				return errors.New("alive")
			}

			return nil
		})
	}

	// A new control plane can use the state of a killed one.
	controlplanetest.ForTest(t, controlplane.Options{Dir: dir})
}

// binary returns the path of the controlplane binary of the shared control plane.
func binary(t *testing.T) string {
	t.Helper()

	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", shared.PID(controlplane.APIServer)))
	if err != nil {
		t.Skipf("find the binary of a running process: %v", err)
	}

	return path
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}

	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
