package mux

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Host is the end that opens streams.
type Host struct {
	session *session
	in      *decoder
}

// Greet begins a session over a port where anything may be on its way. It
// returns when the guest has answered, which takes as long as its boot. A guest
// that asks for settings gets them.
func Greet(port io.ReadWriter, text []byte) (*Host, error) {
	w := &wire{out: port}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	greeting := append(make([]byte, maxFrame), encode(hello, 0, nonce)...)
	if err := w.write(greeting); err != nil {
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	in := &decoder{in: port}
	flags, err := in.seek(nonce)
	if err != nil {
		return nil, fmt.Errorf("wait for the guest: %w", err)
	}
	h := &Host{session: newSession(w), in: in}
	if flags&wantsSettings != 0 && text != nil {
		if err := h.tell(text); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// seek skips all up to the guest's hello, and returns its flags.
func (d *decoder) seek(nonce []byte) (byte, error) {
	start := encode(hello, 0, append(bytes.Clone(nonce), 0))[:headerSize+nonceSize]
	whole := len(start) + 2
	for {
		if err := d.fill(whole); err != nil {
			return 0, err
		}
		i := bytes.Index(d.buf[d.at:d.end], start)
		if i < 0 {
			d.at = d.end - len(start) + 1
			continue
		}
		d.at += i
		if err := d.fill(whole); err != nil {
			return 0, err
		}
		flags := d.buf[d.at+len(start)]
		d.at += whole
		return flags, nil
	}
}

// tell sends the settings, and last the time.
func (h *Host) tell(text []byte) error {
	for len(text) > 0 {
		n := min(len(text), MaxPayload)
		if err := h.session.send(settings, 0, text[:n]); err != nil {
			return fmt.Errorf("send the settings: %w", err)
		}
		text = text[n:]
	}
	return h.session.send(begin, 0, fresh(nil))
}

// fresh puts the time and a seed before a text.
func fresh(text []byte) []byte {
	out := make([]byte, freshSize, freshSize+len(text))
	_, _ = rand.Read(out[8:]) // it never fails
	binary.LittleEndian.PutUint64(out, uint64(time.Now().UnixNano()))
	return append(out, text...)
}

// Run reads until the port fails or the guest breaks the rules, and then ends
// all streams.
func (h *Host) Run() error {
	err := h.read()
	h.session.end(fmt.Errorf("the way to the guest is gone: %w", net.ErrClosed))
	return err
}

func (h *Host) read() error {
	for {
		f, err := h.in.next()
		if err != nil {
			return err
		}
		switch f.kind {
		case data, window, fin, shut:
			if err := h.session.handle(f); err != nil {
				return err
			}
		default:
			return fmt.Errorf("mux: the guest sends a frame of kind %d", f.kind)
		}
	}
}

// Open makes a stream. It does not wait: a guest that does not listen closes
// it.
func (h *Host) Open() (*Stream, error) {
	st, err := h.session.add(0)
	if err != nil {
		return nil, err
	}
	if err := h.session.send(open, st.id, nil); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// MaxNews is the longest text that Wake can carry.
const MaxNews = MaxPayload - freshSize

// Wake tells a held agent that it may listen again, and what is new.
func (h *Host) Wake(news []byte) error { return h.session.send(wake, 0, fresh(news)) }
