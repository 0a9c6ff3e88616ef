package tunnel

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"slices"
	"strconv"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
)

// Port is one listening TCP socket.
type Port struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// Ports answers GET /tupper/ports from /proc/net/tcp and tcp6.
func Ports(w httpd.ResponseWriter, _ *httpd.Request) {
	list := []Port{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(path)
		if err == nil {
			list = append(list, parseTable(data)...)
		}
	}
	slices.SortFunc(list, func(a, b Port) int { return a.Port - b.Port })
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{"ports": slices.Compact(list)})
}

// parseTable reads "sl local_address rem_address st …"; 0A is LISTEN.
func parseTable(data []byte) []Port {
	var list []Port
	for _, line := range bytes.Split(data, []byte("\n")) {
		f := bytes.Fields(line)
		if len(f) < 4 || string(f[3]) != "0A" {
			continue
		}
		host, port, ok := bytes.Cut(f[1], []byte(":"))
		number, err := strconv.ParseUint(string(port), 16, 16)
		ip := parseIP(host)
		if ok && err == nil && ip != nil {
			list = append(list, Port{Address: ip.String(), Port: int(number)})
		}
	}
	return list
}

// parseIP undoes the kernel's rendering: 32-bit words in host order, which is
// little-endian on both architectures we build for.
func parseIP(text []byte) net.IP {
	raw, err := hex.DecodeString(string(text))
	if err != nil || (len(raw) != 4 && len(raw) != 16) {
		return nil
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	return net.IP(raw)
}
