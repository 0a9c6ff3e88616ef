// Package settings holds what the host tells the agent: the token, the
// identity of the sandbox, its default user and environment. It also resolves
// the user and the path of a request, which every surface does alike.
package settings

import (
	"crypto/subtle"
	"encoding/json"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/user"
)

// DefaultPath is PATH when the image sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Limits are bounds of the whole sandbox; zero means none.
type Limits struct {
	Pids      int `json:"pids"`
	MemoryMiB int `json:"memoryMiB"`
	DiskMiB   int `json:"diskMiB"`
}

// Listen is one address or several.
type Listen []string

// UnmarshalJSON accepts a string or a list.
func (l *Listen) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, (*[]string)(l))
	}
	var one string
	err := json.Unmarshal(raw, &one)
	*l = Listen{one}
	return err
}

// Config is the JSON the agent starts with. Unknown keys are ignored.
type Config struct {
	Listen         Listen            `json:"listen"`
	AccessToken    string            `json:"accessToken"`
	SandboxID      string            `json:"sandboxId"`
	TemplateID     string            `json:"templateId"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
	EnvVars        map[string]string `json:"envVars"`
	Hostname       string            `json:"hostname"`
	Deadline       float64           `json:"deadline"` // unix seconds; 0 = none
	Limits         Limits            `json:"limits"`
	Sudo           bool              `json:"sudo"`
	CABundle       string            `json:"caBundle"` // PEM, to be trusted by the guest
	Files          map[string]string `json:"files"`    // guest path → text, written at start
	Init           bool              `json:"init"`
	OnExit         string            `json:"onExit"` // "exit" (default), "poweroff", "reboot"

	// Channel is one more way to listen, of a machine that has its own.
	Channel interface{ Listen() (net.Listener, error) } `json:"-"`
}

// Settings is the live state. The zero value is not usable; call New.
type Settings struct {
	Users     *user.Database
	Limits    Limits
	StartedAt time.Time

	lastActivity atomic.Int64 // unix ms

	mu             sync.RWMutex
	token          string
	sandboxID      string
	templateID     string
	defaultUser    string
	defaultWorkdir string
	imageEnv       map[string]string
	userEnv        map[string]string
	limitsHit      []string
}

// New takes over a configuration.
func New(c *Config) *Settings {
	s := &Settings{
		Users: user.Open(""), Limits: c.Limits, StartedAt: time.Now(),
		token: c.AccessToken, sandboxID: c.SandboxID, templateID: c.TemplateID,
		defaultUser: c.DefaultUser, defaultWorkdir: c.DefaultWorkdir, imageEnv: c.EnvVars,
	}
	s.Touch()
	return s
}

// Touch notes activity.
func (s *Settings) Touch() { s.lastActivity.Store(time.Now().UnixMilli()) }

// LastActivity is when Touch was last called. Unit: ms since 1970.
func (s *Settings) LastActivity() int64 { return s.lastActivity.Load() }

// NoteLimit remembers that a limit was met.
func (s *Settings) NoteLimit(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.limitsHit {
		if have == name {
			return
		}
	}
	s.limitsHit = append(s.limitsHit, name)
}

// LimitsHit lists the limits met since the start.
func (s *Settings) LimitsHit() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append([]string{}, s.limitsHit...)
}

// Token is the access token; empty when none is set.
func (s *Settings) Token() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.token
}

// TokenMatches compares in constant time. Without a token all match.
func (s *Settings) TokenMatches(given string) bool {
	want := s.Token()
	return want == "" || subtle.ConstantTimeCompare([]byte(want), []byte(given)) == 1
}

// SandboxID is the id of this sandbox.
func (s *Settings) SandboxID() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sandboxID
}

// SetIdentity replaces id and token where given.
func (s *Settings) SetIdentity(id, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		s.sandboxID = id
	}
	if token != "" {
		s.token = token
	}
}

// Init applies an /init request: token as given (absent clears), the rest
// where non-empty.
func (s *Settings) Init(token string, env map[string]string, defaultUser, workdir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
	if env != nil {
		s.userEnv = env
	}
	if defaultUser != "" {
		s.defaultUser = defaultUser
	}
	if workdir != "" {
		s.defaultWorkdir = workdir
	}
}

// Env is a copy of the global variables, later ones over earlier ones:
// image, /init, then the identity that nothing may override.
func (s *Settings) Env() map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	env := make(map[string]string, len(s.imageEnv)+len(s.userEnv)+4)
	maps.Copy(env, s.imageEnv)
	maps.Copy(env, s.userEnv)
	env["E2B_SANDBOX"] = "true"
	if s.sandboxID != "" {
		env["E2B_SANDBOX_ID"] = s.sandboxID
	}
	if s.templateID != "" {
		env["E2B_TEMPLATE_ID"] = s.templateID
	}
	return env
}

// DefaultUser is who commands run as when the request names nobody.
func (s *Settings) DefaultUser() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.defaultUser == "" {
		return "root"
	}
	return s.defaultUser
}

// DefaultWorkdir is the working directory of an account.
func (s *Settings) DefaultWorkdir(account *user.Account) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.defaultWorkdir == "" {
		return account.Home
	}
	return Resolve(account, account.Home, s.defaultWorkdir)
}

// Account finds a user; the empty name is the default user.
func (s *Settings) Account(name string) (*user.Account, error) {
	if name == "" {
		name = s.DefaultUser()
	}
	return s.Users.Lookup(name)
}

// RequestUser finds the user of a Connect call from Basic authorization.
func (s *Settings) RequestUser(r *httpd.Request) (*user.Account, error) {
	name, _, _ := r.BasicAuth()
	account, err := s.Account(name)
	if err != nil {
		return nil, connect.Errorf(connect.Unauthenticated, "%v", err)
	}
	return account, nil
}

// Path resolves a path of a request: empty is the working directory, `~` the
// home, a relative one lies below the home.
//
// Errors: invalid_argument for a NUL byte.
func (s *Settings) Path(account *user.Account, path string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", connect.Errorf(connect.InvalidArgument, "the path contains a NUL byte")
	}
	if path == "" {
		return s.DefaultWorkdir(account), nil
	}
	return Resolve(account, account.Home, Unescape(path)), nil
}

// Resolve expands `~` and joins a relative path to base.
func Resolve(account *user.Account, base, path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = account.Home + path[1:]
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Clean(path)
}
