// Package user finds accounts in /etc/passwd and /etc/group without libc, so
// that the agent works in any image. Files are read again only when they
// changed.
package user

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// maxBytes is how much of each file is read.
const maxBytes = 4 << 20

// Account is who a command runs as.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Shell  string
	Listed bool // has an entry in passwd
}

// UnknownError says that no account has this name.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("invalid username: '%s'", e.Name) }

type group struct {
	name    string
	gid     uint32
	members []string
}

type stamp struct {
	mtime syscall.Timespec
	size  int64
	inode uint64
}

// Database reads the two files below a root directory.
type Database struct {
	passwd string
	groups string

	mu          sync.Mutex
	passwdStamp stamp
	groupStamp  stamp
	accounts    []Account
	groupList   []group
}

// Open names the files; they are read on first use.
func Open(root string) *Database {
	return &Database{passwd: root + "/etc/passwd", groups: root + "/etc/group"}
}

// Lookup resolves "name", "uid", "name:group", "uid:gid" and mixtures.
//
// A number without an entry is an account with HOME=/ and no name; a name
// without an entry is an UnknownError.
func (d *Database) Lookup(spec string) (*Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	name, groupName, hasGroup := strings.Cut(spec, ":")
	account, ok := d.find(name)
	if !ok {
		return nil, &UnknownError{Name: spec}
	}
	if !hasGroup {
		account.Groups = d.supplementary(account)
		return &account, nil
	}
	gid, ok := d.findGroup(groupName)
	if !ok {
		return nil, &UnknownError{Name: spec}
	}
	account.GID = gid
	account.Groups = []uint32{gid}
	return &account, nil
}

// Name returns the account name of a uid, or the number.
func (d *Database) Name(uid uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	for i := range d.accounts {
		if d.accounts[i].UID == uid {
			return d.accounts[i].Name
		}
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// GroupName returns the name of a gid, or the number.
func (d *Database) GroupName(gid uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	for i := range d.groupList {
		if d.groupList[i].gid == gid {
			return d.groupList[i].name
		}
	}
	return strconv.FormatUint(uint64(gid), 10)
}

// InGroup says whether the account belongs to one of the named groups.
func (d *Database) InGroup(account *Account, names ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.groupList {
		for _, name := range names {
			if g.name == name && holds(account.Groups, g.gid) {
				return true
			}
		}
	}
	return false
}

func holds(list []uint32, gid uint32) bool {
	for _, g := range list {
		if g == gid {
			return true
		}
	}
	return false
}

func (d *Database) find(name string) (Account, bool) {
	for _, a := range d.accounts {
		if a.Name == name {
			return a, true
		}
	}
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return Account{}, false
	}
	for _, a := range d.accounts {
		if a.UID == uint32(uid) {
			return a, true
		}
	}
	return Account{Name: name, UID: uint32(uid), Home: "/"}, true
}

func (d *Database) findGroup(name string) (uint32, bool) {
	for _, g := range d.groupList {
		if g.name == name {
			return g.gid, true
		}
	}
	gid, err := strconv.ParseUint(name, 10, 32)
	return uint32(gid), err == nil
}

func (d *Database) supplementary(a Account) []uint32 {
	list := []uint32{a.GID}
	for _, g := range d.groupList {
		for _, member := range g.members {
			if member == a.Name && !holds(list, g.gid) {
				list = append(list, g.gid)
			}
		}
	}
	return list
}

func (d *Database) refresh() {
	if s := stampOf(d.passwd); s != d.passwdStamp {
		d.passwdStamp, d.accounts = s, readPasswd(d.passwd)
	}
	if s := stampOf(d.groups); s != d.groupStamp {
		d.groupStamp, d.groupList = s, readGroups(d.groups)
	}
	if len(d.accounts) == 0 {
		d.accounts = []Account{{Name: "root", Home: "/root", Shell: "/bin/sh", Listed: true}}
	}
}

func stampOf(path string) stamp {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return stamp{}
	}
	return stamp{mtime: st.Mtim, size: st.Size, inode: st.Ino}
}

func readPasswd(path string) []Account {
	var list []Account
	eachLine(path, 7, func(f []string) {
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			return
		}
		home := f[5]
		if home == "" {
			home = "/"
		}
		list = append(list, Account{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: home, Shell: f[6], Listed: true})
	})
	return list
}

func readGroups(path string) []group {
	var list []group
	eachLine(path, 4, func(f []string) {
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			list = append(list, group{name: f[0], gid: uint32(gid), members: strings.Split(f[3], ",")})
		}
	})
	return list
}

func eachLine(path string, fields int, visit func([]string)) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	// The image may put anything here: a device that never ends, or more
	// accounts than there is memory.
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	scanner := bufio.NewScanner(io.LimitReader(file, maxBytes))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if f := strings.Split(scanner.Text(), ":"); len(f) >= fields {
			visit(f)
		}
	}
}
