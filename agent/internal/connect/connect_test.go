package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]string{
		`"aGk="`: "hi", `"aGk"`: "hi", `"_-8="`: "\xff\xef", `"/+8="`: "\xff\xef", `""`: "", `"a\u0047k="`: "hi",
	} {
		var b Bytes
		if err := json.Unmarshal([]byte(text), &b); err != nil || string(b) != want || b == nil {
			t.Errorf("%s: %q %v", text, b, err)
		}
	}
	for _, text := range []string{`"!"`, `5`, `{}`, `"a"`} {
		var b Bytes
		if json.Unmarshal([]byte(text), &b) == nil {
			t.Errorf("%s is accepted as %q", text, b)
		}
	}
	b := Bytes("x")
	if err := json.Unmarshal([]byte("null"), &b); err != nil || b != nil {
		t.Error(b, err)
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]Number{`5`: 5, `"5"`: 5, `5.0`: 5, `1e3`: 1000, `null`: 0, `-1`: -1} {
		var n Number
		if err := json.Unmarshal([]byte(text), &n); err != nil || n != want {
			t.Errorf("%s: %d %v", text, n, err)
		}
	}
	for _, text := range []string{`5.5`, `"x"`, `1e99`, `{}`} {
		var n Number
		if json.Unmarshal([]byte(text), &n) == nil {
			t.Errorf("%s is accepted as %d", text, n)
		}
	}
}

func TestReadMessage(t *testing.T) {
	for input, want := range map[string]string{
		"\x00\x00\x00\x00\x02{}":         "<nil>",
		"":                               "EOF",
		"\x02\x00\x00\x00\x02{}":         "EOF",
		"\x00\x00":                       "invalid_argument",
		"\x00\x00\x00\x00\x05{}":         "invalid_argument",
		"\x01\x00\x00\x00\x02{}":         "invalid_argument",
		"\x00\x00\x00\x00\x02{x":         "invalid_argument",
		"\x00\xff\xff\xff\xff" + "{}":    "resource_exhausted",
		"\x00\x00\x00\x00\x05null\nrest": "<nil>",
	} {
		var into struct{}
		err := ReadMessage(bytes.NewReader([]byte(input)), &into)
		got := fmt.Sprint(err)
		var coded *Error
		if errors.As(err, &coded) {
			got = string(coded.Code)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", input, got, want)
		}
	}
}

func TestErrorsHaveAStatus(t *testing.T) {
	for _, code := range []Code{Canceled, InvalidArgument, NotFound, Unauthenticated, Internal, "something"} {
		if s := code.Status(); s < 400 || s > 599 {
			t.Errorf("%s: %d", code, s)
		}
	}
	if e := AsError(fmt.Errorf("wrapped: %w", Errorf(NotFound, "x"))); e.Code != NotFound {
		t.Error(e)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x0f{\"pid\":\"7\",\"b\":\"aGk\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var into struct {
			Pid Number
			B   Bytes
		}
		in := bytes.NewReader(data)
		for range 100 {
			if err := ReadMessage(in, &into); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, in)
	})
}
