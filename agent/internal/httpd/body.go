package httpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

var errBufferFull = bufio.ErrBufferFull

// maxDrain is how much of an unread body is skipped to keep a connection.
const maxDrain = 256 << 10

// body reads a request's body, by length or by chunks. A body that is cut off
// ends with io.ErrUnexpectedEOF.
type body struct {
	conn    *conn
	request *Request
	chunked bool
	expects bool  // the client waits for 100 Continue
	left    int64 // of the body, or of the current chunk
	inChunk bool  // a chunk's closing line is still to come
	done    bool
	err     error
}

func (b *body) ended() bool { return b.done }

// Close does nothing: the rest is skipped when the handler has returned.
func (b *body) Close() error { return nil }

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.done {
		return 0, io.EOF
	}
	if b.expects {
		b.expects = false
		if err := b.conn.proceed(); err != nil {
			return 0, err
		}
	}
	n, err := b.read(p)
	if errors.Is(err, io.EOF) {
		if !b.done {
			err = io.ErrUnexpectedEOF
		} else {
			b.request.bodyEnded()
		}
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	if b.chunked && b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.conn.in.Read(p)
	b.left -= int64(n)
	if b.left == 0 && !b.chunked {
		b.done = true
		return n, io.EOF
	}
	// The end of a chunked body usually lies in the buffer already. Taking it
	// now lets the client's departure be noticed without another read.
	if b.left == 0 && b.endBuffered() && b.nextChunk() == io.EOF {
		return n, io.EOF
	}
	return n, err
}

// nextChunk reads a size line; io.EOF at the last chunk.
func (b *body) nextChunk() error {
	if b.inChunk {
		if line, err := b.line(); err != nil || len(line) != 0 {
			return unexpected(err)
		}
		b.inChunk = false
	}
	line, err := b.line()
	if err != nil {
		return unexpected(err)
	}
	size, _, _ := bytes.Cut(line, []byte(";"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 62)
	if err != nil {
		return bad("malformed chunk size")
	}
	b.left, b.inChunk = int64(n), true
	if n > 0 {
		return nil
	}
	for { // trailers are skipped
		line, err := b.line()
		if err != nil {
			return unexpected(err)
		}
		if len(line) == 0 {
			b.done = true
			return io.EOF
		}
	}
}

func unexpected(err error) error {
	if err == nil {
		return bad("malformed chunk")
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (b *body) line() ([]byte, error) {
	line, err := b.conn.in.ReadSlice('\n')
	if errors.Is(err, errBufferFull) {
		return nil, bad("a chunk's line is too long")
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// endBuffered says whether what is buffered is exactly the end of the body.
func (b *body) endBuffered() bool {
	const end = "\r\n0\r\n\r\n"
	if b.conn.in.Buffered() < len(end) {
		return false
	}
	head, _ := b.conn.in.Peek(len(end))
	return string(head) == end
}

// drain skips the rest of the body, if it is short.
func (b *body) drain() error {
	if b.done {
		return nil
	}
	if b.expects {
		return io.ErrUnexpectedEOF // never asked for, never sent
	}
	n, err := io.Copy(io.Discard, io.LimitReader(b, maxDrain))
	if err == nil && n == maxDrain && !b.done {
		return io.ErrShortBuffer
	}
	return err
}
