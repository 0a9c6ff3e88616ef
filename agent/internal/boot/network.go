package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// Network is the address of the only device.
type Network struct {
	Address string `json:"address"` // with the length of the prefix
	Gateway string `json:"gateway"`
	MTU     int    `json:"mtu"`
}

// request is a struct ifreq: a name, and one of many things.
type request struct {
	name [16]byte
	body [24]byte
}

// route is a struct rtentry of 64-bit machines.
type route struct {
	_                  uint64
	dst, gateway, mask [16]byte
	flags              uint16
	_                  [6]byte
	_, _               uint64
	_                  [8]byte
	_, _, _            uint64
	_                  uint64
}

const (
	routeUp      = 1 // RTF_UP
	routeGateway = 2 // RTF_GATEWAY
)

func (n *Network) configure(events *events) error {
	prefix, err := netip.ParsePrefix(n.Address)
	if err != nil {
		return fmt.Errorf("the network's address: %w", err)
	}
	if !prefix.Addr().Is4() {
		return fmt.Errorf("the network's address %s is not of IPv4", n.Address)
	}
	name, err := events.until("network device", networkDevice)
	if err != nil {
		return err
	}
	if err := resize(name, n.MTU); err != nil {
		return err
	}
	if err := assign(name, prefix); err != nil {
		return err
	}
	if n.Gateway == "" {
		return nil
	}
	gateway, err := netip.ParseAddr(n.Gateway)
	if err != nil || !gateway.Is4() {
		return fmt.Errorf("the network's gateway %q is not an address of IPv4", n.Gateway)
	}
	r := route{flags: routeUp | routeGateway}
	r.dst, r.gateway, r.mask = socketAddress(netip.IPv4Unspecified()), socketAddress(gateway), socketAddress(netip.IPv4Unspecified())
	if err := control(syscall.SIOCADDRT, unsafe.Pointer(&r)); !errors.Is(err, syscall.EEXIST) {
		return err
	}
	return nil // of the saved machine, and the same
}

// networkDevice is the first that is backed by hardware.
func networkDevice() string {
	matches, _ := filepath.Glob("/sys/class/net/*/device")
	if len(matches) == 0 {
		return ""
	}
	return filepath.Base(filepath.Dir(matches[0]))
}

func raiseLoopback() error { return assign("lo", netip.MustParsePrefix("127.0.0.1/8")) }

// raiseDevice turns the network device on, without an address yet, if there is
// one: its neighbours are told much then, which takes an emulated processor long.
func raiseDevice() error {
	name := networkDevice()
	if name == "" {
		return nil
	}
	return turnOn(name)
}

// resize sets the MTU of a device where it is another one.
func resize(name string, mtu int) error {
	r := newRequest(name)
	if mtu <= 0 {
		return nil
	}
	if err := r.do(syscall.SIOCGIFMTU); err == nil && binary.NativeEndian.Uint32(r.body[:]) == uint32(mtu) {
		return nil
	}
	binary.NativeEndian.PutUint32(r.body[:], uint32(mtu))
	return r.do(syscall.SIOCSIFMTU)
}

// assign gives a device its address and turns it on.
func assign(name string, prefix netip.Prefix) error {
	mask := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-prefix.Bits()))))
	for _, step := range []struct {
		code    uintptr
		address netip.Addr
	}{{syscall.SIOCSIFADDR, prefix.Addr()}, {syscall.SIOCSIFNETMASK, mask}} {
		r := newRequest(name)
		address := socketAddress(step.address)
		copy(r.body[:], address[:])
		if err := r.do(step.code); err != nil {
			return err
		}
	}
	return turnOn(name)
}

func turnOn(name string) error {
	r := newRequest(name)
	binary.NativeEndian.PutUint16(r.body[:], syscall.IFF_UP|syscall.IFF_RUNNING)
	return r.do(syscall.SIOCSIFFLAGS)
}

func newRequest(name string) *request {
	r := &request{}
	copy(r.name[:len(r.name)-1], name)
	return r
}

func (r *request) do(code uintptr) error { return control(code, unsafe.Pointer(r)) }

// socketAddress is a struct sockaddr_in without a port.
func socketAddress(address netip.Addr) (out [16]byte) {
	binary.NativeEndian.PutUint16(out[:], syscall.AF_INET)
	four := address.As4()
	copy(out[4:], four[:])
	return out
}

func control(code uintptr, argument unsafe.Pointer) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	defer syscall.Close(fd)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), code, uintptr(argument)); errno != 0 {
		return fmt.Errorf("configure the network: %w", os.NewSyscallError(fmt.Sprintf("ioctl %#x", code), errno))
	}
	return nil
}
