// Package tunnel carries raw bytes between the host and a TCP port inside the
// sandbox, after an HTTP upgrade. It also lists the ports that listen.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
)

const dialLimit = 10 * time.Second

// halfCloser is what both ends can do: say "no more" and still listen.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// Serve answers GET /tupper/tunnel?port=N[&host=H].
//
// Without host it tries 127.0.0.1, ::1 and then the machine's own addresses,
// because many servers listen on one address only. It never waits for a port
// to open: the caller decides about trying again.
func Serve(w httpd.ResponseWriter, r *httpd.Request) {
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil || port < 1 || port > 65535 {
		fail(w, httpd.StatusBadRequest, 0, "port must be 1 to 65535")
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "tcp") {
		fail(w, httpd.StatusUpgradeRequired, port, "the request must upgrade to tcp")
		return
	}
	inside, err := dial(r.Context(), r.URL.Query().Get("host"), port)
	if err != nil {
		fail(w, httpd.StatusBadGateway, port, "The sandbox is running but port is not open")
		return
	}
	outside, buffered, err := hijack(w)
	if err != nil {
		_ = inside.Close()
		fail(w, httpd.StatusInternalServerError, port, err.Error())
		return
	}
	_, err = io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	if err == nil {
		join(outside, buffered, inside)
	}
	_ = outside.Close()
	_ = inside.Close()
}

func fail(w httpd.ResponseWriter, status, port int, message string) {
	connect.WriteJSON(w, status, map[string]any{"code": status, "message": message, "port": port})
}

// hijack returns the connection and a reader of it that begins with what the
// HTTP server has already read.
func hijack(w httpd.ResponseWriter) (halfCloser, io.Reader, error) {
	conn, reader, err := httpd.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	half, ok := conn.(halfCloser)
	if !ok {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("connection of type %T cannot be half-closed", conn)
	}
	if n := reader.Buffered(); n > 0 {
		head, _ := reader.Peek(n)
		return half, io.MultiReader(strings.NewReader(string(head)), half), nil
	}
	return half, half, nil
}

func dial(ctx context.Context, host string, port int) (halfCloser, error) {
	candidates := []string{host}
	if host == "" {
		candidates = append([]string{"127.0.0.1", "::1"}, ownAddresses()...)
	}
	d := net.Dialer{Timeout: dialLimit}
	var all []error
	for _, address := range candidates {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

func ownAddresses() []string {
	addresses, _ := net.InterfaceAddrs()
	var list []string
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// join copies both ways until both are done; the end of one direction is
// passed on as a half-close.
func join(outside halfCloser, fromOutside io.Reader, inside halfCloser) {
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		defer both.Done()
		relay(inside, fromOutside, outside)
	}()
	go func() {
		defer both.Done()
		relay(outside, inside, inside)
	}()
	both.Wait()
}

// relay copies to dst. If dst takes no more, reading from the source ends too,
// so that its sender notices.
func relay(dst halfCloser, src io.Reader, source halfCloser) {
	_, err := io.Copy(dst, src)
	_ = dst.CloseWrite()
	if err != nil {
		if r, ok := source.(interface{ CloseRead() error }); ok {
			_ = r.CloseRead()
		}
	}
}
