package settings

import (
	"strings"
	"unicode/utf8"
)

// File names are bytes and JSON is text. A name that is not UTF-8 is shown
// with every stray byte as \xHH; so that this can be undone, a real backslash
// directly before "xHH" in such a name is shown as \x5c. Names that are UTF-8
// are never changed.
//
// Undoing is only tried for names whose escapes stand for bytes 0x80..0xff
// (and \x5c next to them), so a plain UTF-8 name that contains the text "\x41"
// means itself. The one ambiguity left, a UTF-8 name that holds the literal
// text "\xff", is taken as the byte only if the result is not UTF-8.

// Escape renders a file name or path for JSON.
func Escape(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		literal := r == '\\' && i+3 < len(name) && name[i+1] == 'x' && isHex(name[i+2]) && isHex(name[i+3])
		if (r == utf8.RuneError && size == 1) || literal {
			c := name[i]
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			i++
			continue
		}
		b.WriteString(name[i : i+size])
		i += size
	}
	return b.String()
}

// Unescape is the inverse of Escape.
func Unescape(shown string) string {
	if !strings.Contains(shown, `\x`) {
		return shown
	}
	out := make([]byte, 0, len(shown))
	for i := 0; i < len(shown); i++ {
		if shown[i] == '\\' && i+3 < len(shown) && shown[i+1] == 'x' && isHex(shown[i+2]) && isHex(shown[i+3]) {
			if c := unhex(shown[i+2])<<4 | unhex(shown[i+3]); c >= 0x80 || c == '\\' {
				out = append(out, c)
				i += 3
				continue
			}
		}
		out = append(out, shown[i])
	}
	if utf8.Valid(out) {
		return shown
	}
	return string(out)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	default:
		return c - 'A' + 10
	}
}
