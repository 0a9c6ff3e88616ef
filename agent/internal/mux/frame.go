// Package mux carries many connections over one byte stream that is all there
// is between a virtual machine and its host: a virtio-serial port.
//
// The host opens streams, the guest accepts them. Each direction of a stream
// has a window of bytes that may be on their way; whoever reads grants more.
// So one slow reader never holds up the others, and neither end keeps more than
// a window for a stream, whatever the other end does.
//
// The port outlives what is behind it: a relay dies and another takes its
// place, a snapshot goes on elsewhere, each time anywhere within a frame. So the
// host begins with so many zero bytes that they end whatever frame was open
// (whose last byte is then wrong, so that it counts for nothing), and a hello
// with a fresh random number. The guest forgets all streams and answers with
// that number; the host skips all that comes before.
//
// Lifetime: Link.Run reads until the port is gone; streams end with their
// session.
package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is a header, the payload, and a last byte. Header: kind, marker,
// length of the payload (little endian, 16 bits), stream (32 bits).
const (
	headerSize = 8
	// MaxPayload makes the largest frame as large as what the guest's kernel
	// takes in one write (32 KiB).
	MaxPayload = 32<<10 - headerSize - 1
	maxFrame   = headerSize + MaxPayload + 1

	marker = 0xF5
	last   = 0xED

	nonceSize = 16
)

type kind uint8

const (
	padding  kind = iota // a zero byte outside of frames
	hello                // nonce, then one byte of flags
	open                 // a new stream, by the host
	data                 //
	window               // so many more bytes may come
	fin                  // the sender sends no more
	shut                 // the sender neither sends nor reads any more
	settings             // a piece of the settings, by the host
	begin                // the settings are complete: time (unix ns), then a seed
	wake                 // a held agent may listen again: time, seed, and what is new as JSON
	kinds                // the number of kinds
)

// Flags in the hello of the guest.
const wantsSettings = 1

var errFrame = errors.New("mux: not a frame")

// frame is what decoder.next returns; payload is valid until the next call.
type frame struct {
	kind    kind
	stream  uint32
	payload []byte
}

// seal makes a frame of a buffer whose payload lies at headerSize, with one
// byte of room behind it.
func seal(buf []byte, k kind, stream uint32, size int) []byte {
	buf = buf[:headerSize+size+1]
	buf[0], buf[1] = byte(k), marker
	binary.LittleEndian.PutUint16(buf[2:], uint16(size))
	binary.LittleEndian.PutUint32(buf[4:], stream)
	buf[headerSize+size] = last
	return buf
}

func encode(k kind, stream uint32, payload []byte) []byte {
	buf := make([]byte, headerSize+len(payload)+1)
	copy(buf[headerSize:], payload)
	return seal(buf, k, stream, len(payload))
}

// decoder finds frames in a byte stream.
type decoder struct {
	in  io.Reader
	buf [2 * maxFrame]byte
	at  int // the first byte that is not used up
	end int
}

// fill reads until n bytes are there.
func (d *decoder) fill(n int) error {
	if d.at+n > len(d.buf) {
		d.end = copy(d.buf[:], d.buf[d.at:d.end])
		d.at = 0
	}
	for d.end-d.at < n {
		if d.at == d.end {
			d.at, d.end = 0, 0
		}
		got, err := d.in.Read(d.buf[d.end:])
		d.end += got
		if err != nil && d.end-d.at < n {
			return err
		}
	}
	return nil
}

// next returns the next frame. After errFrame it can go on: with the next byte.
func (d *decoder) next() (frame, error) {
	if err := d.skip(); err != nil {
		return frame{}, err
	}
	if err := d.fill(headerSize); err != nil {
		return frame{}, err
	}
	head := d.buf[d.at : d.at+headerSize]
	f := frame{kind: kind(head[0]), stream: binary.LittleEndian.Uint32(head[4:])}
	size := int(binary.LittleEndian.Uint16(head[2:]))
	if head[1] != marker || f.kind >= kinds || size > MaxPayload {
		d.at++
		return frame{}, fmt.Errorf("%w: kind %d, length %d", errFrame, f.kind, size)
	}
	whole := headerSize + size + 1
	if err := d.fill(whole); err != nil {
		return frame{}, err
	}
	if d.buf[d.at+whole-1] != last {
		d.at += whole
		return frame{}, fmt.Errorf("%w: its end is missing", errFrame)
	}
	f.payload = d.buf[d.at+headerSize : d.at+whole-1]
	d.at += whole
	return f, nil
}

// skip passes over padding.
func (d *decoder) skip() error {
	for {
		if err := d.fill(1); err != nil {
			return err
		}
		for d.at < d.end && d.buf[d.at] == byte(padding) {
			d.at++
		}
		if d.at < d.end {
			return nil
		}
	}
}
