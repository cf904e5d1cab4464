#!/bin/sh
# The gateway of a LAN beside pasta's (Debian's package passt), interleaved on two pinned processors: 1 GB by curl, and connections of one
# request each (connect, 200 bytes there, 200 back, close), in a network namespace that is this machine, with a server in another, behind a veth.
#
#     cargo build --release --package siga-cli
#     sudo docs/measured/outside.sh target/release/siga [ROUNDS]
#
# Needs curl, python3, iproute2, util-linux and passt; changes nothing of this machine. A trial that takes longer than two minutes ends the run.
# Prints a line for each trial, and the ratios of medians at the end. Both gateways end the connections of a program at a TAP device, and
# both run on processor 1, the program and its kernel on processor 0, the server on 0 as well.
set -eu
[ $# -ge 1 ] || { echo "usage: outside.sh SIGA [ROUNDS]" >&2; exit 2; }
siga=$(realpath "$1"); rounds=${2:-7}
for program in curl python3 ip nsenter setpriv pasta; do
    command -v $program > /dev/null || { echo "$program is missing: apt-get install curl python3 iproute2 util-linux passt" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "this needs root, for network namespaces with devices of their own" >&2; exit 2; }
if [ -z "${SIGA_OUTSIDE_INNER:-}" ]; then
    SIGA_OUTSIDE_INNER=1 exec unshare --net --mount "$0" "$siga" "$rounds"
fi
directory=$(mktemp -d); chmod 755 "$directory"; cd "$directory"; pids=
finish() { kill $pids 2>/dev/null || true; rm -rf "$directory"; }
trap finish EXIT
trap 'exit 1' INT TERM
# pasta does not run as root: nobody needs the device.
mount -t tmpfs none /dev/net; mknod -m 0666 /dev/net/tun c 10 200
ip link set lo up
unshare --net sleep 100000 & server=$!; pids=$server
until [ "$(readlink /proc/$server/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add out0 type veth peer name out1 netns "/proc/$server/ns/net"
ip address add 192.0.2.1/24 dev out0; ip link set out0 up; ip route add default via 192.0.2.2
nsenter --target $server --net sh -c 'ip link set lo up; ip address add 192.0.2.2/24 dev out1; ip link set out1 up'
cat > server.py <<'PYTHON'
import os, socket, threading
def large(stream):
    data = bytes(1 << 20)
    stream.recv(65536)
    stream.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    left = 1_000_000_000
    while left: left -= stream.send(data[:min(left, len(data))])
    stream.close()
def small():
    listener = socket.create_server(("", 8001), backlog=128)
    while True:
        stream, _ = listener.accept()
        stream.recv(200, socket.MSG_WAITALL); stream.sendall(bytes(200)); stream.recv(1); stream.close()
threading.Thread(target=small, daemon=True).start()
listener = socket.create_server(("", 8000))
open("ready", "w").close()
while True: large(listener.accept()[0])
PYTHON
cat > client.py <<'PYTHON'
import socket, sys, time
count = int(sys.argv[1]); begun = time.monotonic()
for _ in range(count):
    stream = socket.create_connection(("192.0.2.2", 8001))
    stream.sendall(bytes(200)); stream.recv(200, socket.MSG_WAITALL); stream.close()
print(count / (time.monotonic() - begun))
PYTHON
nsenter --target $server --net taskset -c 0 python3 server.py & pids="$pids $!"
taskset -c 1 "$siga" up --socket "$directory/socket" > up.log 2>&1 & pids="$pids $!"
for _ in $(seq 100); do if [ -e ready ] && grep -q listening up.log; then break; fi; sleep 0.1; done
through() {
    case $1 in
    siga) shift; timeout -k 5 120 "$siga" run --socket "$directory/socket" --cpu 1 -- taskset -c 0 "$@" ;;
    # Without the last option pasta takes the gateway's address, which is the server's, for this machine's loopback.
    pasta) shift; timeout -k 5 120 taskset -c 1 setpriv --reuid 65534 --regid 65534 --clear-groups \
        pasta --config-net --quiet --no-map-gw -- taskset -c 0 "$@" 2>> pasta.log ;;
    esac
}
failed() { echo "$*" >&2; cat up.log pasta.log >&2 || true; exit 1; }
for round in $(seq "$rounds"); do
    for way in siga pasta; do
        rate=$(through $way curl --silent --output /dev/null --write-out '%{speed_download}' http://192.0.2.2:8000/) || failed "$way: curl"
        echo "$round $way curl $rate" | tee -a trials
        rate=$(through $way python3 "$directory/client.py" 2000) || failed "$way: connect, request, close"
        echo "$round $way crr $rate" | tee -a trials
    done
done
dpkg-query --show passt || pasta --version
python3 - <<'PYTHON'
import statistics
trials = [line.split() for line in open("trials")]
for kind in ("curl", "crr"):
    of = {way: statistics.median(float(t[3]) for t in trials if t[1:3] == [way, kind]) for way in ("siga", "pasta")}
    print(f"{kind}: siga {of['siga']:.0f}, pasta {of['pasta']:.0f}, ratio {of['siga'] / of['pasta']:.2f}")
PYTHON
