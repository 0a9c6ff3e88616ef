package files

import "strings"

// disposition reads name and filename of a part's Content-Disposition. Unlike
// the standard library it keeps directories in the file name, and it undoes
// the %22, %0D and %0A that browsers and the SDKs' HTTP libraries write.
//
// Source: HTML standard, multipart/form-data encoding algorithm.
func disposition(header string) (name, filename string) {
	_, rest, _ := strings.Cut(header, ";")
	for rest != "" {
		var key, value string
		key, rest, _ = strings.Cut(rest, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		value, rest = parameter(strings.TrimLeft(rest, " \t"))
		switch key {
		case "name":
			name = value
		case "filename":
			filename = value
		case "filename*":
			if decoded, ok := extended(value); ok && filename == "" {
				filename = decoded
			}
		}
	}
	return name, filename
}

// parameter reads one value, quoted or not, and returns what follows the
// semicolon after it.
func parameter(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.TrimSpace(value), rest
	}
	var b strings.Builder
	i := 1
	for ; i < len(s) && s[i] != '"'; i++ {
		if s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\') {
			i++
		}
		b.WriteByte(s[i])
	}
	_, rest, _ = strings.Cut(s[min(i+1, len(s)):], ";")
	return strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n", "%0d", "\r", "%0a", "\n").Replace(b.String()), rest
}

// extended decodes RFC 5987: UTF-8”percent-encoded.
func extended(value string) (string, bool) {
	charset, text, ok := strings.Cut(value, "''")
	if !ok || !strings.EqualFold(charset, "utf-8") {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			hi, lo := hexDigit(text[i+1]), hexDigit(text[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), true
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }
