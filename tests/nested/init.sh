#!/bin/busybox sh
# The first program of the outer machine: modules, a root filesystem out of the host's directories,
# and there the job. What it needs to know is in the kernel's parameters:
#   nested.share=TAG,TARGET,HOW   see image.py
#   nested.link=NAME,TARGET
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    $b insmod "$module" || echo "nested: cannot load $module"
done
$b mount -t tmpfs -o mode=755 root /root
for word in $($b cat /proc/cmdline); do
    case $word in nested.share=* | nested.link=*) ;; *) continue ;; esac
    value=${word#*=}
    IFS=, read -r one two how <<END
$value
END
    case $word in
    nested.link=*)
        $b ln -s "$two" "/root$one"
        continue
        ;;
    esac
    options=trans=virtio,version=9p2000.L,msize=524288
    at=/root$two
    $b mkdir -p "$at" "/lower/$one"
    case $how in
    ro) $b mount -t 9p -o "$options,ro,cache=loose" "$one" "$at" ;;
    rw) $b mount -t 9p -o "$options,rw" "$one" "$at" ;;
    over)
        $b mount -t 9p -o "$options,ro,cache=loose" "$one" "/lower/$one"
        $b mkdir -p "/root/.over/$one/upper" "/root/.over/$one/work"
        above=upperdir=/root/.over/$one/upper,workdir=/root/.over/$one/work
        $b mount -t overlay -o "lowerdir=/lower/$one,$above" over "$at"
        ;;
    esac || echo "nested: cannot mount $two"
done
cd /root || exit 1
$b mkdir -p proc sys dev tmp run root var/tmp
$b chmod 1777 tmp var/tmp
$b mount -t proc proc proc
$b mount -t sysfs sys sys
$b mount -t cgroup2 cgroup sys/fs/cgroup
$b mount -t devtmpfs dev dev
$b mkdir -p dev/pts dev/shm
$b mount -t devpts -o ptmxmode=666 pts dev/pts
$b mount -t tmpfs -o mode=1777 shm dev/shm
$b chmod 666 dev/net/tun
$b ip link set lo up
$b hostname nested
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
# The root of a mount namespace, as on every host: a mere chroot may make no user namespaces.
$b mount --move . /
$b chroot . /bin/sh /nested/results/job </dev/null
echo "nested: the job ended with $?, $($b cut -d ' ' -f 1 /proc/uptime) s after the boot"
$b poweroff -f
