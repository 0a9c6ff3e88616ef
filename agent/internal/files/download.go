package files

import (
	"compress/gzip"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"tupper.dev/agent/internal/httpd"
	"unicode/utf8"

	"tupper.dev/agent/internal/user"
)

func (s *Service) download(w httpd.ResponseWriter, r *httpd.Request, account *user.Account) {
	path, err := s.path(account, r.URL.Query().Get("path"))
	if err != nil {
		s.report(w, err)
		return
	}
	file, info, err := openRegular(path)
	if err != nil {
		s.report(w, err)
		return
	}
	defer file.Close()
	zip, ok := negotiate(r)
	if !ok {
		Fail(w, httpd.StatusNotAcceptable, "no acceptable encoding: %s", r.Header.Get("Accept-Encoding"))
		return
	}
	describe(w.Header(), path, info)
	switch {
	case conditional(r) && info.Size() > 0:
		httpd.ServeContent(w, r, info.Size(), info.ModTime(), file)
	case zip:
		s.sendZipped(w, r, file)
	default:
		s.sendPlain(w, r, file, info.Size())
	}
}

func describe(h httpd.Header, path string, info os.FileInfo) {
	name := filepath.Base(path)
	if !utf8.ValidString(name) {
		name = "file"
	}
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
	h.Set("Vary", "Accept-Encoding")
	h.Set("Last-Modified", info.ModTime().UTC().Format(httpd.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	kind := mime.TypeByExtension(filepath.Ext(path))
	if kind == "" {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
}

func conditional(r *httpd.Request) bool {
	for _, name := range []string{"Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since", "If-Match", "If-None-Match"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// negotiate picks the encoding. identity is preferred, being cheaper on one
// machine; gzip is used where the client accepts nothing else or names gzip
// alone. Ranges and conditions need identity.
func negotiate(r *httpd.Request) (zip, ok bool) {
	header := r.Header.Get("Accept-Encoding")
	if header == "" || conditional(r) {
		return false, true
	}
	q := map[string]float64{}
	for _, part := range strings.Split(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		weight := 1.0
		if _, value, found := strings.Cut(params, "="); found {
			if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				weight = v
			}
		}
		q[strings.ToLower(strings.TrimSpace(name))] = weight
	}
	any, anyGiven := q["*"]
	gz, gzGiven := q["gzip"]
	plain, plainGiven := q["identity"]
	if !gzGiven && anyGiven {
		gz = any
	}
	if !plainGiven {
		plain = 0.5
		if anyGiven && any == 0 {
			plain = 0
		}
		if len(q) > 1 {
			plain = 1 // a list such as "gzip, deflate" is a default, not a wish
		}
	}
	return gz > plain, gz > 0 || plain > 0
}

// sendPlain streams to the end of the file. A size of 0 is not believed.
func (s *Service) sendPlain(w httpd.ResponseWriter, r *httpd.Request, file *os.File, size int64) {
	buf := s.buffers.Get().(*[bufferSize]byte)
	defer s.buffers.Put(buf)
	n, err := file.Read(buf[:])
	if n == 0 {
		if err != nil && err != io.EOF {
			w.Header().Del("Content-Disposition")
			s.report(w, problem(err, file.Name()))
			return
		}
		w.Header().Set("Content-Length", "0")
		return
	}
	var source io.Reader = file
	if size > 0 && size >= int64(n) {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		source = io.LimitReader(file, size-int64(n)) // it may be growing
	}
	if r.Method == httpd.MethodHead {
		return
	}
	control := httpd.NewResponseController(w)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(httpd.Stall))
		if _, werr := w.Write(buf[:n]); werr != nil {
			return
		}
		if err != nil {
			break
		}
		if n, err = source.Read(buf[:]); n == 0 && err != nil {
			break
		}
	}
	_ = control.SetWriteDeadline(time.Time{})
	if err != io.EOF {
		panic(httpd.ErrAbortHandler) // the client must see that the body is cut
	}
}

func (s *Service) sendZipped(w httpd.ResponseWriter, r *httpd.Request, file *os.File) {
	w.Header().Set("Content-Encoding", "gzip")
	if r.Method == httpd.MethodHead {
		return
	}
	buf := s.buffers.Get().(*[bufferSize]byte)
	defer s.buffers.Put(buf)
	z, _ := gzip.NewWriterLevel(&patient{w: w, control: httpd.NewResponseController(w)}, gzip.BestSpeed)
	if _, err := io.CopyBuffer(z, struct{ io.Reader }{file}, buf[:]); err != nil {
		panic(httpd.ErrAbortHandler)
	}
	_ = z.Close()
}

// patient gives every write its own time limit.
type patient struct {
	w       io.Writer
	control *httpd.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(httpd.Stall))
	return p.w.Write(b)
}
