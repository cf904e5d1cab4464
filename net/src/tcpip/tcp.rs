//! One connection of TCP (RFC 9293), without thread, clock or address: segments go in with the time, and come out when they are asked
//! for.
//!
//! | file | what |
//! |---|---|
//! | `input.rs` | what a segment that has come changes |
//! | `output.rs` | which segment goes next, and what is due |
//! | `chain.rs` | bytes that wait to be read, or to be acknowledged |
//! | `scoreboard.rs` | what is under way, and what of it is lost |
//! | `recovery.rs` | what is lost, and what was taken for lost and was not |
//! | `round_trip.rs`, `congestion.rs`, `pacing.rs` | how long to wait, how much may be under way, and how much goes at once |
//! | `stamps.rs` | times that segments carry |

mod chain;
mod congestion;
mod input;
mod output;
mod pacing;
mod recovery;
mod round_trip;
mod scoreboard;
mod stamps;

use std::io::IoSliceMut;

use chain::Chain;
pub(super) use chain::Data;
pub use congestion::Congestion;
use congestion::{SlowStart, Window};
pub(super) use input::{Answer, Progress};
pub(super) use output::{Limits, Segment as Outgoing};
use pacing::Pacer;
use recovery::{TailProbe, Undo};
use round_trip::RoundTrip;
use scoreboard::Scoreboard;
use stamps::Stamps;

use super::buffers::{Buffers, Owner, Purpose};
use super::packet::{self, ACK, Agreed, Bare, Segment, Times};
use super::timer::Timer;

/// The bits of a service that tell of congestion (RFC 3168 5).
const CONGESTION_BITS: u8 = 3;

/// The part of the space for what is to be sent that has to be free before more is put there. Linux waits for a third.
const SPACE_PART: usize = 4;

/// Bytes of a window before it has grown, and of what waits to be acknowledged: enough for all ways that are shorter than those from which windows grow.
const WINDOW_BYTES: usize = 256 << 10;

/// The states of RFC 9293 3.3.2. One that listens is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// How the connections of a stack behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpConfig {
    /// Bytes of the greatest window.
    pub(super) receive_bytes: usize,
    /// Bytes that a program may put in front of what was acknowledged, at most.
    pub(super) send_bytes: usize,
    pub(super) congestion: Congestion,
    /// For how long an acknowledgement waits for data to go with. 0: not at all.
    pub(super) acknowledge_after_ns: u64,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) is_v4: bool,
    /// The first of our numbers.
    pub(super) first: u32,
    /// The least time after which a segment is sent again.
    pub(super) resend_after_ns: u64,
    /// The shortest round trip for which windows grow.
    pub(super) grows_from_ns: u64,
    /// Where our clock begins, if segments are to carry times.
    pub(super) clock: Option<u32>,
    /// Set if what may be under way is spread over a round trip.
    pub(super) is_paced: bool,
    /// Whose buffers are used.
    pub(super) owner: Owner,
}

impl TcpConfig {
    /// By how many bits our windows are shifted: what does not go into the 16 bits of a window.
    fn window_shift(&self) -> u8 {
        let bits = (usize::BITS - self.receive_bytes.leading_zeros()).saturating_sub(16) as u8;
        bits.min(packet::SHIFT_MAX)
    }

    /// The window of a first segment, which is not shifted.
    pub(super) fn first_window(&self) -> u16 {
        u16::try_from(self.receive_bytes).unwrap_or(u16::MAX)
    }

    /// The options of our first segment to a side that has said this.
    pub(super) fn agreed(&self, mtu: usize, is_v4: bool, theirs: &Agreed) -> Agreed {
        Agreed {
            segment_bytes_max: segment_bytes(mtu, is_v4),
            window_shift: theirs.window_shift.map(|_| self.window_shift()),
            takes_selective: theirs.takes_selective,
        }
    }

    /// The options of our first segment to a side that has said nothing yet.
    fn wishes(&self, mtu: usize, is_v4: bool) -> Agreed {
        let all = Agreed { segment_bytes_max: 0, window_shift: Some(0), takes_selective: true };
        self.agreed(mtu, is_v4, &all)
    }
}

/// Bytes of the longest segment in packets of this length.
fn segment_bytes(mtu: usize, is_v4: bool) -> u16 {
    let ip_bytes = if is_v4 { packet::IPV4_BYTES } else { packet::IPV6_BYTES };
    (mtu - ip_bytes - packet::TCP_BYTES).min(usize::from(u16::MAX)) as u16
}

/// The state of recovery: whether and why lost segments are being sent again (RFC 5681 3.2, RFC 6298 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    None,
    /// Something has come behind what is missing. It ends when all up to this number has come.
    Fast(u32),
    /// Nothing has come.
    Timeout(u32),
}

/// A connection: what RFC 9293 calls a transmission control block.
#[derive(Debug)]
pub(super) struct Tcb {
    state: State,
    is_v4: bool,
    has_no_delay: bool,
    /// Of which service its packets are.
    service: u8,
    /// The least time after which a segment is sent again.
    resend_after_ns: u64,
    /// The shortest round trip for which windows grow.
    grows_from_ns: u64,
    /// The times that segments carry, if both sides want it.
    stamps: Option<Box<Stamps>>,
    /// The number of our first byte that is not acknowledged (SND.UNA), and of the first that was not sent (SND.NXT).
    una: u32,
    nxt: u32,
    /// The number of the first byte in `sent`.
    base: u32,
    /// The window that the other side has offered last (SND.WND), the number of the segment that said so (SND.WL1), and the
    /// greatest that it ever offered.
    window: u32,
    window_of: u32,
    window_max: u32,
    /// The options of the other side's first segment.
    theirs: Agreed,
    /// By how many bits our windows are shifted.
    shift: u8,
    /// The bytes that a program has sent, from the first byte that is not acknowledged on.
    sent: Chain,
    /// A program has ended its half: behind the last byte goes the end.
    is_ended: bool,
    scoreboard: Scoreboard,
    congestion: Window,
    /// Where segments are spread: when the start is to end.
    slow_start: Option<Box<SlowStart>>,
    round_trip: RoundTrip,
    recovery: Recovery,
    /// How often the same was acknowledged again.
    repeated: u8,
    /// How often time ran out in vain.
    backoff: u8,
    /// When what is under way is sent again, or a closed window asked after.
    resend_at: Timer,
    /// When to look again what is lost.
    detect_at: Timer,
    /// When to send a tail loss probe (RFC 8985 7), and the one that was sent.
    tail_probe_at: Timer,
    tail_probe: Option<TailProbe>,
    must_probe_tail: bool,
    /// The state before something was taken for lost.
    undo: Option<Box<Undo>>,
    /// How far pieces may overtake each other, and when that was learned.
    reordering: recovery::Reordering,
    /// A closed window is to be asked after; and whether a byte beyond it was sent.
    must_probe: bool,
    has_probed: bool,
    /// One lost segment goes whatever the congestion window says (RFC 5681 3.2).
    must_resend: bool,
    /// Data up to this number filled the congestion window.
    limited_until: u32,
    /// Says when the next segment goes, where segments are spread over a round trip.
    pacer: Option<Box<Pacer>>,
    /// When something was sent last.
    sent_at: u64,
    /// Segments with data that were sent again.
    pub(super) resent: u32,
    /// The next byte that is expected (RCV.NXT), and where the windows that were offered end.
    expected: u32,
    edge: u32,
    received: Chain,
    /// The window as far as it has grown, how far it is to grow, and when and at which number of what the program has read that was decided.
    receive_bytes: u32,
    grows_to: u32,
    looked_at: u64,
    looked_read: u32,
    /// Ranges that have come behind a gap, in their order.
    beyond: Vec<(u32, u32)>,
    /// A number in the range to which something was added last.
    latest: u32,
    has_end: bool,
    /// Where their stream ends, if something before that is missing.
    end_at: Option<u32>,
    /// The range that has come twice, of which the other side was not told.
    duplicate: Option<(u32, u32)>,
    /// The number that was acknowledged last, and the segments with data that have come since.
    acknowledged: u32,
    unacknowledged: u8,
    must_acknowledge: bool,
    /// Set if the next bytes found no buffer: no window is offered until there may be one.
    is_lacking: bool,
    acknowledge_at: Timer,
    /// It was ended here, and the other side is not told yet.
    must_reset: bool,
}

impl Tcb {
    /// The next number that is expected, and the first of ours that is not acknowledged.
    pub(super) fn progress(&self) -> (u32, u32) {
        (self.expected, self.una)
    }

    /// One that asks for a connection.
    pub(super) fn connect(config: &TcpConfig, start: Start) -> Tcb {
        let Start { is_v4, first, resend_after_ns, grows_from_ns, clock, is_paced, owner } = start;
        Tcb {
            state: State::SynSent,
            is_v4,
            has_no_delay: false,
            service: 0,
            resend_after_ns,
            grows_from_ns,
            stamps: clock.map(|clock| Box::new(Stamps::new(clock))),
            una: first,
            nxt: first,
            base: first.wrapping_add(1),
            window: 0,
            window_of: 0,
            window_max: 0,
            theirs: Agreed::default(),
            shift: 0,
            sent: Chain::new(owner, true),
            is_ended: false,
            scoreboard: Scoreboard::default(),
            congestion: Window::new(config.congestion),
            slow_start: is_paced.then(Box::default),
            round_trip: RoundTrip::default(),
            recovery: Recovery::None,
            repeated: 0,
            backoff: 0,
            resend_at: Timer::NEVER,
            detect_at: Timer::NEVER,
            tail_probe_at: Timer::NEVER,
            tail_probe: None,
            must_probe_tail: false,
            undo: None,
            reordering: recovery::Reordering::new(first),
            must_probe: false,
            has_probed: false,
            must_resend: false,
            limited_until: first,
            pacer: is_paced.then(Box::default),
            sent_at: 0,
            resent: 0,
            expected: 0,
            edge: 0,
            received: Chain::new(owner, false),
            receive_bytes: config.receive_bytes.min(WINDOW_BYTES) as u32,
            grows_to: 0,
            looked_at: 0,
            looked_read: 0,
            beyond: Vec::new(),
            latest: 0,
            has_end: false,
            end_at: None,
            duplicate: None,
            acknowledged: 0,
            unacknowledged: 0,
            must_acknowledge: false,
            is_lacking: false,
            acknowledge_at: Timer::NEVER,
            must_reset: false,
        }
    }

    /// One that was asked for, by this segment.
    pub(super) fn accept(
        now: u64,
        config: &TcpConfig,
        start: Start,
        (segment, transport): (&Segment, &[u8]),
    ) -> Tcb {
        let mut tcb = Tcb::connect(config, start);
        let said = (packet::agreed(transport, start.is_v4), Times::parse(transport));
        tcb.begin(now, config, segment, said);
        tcb.state = State::SynReceived;
        tcb
    }

    /// One whose other side answers a cookie with this segment, and has `agreed` to this before. Segments carry times if this one does.
    pub(super) fn of_cookie(
        now: u64,
        config: &TcpConfig,
        start: Start,
        (segment, transport): (&Segment, &[u8]),
        agreed: Agreed,
    ) -> Tcb {
        let first = segment.acknowledgement.wrapping_sub(1);
        let mut tcb = Tcb::connect(config, Start { first, ..start });
        let asked = Segment { sequence: segment.sequence.wrapping_sub(1), ..*segment };
        let times = Times::parse(transport);
        tcb.begin(now, config, &asked, (agreed, times));
        if let Some(time) = tcb.since(now, times) {
            tcb.round_trip.sample(time);
        }
        tcb.una = segment.acknowledgement;
        tcb.nxt = tcb.una;
        tcb.window = u32::from(segment.window) << agreed.shift();
        tcb.window_max = tcb.window;
        tcb.acknowledged = tcb.expected;
        tcb.edge = tcb.expected.wrapping_add(config.first_window().into());
        tcb.establish();
        tcb
    }

    /// Takes note of the other side's first segment.
    fn begin(
        &mut self,
        now: u64,
        config: &TcpConfig,
        segment: &Segment,
        (agreed, times): (Agreed, Option<Times>),
    ) {
        self.stamps = self.stamps.take().zip(times).map(|(mut stamps, times)| {
            stamps.hear(now, times.value);
            stamps
        });
        self.expected = segment.sequence.wrapping_add(1);
        self.acknowledged = segment.sequence;
        self.edge = self.expected;
        self.window = segment.window.into();
        self.window_of = segment.sequence;
        self.window_max = self.window;
        self.theirs = agreed;
        self.shift = agreed.window_shift.map_or(0, |_| config.window_shift());
    }

    /// Both sides know of each other.
    fn establish(&mut self) {
        self.state = if self.is_ended { State::FinWait1 } else { State::Established };
        // Where a first segment was lost the way may be full (RFC 6928 2).
        match self.round_trip.is_first_resent {
            true => self.congestion.begin_anew(self.segment_bytes()),
            false => self.congestion.begin(self.segment_bytes()),
        }
        self.backoff = 0;
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// The next byte that would be sent (SND.NXT).
    pub(super) fn next(&self) -> u32 {
        self.nxt
    }

    /// The next byte that is expected (RCV.NXT).
    pub(super) fn expected(&self) -> u32 {
        self.expected
    }

    /// Returns true if the other side's stream has come to its end.
    pub(super) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Smoothed, in nanoseconds; 0 before anything was measured.
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.round_trip.smoothed
    }

    /// How many pieces of what is under way are told apart, and how many ranges behind a gap.
    #[cfg(test)]
    pub(super) fn pieces(&self) -> (usize, usize) {
        (self.scoreboard.pieces(), self.beyond.len())
    }

    /// Returns true if a reset or an acknowledgement is still to be sent, though the connection is over.
    pub(super) fn has_last_words(&self) -> bool {
        match self.state {
            State::Closed => self.must_reset,
            _ => self.must_acknowledge,
        }
    }

    /// Bytes that were sent, or are to be, and are not acknowledged.
    pub(super) fn send_queue(&self) -> usize {
        self.sent.len()
    }

    /// Bytes that have come and were not read.
    pub(super) fn receive_queue(&self) -> usize {
        self.received.len()
    }

    /// Returns true if the other side has all that was sent, and may be silent for as long as it likes.
    pub(super) fn is_idle(&self) -> bool {
        let may_be_silent =
            matches!(self.state, State::Established | State::CloseWait | State::FinWait2);
        may_be_silent && self.sent.len() == 0
    }

    /// Returns true if the byte with this number was sent and is not acknowledged.
    pub(super) fn is_under_way(&self, number: u32) -> bool {
        number.wrapping_sub(self.una) < self.nxt.wrapping_sub(self.una)
    }

    /// Where what a program has sent ends: the number of the end, once it is sent.
    fn end(&self) -> u32 {
        self.base.wrapping_add(self.sent.len() as u32)
    }

    fn has_sent_end(&self) -> bool {
        self.is_ended && is_before(self.end(), self.nxt)
    }

    /// The window that is offered, as a segment says it that is not the first.
    fn offer(&mut self) -> u16 {
        if self.is_lacking {
            // As Linux does: a side whose data is dropped without a word would take this one for gone. What was offered is still taken.
            return 0;
        }
        let (offered, free) = self.windows();
        let window = if self.has_worthy_space() { free } else { offered };
        // What was offered is not taken back: so what is rounded is rounded up (RFC 7323 2.4), unless it was before.
        let step = 1 << self.shift;
        let up = window.div_ceil(step);
        let shifted = if up * step < free + step { up } else { window / step };
        let shifted = shifted.min(usize::from(u16::MAX));
        let edge = self.expected.wrapping_add((shifted << self.shift) as u32);
        if is_before(self.edge, edge) {
            self.edge = edge;
        }
        shifted as u16
    }

    /// Offers its window again, because there may be buffers. Returns false if it has done so all the time.
    pub(super) fn offer_again(&mut self) -> bool {
        let was_lacking = std::mem::take(&mut self.is_lacking);
        self.must_acknowledge |= was_lacking && !matches!(self.state, State::Closed);
        was_lacking
    }

    /// Bytes that may still come of those that were offered, and bytes for which there is space.
    fn windows(&self) -> (usize, usize) {
        let offered = self.edge.wrapping_sub(self.expected) as usize;
        let most = (self.receive_bytes as usize).min(usize::from(u16::MAX) << self.shift);
        (offered, most.saturating_sub(self.received.len()))
    }

    /// Returns true if there is so much more space than was offered that it is worth a segment (RFC 9293 3.8.6.2.2).
    fn has_worthy_space(&self) -> bool {
        let (offered, free) = self.windows();
        let segment_bytes = usize::from(self.theirs.segment_bytes_max);
        free >= offered + segment_bytes.min(self.receive_bytes as usize / 2)
    }

    /// A segment without data that says where we are, and is sent at once.
    pub(super) fn position(&mut self, now: u64) -> Bare {
        // It may find no room: what is to be acknowledged is acknowledged nevertheless.
        let window = self.offer();
        let times = self.times(now);
        Bare { flags: ACK, sequence: self.nxt, acknowledgement: self.expected, window, times }
    }

    /// The times of a segment that is sent now.
    pub(super) fn times(&self, now: u64) -> Option<Times> {
        self.stamps.as_ref().map(|stamps| stamps.say(now))
    }

    /// How long ago that was sent whose time a segment echoes, in nanoseconds.
    fn since(&self, now: u64, times: Option<Times>) -> Option<u64> {
        self.stamps.as_ref().zip(times).and_then(|(stamps, times)| stamps.since(now, times.echoed))
    }

    /// A segment by which the other side is asked for an acknowledgement, and that changes nothing (RFC 9293 3.8.4).
    pub(super) fn question(&mut self, now: u64) -> Bare {
        Bare { sequence: self.nxt.wrapping_sub(1), ..self.position(now) }
    }

    fn note_acknowledged(&mut self) {
        self.acknowledged = self.expected;
        self.unacknowledged = 0;
        self.must_acknowledge = false;
        self.acknowledge_at.clear();
        self.duplicate = None;
    }

    // What a program does.

    /// The bytes that have come and were not read, in pieces.
    pub(super) fn peek(&self) -> impl Iterator<Item = &[u8]> {
        self.received.pieces(0, self.received.len())
    }

    /// Gives what has come to `take`, which says how much of it it takes. None if nothing has come.
    pub(super) fn take<R>(
        &mut self,
        pool: &mut Buffers,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Option<R> {
        let bytes = self.received.front();
        if bytes.is_empty() {
            return None;
        }
        let (count, result) = take(bytes);
        let count = count.min(bytes.len());
        self.received.consume(count, pool);
        self.offer_again();
        // The other side learns of much more room at once, and of a little with the next segment: as Linux does.
        let (offered, free) = self.windows();
        if !self.has_end && free >= 2 * offered && self.has_worthy_space() {
            self.must_acknowledge = true;
        }
        Some(result)
    }

    /// Bytes that a program may put in front of what was acknowledged: twice what may be under way, so that the way does not run dry.
    fn send_bytes(&self, config: &TcpConfig) -> usize {
        let may_be_under_way = match self.round_trip.least < self.grows_from_ns {
            true => 0,
            false => self.congestion.bytes().min(self.window_max) as usize,
        };
        config.send_bytes.min(WINDOW_BYTES.max(2 * may_be_under_way))
    }

    /// Lets the window grow with what the program reads in a round trip: a window that is used up in one is the limit, or nearly so. It
    /// grows by what comes, so that nobody sends all of it at once.
    fn grow(&mut self, now: u64, bytes: u32, config: &TcpConfig) {
        if self.receive_bytes < self.grows_to {
            self.receive_bytes = self.grows_to.min(self.receive_bytes.saturating_add(bytes));
        }
        let round_trip = self.round_trip.smoothed;
        if self.round_trip.least < self.grows_from_ns
            || now.saturating_sub(self.looked_at) < round_trip
        {
            return;
        }
        let read = self.expected.wrapping_sub(self.received.len() as u32);
        let in_a_round = read.wrapping_sub(self.looked_read);
        if self.looked_at != 0 && in_a_round > self.receive_bytes / 2 {
            self.grows_to = (2 * self.receive_bytes).min(config.receive_bytes as u32);
        }
        (self.looked_at, self.looked_read) = (now, read);
    }

    /// Returns true if there is space for what is to be sent, and enough of it.
    ///
    /// A program that writes into whatever space there is sends segments as short as the last acknowledgement was, and these
    /// are acknowledged one by one: what is full would stay with short segments for good.
    pub(super) fn has_space(&self, config: &TcpConfig, pool: &Buffers) -> bool {
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        let send_bytes = self.send_bytes(config);
        let space = send_bytes.saturating_sub(self.sent.len());
        is_open
            && !self.is_ended
            && space >= send_bytes / SPACE_PART
            && pool.has_one(Purpose::Sending, self.sent.owner())
    }

    /// Gives space for what is to be sent to `fill`, which says how much of it it has filled.
    pub(super) fn fill<R>(
        &mut self,
        config: &TcpConfig,
        pool: &mut Buffers,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        let send_bytes = self.send_bytes(config);
        let space = self.sent.space(send_bytes, pool);
        if space.is_empty() {
            return None;
        }
        let (count, result) = fill(space);
        let count = count.min(space.len());
        self.sent.advance(count);
        if self.sent.len() == 0 {
            self.sent.clear(pool);
        }
        Some(result)
    }

    /// As [`Tcb::fill`], with space for so many bytes at most, in pieces. `fill` returns how many bytes it has put there.
    pub(super) fn fill_pieces(
        &mut self,
        config: &TcpConfig,
        pool: &mut Buffers,
        bytes_max: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> Option<usize> {
        let in_all = self.sent.len().saturating_add(bytes_max);
        self.sent.fill(self.send_bytes(config).min(in_all), pool, fill)
    }

    /// Sets whether small segments go at once, though others are not acknowledged (RFC 9293 3.7.4).
    pub(super) fn set_no_delay(&mut self, is_on: bool) {
        self.has_no_delay = is_on;
    }

    /// Sets of which service its packets are, from the next one on.
    pub(super) fn set_service(&mut self, service: u8) {
        // Whether a packet may tell of congestion is not the program's to say.
        self.service = service & !CONGESTION_BITS;
    }

    /// Of which service its packets are.
    pub(super) fn service(&self) -> u8 {
        self.service
    }

    /// Sends nothing more (RFC 9293 3.10.4).
    pub(super) fn close(&mut self) {
        self.state = match self.state {
            State::SynSent => State::Closed,
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            state => state,
        };
        self.is_ended = true;
    }

    /// Ends it with a reset (RFC 9293 3.10.5).
    pub(super) fn abort(&mut self, pool: &mut Buffers) {
        self.must_reset |= !matches!(self.state, State::SynSent | State::Closed);
        self.finish(pool);
    }

    /// It is over. What has come can still be read.
    fn finish(&mut self, pool: &mut Buffers) {
        self.state = State::Closed;
        self.sent.clear(pool);
        self.scoreboard.clear();
        self.beyond = Vec::new();
        self.undo = None;
        for timer in [
            &mut self.resend_at,
            &mut self.detect_at,
            &mut self.acknowledge_at,
            &mut self.tail_probe_at,
        ] {
            timer.clear();
        }
        self.must_probe_tail = false;
        self.pacer = None;
        self.must_acknowledge = false;
    }

    /// Returns how many buffers it has: of bytes that have come, and of those that are to be sent.
    pub(super) fn buffers(&self) -> [usize; 2] {
        [self.received.buffers(), self.sent.buffers()]
    }

    pub(super) fn owner(&self) -> Owner {
        self.sent.owner()
    }

    /// Its buffers are another owner's, with another pool.
    pub(super) fn change_owner(&mut self, owner: Owner) {
        self.sent.set_owner(owner);
        self.received.set_owner(owner);
    }

    /// Nobody will ask for anything any more.
    pub(super) fn discard(mut self, pool: &mut Buffers) {
        self.sent.clear(pool);
        self.received.clear(pool);
        pool.leave(self.sent.owner());
    }
}

/// Returns true if a sequence number comes before another.
pub(super) fn is_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}
