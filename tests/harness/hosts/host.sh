# Makes the new namespaces of a process a host; `unshare` starts this script as process 1 of the host. The host lives until
# the script's standard input ends: when the test closes it, or dies. Environment: NAME, HOSTS (/etc/hosts), KEEP (directories that
# must stay visible), TOOLS (programs to put into the PATH).
set -eu
mount --make-rprivate /

# What is local to a machine. Everything else is shared with the other hosts, as on a cluster with a network file system.
# A checkout in one of the directories that are hidden must stay visible.
kept=
for keep in $KEEP; do
    # One in another stays visible with that one.
    for outer in $kept; do
        case $keep in "$outer"/*) continue 2 ;; esac
    done
    case $keep in /tmp/* | /run/* | /var/lib/*) kept="$kept $keep" ;; esac
done
stage=$(mktemp -d)
mount -t tmpfs tmpfs "$stage"
for keep in $kept; do
    mkdir -p "$stage/keep$keep"
    mount --bind "$keep" "$stage/keep$keep"
done
mount --move "$stage" /mnt
rmdir "$stage"
for dir in /tmp /run /var/lib /dev/shm; do
    mount -t tmpfs -o mode=755 tmpfs $dir
done
chmod 1777 /tmp /dev/shm
for keep in $kept; do
    mkdir -p "$keep"
    mount --move "/mnt/keep$keep" "$keep"
done
umount /mnt
mount -t sysfs sysfs /sys
# Not on every machine.
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null || true

# Identity.
mkdir -p /run/etc /run/bin /var/lib/home/root /var/lib/home/alice /var/lib/home/bob
hostname "$NAME"
echo "$NAME" >/run/etc/hostname
printf '%s' "$HOSTS" >/run/etc/hosts
: >/run/etc/resolv.conf
tr -d - </proc/sys/kernel/random/uuid >/run/etc/machine-id
cat /proc/sys/kernel/random/uuid >/run/etc/boot_id
sed -n '/^\(root\|alice\|bob\):/!p' /etc/passwd >/run/etc/passwd
cat >>/run/etc/passwd <<END
root:x:0:0:root:/var/lib/home/root:/bin/sh
alice:x:4001:4001::/var/lib/home/alice:/bin/sh
bob:x:4002:4002::/var/lib/home/bob:/bin/sh
END
chown 4001:4001 /var/lib/home/alice
chown 4002:4002 /var/lib/home/bob
chmod 700 /var/lib/home/*
for file in hostname hosts resolv.conf machine-id passwd; do
    if [ -e /etc/$file ]; then mount --bind /run/etc/$file /etc/$file; fi
done
mount --bind /run/etc/boot_id /proc/sys/kernel/random/boot_id
# Under a path that every user may enter, wherever the checkout is.
for tool in $TOOLS; do
    : >/run/bin/"${tool##*/}"
    mount --bind "$tool" /run/bin/"${tool##*/}"
done

ip link set lo up
echo ready
# Process 1 reaps orphans, which the kernel does for a process that ignores SIGCHLD.
exec env --ignore-signal=CHLD cat >/dev/null
