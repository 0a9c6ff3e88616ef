package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a proto3-JSON bytes field: standard or URL-safe base64, padding
// optional. A nil value means the field was absent.
type Bytes []byte

// UnmarshalJSON decodes base64 without an intermediate string.
func (b *Bytes) UnmarshalJSON(raw []byte) error {
	if bytes.Equal(raw, []byte("null")) {
		*b = nil
		return nil
	}
	if len(raw) < 2 || raw[0] != '"' {
		return fmt.Errorf("bytes are not a string")
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		text = []byte(s)
	}
	text = bytes.TrimRight(text, "=")
	encoding := base64.RawStdEncoding
	if bytes.ContainsAny(text, "-_") {
		encoding = base64.RawURLEncoding
	}
	out := make([]byte, encoding.DecodedLen(len(text)))
	n, err := encoding.Decode(out, text)
	*b = out[:n]
	return err
}

// Number is an integer field that may arrive as a number or as a string.
type Number int64

// UnmarshalJSON accepts 5, "5" and null.
func (n *Number) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if text == "null" || text == "" {
		*n = 0
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(text, 64)
		if ferr != nil || f != float64(int64(f)) {
			return err
		}
		v = int64(f)
	}
	*n = Number(v)
	return nil
}
