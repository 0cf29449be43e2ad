// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// ErrGone reports a file that does not exist or has vanished with its cgroup or process.
var ErrGone = errors.New("does not exist")

// ErrUnsupported reports a file that the running kernel shows but does not support, such as pressure with psi=0. It is an ErrGone as well.
var ErrUnsupported error = unsupportedError{}

type unsupportedError struct{}

func (unsupportedError) Error() string { return "is not supported by the running kernel" }

// Is implements the interface of errors.Is.
func (unsupportedError) Is(target error) bool { return target == ErrGone }

// IsUnsupported reports whether an error is that of a file which the running kernel shows but does not support. In a recorded tree such a file is
// a directory.
func IsUnsupported(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, syscall.EISDIR)
}

const (
	initialBufferBytes = 16 << 10
	// maxFileBytes limits the size of a file. /proc/stat of 8192 CPUs has about 1 MiB.
	maxFileBytes = 4 << 20
)

// Root is the directory at which the host's file system is mounted: / or a mount in a container.
type Root string

// Path returns the path of a file of the host.
func (r Root) Path(parts ...string) string {
	return filepath.Join(append([]string{string(r)}, parts...)...)
}

// File is a kernel file that stays open between reads, so that reading it again takes one system call. Use NewFile. A File is not safe
// for concurrent use.
type File struct {
	path string
	fd   int
	open bool
}

// NewFile returns a file that the first read opens.
func NewFile(path string) File { return File{path: path} }

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Close closes the file. The next read opens it again.
func (f *File) Close() {
	if f.open {
		_ = syscall.Close(f.fd) // opened for reading only
		f.open = false
	}
}

// Reader reads files into a shared buffer. It is not safe for concurrent use. The zero value is ready.
type Reader struct {
	buf []byte
}

// Read returns the content of a file, valid until the next Read. The error is ErrGone if the file does not exist (any more); the file is
// then closed.
func (r *Reader) Read(f *File) ([]byte, error) {
	if !f.open {
		fd, err := retryInterrupted(func() (int, error) { return syscall.Open(f.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
		if err != nil {
			return nil, wrapFileError(f.path, err)
		}

		f.fd = fd
		f.open = true
	}

	content, err := r.readAll(f.fd)
	if err != nil {
		f.Close()
		return nil, wrapFileError(f.path, err)
	}

	return content, nil
}

// ReadPath reads a file once, without keeping it open. The content is valid until the next read.
func (r *Reader) ReadPath(path string) ([]byte, error) {
	file := NewFile(path)
	defer file.Close()

	return r.Read(&file)
}

func (r *Reader) readAll(fd int) ([]byte, error) {
	if r.buf == nil {
		r.buf = make([]byte, initialBufferBytes)
	}

	for n := 0; ; {
		got, err := retryInterrupted(func() (int, error) { return syscall.Pread(fd, r.buf[n:], int64(n)) })
		if err != nil {
			return nil, err
		}

		if got == 0 {
			return r.buf[:n], nil
		}

		if n += got; n < len(r.buf) {
			continue
		}

		if len(r.buf) >= maxFileBytes {
			return nil, fmt.Errorf("longer than %d bytes", maxFileBytes)
		}

		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
}

func retryInterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func wrapFileError(path string, err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: %w", path, ErrGone)
	}

	if errors.Is(err, syscall.EOPNOTSUPP) {
		return fmt.Errorf("%s: %w", path, ErrUnsupported)
	}

	return fmt.Errorf("%s: %w", path, err)
}
