use super::*;
use crate::tcpip::tcp::{Outgoing, Start};

const MILLISECOND: u64 = 1_000_000;
const LIMITS: Limits = Limits { mtu: 1052, segments_max: 256 };
const CONFIG: TcpConfig = TcpConfig {
    receive_bytes: 256 << 10,
    send_bytes: 256 << 10,
    congestion: Congestion::Reno,
    acknowledge_after_ns: 0,
};

/// A connection that has sent so many segments of 1000 bytes at the time 0, whose round trips take 10 ms.
struct Stage {
    tcb: Tcb,
    pool: Buffers,
    now: u64,
}

impl Stage {
    fn new(has_times: bool, segments: usize) -> Stage {
        let mut pool = Buffers::new(16 << 20, 0);
        let start = Start {
            owner: pool.enter([10, 1, 0, 1].into()),
            is_v4: true,
            first: 0,
            resend_after_ns: 200 * MILLISECOND,
            grows_from_ns: MILLISECOND,
            clock: has_times.then_some(0),
            is_paced: false,
        };
        let agreed = Agreed {
            segment_bytes_max: if has_times { 1012 } else { 1000 },
            window_shift: Some(0),
            takes_selective: true,
        };
        let segment = segment(1);
        let mut header = header(&[], has_times.then_some(0));
        let asked = (&segment, &header[..]);
        let tcb = Tcb::of_cookie(0, &CONFIG, start, asked, agreed);
        header.clear();
        let mut stage = Stage { tcb, pool, now: 0 };
        stage.tcb.round_trip.sample(10 * MILLISECOND);
        stage.write(segments);
        assert_eq!(
            stage.sent(),
            (0..segments as u32).map(|at| (1 + 1000 * at, 1000)).collect::<Vec<_>>()
        );
        stage
    }

    fn write(&mut self, segments: usize) {
        let mut left = 1000 * segments;
        while left > 0 {
            let count = self.tcb.fill(&CONFIG, &mut self.pool, |room| {
                let count = room.len().min(left);
                (count, count)
            });
            left -= count.expect("there is room");
        }
    }

    /// What is sent now: numbers, and bytes.
    fn sent(&mut self) -> Vec<(u32, usize)> {
        let next = || self.tcb.next_segment(self.now, LIMITS, &CONFIG);
        let sent: Vec<Outgoing> = std::iter::from_fn(next).collect();
        let pieces =
            sent.into_iter().filter(|segment| segment.data_bytes > 0).flat_map(|segment| {
                let starts = (0..segment.data_bytes).step_by(segment.segment_bytes);
                starts.map(move |at| {
                    (
                        segment.sequence + at as u32,
                        segment.segment_bytes.min(segment.data_bytes - at),
                    )
                })
            });
        pieces.collect()
    }

    /// Time passes, and what is due is done.
    fn pass(&mut self, time: u64) -> Vec<(u32, usize)> {
        self.now += time;
        self.tcb.tick(self.now);
        self.sent()
    }

    /// The other side says what it has.
    fn hear(
        &mut self,
        number: u32,
        ranges: &[(u32, u32)],
        echoed: Option<u32>,
    ) -> Vec<(u32, usize)> {
        let header = header(ranges, echoed);
        let data: &[u8] = &[];
        let segment = segment(number);
        self.tcb.receive(self.now, &segment, (&header, data), false, &CONFIG, &mut self.pool);
        self.sent()
    }

    fn window(&self) -> u32 {
        self.tcb.congestion.bytes()
    }
}

fn segment(acknowledgement: u32) -> Segment {
    Segment {
        source: 1,
        destination: 2,
        sequence: 1,
        acknowledgement,
        flags: ACK,
        window: 60_000,
        data_bytes: 0,
    }
}

fn header(ranges: &[(u32, u32)], echoed: Option<u32>) -> Vec<u8> {
    let mut header = vec![0; packet::TCP_BYTES];
    if let Some(echoed) = echoed {
        header.extend([1, 1, 8, 10, 0, 0, 0, 1]);
        header.extend(echoed.to_be_bytes());
    }
    if !ranges.is_empty() {
        header.extend([1, 1, 5, 2 + 8 * ranges.len() as u8]);
        header.extend(
            ranges.iter().flat_map(|(begin, end)| [begin, end]).flat_map(|n| n.to_be_bytes()),
        );
    }
    header[12] = (header.len() as u8 / 4) << 4;
    header
}

#[test]
fn timeout_that_was_none_takes_nothing_away() {
    let timed_out = |has_times| {
        let mut stage = Stage::new(has_times, 8);
        let before = stage.window();
        // The end is asked for first.
        assert_eq!(stage.pass(20 * MILLISECOND), [(7001, 1000)]);
        assert_eq!(stage.pass(210 * MILLISECOND), [(1, 1000)]);
        assert!(stage.window() < before);
        stage.now += MILLISECOND;
        (stage, before)
    };
    // With times: what comes was sent before it was sent again.
    let (mut stage, before) = timed_out(true);
    assert_eq!(stage.hear(2001, &[], Some(0)), [], "the others are under way");
    assert!(stage.window() >= before && stage.tcb.recovery == Recovery::None);
    // What our clock cannot have shown says nothing.
    let (mut stage, before) = timed_out(true);
    stage.hear(2001, &[], Some(u32::MAX - 100_000));
    assert!(stage.window() < before);
    // Without (RFC 5682): the first acknowledgement may stand for all that had come but for what was lost.
    let (mut stage, before) = timed_out(false);
    stage.hear(6001, &[], None);
    assert!(stage.window() < before);
    let (mut stage, before) = timed_out(false);
    stage.hear(2001, &[], None);
    assert!(stage.window() < before);
    stage.hear(6001, &[], None);
    assert!(stage.window() >= before && stage.tcb.recovery == Recovery::None);
    // The loss was one if the retransmission is acknowledged.
    let mut stage = Stage::new(true, 4);
    let before = stage.window();
    stage.pass(20 * MILLISECOND);
    stage.pass(210 * MILLISECOND);
    stage.now += MILLISECOND;
    stage.hear(1001, &[], Some(230));
    assert!(stage.window() < before && stage.tcb.recovery != Recovery::None);
}

#[test]
fn what_came_twice_was_not_lost() {
    let mut stage = Stage::new(false, 6);
    let before = stage.window();
    stage.now = 30 * MILLISECOND;
    assert_eq!(stage.hear(1, &[(2001, 6001)], None), [], "they may just be late");
    assert_eq!(stage.pass(5 * MILLISECOND), [(1, 1000), (1001, 1000)]);
    assert!(stage.window() < before);
    stage.now += 5 * MILLISECOND;
    stage.hear(6001, &[(1, 1001)], None);
    assert!(stage.window() < before, "the other was sent again, too");
    let window_ns = stage.tcb.reordering_window_ns();
    stage.hear(6001, &[(1001, 2001)], None);
    assert!(stage.window() >= before);
    // From now on it takes longer until something is lost.
    assert!(window_ns > 10 * MILLISECOND / 4, "{window_ns}");
}

#[test]
fn ranges_that_came_twice_are_those_of_this_connection() {
    for (number, ranges, is_known) in [
        (1, &[(1, 1001)][..], false),
        (1001, &[(1, 1001)][..], true),
        (1001, &[(1, 1002)][..], false),
        (1001, &[(1001, 1)][..], false),
        (1001, &[(0x8000_0000, 1001)][..], false),
        (1, &[(2001, 3001), (1001, 4001)][..], true),
        (1, &[(2001, 3001), (4001, 5001)][..], false),
    ] {
        let mut stage = Stage::new(false, 6);
        stage.hear(number, ranges, None);
        assert_eq!(stage.tcb.reordering.quarters > 0, is_known, "{number} {ranges:?}");
    }
}

#[test]
fn end_that_is_asked_for_tells_of_its_loss() {
    // Lost: it has come once, when more is acknowledged than it.
    let mut stage = Stage::new(false, 3);
    let before = stage.window();
    assert_eq!(stage.pass(20 * MILLISECOND), [(2001, 1000)]);
    stage.hear(3001, &[], None);
    stage.write(1);
    stage.sent();
    assert_eq!(stage.window(), before);
    stage.hear(4001, &[], None);
    assert!(stage.window() < before);
    // Not lost: it has come twice.
    let mut stage = Stage::new(false, 3);
    stage.pass(20 * MILLISECOND);
    stage.hear(3001, &[], None);
    stage.hear(3001, &[(2001, 3001)], None);
    stage.write(1);
    stage.sent();
    stage.hear(4001, &[], None);
    assert!(stage.window() >= before);
}

#[test]
fn end_is_asked_for_by_what_is_new_whatever_the_congestion() {
    let mut stage = Stage::new(false, 10);
    stage.write(3);
    assert_eq!(stage.sent(), [], "as much is under way as may be");
    assert_eq!(stage.pass(20 * MILLISECOND), [(10_001, 1000)]);
    assert_eq!(stage.pass(20 * MILLISECOND), [], "it is asked for once");
}

#[test]
fn what_was_sent_a_moment_ago_is_not_lost_by_a_timeout() {
    let mut stage = Stage::new(false, 2);
    stage.now = 205 * MILLISECOND;
    stage.write(1);
    stage.tcb.tail_probe_at.clear();
    assert_eq!(stage.sent(), [(2001, 1000)]);
    stage.tcb.tail_probe_at.clear();
    stage.tcb.tick(210 * MILLISECOND);
    assert_eq!(stage.tcb.scoreboard.first_lost(1), Some((1, 2001)));
}

#[test]
fn range_that_came_twice_and_was_sent_once_takes_no_loss_back() {
    // A network that doubles, or the tail probe's own copy: the loss of the first was one.
    let mut stage = Stage::new(false, 6);
    let before = stage.window();
    stage.now = 30 * MILLISECOND;
    stage.hear(1, &[(1001, 6001)], None);
    assert_eq!(stage.pass(5 * MILLISECOND), [(1, 1000)]);
    stage.now += 5 * MILLISECOND;
    stage.hear(6001, &[(3001, 4001)], None);
    assert!(stage.window() < before, "another one came twice");
    // What went again has come twice, in two parts.
    stage.hear(6001, &[(1, 501)], None);
    assert!(stage.window() < before, "a part of it");
    stage.hear(6001, &[(501, 1001)], None);
    assert!(stage.window() >= before);
}

#[test]
fn what_is_still_taken_for_lost_when_a_loss_is_taken_back_is_looked_at_again() {
    let mut stage = Stage::new(false, 8);
    stage.now = 30 * MILLISECOND;
    stage.hear(1, &[(2001, 3001)], None);
    stage.tcb.must_resend = false;
    stage.tcb.congestion.begin_anew(1000);
    // One of the two goes again, for the other there is no room.
    assert_eq!(stage.pass(5 * MILLISECOND).first(), Some(&(1, 1000)));
    assert!(stage.tcb.scoreboard.has_lost());
    stage.hear(1, &[(1, 1001), (2001, 3001)], None);
    stage.hear(1001, &[(1, 1001), (2001, 3001)], None);
    let state = (stage.tcb.recovery, stage.tcb.scoreboard.has_lost());
    assert!(state.0 != Recovery::None || !state.1, "{state:?}");
}

#[test]
fn what_goes_again_has_its_time() {
    // The way is long and steady: a round trip of 400 ms that never varies.
    let mut stage = Stage::new(false, 6);
    (0..200).for_each(|_| stage.tcb.round_trip.sample(400 * MILLISECOND));
    stage.now = 400 * MILLISECOND;
    stage.hear(1001, &[], None);
    // The second is found to be lost half a second later.
    stage.now += 150 * MILLISECOND;
    stage.hear(1001, &[(2001, 6001)], None);
    stage.tcb.repeated = REPEATED_MAX;
    assert_eq!(stage.hear(1001, &[(2001, 6001)], None), [(1001, 1000)]);
    let window = stage.window();
    stage.pass(399 * MILLISECOND);
    assert_eq!((stage.window(), stage.tcb.backoff), (window, 0), "its answer is on its way");
}

#[test]
fn tail_is_not_probed_while_something_behind_a_gap_has_come() {
    let mut stage = Stage::new(false, 6);
    stage.tcb.reordering.quarters = QUARTERS_MAX;
    stage.now = 15 * MILLISECOND;
    assert!(stage.tcb.tail_probe_at.is_set());
    stage.hear(1, &[(2001, 6001)], None);
    assert!(!stage.tcb.tail_probe_at.is_set());
}

#[test]
fn tail_is_probed_though_its_way_was_full_for_a_while() {
    let mut stage = Stage::new(false, 3);
    stage.now = 5 * MILLISECOND;
    stage.tcb.postpone(stage.now);
    assert_eq!(stage.pass(20 * MILLISECOND), [(2001, 1000)]);
}

#[test]
fn what_was_learned_two_billion_bytes_ago_keeps_nobody_from_learning() {
    let mut stage = Stage::new(false, 6);
    stage.hear(6001, &[(1, 1001)], None);
    assert_eq!(stage.tcb.reordering.quarters, 1);
    for round in 1..4_u32 {
        let number = (round << 30) + 6001;
        (stage.tcb.una, stage.tcb.nxt, stage.tcb.base) = (number, number, number);
        stage.hear(number, &[], None);
    }
    let number = stage.tcb.una;
    stage.hear(number, &[(number - 1000, number)], None);
    assert_eq!(stage.tcb.reordering.quarters, 2);
}

#[test]
fn connection_of_a_cookie_knows_how_long_its_first_round_trip_took() {
    let mut pool = Buffers::new(16 << 20, 0);
    let owner = pool.enter([10, 1, 0, 1].into());
    let start = Start {
        owner,
        is_v4: true,
        first: 0,
        resend_after_ns: 200 * MILLISECOND,
        grows_from_ns: MILLISECOND,
        clock: Some(0),
        is_paced: false,
    };
    let agreed = Agreed { segment_bytes_max: 1000, ..Agreed::default() };
    let header = header(&[], Some(10));
    let asked = (&segment(1), &header[..]);
    let tcb = Tcb::of_cookie(60 * MILLISECOND, &CONFIG, start, asked, agreed);
    assert_eq!(tcb.round_trip_ns(), 50 * MILLISECOND);
}
