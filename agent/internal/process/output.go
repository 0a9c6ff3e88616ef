package process

import (
	"sync"
)

// Stream is one of a command's outputs.
type Stream uint8

// The three streams; a command has either Pty or the other two.
const (
	Stdout Stream = iota
	Stderr
	Pty
	streamCount
)

func (s Stream) String() string { return [...]string{"stdout", "stderr", "pty"}[s] }

const (
	retain    = 1 << 20  // bytes kept for late readers
	chunkSize = 32 << 10 // the largest data event
	chunkCost = 64       // bookkeeping, so that tiny chunks count too
)

type chunk struct {
	stream Stream
	offset int64 // of data[0] in its stream
	data   []byte
}

// output is the single buffer between the readers of a command's pipes and
// any number of subscribers. Each subscriber has its own position in it; there
// are no queues per subscriber. The oldest chunk leaves when room is needed
// and no subscriber is still before it; a slow subscriber thus holds the
// command back, until its connection fails (see connect.Stream), and a command
// without subscribers never blocks. While held (around a snapshot) nothing
// leaves.
type output struct {
	mu      sync.Mutex
	room    *sync.Cond
	chunks  []chunk
	first   uint64 // number of chunks[0]
	size    int
	offsets [streamCount]int64
	dropped int64
	subs    map[*Subscriber]struct{}
	held    bool
	end     *End
}

func newOutput() *output {
	o := &output{subs: map[*Subscriber]struct{}{}}
	o.room = sync.NewCond(&o.mu)
	return o
}

// write appends data, waiting for room if a subscriber is behind.
func (o *output) write(s Stream, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size+len(data) > retain && len(o.chunks) > 0 && o.end == nil {
		if !o.evict() {
			o.room.Wait()
		}
	}
	if o.end != nil {
		return
	}
	o.push(s, data)
	o.offsets[s] += int64(len(data))
	for sub := range o.subs {
		sub.notify()
	}
}

func (o *output) push(s Stream, data []byte) {
	if n := len(o.chunks); n > 0 {
		last := &o.chunks[n-1]
		if last.stream == s && len(last.data)+len(data) <= chunkSize {
			last.data = append(last.data, data...)
			o.size += len(data)
			return
		}
	}
	o.chunks = append(o.chunks, chunk{stream: s, offset: o.offsets[s], data: append([]byte(nil), data...)})
	o.size += len(data) + chunkCost
}

// evict drops the oldest chunk if nobody needs it.
func (o *output) evict() bool {
	if o.held {
		return false
	}
	for sub := range o.subs {
		if sub.at <= o.first {
			return false
		}
	}
	o.size -= len(o.chunks[0].data) + chunkCost
	o.dropped += int64(len(o.chunks[0].data))
	o.chunks[0] = chunk{}
	o.chunks = o.chunks[1:]
	o.first++
	return true
}

func (o *output) hold(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = on
	o.room.Broadcast()
}

// finish publishes the end event. Nothing is accepted afterwards.
func (o *output) finish(end *End) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = end
	o.room.Broadcast()
	for sub := range o.subs {
		sub.notify()
	}
}

func (o *output) finished() *End {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end
}

// Subscriber reads a command's output at its own pace.
type Subscriber struct {
	Ready chan struct{} // gets a value when there may be something to read

	out  *output
	at   uint64 // number of the chunk to read next
	skip int    // bytes of it already read
	want [streamCount]int64
}

// subscribe adds a reader of new output, or with from of the output after the
// given offsets; gaps are the bytes that are no longer there.
func (o *output) subscribe(from *Offsets) (sub *Subscriber, gaps [streamCount]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sub = &Subscriber{Ready: make(chan struct{}, 1), out: o}
	sub.at = o.first + uint64(len(o.chunks))
	if n := len(o.chunks); n > 0 {
		sub.at--
		sub.skip = len(o.chunks[n-1].data)
	}
	if from != nil {
		sub.at, sub.skip = o.first, 0
		oldest := o.offsets
		for i := len(o.chunks) - 1; i >= 0; i-- {
			oldest[o.chunks[i].stream] = o.chunks[i].offset
		}
		for s, want := range from.list() {
			if want < 0 {
				want = o.offsets[s]
			}
			sub.want[s] = want
			gaps[s] = max(0, oldest[s]-want)
		}
	}
	o.subs[sub] = struct{}{}
	sub.notify()
	return sub, gaps
}

// Close ends the subscription.
func (s *Subscriber) Close() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	delete(s.out.subs, s)
	s.out.room.Broadcast()
}

func (s *Subscriber) notify() {
	select {
	case s.Ready <- struct{}{}:
	default:
	}
}

// Next copies the next piece of output into buf. With no data left it returns
// n = 0, and the end if the command is over.
func (s *Subscriber) Next(buf []byte) (stream Stream, offset int64, n int, end *End) {
	o := s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		i := int(s.at - o.first)
		if i >= len(o.chunks) {
			return 0, 0, 0, o.end
		}
		c := &o.chunks[i]
		if skip := s.want[c.stream] - c.offset; skip > int64(s.skip) {
			s.skip = int(min(skip, int64(len(c.data))))
		}
		n = copy(buf, c.data[s.skip:])
		stream, offset = c.stream, c.offset+int64(s.skip)
		s.skip += n
		if s.skip == len(c.data) && i+1 < len(o.chunks) {
			s.at, s.skip = s.at+1, 0
			o.room.Broadcast()
		}
		if n > 0 {
			return stream, offset, n, nil
		}
		if i+1 >= len(o.chunks) {
			return 0, 0, 0, o.end
		}
	}
}
