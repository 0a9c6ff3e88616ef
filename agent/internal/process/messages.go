package process

import (
	"tupper.dev/agent/internal/connect"
)

// Config is the command as the client gave it; List returns it unchanged.
type Config struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  *string           `json:"cwd,omitempty"`
}

type ptyConfig struct {
	Size *struct {
		Cols connect.Number `json:"cols"`
		Rows connect.Number `json:"rows"`
	} `json:"size"`
}

type startRequest struct {
	Process *Config    `json:"process"`
	Pty     *ptyConfig `json:"pty"`
	Tag     *string    `json:"tag"`
	Stdin   *bool      `json:"stdin"`
}

type selector struct {
	Pid connect.Number `json:"pid"`
	Tag string         `json:"tag"`
}

// Offsets says how much of each stream a client already has; absent ones
// mean "from now on".
type Offsets struct {
	Stdout *int64 `json:"stdout"`
	Stderr *int64 `json:"stderr"`
	Pty    *int64 `json:"pty"`
}

func (o *Offsets) list() [streamCount]int64 {
	list := [streamCount]int64{-1, -1, -1}
	for s, p := range []*int64{o.Stdout, o.Stderr, o.Pty} {
		if p != nil && *p >= 0 {
			list[s] = *p
		}
	}
	return list
}

type connectRequest struct {
	Process selector `json:"process"`
	Tupper  *Offsets `json:"tupper"`
}

type input struct {
	Stdin connect.Bytes `json:"stdin"`
	Pty   connect.Bytes `json:"pty"`
}

type inputRequest struct {
	Process selector `json:"process"`
	Input   input    `json:"input"`
}

type streamInputMessage struct {
	Start *struct {
		Process selector `json:"process"`
	} `json:"start"`
	Data *struct {
		Input input `json:"input"`
	} `json:"data"`
}

type signalRequest struct {
	Process selector `json:"process"`
	Signal  any      `json:"signal"`
}

type selectRequest struct {
	Process selector `json:"process"`
}

type updateRequest struct {
	Process selector   `json:"process"`
	Pty     *ptyConfig `json:"pty"`
}

type listed struct {
	Config Config `json:"config"`
	Pid    int    `json:"pid"`
	Tag    string `json:"tag,omitempty"`
}

// End is the last event of a command. Signal and Limit are ours; E2B's clients
// ignore them.
type End struct {
	ExitCode int    `json:"exitCode,omitempty"`
	Exited   bool   `json:"exited,omitempty"`
	Status   string `json:"status"`
	Error    string `json:"error,omitempty"`
	Signal   int    `json:"signal,omitempty"`
	Limit    string `json:"limit,omitempty"`
}
