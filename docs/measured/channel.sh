#!/usr/bin/env bash
# An outside witness of the kernel's reads and writes that the lab measures beside channel programs: fio, on a file of as many
# bytes. Were the lab's figures far below those of fio, the lab would slow the kernel down, and the bars of channel.md would be
# too easy. Needs fio (Debian: apt install fio), 4 GB of page cache, and `cargo build --release -p siga-cli` before.
#
#     docs/measured/channel.sh [ROUNDS]      prints a line for each round and pattern, then medians and least..greatest
#
# SIGA is the program, SECONDS_EACH how long each measurement counts, CYLINDERS how long the files are (0.74 MB each). Both use
# a file in the directory of temporary files, which is written in pieces of 12 records and read once in the same pieces. Both
# run on one processor, which the lab chooses.
#
# What differs favours fio: it ignores what it reads and writes the same bytes again and again, while the lab looks at 64 bytes
# of each record that it reads, and makes each record that it writes anew. Direct reads of the lab are of the sectors of a
# record with its count field, 9 or 10 of them, as a control unit reads them; those of fio are of 8.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
siga=${SIGA:-${CARGO_TARGET_DIR:-target}/release/siga}
seconds=${SECONDS_EACH:-3}
cylinders=${CYLINDERS:-2800}

missing() { echo "channel.sh: nothing is measured: $1" >&2; exit 2; }
command -v fio >/dev/null || missing "fio is not installed: apt install fio"
[ -x "$siga" ] || missing "$siga is not there: cargo build --release -p siga-cli, or set SIGA"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME=$work/state

# Prints I/Os a second.
lab() {
    local case=$1
    shift
    rm -f "$work/lab.json"
    "$siga" lab run "$case" --trials 1 --seconds "$seconds" --json "$work/lab.json" --set cylinders="$cylinders" \
        --set storage=disk "${@/#/--set=}" >"$work/lab.text" 2>&1 || { cat "$work/lab.text" >&2; exit 1; }
    grep -o '"rate_ios_per_s":[0-9.e+]*' "$work/lab.json" | sed 's/.*://' |
        awk '{n++; printf "%.0f\n", $1} END {exit n != 1}' ||
        { echo "channel.sh: the lab has not one figure:" >&2; cat "$work/lab.text" >&2; exit 1; }
}

# The same. The lab says first which processor the control unit has, and its peers. As a process, a job of fio would be in a
# scheduling group of its own: beside other programs each of its syncs then waited for a processor, ten times as long.
fio_of() {
    local direction=$1
    shift
    fio --thread --name=witness --filename="$work/records" --size=$((cylinders * 15 * 12 * 4096)) --bs=4k \
        --invalidate=0 --randrepeat=0 --norandommap --gtod_reduce=1 --time_based --runtime="$seconds" --ramp_time=0.2 \
        --cpus_allowed="$processor" --allow_file_create=0 \
        --rw="$direction" --output-format=terse --terse-version=3 "$@" >"$work/fio.text" 2>&1 ||
        { cat "$work/fio.text" >&2; exit 1; }
    grep '^3;' "$work/fio.text" | awk -F ';' -v direction="$direction" '{print direction == "randread" ? $8 : $49}'
}

# Median, least and greatest of the numbers in a file.
middle() { sort -g "$1" | awk '{n[NR] = $1} END {printf "%s (%s..%s)", n[int((NR + 1) / 2)], n[1], n[NR]}'; }

dd if=/dev/zero of="$work/records" bs=48K count=$((cylinders * 15)) conv=fsync status=none
dd if="$work/records" of=/dev/null bs=48K status=none

# Name; what the lab runs; what fio runs.
patterns=(
    "read calls|channel-read mode=calls look_bytes=64|randread --ioengine=psync"
    "io_uring, 32 reads under way|channel-read mode=io-uring depth=32 look_bytes=4096|randread --ioengine=io_uring --iodepth=32 --fixedbufs --registerfiles"
    "direct read calls|channel-direct mode=calls look_bytes=64|randread --ioengine=psync --direct=1"
    "io_uring, 32 direct reads under way|channel-direct mode=io-uring depth=32 look_bytes=64|randread --ioengine=io_uring --iodepth=32 --fixedbufs --registerfiles --direct=1"
    "write calls, a sync for each|channel-write mode=calls depth=1|randwrite --ioengine=psync --fdatasync=1"
    "write calls, a sync for 32|channel-write mode=calls depth=32|randwrite --ioengine=psync --fdatasync=32"
)
for ((round = 1; round <= rounds; round++)); do
    for number in "${!patterns[@]}"; do
        IFS='|' read -r name ours theirs <<<"${patterns[number]}"
        read -ra ours <<<"$ours"
        read -ra theirs <<<"$theirs"
        lab=$(lab "${ours[@]}")
        processor=$(grep -o '"pinned":\[[0-9]*' "$work/lab.json" | tail -n 1 | sed 's/.*\[//')
        [ -n "$processor" ] || missing "the lab pins no processor here, so that both cannot run on the same one"
        fio=$(fio_of "${theirs[@]}")
        echo "round $round, $name: lab $lab I/Os a second, fio $fio"
        echo "$lab" >>"$work/lab-$number"
        echo "$fio" >>"$work/fio-$number"
        awk -v a="$lab" -v b="$fio" 'BEGIN {printf "%.3f\n", a / b}' >>"$work/ratio-$number"
    done
done
for number in "${!patterns[@]}"; do
    echo "${patterns[number]%%|*}: lab over fio $(middle "$work/ratio-$number"): $(middle "$work/lab-$number") I/Os a second against $(middle "$work/fio-$number")"
done
