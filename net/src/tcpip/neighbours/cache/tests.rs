use proptest::prelude::*;

use super::*;

const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

fn cache() -> Cache {
    Cache::new(Secret([1; 16]))
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 1, 0, last])
}

fn far(number: u32) -> IpAddr {
    IpAddr::from([10, 2 + (number >> 16) as u8, (number >> 8) as u8, number as u8])
}

fn waiting(bytes: usize) -> Waiting {
    Waiting { offload: Offload::NONE, frame: vec![7; bytes], is_passed: false }
}

/// What is done until a time, and when.
fn steps(cache: &mut Cache, until: u64) -> Vec<(u64, Option<Mac>, bool)> {
    let mut steps = Vec::new();
    while let Some(due) = cache.due().filter(|due| *due <= until) {
        match cache.poll(due) {
            Some(Step::Ask(_, mac)) => steps.push((due / SECOND, mac, true)),
            Some(Step::Failed(..)) => steps.push((due / SECOND, None, false)),
            None => panic!("what is due is to be done"),
        }
    }
    steps
}

/// One that has answered at 0.
fn reachable() -> Cache {
    let mut cache = cache();
    assert_eq!(cache.find(0, ip(1), Sender::Own), Found::Ask);
    assert!(matches!(cache.hear(0, ip(1), MACS[0], true), Heard::Resolved(_)));
    cache
}

#[test]
fn neighbour_is_asked_three_times_and_has_failed_then() {
    let mut cache = cache();
    assert_eq!(cache.find(0, ip(1), Sender::Own), Found::Ask);
    assert_eq!(cache.find(5, ip(1), Sender::Own), Found::Asked);
    assert!(matches!(cache.hear(5, ip(1), MACS[0], false), Heard::Known), "that is no answer");
    assert!(matches!(cache.learn(5, ip(1), MACS[0]), Heard::Known));
    assert_eq!(cache.wait(ip(1), waiting(9)), 0);
    let asked = [(1, None, true), (2, None, true), (3, None, false)];
    assert_eq!(steps(&mut cache, 9 * SECOND), asked);
    assert!(cache.has_failed(ip(1)) && !cache.is_asked(ip(1)));
    assert_eq!((cache.waiting_bytes, cache.due()), (0, None));
    assert_eq!(cache.find(9 * SECOND, ip(1), Sender::Own), Found::Ask);
    assert!(cache.has_failed(ip(1)), "as long as it does not answer");
    cache.hear(9 * SECOND, ip(1), MACS[0], true);
    assert!(!cache.has_failed(ip(1)));
}

#[test]
fn packets_wait_and_the_oldest_goes() {
    let mut cache = cache();
    cache.find(0, ip(1), Sender::Stranger);
    for bytes in 1..=WAITING_MAX + 2 {
        let dropped = cache.wait(ip(1), waiting(bytes));
        assert_eq!(dropped, usize::from(bytes > WAITING_MAX));
    }
    assert_eq!(cache.wait(ip(2), waiting(1)), 1, "nobody asks for it");
    let Heard::Resolved(waited) = cache.hear(1, ip(1), MACS[0], true) else { panic!() };
    assert!(waited.iter().map(|one| one.frame.len()).eq(3..=WAITING_MAX + 2));
    // Their bytes have a limit, too: for each neighbour, and for all together.
    cache.find(0, ip(3), Sender::Own);
    let dropped: Vec<usize> = (0..4).map(|_| cache.wait(ip(3), waiting(60_000))).collect();
    assert_eq!(dropped, [0, 0, 1, 1]);
    cache.hear(1, ip(3), MACS[0], true);
    let kept = (0..100).filter(|number| {
        cache.find(0, far(*number), Sender::Stranger);
        cache.wait(far(*number), waiting(60_000)) == 0
    });
    assert_eq!(kept.count(), WAITING_BYTES_MAX / 60_000);
}

#[test]
fn neighbour_that_was_not_heard_of_for_long_is_asked_where_it_was_while_packets_go_there() {
    let mut cache = reachable();
    assert_eq!(cache.find(14 * SECOND, ip(1), Sender::Own), Found::At(MACS[0]));
    assert_eq!((cache.due(), cache.unsure()), (None, 0));
    // Nothing happens as long as nothing is sent.
    assert_eq!(cache.find(46 * SECOND, ip(1), Sender::Own), Found::At(MACS[0]));
    assert_eq!((cache.due(), cache.unsure()), (Some(51 * SECOND), 1));
    let to = Some(MACS[0]);
    assert_eq!(steps(&mut cache, 52 * SECOND), [(51, to, true), (52, to, true)]);
    assert_eq!(cache.find(52 * SECOND, ip(1), Sender::Own), Found::At(MACS[0]));
    assert!(matches!(cache.hear(52 * SECOND, ip(1), MACS[0], false), Heard::Known));
    assert_eq!(cache.unsure(), 1, "that was no answer");
    assert!(matches!(cache.hear(52 * SECOND, ip(1), MACS[0], true), Heard::Known));
    assert_eq!((cache.due(), cache.unsure()), (None, 0));
    // And once more, without an answer.
    cache.find(99 * SECOND, ip(1), Sender::Own);
    let mut asked: Vec<_> = (104..107).map(|at| (at, to, true)).collect();
    // Then it may be elsewhere, and only if it is not it has failed.
    asked.extend((107..110).map(|at| (at, None, true)));
    asked.push((110, None, false));
    assert_eq!(steps(&mut cache, 200 * SECOND), asked);
    assert_eq!(cache.find(200 * SECOND, ip(1), Sender::Own), Found::Ask);
}

#[test]
fn progress_of_a_connection_is_as_good_as_an_answer() {
    let mut cache = reachable();
    cache.find(46 * SECOND, ip(1), Sender::Own);
    cache.confirm(50 * SECOND, ip(1));
    assert_eq!((cache.due(), cache.unsure()), (None, 0));
    cache.confirm(50 * SECOND, ip(9));
    assert!(!cache.entries.contains_key(&ip(9)));
}

#[test]
fn nobody_takes_the_place_of_one_that_still_answers() {
    // While it is reachable, stale, and about to be asked.
    for time in [2 * SECOND, 50 * SECOND] {
        for is_used in [false, true] {
            for is_answer in [false, true] {
                let mut cache = reachable();
                if is_used {
                    cache.find(time, ip(1), Sender::Own);
                }
                for _ in 0..5 {
                    let heard = cache.hear(time, ip(1), MACS[1], is_answer);
                    assert!(matches!(heard, Heard::Doubted));
                }
                assert!(matches!(cache.learn(time, ip(1), MACS[1]), Heard::Doubted));
                assert_eq!(cache.find(time, ip(1), Sender::Own), Found::At(MACS[0]));
                assert!(
                    matches!(cache.poll(time), Some(Step::Ask(_, Some(mac))) if mac == MACS[0])
                );
                cache.hear(time, ip(1), MACS[0], true);
                assert_eq!(cache.due(), None);
            }
        }
    }
    // One that does not is asked for anew.
    let mut cache = reachable();
    cache.hear(SECOND, ip(1), MACS[1], false);
    let to = Some(MACS[0]);
    // What it has acknowledged may have been sent before.
    cache.confirm(SECOND, ip(1));
    let asked = [(1, to, true), (2, to, true), (3, to, true), (4, None, true)];
    assert_eq!(steps(&mut cache, 4 * SECOND), asked);
    assert!(!cache.has_failed(ip(1)));
    assert_eq!(cache.find(4 * SECOND, ip(1), Sender::Own), Found::Asked);
    cache.hear(4 * SECOND, ip(1), MACS[1], true);
    assert_eq!(cache.find(4 * SECOND, ip(1), Sender::Own), Found::At(MACS[1]));
}

#[test]
fn what_nobody_has_asked_for_makes_no_entry() {
    let mut cache = cache();
    for is_answer in [false, true] {
        assert!(matches!(cache.hear(0, ip(1), MACS[0], is_answer), Heard::Known));
    }
    assert!(cache.entries.is_empty());
    // Those who ask for us are to be answered, as long as there is much room.
    (0..9999).for_each(|number| drop(cache.learn(0, far(number), MACS[0])));
    assert_eq!(cache.entries.len(), LEARNED_MAX);
}

#[test]
fn scan_displaces_nobody_who_is_there_and_takes_no_room_of_programs() {
    let mut cache = cache();
    for number in 0..ENTRIES_MAX as u32 {
        assert_eq!(cache.find(0, far(number), Sender::Own), Found::Ask);
        cache.hear(0, far(number), MACS[0], true);
    }
    assert_eq!(cache.find(0, ip(1), Sender::Stranger), Found::Full);
    assert_eq!(cache.find(0, ip(2), Sender::Own), Found::Ask, "there may be more than have room");
    // When some were silent for long, they go for others.
    let now = 60 * SECOND;
    let mut dropped = 0;
    for number in 0..9999 {
        let now = now + u64::from(number) * SECOND / 1000;
        assert_eq!(cache.find(now, far(65_536 + number), Sender::Stranger), Found::Ask);
        dropped += cache.wait(far(65_536 + number), waiting(100));
    }
    assert_eq!(dropped, 9999 - STRANGERS_MAX);
    let left = (0..ENTRIES_MAX as u32).filter(|at| cache.entries.contains_key(&far(*at)));
    assert_eq!(left.count(), ENTRIES_MAX - 1 - STRANGERS_MAX);
    assert_eq!(cache.waiting_bytes, STRANGERS_MAX * 100);
    assert_eq!(cache.find(now, ip(1), Sender::Own), Found::Ask);
    // One that a program wants stays.
    for number in 0..9999 {
        cache.find(now, far(80_000 + number), Sender::Stranger);
    }
    assert!(cache.is_asked(ip(1)));
}

#[test]
fn neighbour_that_has_named_itself_is_put_to_all_when_it_is_used() {
    let mut cache = cache();
    cache.learn(0, ip(1), MACS[1]);
    assert_eq!(cache.due(), None);
    assert_eq!(cache.find(5, ip(1), Sender::Own), Found::At(MACS[1]));
    cache.confirm(5, ip(1));
    assert!(matches!(cache.poll(5), Some(Step::Ask(_, None))));
    assert!(matches!(cache.hear(6, ip(1), MACS[0], true), Heard::Resolved(_)));
    assert_eq!(cache.find(7, ip(1), Sender::Own), Found::At(MACS[0]));
    assert_eq!(cache.due(), None);
}

#[test]
fn first_of_two_answers_is_not_kept_for_ever() {
    let mut cache = reachable();
    assert!(matches!(cache.hear(1, ip(1), MACS[1], true), Heard::Doubted));
    assert_eq!(cache.due(), None, "two that answer always would have it asked without end");
    assert!(matches!(cache.hear(5 * SECOND, ip(1), MACS[1], false), Heard::Doubted));
    assert!(matches!(cache.poll(5 * SECOND), Some(Step::Ask(_, None))));
    assert!(matches!(cache.hear(5 * SECOND, ip(1), MACS[1], true), Heard::Resolved(_)));
    assert_eq!(cache.find(5 * SECOND, ip(1), Sender::Own), Found::At(MACS[1]));
    // An answer that comes later than that is a contradiction as any other.
    let mut cache = reachable();
    cache.hear(2 * SECOND, ip(1), MACS[1], true);
    assert!(matches!(cache.poll(2 * SECOND), Some(Step::Ask(_, Some(_)))));
}

#[test]
fn question_that_the_link_refuses_was_not_asked() {
    let mut cache = cache();
    let (mut now, mut asked) = (0, cache.find(0, ip(1), Sender::Own) == Found::Ask);
    for _ in 0..1000 {
        assert!(std::mem::take(&mut asked));
        cache.refuse(now, ip(1));
        assert!(matches!(cache.hear(now, ip(1), MACS[1], true), Heard::Known), "of what?");
        now = cache.due().unwrap();
        asked = matches!(cache.poll(now), Some(Step::Ask(..)));
    }
    assert_eq!(steps(&mut cache, now + 9 * SECOND).len(), 3);
    // One that is known is not dropped, either.
    let mut cache = reachable();
    cache.find(46 * SECOND, ip(1), Sender::Own);
    for _ in 0..10 {
        assert!(matches!(cache.poll(cache.due().unwrap()), Some(Step::Ask(_, Some(_)))));
        cache.refuse(51 * SECOND, ip(1));
    }
}

#[test]
fn strangers_have_few_questions_asked_and_none_twice_in_a_second() {
    let mut cache = cache();
    let mut ask = |now: u64, number: u32| {
        usize::from(cache.find(now, far(number), Sender::Stranger) == Found::Ask)
    };
    let cycles = (0..10_000).map(|number| ask(0, number % (STRANGERS_MAX as u32 + 1)));
    assert_eq!(cycles.sum::<usize>(), STRANGERS_MAX + 1);
    let scan = (1000..10_000).map(|number| ask(1, number)).sum::<usize>();
    assert_eq!(scan, STRANGERS_ASKED_MAX - STRANGERS_MAX - 1);
    assert_eq!(ask(SECOND + 1, 0), 1);
    assert_eq!(cache.find(1, ip(1), Sender::Own), Found::Ask, "programs wait for none of them");
}

#[test]
fn neighbours_of_strangers_leave_room_for_others() {
    let mut cache = cache();
    for number in 0..ENTRIES_MAX as u32 {
        assert_eq!(cache.find(0, far(number), Sender::Stranger), Found::Ask);
        cache.hear(0, far(number), MACS[0], true);
        cache.find(1 + u64::from(number), far(number), Sender::Stranger);
    }
    assert_eq!(cache.find(2 * SECOND, ip(1), Sender::Own), Found::Ask);
    assert_eq!(cache.find(2 * SECOND, ip(2), Sender::Stranger), Found::Ask);
    // Those that were used last stay.
    let gone = (0..ENTRIES_MAX as u32).filter(|at| !cache.entries.contains_key(&far(*at)));
    assert!(gone.eq([0, 1]));
}

proptest! {
    /// Whatever is heard and sent: limits hold, timers are those of entries, and each comes to an end.
    #[test]
    fn limits_and_timers_hold(
        acts in prop::collection::vec((0..6u8, 0..200u32, any::<bool>(), 0..20 * SECOND), 1..400),
    ) {
        let (mut cache, mut now) = (cache(), 0);
        for (act, number, flag, time) in acts {
            let (address, mac) = (far(number), MACS[usize::from(flag)]);
            let sender = if flag { Sender::Own } else { Sender::Stranger };
            match act {
                0 => {
                    cache.find(now, address, sender);
                }
                1 => drop(cache.hear(now, address, mac, number % 2 == 0)),
                2 => drop(cache.learn(now, address, mac)),
                3 => cache.confirm(now, address),
                4 => {
                    cache.wait(address, waiting(1000));
                    if flag && number % 8 == 0 {
                        cache.refuse(now, address);
                    }
                }
                _ => {
                    now += time;
                    let mut steps = 0;
                    while cache.poll(now).is_some() {
                        steps += 1;
                        prop_assert!(steps <= ENTRIES_MAX);
                    }
                }
            }
            prop_assert!(cache.entries.len() <= ENTRIES_MAX && cache.strangers.len() <= STRANGERS_MAX);
            let due = cache.entries.iter().filter_map(|(at, entry)| Some((entry.due?, *at)));
            prop_assert_eq!(&due.collect::<BTreeSet<_>>(), &cache.timers);
            let bytes = cache.entries.values().flat_map(|entry| &entry.waiting);
            prop_assert_eq!(bytes.map(|one| one.frame.len()).sum::<usize>(), cache.waiting_bytes);
            let unsure = |entry: &&Entry| matches!(entry.state, State::Delay | State::Probe);
            prop_assert_eq!(cache.entries.values().filter(unsure).count(), cache.unsure);
            let strangers = |(_, entry): &(&IpAddr, &Entry)| entry.state == State::Incomplete && !entry.is_own;
            prop_assert_eq!(cache.entries.iter().filter(strangers).count(), cache.strangers.len());
        }
        while let Some(due) = cache.due() {
            now = now.max(due);
            cache.poll(now);
        }
        prop_assert!(cache.entries.values().all(|entry| entry.state != State::Incomplete));
    }
}
