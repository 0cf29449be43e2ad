// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command protogen compiles one .proto file and writes the Go types of its messages, without protoc.
//
//	protogen ROOT FILE OUT
//
// FILE is the path of the .proto file below ROOT, which is also its name in the registry of protobuf files. OUT is the path
// of the generated Go file.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: protogen ROOT FILE OUT")
		os.Exit(2)
	}

	if err := generate(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// generate writes the Go types of the messages in the file to out.
func generate(root, file, out string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}

	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}

	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return err
	}

	internal_gengo.GenerateFile(plugin, plugin.FilesByPath[file])
	response := plugin.Response()
	if response.Error != nil {
		return fmt.Errorf("generating %s: %s", out, response.GetError())
	}

	return os.WriteFile(out, []byte(response.GetFile()[0].GetContent()), 0o644)
}
