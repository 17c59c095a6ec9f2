#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
# First program of the virtual machine: makes the host's root file system its own, with a layer in memory
# that takes what is written, and goes on with guest.sh there.

give_up() {
	echo "in-vm: $1"
	poweroff -f
}

/bin/busybox --install -s /bin
mkdir -p /dev /host /layer /root
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
	[ -e "$module" ] || continue # a kernel may have all of it built in
	insmod "$module" || give_up "cannot load $module"
done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=524288 host /host ||
	give_up "cannot mount the host's root file system"
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root ||
	give_up "cannot lay a file system in memory over the host's"
mount -t tmpfs run /root/run
cp -a /vm /root/run/in-vm
exec switch_root /root /run/in-vm/guest.sh
