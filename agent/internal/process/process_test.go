package process

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSlowSubscriberHoldsTheWriterBack(t *testing.T) {
	o := newOutput()
	sub, _ := o.subscribe(nil)
	block := make([]byte, chunkSize)
	wrote := make(chan int)
	go func() {
		for i := range 2 * retain / chunkSize {
			o.write(Stdout, block)
			wrote <- i
		}
		close(wrote)
	}()
	last := 0
	for done := false; !done; {
		select {
		case last = <-wrote:
		case <-time.After(100 * time.Millisecond):
			done = true
		}
	}
	if last >= retain/chunkSize {
		t.Errorf("%d chunks went in", last)
	}
	go func() {
		buf := make([]byte, chunkSize)
		for range sub.Ready {
			for n := 1; n > 0; _, _, n, _ = sub.Next(buf) {
			}
		}
	}()
	for range wrote {
	}
}

func TestOutputWithoutSubscriberKeepsTheNewest(t *testing.T) {
	o := newOutput()
	for range 3 * retain / chunkSize {
		o.write(Stdout, make([]byte, chunkSize))
	}
	zero := int64(0)
	_, gaps := o.subscribe(&Offsets{Stdout: &zero})
	if gaps[Stdout] < 2*retain || gaps[Stdout] > 2*retain+8*chunkSize {
		t.Errorf("gap of %d bytes", gaps[Stdout])
	}
}

func TestParseShell(t *testing.T) {
	for line, want := range map[string]*shell{
		"bash -l -c X":        {login: true, script: 3},
		"bash -lc X":          {login: true, script: 2},
		"bash -i -l":          {login: true, interactive: true},
		"-sh -c X":            {login: true, script: 2},
		"sh -o pipefail -c X": {script: 4},
		"bash script.sh -c X": nil,
		"python3 -c X":        nil,
	} {
		got := parseShell(strings.Fields(line))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestBecomesSetsid(t *testing.T) {
	for line, want := range map[string]bool{
		"setsid":                              true,
		"/usr/bin/setsid":                     true,
		"setsid sleep 1":                      true,
		"exec setsid sleep 1 >log 2>&1":       true,
		"cd /tmp && setsid make &>log || :":   true,
		"x=1; setsid sh -c 'sleep 1'":         true,
		"sleep 1":                             false,
		"if x; then /usr/bin/setsid y; fi":    true,
		"setsids":                             false,
		"python3 -c 'import os; os.setsid()'": false,
		"echo /setsid; true":                  false,
		"true;setsid x":                       true,
		"echo setsid x":                       false,
		"sleep 9 & setsid sleep 1":            false,
		"setsid sleep 1 &":                    false,
		"cat <(sleep 9) && setsid sleep 1":    false,
		"coproc sleep 9; exec setsid true":    false,
		"setsid sh -c 'sleep 9 & sleep 1'":    false, // quoted, but nobody parses that here
	} {
		argv := []string{"/bin/bash", "-l", "-c", line}
		if strings.HasSuffix(line, "setsid") {
			argv = []string{line, "true"}
		}
		if got := becomesSetsid(argv); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestBecomeSh(t *testing.T) {
	c := &command{argv: []string{"/bin/bash", "-l", "-c", "-l"}}
	c.becomeSh()
	if strings.Join(c.argv, " ") != "-sh -c -l" {
		t.Error(c.argv)
	}
}

// TB083: the time of a hold, and that alone, is lost for time limits.
func TestLostTime(t *testing.T) {
	m := &Manager{live: map[int]*Process{}}
	m.Hold(true)
	began := time.Now()
	m.Hold(true) // one that is extended is still one
	time.Sleep(20 * time.Millisecond)
	if lost := m.lostTime(); lost < 20*time.Millisecond {
		t.Errorf("%v are lost so far", lost)
	}
	m.Hold(false)
	lost, whole := m.lostTime(), time.Since(began)
	m.Hold(false)
	time.Sleep(5 * time.Millisecond)
	if again := m.lostTime(); lost < 20*time.Millisecond || lost > whole+time.Millisecond || again != lost {
		t.Errorf("%v of %v are lost, later %v", lost, whole, again)
	}
}

// A subscriber that reads slowly holds the last piece of an exited command in
// its reader's hands; the end must not overtake it, not even after the cap.
func TestTheEndWaitsForAPieceThatIsHeldBack(t *testing.T) {
	o := newOutput()
	sub, _ := o.subscribe(nil)
	ours, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(Stdout, ours, o, func() {})
	buffers := &sync.Pool{New: func() any { return new([chunkSize]byte) }}
	go r.run(buffers)
	sent := bytes.Repeat([]byte("x"), retain)
	if _, err := child.Write(sent); err != nil {
		t.Fatal(err)
	}
	for r.pending() > 0 { // until all is in the buffer but for the last piece
		time.Sleep(time.Millisecond)
	}
	over := make(chan struct{})
	go func() { // the child's end stays open, as with a background process
		defer close(over)
		drained([]*reader{r})
		o.finish(&End{})
	}()
	time.Sleep(quietCap + 2*quietFor) // longer than an end may wait for others' output
	select {
	case <-over:
		t.Error("the end came while a piece was held back")
	default:
	}
	got, buf := 0, make([]byte, chunkSize)
	for range sub.Ready {
		_, _, n, end := sub.Next(buf)
		for ; n > 0; _, _, n, end = sub.Next(buf) {
			got += n
		}
		if end != nil {
			break
		}
	}
	<-over
	_ = child.Close()
	if got != len(sent) {
		t.Errorf("%d of %d bytes arrived", got, len(sent))
	}
}
