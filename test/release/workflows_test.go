// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// workflow is what the tests read of a workflow.
type workflow struct {
	// On has the key true: YAML 1.1 reads on as a boolean.
	On struct {
		Schedule []struct {
			Cron string `json:"cron"`
		} `json:"schedule"`
	} `json:"true"`
	Permissions *map[string]string `json:"permissions"`
	Jobs        map[string]job     `json:"jobs"`
}

type job struct {
	TimeoutMinutes int               `json:"timeout-minutes"`
	Permissions    map[string]string `json:"permissions"`
	Outputs        map[string]string `json:"outputs"`
	Strategy       struct {
		Matrix map[string][]string `json:"matrix"`
	} `json:"strategy"`
	Steps []step `json:"steps"`
}

type step struct {
	ID   string         `json:"id"`
	Name string         `json:"name"`
	Uses string         `json:"uses"`
	Run  string         `json:"run"`
	With map[string]any `json:"with"`
}

// readWorkflow returns a workflow and its text.
func readWorkflow(t *testing.T, name string) (workflow, string) {
	t.Helper()

	text := read(t, root, filepath.Join(".github/workflows", name))
	var out workflow
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("parsing the workflow %s: %v", name, err)
	}

	return out, text
}

// commands returns the commands of a job's steps.
func (j job) commands() string {
	var all []string
	for _, s := range j.Steps {
		all = append(all, s.Run)
	}

	return strings.Join(all, "\n")
}

// step returns the step of a job by its name or ID.
func (j job) step(t *testing.T, name string) step {
	t.Helper()

	i := slices.IndexFunc(j.Steps, func(s step) bool { return s.ID == name || s.Name == name })
	if i < 0 {
		t.Fatalf("no step %s, want one", name)
	}

	return j.Steps[i]
}

// TestWorkflows checks that workflows grant no rights by default, pin each action to a commit, limit the time of jobs, and run targets of the
// Makefile that exist.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/workflows/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows %v: %v, want two or more", files, err)
	}

	makefile := readMakefiles(t)
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	uses := regexp.MustCompile(`\buses: *(.*)`)

	invocation := regexp.MustCompile(`\bmake ([^\n|;&]+)`)
	for _, file := range files {
		w, text := readWorkflow(t, filepath.Base(file))
		if w.Permissions == nil || len(*w.Permissions) > 0 || len(w.Jobs) == 0 {
			t.Errorf("%s: permissions %v, %d jobs, want none and at least one job", file, w.Permissions, len(w.Jobs))
		}

		for _, match := range uses.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(match[1]) {
				t.Errorf("%s: %s is not pinned to a commit with its tag in a comment, want it pinned", file, match[1])
			}
		}

		for name, j := range w.Jobs {
			if j.TimeoutMinutes == 0 || len(j.Permissions) == 0 || len(j.Steps) == 0 {
				t.Errorf("%s: job %s is %+v, want a timeout, permissions and steps", file, name, j)
			}

			for _, match := range invocation.FindAllStringSubmatch(j.commands(), -1) {
				for target := range strings.FieldsSeq(match[1]) {
					if !strings.Contains(target, "=") && !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: no target %s in the Makefile, want one", file, target)
					}
				}
			}
		}
	}
}

// TestNightly checks that the tests of the night and the check for vulnerabilities run on a schedule, and that the former contain the rights
// that nothing uses.
func TestNightly(t *testing.T) {
	w, _ := readWorkflow(t, "nightly.yaml")
	var all []string
	for _, j := range w.Jobs {
		all = append(all, strings.Split(j.commands(), "\n")...)
	}

	if len(w.On.Schedule) == 0 || !slices.Contains(all, "make vulncheck audit-web") || !slices.Contains(all, "make nightly") {
		t.Errorf("schedule %v of %q, want a schedule with vulncheck, audit-web and nightly", w.On.Schedule, all)
	}

	_, recipe, _ := strings.Cut(readMakefiles(t), "\nnightly:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	for _, target := range []string{"test-rbac", "vulncheck audit-web"} {
		if !strings.Contains(recipe+"\n", "$(MAKE) "+target+"\n") {
			t.Errorf("make nightly is %s, want %s in it", recipe, target)
		}
	}
}

// readMakefiles returns the Makefile and those that it includes.
func readMakefiles(t *testing.T) string {
	t.Helper()

	included, err := filepath.Glob(root + "/mk/*.mk")
	if err != nil || len(included) == 0 {
		t.Fatalf("makefiles in mk: %v, %v; want some", included, err)
	}

	all := []string{read(t, root, "Makefile")}
	for _, file := range included {
		all = append(all, read(t, root, "mk/"+filepath.Base(file)))
	}

	return strings.Join(all, "\n")
}

// releasedNames are the images and the chart of a release.
func releasedNames(t *testing.T) []string {
	t.Helper()

	images := regexp.MustCompile(`(?m)^IMAGES := (.+)$`).FindStringSubmatch(readMakefiles(t))
	if images == nil {
		t.Fatal("no IMAGES in the makefiles, want it")
	}

	return append(strings.Fields(images[1]), "charts/crane")
}

// TestRightsOfJobs checks that a job with the right to write or sign runs no test, and that one with the right to sign runs no code of the
// repository.
func TestRightsOfJobs(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/workflows/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		w, _ := readWorkflow(t, filepath.Base(file))
		for name, j := range w.Jobs {
			writes := false
			for _, right := range j.Permissions {
				writes = writes || right != "read"
			}

			if writes && regexp.MustCompile(`\.ci/run|make (?:test|nightly|lint|vulncheck|fuzz)|go test`).MatchString(j.commands()) {
				t.Errorf("%s: job %s has rights %v and runs tests: %s", file, name, j.Permissions, j.commands())
			}

			signs := j.Permissions["id-token"] != "" || j.Permissions["attestations"] != "" || j.Permissions["contents"] == "write"
			checksOut := slices.ContainsFunc(j.Steps, func(s step) bool { return strings.HasPrefix(s.Uses, "actions/checkout@") })
			if signs && (checksOut || strings.Contains(j.commands(), "make ")) {
				t.Errorf("%s: job %s has rights %v and runs code of the repository: %s", file, name, j.Permissions, j.commands())
			}
		}
	}
}

// TestPullRequests checks that the scanners run on each pull request, without rights.
func TestPullRequests(t *testing.T) {
	w, text := readWorkflow(t, "pull-request.yaml")
	commands := w.Jobs["scan"].commands()
	for _, want := range []string{"make lint", "make vulncheck audit-web"} {
		if !strings.Contains(commands, want) {
			t.Errorf("the scan of pull requests runs %s, want %s in it", commands, want)
		}
	}

	codeql := w.Jobs["codeql"]
	if len(codeql.Permissions) != 1 || codeql.Permissions["contents"] != "read" || !strings.Contains(text, "upload: never") || !strings.Contains(codeql.commands(), "codeql/*.sarif") {
		t.Errorf("the job codeql has the permissions %v, want contents: read alone, no upload, and a check of its findings", codeql.Permissions)
	}

	if !strings.Contains(text, "\n  pull_request: {}\n") || strings.Contains(text, "pull_request_target") {
		t.Error("pull-request.yaml does not run on pull requests without rights, want it to")
	}
	if !regexp.MustCompile(`(?m)^    - gosec$`).MatchString(read(t, root, ".golangci.yaml")) {
		t.Error("the linters lack gosec, want it")
	}
}

// TestReleaseWorkflow runs the steps that sign and that hand the digests to the provenance, with digests as `make push-chart` writes them and
// a cosign that records its arguments: every image and the chart are signed by their digests and have a provenance of these.
func TestReleaseWorkflow(t *testing.T) {
	w, _ := readWorkflow(t, "release.yaml")
	release := w.Jobs["release"]
	provenance := w.Jobs["provenance"]

	all := w.Jobs["build"].commands() + "\n" + w.Jobs["push"].commands() + "\n" + release.commands()
	if order := regexp.MustCompile(`(?s)make vulncheck .*make release .*make images .*make push-chart .*cosign sign `); !order.MatchString(all) {
		t.Errorf("steps %s, want the check before the release, images, chart and signature", all)
	}

	names := releasedNames(t)
	dir := t.TempDir()

	want := map[string]string{}
	var file strings.Builder
	for i, name := range names {
		want[name] = "sha256:" + strings.Repeat(string(rune('a'+i)), 64)
		fmt.Fprintf(&file, "%s %s %s\n", name, version, want[name])
	}

	for path, text := range map[string]string{
		"dist/digests": file.String(), "dist/release/SHA256SUMS": "", "bin/cosign": "#!/bin/sh\necho \"$@\" >>signed\n[ -z \"$FAIL\" ]\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	run := func(name string, env ...string) error {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", release.step(t, name).Run) // the shell of GitHub for steps
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), append(env, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "REGISTRY=registry.example/crane", "VERSION="+version,
			"GITHUB_OUTPUT="+filepath.Join(dir, "output"))...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		t.Logf("%s: %v %s", name, err, stderr.String())

		return err
	}

	const sign = "Sign images, chart and checksums"
	if err := run(sign, "FAIL=1"); err == nil {
		t.Error("the release continues without a signature, want an error")
	}
	if err := os.Remove(filepath.Join(dir, "signed")); err != nil {
		t.Fatal(err)
	}

	if err := run(sign); err != nil {
		t.Fatal(err)
	}

	signed := strings.Split(strings.TrimSpace(read(t, dir, "signed")), "\n")
	for _, name := range names {
		if line := "sign --yes registry.example/crane/" + name + "@" + want[name]; !slices.Contains(signed, line) {
			t.Errorf("signed %q, want %q", signed, line)
		}
	}

	if len(signed) != len(names)+1 || !strings.HasSuffix(signed[len(signed)-1], "dist/release/SHA256SUMS") {
		t.Errorf("signed %q, want each image, the chart and the checksums", signed)
	}

	if err := run("digests"); err != nil {
		t.Fatal(err)
	}

	text, ok := strings.CutPrefix(read(t, dir, "output"), "digests=")
	have := map[string]string{}
	if err := json.Unmarshal([]byte(text), &have); err != nil || !ok || release.Outputs["digests"] != "${{ steps.digests.outputs.digests }}" {
		t.Fatalf("outputs %v, %q, %v, want the digests as JSON", release.Outputs, text, err)
	}

	for name, digest := range want {
		if have[name] != digest || !slices.Contains(provenance.Strategy.Matrix["name"], name) {
			t.Errorf("%s: digest %s, want %s; provenance of %v", name, have[name], digest, provenance.Strategy.Matrix["name"])
		}
	}

	attest := provenance.Steps[len(provenance.Steps)-1]
	if !strings.HasPrefix(attest.Uses, "actions/attest-build-provenance@") || attest.With["push-to-registry"] != true ||
		attest.With["subject-name"] != "${{ env.REGISTRY }}/${{ matrix.name }}" ||
		attest.With["subject-digest"] != "${{ fromJSON(needs.release.outputs.digests)[matrix.name] }}" {
		t.Errorf("provenance %+v, want the digest of each image attested", attest)
	}

	for _, right := range []string{"packages", "id-token", "attestations"} {
		if provenance.Permissions[right] != "write" {
			t.Errorf("the permissions of the provenance are %v, want %s: write", provenance.Permissions, right)
		}
	}
}
