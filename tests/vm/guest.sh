#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Process 1 of the virtual machine in the host's root file system: mounts what a system has, loads the
# modules under test, runs the command on the second serial line, and says its exit status in the kernel
# log, which is the first. `in-vm` wrote the files beside this one.
cd /run/in-vm || exit
. ./settings # PATH, modules_folder, out_folder, leaks

say() {
	echo "in-vm: $*" >/dev/kmsg
}

finish() {
	stty -F /dev/ttyS1 raw # waits until all of the output is out
	./busybox poweroff -f
}

load_module() {
	for needed in $(modinfo -F depends "$1" | tr , ' '); do
		modprobe -q "$needed"
	done
	insmod "$1" >/dev/kmsg 2>&1 && return
	say "cannot load $1"
	finish
}

# What kmemleak finds goes to the kernel log. It believes in a leak that it sees in two scans.
scan_for_leaks() {
	[ -e /sys/kernel/debug/kmemleak ] || return
	for scan in first second; do
		echo scan >/sys/kernel/debug/kmemleak
		sleep 6 # younger objects are not reported
	done
	while read -r line; do
		echo "$line" # a write for each record of the log
	done </sys/kernel/debug/kmemleak >/dev/kmsg
}

mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
mkdir -p /dev/pts /dev/shm /lib/modules
mount -t devpts -o ptmxmode=666 pts /dev/pts
mount -t tmpfs shm /dev/shm
ln -s /proc/self/fd /dev/fd
mount --bind "$modules_folder" /lib/modules
[ -z "$out_folder" ] || mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 out "$out_folder"
ip link set lo up
echo vm >/proc/sys/kernel/hostname
ulimit -l unlimited
ulimit -n 65536

say booted
. ./load # load_module for each module
stty -F /dev/ttyS1 raw -echo
setsid sh ./command </dev/null >/dev/ttyS1 2>&1
status=$?
scan_for_leaks
say "exit status $status"
finish
