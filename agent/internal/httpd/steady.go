package httpd

import (
	"io"
	"time"
)

// Stall is how long a peer may take no byte, or send none.
const Stall = 60 * time.Second

// Steady is a body whose reading fails when the client sends nothing for Stall.
type Steady struct {
	body    io.Reader
	control *ResponseController
}

// NewSteady watches over the body of a request that is answered by control.
func NewSteady(body io.Reader, control *ResponseController) *Steady {
	return &Steady{body: body, control: control}
}

func (s *Steady) Read(b []byte) (int, error) {
	_ = s.control.SetReadDeadline(time.Now().Add(Stall))
	n, err := s.body.Read(b)
	if err != nil {
		_ = s.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
