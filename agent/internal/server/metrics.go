package server

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"tupper.dev/agent/internal/connect"
	"tupper.dev/agent/internal/httpd"
	"tupper.dev/agent/internal/meminfo"
)

// meter turns the kernel's CPU counters into a percentage since it was last
// asked. Nothing runs in between.
type meter struct {
	mu          sync.Mutex
	busy, total uint64
	percent     float64
}

func (m *meter) start() { m.used() }

// used is the share of all CPUs in use since the last call. Two calls within
// the kernel's resolution get the same answer.
func (m *meter) used() float64 {
	busy, total := cpuTimes()
	m.mu.Lock()
	defer m.mu.Unlock()
	if total > m.total+1 {
		m.percent = 100 * float64(busy-min(m.busy, busy)) / float64(total-m.total)
		m.busy, m.total = busy, total
	}
	return m.percent
}

// cpuTimes reads the first line of /proc/stat. Unit: ticks.
func cpuTimes() (busy, total uint64) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	for i, field := range bytes.Fields(line) {
		v, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil || i > 8 {
			continue
		}
		total += v
		if i != 4 && i != 5 { // idle, iowait
			busy += v
		}
	}
	return busy, total
}

func (s *Server) metrics(w httpd.ResponseWriter, _ *httpd.Request) {
	memory, _ := meminfo.Read()
	total, available := memory.Total, memory.Available
	if limit := uint64(max(0, s.settings.Limits.MemoryMiB)) << 20; limit > 0 && limit < total {
		used := total - min(available, total)
		total = limit
		available = limit - min(used, limit)
	}
	used := total - min(available, total)
	diskUsed, diskTotal := disk(uint64(max(0, s.settings.Limits.DiskMiB)) << 20)
	connect.WriteJSON(w, httpd.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": runtime.NumCPU(), "cpu_used_pct": round2(s.meter.used()),
		"mem_total": total, "mem_used": used, "mem_cache": memory.Cached,
		"mem_total_mib": total >> 20, "mem_used_mib": used >> 20,
		"disk_used": diskUsed, "disk_total": diskTotal,
	})
}

func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// disk asks about "/". gVisor claims exabytes there, so a known limit caps it.
func disk(limit uint64) (used, total uint64) {
	var st syscall.Statfs_t
	if syscall.Statfs("/", &st) != nil {
		return 0, limit
	}
	size := uint64(st.Bsize)
	total = st.Blocks * size
	used = (st.Blocks - min(st.Bavail, st.Blocks)) * size
	if limit > 0 && (total > limit || total == 0) {
		total, used = limit, min(used, limit)
	}
	return used, total
}
