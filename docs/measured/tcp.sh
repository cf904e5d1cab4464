#!/usr/bin/env bash
# An outside witness of the kernel's TCP that the lab measures: iperf3 over veth beside the lab's own stream over veth. Were
# the lab's figure far below that of iperf3, the lab would slow the kernel down, and the bars of tcp.md would be too easy.
# Needs root, iperf3 and ip (Debian: apt install iperf3 iproute2), and `cargo build --release -p siga-cli` before.
#
#     docs/measured/tcp.sh [ROUNDS]      prints a line for each round and MTU, then medians and least..greatest
#
# SIGA is the program, SECONDS_EACH how long each measurement counts. Both sides of both are set up alike: two network
# namespaces, a veth with the MTU, offloads on, cubic, TCP_NODELAY, 64 KiB in each call, sleeping where there is nothing to
# do, and the same two processors, which the lab chooses.
#
# What differs favours iperf3: its sender sends the same bytes again and again and its receiver ignores them, while the lab
# makes each message anew and verifies each byte. What that costs is in the CPU for 64 KiB, which is printed too.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
siga=${SIGA:-${CARGO_TARGET_DIR:-target}/release/siga}
seconds=${SECONDS_EACH:-3}

missing() { echo "tcp.sh: nothing is measured: $1" >&2; exit 2; }
[ "$(id -u)" = 0 ] || missing "a veth between network namespaces needs root, and this is $(id -un)"
command -v iperf3 >/dev/null || missing "iperf3 is not installed: apt install iperf3"
command -v ip >/dev/null || missing "ip is not installed: apt install iproute2"
[ -x "$siga" ] || missing "$siga is not there: cargo build --release -p siga-cli, or set SIGA"

work=$(mktemp -d)
one=siga-one-$$ other=siga-two-$$
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    ip netns del "$one" 2>/dev/null || true
    ip netns del "$other" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
export XDG_STATE_HOME=$work/state

ip netns add "$one"
ip netns add "$other"
ip link add name veth0 netns "$one" type veth peer name veth1 netns "$other"
ip -n "$one" addr add 10.9.0.1/24 dev veth0
ip -n "$other" addr add 10.9.0.2/24 dev veth1
ip -n "$one" link set dev veth0 up
ip -n "$other" link set dev veth1 up

# The first number that stands behind a name in a file of JSON.
number() { grep -o "\"$1\":[[:space:]]*[0-9.e+]*" "$2" | head -n 1 | sed 's/.*:[[:space:]]*//'; }

# Prints GB/s and microseconds of CPU for 64 KiB, of both sides together.
stream_lab() {
    "$siga" lab run tcp-stream --set transport=tcp-veth --set wait=block --set mtu="$1" \
        --trials 1 --seconds "$seconds" --json "$work/lab.json" >"$work/lab.text" 2>&1 ||
        { cat "$work/lab.text" >&2; exit 1; }
    local rate cpu
    rate=$(number rate_bytes_per_s "$work/lab.json")
    cpu=$(number cpu_ns_per_message "$work/lab.json")
    [ -n "$rate" ] && [ -n "$cpu" ] ||
        { echo "tcp.sh: the lab has no figure:" >&2; cat "$work/lab.text" >&2; exit 1; }
    awk -v rate="$rate" -v cpu="$cpu" 'BEGIN {printf "%.3f %.2f\n", rate / 1e9, cpu / 1e3}'
}

# The same. The sender runs on the processor of the lab's source, the receiver on that of its target.
stream_iperf3() {
    ip -n "$one" link set dev veth0 mtu "$1"
    ip -n "$other" link set dev veth1 mtu "$1"
    ip netns exec "$other" iperf3 -s -1 >/dev/null 2>&1 & server=$!
    # iperf3 is refused until its server listens, and says so only in its text.
    until ip netns exec "$one" iperf3 -c 10.9.0.2 -A "$2" -C cubic -N -l 64K -O 1 -t "$seconds" -J >"$work/iperf3.json" &&
        grep -q sum_received "$work/iperf3.json"; do
        kill -0 "$server" 2>/dev/null || { cat "$work/iperf3.json" >&2; exit 1; }
    done
    wait "$server"
    server=
    grep -q '"sender_tcp_congestion":[[:space:]]*"cubic"' "$work/iperf3.json" ||
        { echo "tcp.sh: iperf3 did not use cubic" >&2; exit 1; }
    sed -n '/"sum_received"/,$p' "$work/iperf3.json" >"$work/received.json"
    awk -v bits="$(number bits_per_second "$work/received.json")" -v host="$(number host_total "$work/received.json")" \
        -v remote="$(number remote_total "$work/received.json")" \
        'BEGIN {rate = bits / 8; printf "%.3f %.2f\n", rate / 1e9, (host + remote) / 100 * 65536 / rate * 1e6}'
}

# Median, least and greatest of the numbers in a file.
middle() { sort -g "$1" | awk '{n[NR] = $1} END {printf "%s (%s..%s)", n[int((NR + 1) / 2)], n[1], n[NR]}'; }

for ((round = 1; round <= rounds; round++)); do
    for mtu in 9000 65535; do
        lab=$(stream_lab "$mtu")
        pinned=$(grep -o '"pinned":\[[0-9]*,[0-9]*' "$work/lab.json" | tail -n 1 | sed 's/.*\[//')
        [ -n "$pinned" ] || missing "the lab pins no two processors here, so that both cannot run on the same ones"
        iperf3=$(stream_iperf3 "$mtu" "$pinned")
        echo "round $round, MTU $mtu: lab ${lab% *} GB/s, ${lab#* } us of CPU for 64 KiB; iperf3 ${iperf3% *} GB/s, ${iperf3#* } us"
        echo "${lab% *}" >>"$work/lab-$mtu"
        echo "${lab#* }" >>"$work/lab-cpu-$mtu"
        echo "${iperf3% *}" >>"$work/iperf3-$mtu"
        echo "${iperf3#* }" >>"$work/iperf3-cpu-$mtu"
        awk -v a="${lab% *}" -v b="${iperf3% *}" 'BEGIN {printf "%.3f\n", a / b}' >>"$work/ratio-$mtu"
        rm -f "$work/lab.json"
    done
done
for mtu in 9000 65535; do
    echo "MTU $mtu: lab over iperf3 $(middle "$work/ratio-$mtu"): $(middle "$work/lab-$mtu") GB/s against $(middle "$work/iperf3-$mtu")"
    echo "MTU $mtu: CPU for 64 KiB, lab $(middle "$work/lab-cpu-$mtu") us, iperf3 $(middle "$work/iperf3-cpu-$mtu") us"
done
