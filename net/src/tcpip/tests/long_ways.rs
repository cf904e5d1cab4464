//! Streams over wires that are long or lose something.

use super::*;

#[test]
fn frames_have_no_more_segments_than_the_lan_takes_however_short_they_are() {
    for (mtu, segment_bytes) in [(1500, 1460), (57_344, 536), (57_344, 200), (1500, 100), (1500, 1)]
    {
        let options = Options { mtu, congestion: Congestion::None, ..Options::default() };
        let mut world = World::new(1, Faults::default(), false, options, 0);
        let (from, to) = (SocketAddr::new([10, 1, 7, 7].into(), 1024), world.at(1, 7));
        world.stacks[1].listen(to, 8).unwrap();
        let [high, low] = u16::to_be_bytes(segment_bytes);
        let numbers = forge_connection_with(&mut world, from, to, [2, 4, high, low]);
        let (sequence, acknowledgement) = numbers;
        let bare =
            Bare { flags: ACK, sequence, acknowledgement, window: 65_535, ..Bare::default() };
        let mut frame = packet::bare(from, to, bare);
        address(&mut frame, MACS[1], MACS[0]);
        inject(&mut world, Offload { checksum: Checksum::Verified, ..Offload::NONE }, &frame);
        let (id, _) = world.stacks[1].accept(to).unwrap();
        put(&mut world, 1, id, 200_000);
        // The wire refuses what the LAN would.
        let World { stacks, wires, now } = &mut world;
        while stacks[1].poll(*now, &mut wires[1]) {}
        let sent = world.wires[1].under_way.values().map(|(_, bytes)| bytes.len() - 54);
        assert!(sent.sum::<usize>() > 65_535 - 2 * 1460, "{segment_bytes}");
    }
}

/// A stream over a wire that loses nothing, but is full now and then; reader and writer come by at times of their own.
#[test]
fn stream_over_a_wire_that_loses_nothing_never_waits_for_a_timer() {
    // What a window loses when it is scaled goes wrong once in some of these, soon or never.
    for seed in 0..40 {
        stream_that_goes_on(seed, 8192, 256 << 10, 0, 20_000, 2_000_000);
    }
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let mtu = [1500, 8192, 57_344][chance.below(3) as usize];
        let full = [0, 5, 30][chance.below(3) as usize];
        let patience = [1, 5000, 20_000, 200_000][chance.below(4) as usize];
        stream_that_goes_on(seed, mtu, 65_536 << chance.below(4), full, patience, 2_000_000);
    }
}

/// Each side comes by after so many nanoseconds at most, and the wire is full so often.
fn stream_that_goes_on(
    seed: u64,
    mtu: usize,
    buffer_bytes: usize,
    full: u64,
    patience: u64,
    all: usize,
) {
    const MESSAGE: usize = 65_536;
    let mut chance = Chance::new(seed);
    let options = Options {
        mtu,
        receive_bytes: buffer_bytes,
        send_bytes: buffer_bytes,
        congestion: Congestion::None,
        ..Options::default()
    };
    let faults = Faults { full, ..Faults::default() };
    let mut world = World::new(chance.number(), faults, false, options, 0);
    let ids = world.connect();
    let (mut sent, mut received, mut last) = (0, 0, world.now);
    let mut next = [0, 0];
    while received < all {
        if world.now >= next[0] {
            next[0] = world.now + 1 + chance.below(patience);
            while world.stacks[0].writable(ids[0]) == Writable::Room && sent < all {
                let left = MESSAGE - sent % MESSAGE;
                let put = world.stacks[0].send_with(ids[0], |room| {
                    let count = room.len().min(left);
                    (count, count)
                });
                sent += put.unwrap();
            }
        }
        if world.now >= next[1] {
            next[1] = world.now + 1 + chance.below(patience);
            let left = MESSAGE - received % MESSAGE;
            let taken = world.stacks[1].receive_with(ids[1], |bytes| {
                let count = bytes.len().min(left);
                (count, count)
            });
            if let Some(count) = taken {
                received += count;
                last = world.now;
            }
        }
        if !world.step_before(next[0].min(next[1])) {
            // Nothing is under way, and nothing due: the programs are next.
            world.now = next[0].min(next[1]);
        }
        let waited = world.now - last;
        assert!(waited < SECOND / 10, "SIGA_SEED={seed}: {sent} sent, {received} received");
    }
}

/// Bits per second that a stream brings to its reader over a wire of 1 Gbit/s, in virtual time: those of the second half.
fn goodput(conditions: Conditions, options: Options, bytes: usize) -> f64 {
    let mut world = World::new(1, Faults::default(), true, options, 0);
    for wire in &mut world.wires {
        wire.conditions = Some(conditions);
    }
    let ids = world.connect();
    let (mut sent, mut received) = (0, 0);
    let mut half = 0;
    while received < bytes {
        while world.stacks[0].writable(ids[0]) == Writable::Room && sent < bytes {
            let put = world.stacks[0].send_with(ids[0], |room| (room.len(), room.len()));
            sent += put.unwrap();
        }
        while let Some(count) =
            world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()))
        {
            received += count;
        }
        if received <= bytes / 2 {
            half = world.now;
        }
        assert!(world.step() && world.now < 1000 * SECOND, "{sent} sent, {received} received");
    }
    let [resent, _] = [0, 1].map(|at: usize| world.stacks[at].counter(Counter::Resent));
    let rate = (bytes / 2 * 8) as f64 / ((world.now - half) as f64 / 1e9);
    eprintln!("{rate:.3e} bit/s, {resent} of {} segments again", bytes / 1448);
    rate
}

fn wire_of(delay: Duration, loss: Share, reordering: Share) -> Conditions {
    Conditions {
        rate: std::num::NonZeroU64::new(1_000_000_000),
        delay,
        loss,
        reordering,
        later_max: Duration::from_millis(1),
        queue_bytes: 1 << 20,
        ..Conditions::default()
    }
}

/// Windows grow where a way is long.
#[test]
fn long_way_is_filled() {
    let options = Options {
        mtu: 1500,
        device: Device { medium: Medium::WIRE, ..Device::LAN },
        ..Options::default()
    };
    let conditions = wire_of(Duration::from_millis(10), Share::NONE, Share::NONE);
    let rate = goodput(conditions, options, 400 << 20);
    assert!(rate > 0.85e9, "{rate:.3e}");
    // With a window that does not grow it is a tenth of that.
    let narrow = Options { receive_bytes: 256 << 10, ..options };
    let rate = goodput(conditions, narrow, 20 << 20);
    assert!(rate < 0.15e9, "{rate:.3e}");
}

/// What is lost goes again once, and nothing else: so the rate is that of the congestion window.
#[test]
fn lossy_way_carries_what_congestion_lets_through() {
    let options = Options {
        mtu: 1500,
        device: Device { medium: Medium::WIRE, ..Device::LAN },
        ..Options::default()
    };
    // CUBIC reaches some sqrt(3 / 2p) segments a round trip where losses are frequent: 39 of 1448 bytes at 0.1 %, 12 at 1 %.
    for (loss, reordering, least) in [(1000, 0, 0.4e9), (10_000, 0, 0.12e9), (0, 10_000, 0.9e9)] {
        let [loss, reordering] = [loss, reordering].map(Share::per_million);
        let conditions = wire_of(Duration::from_micros(500), loss, reordering);
        let rate = goodput(conditions, options, 40 << 20);
        assert!(rate > least, "{rate:.3e} bit/s with {loss:?} lost, {reordering:?} late");
    }
}

/// The lab's wire: no frame is lost by chance, so nothing but a full queue takes anything from the window.
#[test]
fn way_that_reorders_is_filled() {
    let options = Options { mtu: 1500, device: Device::WIRE, ..Options::default() };
    for reordering in [0, 10_000] {
        let conditions = Conditions {
            later_max: Duration::from_micros(500),
            queue_bytes: 256 << 10,
            ..wire_of(Duration::from_micros(500), Share::NONE, Share::per_million(reordering))
        };
        let rate = goodput(conditions, options, 160 << 20);
        assert!(rate > 0.92e9, "{rate:.3e} bit/s with {reordering} of a million late");
    }
}
