package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"tupper.dev/agent/internal/httpd"
)

// Sign computes the signature of a /files URL.
//
// Source: E2B, specs/e2b-wire.md section 9.4.
func Sign(path, operation, username, token, expiration string) string {
	text := path + ":" + operation + ":" + username + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// authorize returns why a request is refused, or nothing.
func (s *Service) authorize(r *httpd.Request, operation string) string {
	token := s.settings.Token()
	if token == "" {
		return ""
	}
	if given := r.Header.Get("X-Access-Token"); given != "" {
		if s.settings.TokenMatches(given) {
			return ""
		}
		return "access token present in header but does not match"
	}
	q := r.URL.Query()
	signature := strings.ReplaceAll(q.Get("signature"), " ", "+") // some clients leave + unescaped
	if signature == "" {
		return "missing signature query parameter"
	}
	expiration := q.Get("signature_expiration")
	want := Sign(q.Get("path"), operation, q.Get("username"), token, expiration)
	if subtle.ConstantTimeCompare([]byte(want), []byte(signature)) != 1 {
		return "invalid signature"
	}
	if expiration != "" {
		until, err := strconv.ParseInt(expiration, 10, 64)
		if err != nil {
			return "invalid signature"
		}
		if until < time.Now().Unix() {
			return "signature is already expired"
		}
	}
	return ""
}
