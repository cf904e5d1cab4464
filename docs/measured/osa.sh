#!/usr/bin/env bash
# The bars of adapters: all commands of osa.md, in its order. Needs root, for networks with devices of their own, ip, curl and python3 (Debian:
# apt install iproute2 curl python3), and `cargo build --release -p siga-cli` before. Changes nothing of this machine.
#
#     docs/measured/osa.sh [BAR..]      prints the reports; all bars, or those that are named: osa.sh 2 10
#
# SIGA is the program, ROUNDS how often curl is run each way. FUZZ_SECONDS and KILLS are those of bar 11, which needs a nightly compiler, cargo-fuzz, and
# `cargo build --release -p siga-proof` before; PROOF is its program, beside SIGA unless set.
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/../.."
siga=$(realpath -m "${SIGA:-${CARGO_TARGET_DIR:-target}/release/siga}")
proof=$(realpath -m "${PROOF:-$(dirname "$siga")/siga-proof}")
rounds=${ROUNDS:-7}

missing() { echo "osa.sh: nothing is measured: $1" >&2; exit 2; }
[ -x "$siga" ] || missing "$siga is not there: cargo build --release -p siga-cli, or set SIGA"
[ "$(id -u)" = 0 ] || missing "this needs root, for networks with devices of their own, and this is $(id -un)"
for program in ip curl python3 nsenter; do
    command -v $program >/dev/null || missing "$program is missing: apt install iproute2 curl python3 util-linux"
done

# 1 GB by curl: from a program in `siga run` behind an adapter with macvtap, and from a network with a macvlan at the same interface. The server
# is in another network, at the other end of a veth. The kernel places everybody.
curl_of_both() {
    local server network siga_rate macvlan_rate
    # The trap needs these two when the function is over.
    work=$(mktemp -d)
    pids=()
    finish() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"; }
    trap finish EXIT
    ip link set lo up
    unshare --net sleep infinity & server=$!; pids+=("$server")
    unshare --net sleep infinity & network=$!; pids+=("$network")
    for process in "$server" "$network"; do
        until [ "$(readlink "/proc/$process/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do kill -0 "$process"; done
    done
    ip link add out0 type veth peer name out1 netns "/proc/$server/ns/net"
    ip link set out0 up
    nsenter --target "$server" --net sh -c 'ip link set lo up; ip address add 192.0.2.2/24 dev out1; ip link set out1 up'
    ip link add mv0 link out0 netns "/proc/$network/ns/net" type macvlan mode bridge
    nsenter --target "$network" --net sh -c 'ip link set lo up; ip address add 192.0.2.6/24 dev mv0; ip link set mv0 up'
    cat >"$work/server.py" <<'PYTHON'
import socket, sys
data = bytes(1 << 20)
listener = socket.create_server(("192.0.2.2", 8000))
open(sys.argv[1], "w").close()
while True:
    stream, _ = listener.accept()
    stream.recv(65536)
    stream.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    left = 1_000_000_000
    while left: left -= stream.send(data[:min(left, len(data))])
    stream.close()
PYTHON
    nsenter --target "$server" --net python3 "$work/server.py" "$work/ready" & pids+=($!)
    until [ -e "$work/ready" ]; do kill -0 "${pids[-1]}"; done
    "$siga" up --socket "$work/host" >/dev/null 2>"$work/host.log" & pids+=($!)
    until [ -S "$work/host" ]; do kill -0 "${pids[-1]}"; done
    "$siga" osa serve --socket "$work/host" OSA1 --wire macvtap --interface out0 >"$work/osa.log" 2>&1 & pids+=($!)
    until grep -q "OSA1: macvtap" "$work/osa.log"; do kill -0 "${pids[-1]}" || { cat "$work/osa.log" >&2; exit 1; }; done
    fetch() { timeout -k 5 120 "$@" curl --silent --output /dev/null --write-out '%{speed_download}\n' http://192.0.2.2:8000/; }
    fetch_siga() { siga_rate=$(fetch "$siga" run --socket "$work/host" --osa OSA1 --address 192.0.2.5/24 --); }
    fetch_macvlan() { macvlan_rate=$(fetch nsenter --target "$network" --net); }
    for ((round = 1; round <= rounds; round++)); do
        # Each way is the first in every other round.
        if ((round % 2)); then fetch_siga; fetch_macvlan; else fetch_macvlan; fetch_siga; fi
        echo "round $round: $siga_rate B/s from siga run --osa, $macvlan_rate B/s over a macvlan"
        echo "$siga_rate $macvlan_rate" >>"$work/rates"
    done
    awk '{printf "%.3f\n", $1 / $2}' "$work/rates" | sort -g |
        awk '{n[NR] = $1} END {printf "siga run --osa over a macvlan: %s (%s..%s)\n", n[int((NR + 1) / 2)], n[1], n[NR]}'
}

if [ -n "${SIGA_OSA_INNER:-}" ]; then
    curl_of_both
    exit
fi

# The command is printed, too.
run() { echo; echo "\$ ${*/#$siga/siga}"; "$@"; }
qdio() { run "$siga" lab run qdio-gigabit "$@"; }

bar() {
    case $1 in
    1) run "$siga" lab run osa-frames ;;
    2) run "$siga" lab run osa-xdp ;;
    3) run "$siga" lab run osa-macvtap ;;
    4) qdio --set direction=outbound --set mtu=1500 --set pairs=1,4 ;;
    5) qdio ;;
    6) qdio --set direction=inbound --set mtu=8992 --set pairs=4 ;;
    7) run "$siga" lab run osa-idle ;;
    8) run "$siga" lab run osa-memory ;;
    9) run cargo test --release -p siga-net --all-features --lib osa::tests::timing ;;
    10) SIGA_OSA_INNER=1 SIGA=$siga ROUNDS=$rounds unshare --net "$script" ;;
    11)
        [ -x "$proof" ] || missing "$proof is not there: cargo build --release -p siga-proof, or set PROOF"
        run cargo +nightly fuzz run osa_adapter -- -max_total_time="${FUZZ_SECONDS:-600}"
        run cargo +nightly fuzz run tcpip_frames -- -max_total_time="${FUZZ_SECONDS:-600}"
        # The torture passes where there is no cable: it has to have killed with both.
        for wiring in memory cable; do
            killed=$(run "$proof" torture --kills 0 --lan-kills 0 --tcp-kills 0 --machine-kills 0 --disk-kills 0 \
                --adapter-kills "${KILLS:-1000}" --wiring $wiring) || { echo "$killed"; exit 1; }
            echo "$killed"
            grep -q "^kills of adapters with a wire" <<<"$killed" || missing "no adapter was killed with --wiring $wiring"
        done
        ;;
    *) missing "there is no bar $1: must be 1 to 11" ;;
    esac
}

[ $# -gt 0 ] || set -- 1 2 3 4 5 6 7 8 9 10 11
for number in "$@"; do
    bar "$number"
done
