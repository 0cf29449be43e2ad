// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uplink is the name of the node's only interface.
const uplink = "eth0"

// configureNetwork configures loopback and the uplink, which the parent may still be creating.
func configureNetwork(address netip.Prefix, gateway netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()

	if err := setUp(fd, "lo"); err != nil {
		return err
	}

	// The parent attaches the interface while this process starts.
	if err := awaitInterface(fd); err != nil {
		return err
	}

	ip := address.Addr().As4()
	mask := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), address.Bits()).Masked().Addr().As4()

	if err := setAddress(fd, unix.SIOCSIFADDR, ip); err != nil {
		return fmt.Errorf("setting address %s: %w", address, err)
	}

	if err := setAddress(fd, unix.SIOCSIFNETMASK, mask); err != nil {
		return fmt.Errorf("setting address %s: %w", address, err)
	}

	if err := setUp(fd, uplink); err != nil {
		return err
	}

	return addDefaultRoute(fd, gateway)
}

func awaitInterface(fd int) error {
	deadline := time.Now().Add(interfaceBound)
	for {
		request, err := unix.NewIfreq(uplink)
		if err != nil {
			return fmt.Errorf("naming interface: %w", err)
		}

		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENODEV) || time.Now().After(deadline) {
			return fmt.Errorf("waiting for interface %s: %w", uplink, err)
		}

		time.Sleep(pollInterval)
	}
}

func setAddress(fd int, command uint, value [4]byte) error {
	request, err := unix.NewIfreq(uplink)
	if err != nil {
		return fmt.Errorf("naming interface: %w", err)
	}

	if err := request.SetInet4Addr(value[:]); err != nil {
		return fmt.Errorf("setting address: %w", err)
	}

	return unix.IoctlIfreq(fd, command, request)
}

func setUp(fd int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("naming interface: %w", err)
	}

	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing up %s: %w", name, err)
	}

	request.SetUint16(request.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing up %s: %w", name, err)
	}

	return nil
}

// rtentry is struct rtentry of linux/route.h on 64-bit machines.
type rtentry struct {
	_                  uint64
	dst, gateway, mask unix.RawSockaddrInet4
	flags              uint16
	_                  int16
	_                  [4]byte
	_                  uint64
	_                  [8]byte // tos, class and padding
	metric             int16
	_                  [6]byte
	device             uintptr
	mtu, window        uint64
	irtt               uint16
	_                  [6]byte
}

func addDefaultRoute(fd int, gateway netip.Addr) error {
	any4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	via := any4
	via.Addr = gateway.As4()
	route := rtentry{
		dst:     any4,
		mask:    any4,
		gateway: via,
		flags:   unix.RTF_UP | unix.RTF_GATEWAY,
	}

	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route)))
	if errno != 0 && !errors.Is(errno, unix.EEXIST) {
		return fmt.Errorf("adding the default route by %s: %w", gateway, errno)
	}

	return nil
}
