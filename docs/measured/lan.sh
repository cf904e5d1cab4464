#!/usr/bin/env bash
# Bars 6 to 9 of LANs: TCP between two programs in `siga run`, beside two namespaces joined by veth. Needs root,
# iperf3 and ip (Debian: apt install iperf3 iproute2), and `cargo build --release --workspace --examples` before.
#
#     docs/measured/lan.sh [ROUNDS]      prints a line for each round, then medians and least..greatest
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-7}
target=${CARGO_TARGET_DIR:-target}/release
siga=${SIGA:-$target/siga}
requests=${REQUESTS:-$target/examples/requests}
member=${MEMBER:-$target/examples/member}
seconds=${SECONDS_EACH:-3}
for program in "$siga" "$requests" "$member"; do
    [ -x "$program" ] || { echo "lan.sh: $program is missing: cargo build --release --workspace --examples" >&2; exit 2; }
done
work=$(mktemp -d)
one=siga-one-$$ other=siga-two-$$
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    ip netns del "$one" 2>/dev/null || true
    ip netns del "$other" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

cat > "$work/system.toml" <<'T'
[[guest]]
name = "*"

[[lan]]
name = "hs0"
frame = "64 KiB"
range = "10.1.0.0/24"
T
"$siga" up --socket "$work/host" "$work/system.toml" >/dev/null 2>"$work/host.log" & pids+=($!)
until [ -S "$work/host" ]; do kill -0 "${pids[0]}"; done
ip netns add "$one"
ip netns add "$other"
ip link add name veth0 netns "$one" type veth peer name veth1 netns "$other"
ip -n "$one" addr add 10.9.0.1/24 dev veth0
ip -n "$other" addr add 10.9.0.2/24 dev veth1
ip -n "$one" link set dev veth0 up
ip -n "$other" link set dev veth1 up

# iperf3 names the control of congestion after it has connected. Where the usual one is bbr, which paces by timers, the
# timers stay, and what is measured is they.
unpaced='echo reno > /proc/sys/net/ipv4/tcp_congestion_control'
ip netns exec "$one" sh -c "$unpaced"
ip netns exec "$other" sh -c "$unpaced"

# Waits until something listens: whoever asks is refused until then.
reach() { until "$@" 2>/dev/null; do :; done; }
# With in_place=exec it takes the place of the shell that calls it, which then has the number of the port.
port() {
    local name=$1 mtu=$2
    shift 2
    ${in_place:-} "$siga" run --socket "$work/host" --name "$name" --mtu "$mtu" -- sh -c "$unpaced"' && exec "$@"' sh "$@"
}

gigabits() { awk '/"sum_received"/ {is_sum = 1} is_sum && /"bits_per_second"/ {gsub(/[^0-9.e+]/, "", $2); printf "%.2f\n", $2 / 1e9; exit}' "$1"; }
# With -J, iperf3 says in the text alone that nobody listened.
ask_until_answered() {
    echo "until iperf3 -c $1 -t $seconds -C cubic -J > $2; grep -q sum_received $2; do :; done"
}
is_cubic() { grep -q '"receiver_tcp_congestion":[[:space:]]*"cubic"\|"sender_tcp_congestion":[[:space:]]*"cubic"' "$1"; }

stream_lan() {
    port server "$1" iperf3 -s -1 >/dev/null 2>&1 & local server=$!
    port client "$1" sh -c "$(ask_until_answered server "$work/lan.json")"
    wait $server
    is_cubic "$work/lan.json" || { echo "lan.sh: not cubic" >&2; exit 1; }
    gigabits "$work/lan.json"
}
stream_veth() {
    ip -n "$one" link set dev veth0 mtu "$1"
    ip -n "$other" link set dev veth1 mtu "$1"
    ip netns exec "$one" iperf3 -s -1 >/dev/null 2>&1 & local server=$!
    ip netns exec "$other" sh -c "$(ask_until_answered 10.9.0.1 "$work/veth.json")"
    wait $server
    is_cubic "$work/veth.json" || { echo "lan.sh: not cubic" >&2; exit 1; }
    gigabits "$work/veth.json"
}
ask_lan() {
    (in_place=exec port server 8192 "$requests" serve 7000) & local server=$!
    reach port client 8192 "$requests" ask server:7000 "$seconds"
    kill $server; wait $server || true
}
ask_veth() {
    ip netns exec "$one" "$requests" serve 7000 & local server=$!
    reach ip netns exec "$other" "$requests" ask 10.9.0.1:7000 "$seconds"
    kill $server; wait $server || true
}
milliseconds() {
    local start end
    start=$(date +%s%N)
    "$siga" run --socket "$work/host" -- true
    end=$(date +%s%N)
    awk -v ns=$((end - start)) 'BEGIN {printf "%.1f\n", ns / 1e6}'
}
# Resident memory of each of a hundred idle members, in KiB: all, and what is not shared with others.
resident() {
    local members=() number pid
    for number in {1..100}; do
        "$member" "$work/host" hs0 "M$number" > "$work/member-$number" & members+=($!)
    done
    for number in {1..100}; do until [ -s "$work/member-$number" ]; do sleep 0.05; done; done
    for pid in "${members[@]}"; do
        awk '/^VmRSS/ {print $2}' "/proc/$pid/status" >> "$work/resident"
        awk '/^Private/ {sum += $2} END {print sum}' "/proc/$pid/smaps_rollup" >> "$work/private"
    done
    kill "${members[@]}"
    wait "${members[@]}" 2>/dev/null || true
}
# Median, least and greatest of the numbers in a file.
middle() { sort -g "$1" | awk '{n[NR] = $1} END {printf "%s (%s..%s)\n", n[int((NR + 1) / 2)], n[1], n[NR]}'; }

for ((round = 1; round <= rounds; round++)); do
    for pair in 1500:1500 8192:8192 57344:65535; do
        lan=$(stream_lan "${pair%:*}")
        veth=$(stream_veth "${pair#*:}")
        awk -v a="$lan" -v b="$veth" 'BEGIN {printf "%.3f\n", a / b}' >> "$work/stream-${pair%:*}"
        echo "$lan" >> "$work/lan-${pair%:*}"
        echo "$veth" >> "$work/veth-${pair%:*}"
        echo "round $round, MTU ${pair%:*}: $lan Gb/s over the LAN, $veth over veth"
    done
    lan=$(ask_lan)
    veth=$(ask_veth)
    awk -v a="${lan% *}" -v b="${veth% *}" 'BEGIN {printf "%.3f\n", a / b}' >> "$work/ask"
    echo "round $round, requests a second and median in us: $lan over the LAN, $veth over veth"
    milliseconds >> "$work/true"
done
for mtu in 1500 8192 57344; do
    echo "MTU $mtu: ratio $(middle "$work/stream-$mtu"), LAN $(middle "$work/lan-$mtu") Gb/s, veth $(middle "$work/veth-$mtu") Gb/s"
done
echo "requests: ratio $(middle "$work/ask")"
echo "siga run -- true: $(middle "$work/true") ms"
resident
echo "a member of 100, idle: $(middle "$work/resident") KiB resident, $(middle "$work/private") KiB of it its own"
