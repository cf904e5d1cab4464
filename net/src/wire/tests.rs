//! The model against its promises, with random conditions and frames.

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;

use super::{Conditions, Direction, Share, duplex, wire_bytes};
use crate::lan::offload::{Checksum, Offload};

/// A frame of `bytes`, with its number behind the addresses and the type.
fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes.max(22)];
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().unwrap())
}

/// What was put: when, and of how many bytes; and what came: when, and which.
type Put = Vec<(u64, usize)>;
type Came = Vec<(u64, Vec<u8>)>;

/// Puts frames at their times, and takes each when it is due.
fn carry(direction: &mut Direction, put: &Put) -> Came {
    let mut came = Vec::new();
    let mut take_until = |direction: &mut Direction, until: u64| {
        while let Some(due) = direction.due().filter(|due| *due <= until) {
            assert_eq!(due.checked_sub(1).and_then(|before| direction.take(before)), None);
            came.push((due, direction.take(due).expect("it is due")));
        }
    };
    for (index, (at, bytes)) in put.iter().enumerate() {
        take_until(direction, *at);
        direction.put(*at, frame(index as u64, *bytes));
    }
    take_until(direction, u64::MAX);
    came
}

fn frames() -> impl Strategy<Value = Put> {
    let one = (0..100_000u64, 22..1514usize);
    prop::collection::vec(one, 1..200).prop_map(|gaps| {
        let times = gaps.iter().scan(0, |now, (gap, bytes)| {
            // Half of them come at once behind others.
            *now += gap.saturating_sub(50_000);
            Some((*now, *bytes))
        });
        times.collect()
    })
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let share = || (0..300_000u32).prop_map(Share::per_million);
    let shares = (share(), share(), share(), share());
    let rate = prop::option::of(1_000_000..20_000_000_000u64);
    (rate, 0..2_000_000u64, 0..100_000usize, shares, 0..1_000_000u64).prop_map(
        |(rate, delay, queue_bytes, (loss, reordering, duplication, corruption), later)| {
            Conditions {
                rate: rate.and_then(NonZeroU64::new),
                delay: Duration::from_nanos(delay),
                queue_bytes,
                loss,
                reordering,
                later_max: Duration::from_nanos(later),
                duplication,
                corruption,
                ..Conditions::default()
            }
        },
    )
}

/// The bits of the frames that came, but for the first, at most what the rate carries from the first to the last.
fn keeps_to_rate(came: &[(u64, Vec<u8>)], rate: u64) -> bool {
    let bits = came[1..].iter().map(|(_, frame)| wire_bytes(frame.len()) as u128 * 8);
    // Both ends are rounded down to a nanosecond.
    let ns = u128::from(came[came.len() - 1].0 - came[0].0) + 1;
    bits.sum::<u128>() * 1_000_000_000 <= ns * u128::from(rate)
}

proptest! {
    #[test]
    fn no_frame_is_forgotten_and_none_is_made_up(
        conditions in conditions(), frames in frames(), seed: u64,
    ) {
        let mut direction = Direction::new(conditions, seed);
        let came = carry(&mut direction, &frames);
        let counters = direction.counters();
        prop_assert_eq!(direction.under_way(), 0);
        prop_assert_eq!(counters.put, frames.len() as u64);
        prop_assert_eq!(counters.delivered, came.len() as u64);
        let gone = counters.lost + counters.dropped_full + counters.dropped_long;
        prop_assert_eq!(counters.delivered, counters.put + counters.duplicated - gone);
        for (at, frame) in &came {
            if conditions.corruption == Share::NONE {
                prop_assert!(*at >= frames[number(frame) as usize].0);
            }
        }
    }

    #[test]
    fn order_is_kept_without_reordering_and_the_rate_always(
        conditions in conditions(), frames in frames(), seed: u64,
    ) {
        let later_max = Duration::ZERO;
        let conditions = Conditions {
            reordering: Share::NONE, corruption: Share::NONE, later_max, ..conditions
        };
        let came = carry(&mut Direction::new(conditions, seed), &frames);
        prop_assert!(came.is_sorted_by_key(|(at, frame)| (*at, number(frame))));
        if let Some(rate) = conditions.rate {
            for end in 1..=came.len() {
                for start in [0, end.saturating_sub(2), end.saturating_sub(10), end / 2] {
                    prop_assert!(start == end || keeps_to_rate(&came[start..end], rate.get()));
                }
            }
        }
    }

    #[test]
    fn fates_follow_from_the_seed(conditions in conditions(), frames in frames(), seed: u64) {
        let carried = |seed| {
            let [mut there, mut back] = duplex(conditions, seed);
            (carry(&mut there, &frames), carry(&mut back, &frames), there.counters())
        };
        prop_assert_eq!(carried(seed), carried(seed));
    }

    #[test]
    fn frame_that_is_late_is_late_by_no_more_than_it_may(
        conditions in conditions(), frames in frames(), seed: u64,
    ) {
        // Without a queue that fills and a transmitter that is busy longer, the same frames go both times.
        let plain = Conditions { corruption: Share::NONE, duplication: Share::NONE, ..conditions };
        let punctual = Conditions { reordering: Share::NONE, ..plain };
        let late = carry(&mut Direction::new(plain, seed), &frames);
        let mut wanted = carry(&mut Direction::new(punctual, seed), &frames);
        prop_assert_eq!(late.len(), wanted.len());
        wanted.sort_by_key(|(_, frame)| number(frame));
        let later_max = (conditions.later_max.as_nanos() as u64).max(1);
        for (at, frame) in &late {
            let found = wanted.binary_search_by_key(&number(frame), |(_, frame)| number(frame));
            let due = wanted[found.unwrap()].0;
            prop_assert!((due..=due + later_max).contains(at), "{} instead of {}", at, due);
        }
    }
}

/// Frames of 1514 bytes, all at once.
fn burst(count: usize) -> Put {
    vec![(1000, 1514); count]
}

fn gigabit() -> Conditions {
    Conditions { rate: NonZeroU64::new(1_000_000_000), ..Conditions::default() }
}

#[test]
fn frame_takes_its_time_and_the_delay() {
    let conditions = Conditions { delay: Duration::from_micros(500), ..gigabit() };
    let came = carry(&mut Direction::new(conditions, 1), &burst(3));
    // 1538 bytes on the wire.
    let times: Vec<u64> = came.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [513_304, 525_608, 537_912]);
    let short = carry(&mut Direction::new(conditions, 1), &vec![(0, 22)]);
    // 84 bytes: padded.
    assert_eq!(short[0].0, 500_672);
}

#[test]
fn full_queue_drops_and_says_how_many() {
    let conditions = Conditions { queue_bytes: 10 * 1538, ..gigabit() };
    let mut direction = Direction::new(conditions, 1);
    let came = carry(&mut direction, &burst(100));
    assert_eq!((came.len(), direction.counters().dropped_full), (10, 90));
    // One that need not wait finds room however long it is.
    let none = Conditions { queue_bytes: 0, ..gigabit() };
    assert_eq!(carry(&mut Direction::new(none, 1), &burst(2)).len(), 1);
}

#[test]
fn shares_are_kept_and_a_share_changes_no_other() {
    let count = 20_000_u64;
    let every = |gap: u64| (0..count).map(|number| (number * gap, 100)).collect::<Put>();
    let lossy = Conditions { loss: Share::percent(1), ..gigabit() };
    let lost = |conditions| {
        let mut direction = Direction::new(conditions, 7);
        let came = carry(&mut direction, &every(10_000));
        assert!((100..300).contains(&direction.counters().lost), "{:?}", direction.counters());
        let mut came: Vec<u64> = came.iter().map(|(_, frame)| number(frame)).collect();
        came.sort_unstable();
        came.dedup();
        came
    };
    let later_max = Duration::from_micros(300);
    let worse = Conditions {
        reordering: Share::percent(5),
        later_max,
        duplication: Share::percent(5),
        ..lossy
    };
    assert_eq!(lost(lossy), lost(worse));
}

#[test]
fn all_or_none_of_a_share_is_all_or_none() {
    for (loss, expected) in [(Share::percent(100), 0), (Share::percent(200), 0), (Share::NONE, 50)]
    {
        let conditions = Conditions { loss, ..Conditions::default() };
        assert_eq!(carry(&mut Direction::new(conditions, 3), &burst(50)).len(), expected);
    }
}

#[test]
fn one_bit_behind_the_addresses_is_inverted() {
    let conditions = Conditions { corruption: Share::percent(100), ..Conditions::default() };
    let came = carry(&mut Direction::new(conditions, 5), &burst(50));
    for (index, (_, found)) in came.iter().enumerate() {
        let sent = frame(index as u64, 1514);
        let differing = sent.iter().zip(found).map(|(sent, found)| (sent ^ found).count_ones());
        assert_eq!((differing.sum::<u32>(), &sent[..14]), (1, &found[..14]));
    }
    // What has nothing behind them stays.
    let mut direction = Direction::new(conditions, 5);
    direction.put(0, vec![0; 14]);
    assert_eq!(direction.take(0), Some(vec![0; 14]));
}

#[test]
fn offloads_end_at_the_wire_and_nothing_longer_than_its_mtu_goes() {
    let mut direction = Direction::new(Conditions::default(), 1);
    let mut room = Vec::new();
    let checksum = Checksum::Partial { start: 34, at: 16 };
    let tagged = Offload { checksum, segmentation: None, vlan: Some(7) };
    direction.put_offloaded(0, tagged, &frame(1, 1514), &mut room);
    let found = direction.take(0).unwrap();
    assert_eq!((&found[12..16], found.len()), (&[0x81, 0, 0, 7][..], 1518));
    assert_ne!(found[54..56], [0, 0], "the checksum is there");
    for frame in [vec![], vec![0; 5], frame(1, 1515)] {
        direction.put_offloaded(0, Offload { vlan: Some(1), ..Offload::NONE }, &frame, &mut room);
    }
    assert_eq!((direction.counters().dropped_long, direction.under_way()), (1, 2));
}
