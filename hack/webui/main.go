// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webui bundles the sources of the dashboard (web/src) into web/dist, which package web embeds.
//
// The same sources give the same bytes. Names of assets contain the hash of their content, so browsers cache them for good.
// The command fails when the gzipped bundle exceeds its budget.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// budget is the largest size of all assets together, gzipped, in bytes.
const budget = 120 << 10

func main() {
	source := flag.String("source", "../../web", "folder of the sources")
	contract := flag.String("contract", "../../internal/dashboard/contract", "folder of the Go types of the API")
	check := flag.Bool("check", false, "compare the bundle and the types with the committed ones instead of writing them")
	tests := flag.String("tests", "", "bundle the tests for Node.js into this folder, and nothing else")
	flag.Parse()

	if err := run(*source, *contract, *check, *tests); err != nil {
		fmt.Fprintln(os.Stderr, "webui:", err)
		os.Exit(1)
	}
}

func run(source, contract string, check bool, tests string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return fmt.Errorf("resolving the folder of the sources: %w", err)
	}

	if tests != "" {
		return bundleTests(source, tests)
	}

	if err := types(contract, filepath.Join(source, "src", "contract.ts"), check); err != nil {
		return err
	}

	files, err := bundle(source)
	if err != nil {
		return err
	}

	total, err := report(files)
	if err != nil {
		return err
	}

	if total > budget {
		return fmt.Errorf("the bundle has %d bytes gzipped, more than %d", total, budget)
	}

	dist := filepath.Join(source, "dist")
	if check {
		return compare(files, dist)
	}

	return write(files, dist)
}

// types writes the types of the API in Go as TypeScript to a file, or compares them with it.
func types(contract, file string, check bool) error {
	if _, err := os.Stat(contract); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("%s does not exist: %s is kept\n", contract, filepath.Base(file))
		return nil
	}

	want, err := contractTypes(contract)
	if err != nil {
		return err
	}

	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, want) {
		return nil
	}

	if check {
		return fmt.Errorf("%s does not have the types of %s: run 'make web' and commit", file, contract)
	}

	if err := os.WriteFile(file, want, 0o644); err != nil {
		return fmt.Errorf("writing the types of the API: %w", err)
	}

	return nil
}

// options returns what both bundles have in common.
func options(source string) api.BuildOptions {
	return api.BuildOptions{
		AbsWorkingDir:     source,
		Bundle:            true,
		Format:            api.FormatESModule,
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		Charset:           api.CharsetUTF8,
		LogLevel:          api.LogLevelWarning,
		LegalComments:     api.LegalCommentsNone,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
	}
}

// bundle returns the files of web/dist by their names.
func bundle(source string) (map[string][]byte, error) {
	o := options(source)
	o.EntryPoints = []string{"src/main.tsx"}
	o.EntryNames = "[name]-[hash]"
	o.ChunkNames = "[name]-[hash]"
	o.Outdir = "dist"
	o.Splitting = true
	o.Target = api.ES2022

	o.Define = map[string]string{"process.env.NODE_ENV": `"production"`}
	result := api.Build(o)
	if len(result.Errors) > 0 {
		return nil, errors.New("esbuild reported errors")
	}

	page, err := os.ReadFile(filepath.Join(source, "src", "index.html"))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}

	icon, err := os.ReadFile(filepath.Join(source, "src", "icon.svg"))
	if err != nil {
		return nil, fmt.Errorf("reading the icon: %w", err)
	}

	notices, err := licenses(source)
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{"icon.svg": icon, "licenses.txt": notices}
	for _, f := range result.OutputFiles {
		name := filepath.Base(f.Path)
		files[name] = f.Contents

		if strings.HasPrefix(name, "main-") {
			page = bytes.ReplaceAll(page, []byte("main"+filepath.Ext(name)), []byte(name))
		}
	}

	files["index.html"] = page
	return files, nil
}

// licenses returns the licenses of the libraries in the bundle.
func licenses(source string) ([]byte, error) {
	var b bytes.Buffer
	for _, library := range []string{"preact", "uplot"} {
		text, err := os.ReadFile(filepath.Join(source, "node_modules", library, "LICENSE"))
		if err != nil {
			return nil, fmt.Errorf("reading the license of %s: %w", library, err)
		}

		fmt.Fprintf(&b, "%s\n\n%s\n\n", library, strings.TrimSpace(string(text)))
	}

	return b.Bytes(), nil
}

// bundleTests writes one module for each file web/test/*.test.ts(x).
func bundleTests(source, out string) error {
	entries, err := filepath.Glob(filepath.Join(source, "test", "*.test.ts*"))
	if err != nil || len(entries) == 0 {
		return fmt.Errorf("%s has no tests: %w", source, errors.Join(err, fs.ErrNotExist))
	}

	out, err = filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("resolving the folder of the tests: %w", err)
	}

	o := options(source)
	o.EntryPoints = entries
	o.Outdir = out
	o.Write = true
	o.Platform, o.Target = api.PlatformNode, api.ES2022
	o.MinifyWhitespace = false
	o.MinifyIdentifiers = false
	o.MinifySyntax = false

	o.Sourcemap = api.SourceMapInline
	o.OutExtension = map[string]string{".js": ".mjs"}
	if result := api.Build(o); len(result.Errors) > 0 {
		return errors.New("esbuild reported errors")
	}

	return nil
}

// report prints the size of each file and returns the sum of the gzipped sizes.
func report(files map[string][]byte) (int, error) {
	var total int
	for _, name := range names(files) {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return 0, fmt.Errorf("compressing: %w", err)
		}

		if _, err := w.Write(files[name]); err != nil {
			return 0, fmt.Errorf("compressing %s: %w", name, err)
		}

		if err := w.Close(); err != nil {
			return 0, fmt.Errorf("compressing %s: %w", name, err)
		}

		total += b.Len()
		fmt.Printf("%-22s %7.1f KiB, gzipped %6.1f KiB\n", name, float64(len(files[name]))/1024, float64(b.Len())/1024)
	}

	fmt.Printf("%-22s %11s  gzipped %6.1f of %d KiB\n", "total", "", float64(total)/1024, budget>>10)
	return total, nil
}

func names(files map[string][]byte) []string {
	var list []string
	for name := range files {
		list = append(list, name)
	}

	slices.Sort(list)
	return list
}

// compare returns an error that names the files of dist that differ from the bundle.
func compare(files map[string][]byte, dist string) error {
	var differ []string
	for _, name := range names(files) {
		if have, err := os.ReadFile(filepath.Join(dist, name)); err != nil || !bytes.Equal(have, files[name]) {
			differ = append(differ, name)
		}
	}

	entries, err := os.ReadDir(dist)
	if err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}

	for _, e := range entries {
		if _, ok := files[e.Name()]; !ok {
			differ = append(differ, e.Name())
		}
	}

	if len(differ) > 0 {
		return fmt.Errorf("web/dist is not current (%s): run 'make web' and commit", strings.Join(differ, ", "))
	}

	return nil
}

// write replaces the content of dist.
func write(files map[string][]byte, dist string) error {
	if err := os.RemoveAll(dist); err != nil {
		return fmt.Errorf("removing the old bundle: %w", err)
	}

	if err := os.MkdirAll(dist, 0o755); err != nil {
		return fmt.Errorf("creating the folder of the bundle: %w", err)
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dist, name), content, 0o644); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
	}

	return nil
}
