package files

import (
	"net/http"
	"testing"

	"tupper.dev/agent/internal/httpd"
)

func TestSignVector(t *testing.T) {
	const want = "v1_gDv73H8R9a10OdCSX0/JNMqMYLPpmCQAYJY+U68oQjM"
	if got := Sign("a.txt", "read", "", "tok", ""); got != want {
		t.Error(got)
	}
}

func TestDisposition(t *testing.T) {
	for header, want := range map[string][2]string{
		`form-data; name="file"; filename="/x/1.txt"`:          {"file", "/x/1.txt"},
		`form-data; filename="a%22b;c.txt"; name="file"`:       {"file", `a"b;c.txt`},
		`form-data; name=file; filename*=utf-8''%E6%97%A5.txt`: {"file", "日.txt"},
		`form-data; name="other"`:                              {"other", ""},
	} {
		name, filename := disposition(header)
		if name != want[0] || filename != want[1] {
			t.Errorf("%s: %q %q", header, name, filename)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for header, want := range map[string][2]bool{
		"": {false, true}, "gzip, deflate": {false, true}, "gzip": {true, true},
		"identity;q=0": {false, false}, "gzip;q=0.5, identity;q=0": {true, true}, "br": {false, true},
	} {
		h := http.Header{}
		if header != "" {
			h.Set("Accept-Encoding", header)
		}
		zip, ok := negotiate(&httpd.Request{Header: httpd.Header(h)})
		if zip != want[0] || ok != want[1] {
			t.Errorf("%q: %t %t", header, zip, ok)
		}
	}
}
