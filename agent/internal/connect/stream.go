package connect

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"time"
	"tupper.dev/agent/internal/httpd"
)

const (
	headerLen   = 5
	flagEnd     = 0x02
	writeBudget = 30 * time.Second
)

// Stream is the answering half of a streaming call. It belongs to the
// goroutine of the handler.
//
// A client that takes no byte for 30 s is given up: Send and Flush then fail,
// which is how one dead reader is kept from holding up a command for ever.
type Stream struct {
	w       httpd.ResponseWriter
	control *httpd.ResponseController
	buf     []byte
}

// NewStream writes the response header of a stream. Nothing is sent yet.
func NewStream(w httpd.ResponseWriter) *Stream {
	w.Header().Set("Content-Type", "application/connect+json")
	w.Header().Set("Cache-Control", "no-store")
	return &Stream{w: w, control: httpd.NewResponseController(w)}
}

// Begin returns a buffer with room for an envelope header; append the payload
// and give it to Commit. The buffer is reused.
func (s *Stream) Begin() []byte {
	return append(s.buf[:0], 0, 0, 0, 0, 0)
}

// Commit writes an envelope built on Begin's buffer.
func (s *Stream) Commit(envelope []byte, flags byte) error {
	s.buf = envelope
	envelope[0] = flags
	binary.BigEndian.PutUint32(envelope[1:headerLen], uint32(len(envelope)-headerLen))
	_ = s.control.SetWriteDeadline(time.Now().Add(writeBudget))
	_, err := s.w.Write(envelope)
	return err
}

// Send encodes and writes one message.
func (s *Stream) Send(message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.Commit(append(s.Begin(), body...), 0)
}

// Flush pushes what was sent to the client.
func (s *Stream) Flush() error { return s.control.Flush() }

// End closes the stream, with the error if there is one. What is still
// buffered goes out together with the end of the answer, when the handler
// returns.
func (s *Stream) End(err error) {
	body := []byte("{}")
	if err != nil {
		body, _ = json.Marshal(map[string]*Error{"error": AsError(err)})
	}
	_ = s.Commit(append(s.Begin(), body...), flagEnd)
}

// ReadMessage reads the next envelope of a request into value. It returns
// io.EOF at the end of the stream.
func ReadMessage(body io.Reader, value any) error {
	var head [headerLen]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return Errorf(InvalidArgument, "the stream ends inside an envelope")
		}
		return err
	}
	if head[0]&flagEnd != 0 {
		return io.EOF
	}
	if head[0] != 0 {
		return Errorf(InvalidArgument, "unsupported envelope flags %#x", head[0])
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > MaxMessage {
		return Errorf(ResourceExhausted, "the message of %d bytes is larger than %d", size, MaxMessage)
	}
	payload, err := io.ReadAll(io.LimitReader(body, int64(size)))
	if err != nil || len(payload) < int(size) {
		return Errorf(InvalidArgument, "the stream ends inside an envelope")
	}
	return decode(payload, value)
}

// ReadOnly reads the single message of a server stream and the rest of the
// body after it. Only a body read to its end lets httpd notice that the
// client has gone.
func ReadOnly(r *httpd.Request, value any) error {
	err := ReadMessage(r.Body, value)
	if errors.Is(err, io.EOF) {
		err = Errorf(InvalidArgument, "the stream has no message")
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<16))
	}
	return err
}
