//! A cable: a wire between two adapters that may be in different processes. It is a path, and its messages are frames.
//!
//! The head of a message is that of a copy in a LAN ([`crate::lan::capture`]), whose time is when the frame arrives: the sender's end knows the rate and the delay, and the
//! receiver's end keeps what has not arrived. Without a rate and a delay frames go as they are given, with their segments and checksums left out, as over a virtual link with
//! offloads; otherwise segments are cut and sums complete, as on an Ethernet.
//!
//! The other end is as little believed as any wire is: a message that is no frame is dropped and counted, and a frame that claims to arrive later than anything can be
//! under way arrives then. What has come and has not arrived is kept in memory of the receiver's, up to [`UNDER_WAY_BYTES_MAX`]; more waits in the path, and then at the
//! sender.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use fabric::path::{Fetched, Halves, Receiver, SendError, Sender};
use os::doorbell::Listen;

use super::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
use crate::lan::capture::{Content, Record};
use crate::lan::frame::Mac;
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{FRAME_BYTES_MAX, Offload, segment_in_place};
use crate::wire::{Conditions, Model, wire_bytes};

/// When a frame is tried again that found the path full: twice as late each time, for somebody who takes nothing is not to be asked all the time.
const RETRY_NS: u64 = 20_000;
const RETRY_NS_MAX: u64 = 1_000_000;

/// When it is tried again if something has run out here.
const LACK_RETRY_NS: u64 = 100_000_000;

/// The same where the rate says when there is room, at least.
const RETRY_NS_MIN: u64 = 1_000;

/// The longest that a frame may be under way, and wait for the transmitter.
pub const DELAY_MAX: Duration = Duration::from_secs(1);

/// What a frame costs beside its bytes.
const ENTRY_BYTES: usize = 128;

/// A receiver that sleeps until the next frame arrives is told of others if that is later.
const SOON_NS: u64 = 100_000;

/// Bytes that a receiver keeps that have not arrived: 10 Gb/s for 6 ms.
pub const UNDER_WAY_BYTES_MAX: usize = 8 << 20;

/// Memory that is kept for frames that will come.
const SPARE_MAX: usize = 64;

/// Looks at the state of the cable between two at storage that was not used.
const LOOKS_PER_TRIM: u32 = 8;

/// Bytes of the longest packet, at least and at most.
const MTU: std::ops::RangeInclusive<usize> = 576..=9000;

/// What cables do to frames: the rate, the delay, and the bytes that wait for the transmitter at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableOptions {
    /// Bytes of the longest packet: 576 to 9000; the next of these if it is another. Both ends should have the same.
    pub mtu: usize,
    /// Bits a second, with all that Ethernet adds to a frame. None: a frame takes no time.
    pub rate: Option<std::num::NonZeroU64>,
    /// Time from the end of a frame's transmission to its arrival, [`DELAY_MAX`] at most.
    pub delay: Duration,
    /// Bytes that wait for the transmitter at most, unless it is idle: what is sent later waits in the queues of devices, where what is urgent overtakes it.
    pub queue_bytes: usize,
}

impl Default for CableOptions {
    /// As [`Conditions::default`].
    fn default() -> CableOptions {
        let Conditions { rate, delay, queue_bytes, mtu, .. } = Conditions::default();
        CableOptions { mtu, rate, delay, queue_bytes }
    }
}

/// One end of a cable.
pub struct Cable {
    sender: Sender,
    receiver: Receiver,
    options: CableOptions,
    /// None if a frame takes no time.
    model: Option<Model>,
    mac: Mac,
    /// A segment.
    room: Vec<u8>,
    /// Frames that have not arrived, with their times, and their bytes.
    under_way: VecDeque<(u64, Offload, Vec<u8>)>,
    under_way_bytes: usize,
    /// Memory of a frame that has arrived.
    spare: Vec<Vec<u8>>,
    /// When it was received from last.
    received_ns: u64,
    /// Segments of one frame that have found no room in the path.
    pending: VecDeque<(u64, Offload, Vec<u8>)>,
    retry: Option<u64>,
    /// How much later than the last try the next is.
    retry_ns: u64,
    looks: u32,
    has_slept: bool,
    /// The path has ended, and all that was handed over has come.
    is_drained: bool,
    counters: WireCounters,
    /// Dropped with it.
    _kept: Box<dyn Any + Send>,
}

impl fmt::Debug for Cable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cable").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Cable {
    /// One end of a cable that is this path, at a port with this MAC address. `kept` is dropped with it. Each end says what happens to the frames that it sends.
    ///
    /// # Panics
    /// If the path has not one queue each way: its maker sees to that.
    pub fn new(
        mut halves: Halves,
        kept: Box<dyn Any + Send>,
        mac: Mac,
        options: CableOptions,
    ) -> Cable {
        let (sender, receiver) = (halves.senders.pop(), halves.receivers.pop());
        assert!(halves.senders.is_empty() && halves.receivers.is_empty(), "one queue each way");
        let CableOptions { mtu, rate, delay, queue_bytes } = options;
        let (mtu, delay) = (mtu.clamp(*MTU.start(), *MTU.end()), delay.min(DELAY_MAX));
        // What waits for the transmitter goes within the time that the receiver believes.
        let most = rate.map_or(usize::MAX, |rate| (rate.get() / 8) as usize);
        let options = CableOptions { mtu, rate, delay, queue_bytes: queue_bytes.min(most) };
        // The queue pushes back, and does not drop: so that the segments of a frame are all in it or none.
        let queue_bytes = usize::MAX;
        let conditions = Conditions { rate, delay, queue_bytes, mtu, ..Conditions::default() };
        let takes_time = rate.is_some() || !delay.is_zero();
        Cable {
            sender: sender.expect("a queue"),
            receiver: receiver.expect("a queue"),
            options,
            model: takes_time.then(|| Model::new(conditions, 0)),
            mac,
            room: Vec::new(),
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            spare: Vec::new(),
            received_ns: 0,
            pending: VecDeque::new(),
            retry: None,
            retry_ns: RETRY_NS,
            looks: 0,
            has_slept: false,
            is_drained: false,
            counters: WireCounters::default(),
            _kept: kept,
        }
    }

    fn is_over(&self) -> bool {
        self.sender.ended().is_some() || self.receiver.ended().is_some()
    }

    /// Takes the next message, if there is room for it. Returns true if there was one.
    fn fetch(&mut self, now: u64) -> bool {
        if self.is_drained || self.under_way_bytes >= UNDER_WAY_BYTES_MAX {
            return false;
        }
        let fetched = match self.receiver.fetch_up_to(usize::MAX, FRAME_BYTES_MAX) {
            Ok(Some(Fetched::Copied(fetched))) => fetched,
            Ok(Some(Fetched::InPage(_) | Fetched::TooLong)) => {
                self.counters.dropped_bad += 1;
                return true;
            }
            Ok(None) => return false,
            Err(_) => {
                // Nothing comes any more, which `look` tells as well.
                self.is_drained = true;
                return false;
            }
        };
        let message = self.receiver.message(fetched);
        match Record::parse(message.head, message.body) {
            Ok(Record { time_ns, content: Content::Frame(offload) }) => {
                let latest = now.saturating_add(2 * DELAY_MAX.as_nanos() as u64);
                let mut memory = self.spare.pop().unwrap_or_default();
                memory.clear();
                memory.extend_from_slice(message.body);
                self.under_way_bytes += memory.len() + ENTRY_BYTES;
                self.under_way.push_back((time_ns.min(latest), offload, memory));
            }
            _ => self.counters.dropped_bad += 1,
        }
        true
    }

    /// Hands a frame to the other end.
    fn put(
        sender: &mut Sender,
        time_ns: u64,
        offload: Offload,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let head = Record { time_ns, content: Content::Frame(offload) }.head();
        sender.send_built(&head, bytes, fill)
    }

    /// Sends the segments of a frame, each with the time at which it arrives. Those for which the path has no room wait here: the frame has gone.
    fn send_timed(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), SendError> {
        let Cable { sender, model: Some(model), options, room, pending, retry, .. } = self else {
            unreachable!("frames take time on this cable")
        };
        let segmentation = frame.offload.segmentation;
        let (waiting, segments) =
            (model.waiting_bytes(now), frame.offload.segments(frame.bytes()) as u64);
        let headers = segmentation.map_or(0, |of| u64::from(of.header_bytes));
        let added = (segments - 1) * headers + segments * wire_bytes(0) as u64;
        let queue = options.queue_bytes as u64;
        // A long frame goes as soon as half of the queue is free: shorter ones would always be before it.
        if let Some(rate) = options.rate
            && waiting > queue / 2
            && waiting + frame.bytes() as u64 + added > queue
        {
            let wait = (waiting - queue / 2).saturating_mul(8_000_000_000) / rate.get();
            *retry = earlier(*retry, now, now + wait.max(RETRY_NS_MIN));
            return Err(SendError::Full);
        }
        let offload = Offload { vlan: frame.offload.vlan, ..Offload::NONE };
        segment_in_place(frame, room, |segment| {
            for arrival in model.put(now, segment.len()).arrivals() {
                let put = |target: &mut [u8]| target.copy_from_slice(segment);
                let is_put = pending.is_empty()
                    && Cable::put(sender, arrival, offload, segment.len(), put).is_ok();
                if !is_put {
                    pending.push_back((arrival, offload, segment.to_vec()));
                }
            }
        });
        Ok(())
    }

    /// Sends segments that have waited for room. Returns false if some still do.
    fn send_pending(&mut self, now: u64) -> bool {
        while let Some((arrival, offload, segment)) = self.pending.front() {
            let put = |target: &mut [u8]| target.copy_from_slice(segment);
            match Cable::put(&mut self.sender, *arrival, *offload, segment.len(), put) {
                Ok(()) => drop(self.pending.pop_front()),
                Err(SendError::TooLong { .. } | SendError::Severed(_)) => self.pending.clear(),
                Err(error) => {
                    self.try_again(now, &error);
                    return false;
                }
            }
        }
        true
    }

    /// Says when to try again what the path does not take now.
    fn try_again(&mut self, now: u64, error: &SendError) {
        let wait = match error {
            SendError::Lacking(_) => LACK_RETRY_NS,
            _ => self.retry_ns,
        };
        self.retry_ns = (2 * self.retry_ns).min(RETRY_NS_MAX);
        self.retry = earlier(self.retry, now, now + wait);
    }
}

/// The earlier of a time that is not over and another.
fn earlier(time: Option<u64>, now: u64, other: u64) -> Option<u64> {
    Some(time.filter(|time| *time > now).map_or(other, |time| time.min(other)))
}

impl Wire for Cable {
    fn capabilities(&self) -> Capabilities {
        let CableOptions { mtu, rate, .. } = self.options;
        let rate = rate.map(|rate| rate.get());
        Capabilities { mtu, completes_checksums: true, cuts_segments: true, rate }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn add_address(&mut self, _mac: Mac) -> io::Result<()> {
        // There are two ends, and each has what the other sends.
        Ok(())
    }

    fn remove_address(&mut self, _mac: Mac) {}

    fn receive(
        &mut self,
        now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        self.received_ns = now;
        self.retry = self.retry.filter(|retry| *retry > now || !self.pending.is_empty());
        if std::mem::take(&mut self.has_slept) {
            self.receiver.wake();
        }
        // As many as are given out, and as many again: so a sender that is quicker than its rate is not held up, and what is no frame is bounded.
        let mut fetches = 2 * frames_max;
        for count in 0..frames_max {
            while fetches > 0 && self.fetch(now) {
                fetches -= 1;
                if self.under_way.front().is_some_and(|(arrival, ..)| *arrival <= now) {
                    break;
                }
            }
            let Some((_, offload, memory)) =
                self.under_way.pop_front_if(|(arrival, ..)| *arrival <= now)
            else {
                return Ok(count);
            };
            self.under_way_bytes -= memory.len() + ENTRY_BYTES;
            self.counters.frames_received += 1;
            self.counters.bytes_received += memory.len() as u64;
            take(offload, &memory);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(memory);
            }
        }
        Ok(frames_max)
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        if self.is_over() {
            self.counters.dropped_unsent += 1;
            return Err(NotSent::Dropped);
        }
        if self.retry.is_some_and(|retry| retry > now) && !self.pending.is_empty()
            || !self.send_pending(now)
        {
            return Err(NotSent::Full);
        }
        let sent = match self.model.is_some() {
            true => self.send_timed(now, frame),
            false => {
                let fill = |target: &mut [u8]| {
                    frame.read(0, target);
                };
                // It arrives as soon as it is seen.
                Cable::put(&mut self.sender, 0, frame.offload, frame.bytes(), fill)
            }
        };
        match sent {
            Ok(()) => {
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += frame.bytes() as u64;
                self.retry_ns = RETRY_NS;
                Ok(())
            }
            Err(SendError::TooLong { .. } | SendError::Severed(_)) => {
                self.counters.dropped_unsent += 1;
                Err(NotSent::Dropped)
            }
            // The queue of the transmitter has said when it has room.
            Err(SendError::Full) if self.model.is_some() => Err(NotSent::Full),
            Err(error) => {
                self.try_again(now, &error);
                Err(NotSent::Full)
            }
        }
    }

    fn flush(&mut self, now: u64) {
        if self.retry.is_none_or(|retry| retry <= now) {
            self.send_pending(now);
        }
        self.sender.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // An end that is over rings for ever.
        (!self.is_over()).then(|| self.receiver.descriptor())
    }

    fn announce_sleep(&mut self) -> bool {
        let soon = self.received_ns.saturating_add(SOON_NS);
        let is_soon = self.under_way.front().is_some_and(|(arrival, ..)| *arrival <= soon);
        if self.is_drained || is_soon || self.under_way_bytes >= UNDER_WAY_BYTES_MAX {
            // Nothing will come, or what is known of is looked for first.
            return true;
        }
        self.has_slept = true;
        self.receiver.announce_sleep();
        !self.receiver.is_ready()
    }

    fn on_ready(&mut self) -> bool {
        self.receiver.hear(Listen::Now);
        self.is_over()
    }

    fn due(&self) -> Option<u64> {
        self.under_way.front().map(|(arrival, ..)| *arrival).into_iter().chain(self.retry).min()
    }

    fn look(&mut self) -> (Carrier, bool) {
        // An end that was killed is known by its doorbells alone.
        self.sender.hear(Listen::Now);
        self.receiver.hear(Listen::Now);
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_TRIM) {
            self.sender.trim();
            self.receiver.trim();
            self.spare.clear();
            if self.under_way.is_empty() {
                self.under_way.shrink_to(SPARE_MAX);
            }
        }
        (if self.is_over() { Carrier::Gone } else { Carrier::Up }, false)
    }

    fn counters(&self) -> WireCounters {
        self.counters
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use fabric::path::{Shape, Side, Terms};
    use os::doorbell::Doorbell;

    use super::*;
    use crate::lan::offload::{Checksum, Kind, Segmentation};

    const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0xa, 1]), Mac([2, 0, 0, 0, 0xa, 2])];

    fn halves() -> [Halves; 2] {
        let shape = Shape { outputs: 1, inputs: 1 };
        let [(one, one_shown), (other, other_shown)] =
            [shape; 2].map(|of| Side::create(of).unwrap());
        let (ours, theirs) = (0..2).map(|_| Doorbell::ends().unwrap()).unzip();
        [
            one.join(other_shown, ours, Terms::DEFAULT).unwrap(),
            other.join(one_shown, theirs, Terms::DEFAULT).unwrap(),
        ]
    }

    fn cable(options: CableOptions) -> [Cable; 2] {
        let [one, other] = halves();
        let end = |halves, mac| Cable::new(halves, Box::new(()), mac, options);
        [end(one, MACS[0]), end(other, MACS[1])]
    }

    fn timed(mbit: u64, queue_bytes: usize) -> CableOptions {
        let rate = std::num::NonZeroU64::new(mbit * 1_000_000);
        CableOptions { rate, queue_bytes, ..CableOptions::default() }
    }

    fn frame(bytes: usize) -> Vec<u8> {
        let mut frame = vec![7; bytes];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0xa, 2, 2, 0, 0, 0, 0xa, 1, 0x88, 0xb5]);
        frame
    }

    /// A segment of TCP over IPv4 with so many bytes of data, in pieces of 1000.
    fn segments(bytes: usize) -> (Offload, Vec<u8>) {
        let mut frame = frame(54 + bytes);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2,
        ]);
        frame[16..18].copy_from_slice(&((40 + bytes) as u16).to_be_bytes());
        frame[34..54].fill(0);
        frame[46] = 0x50;
        let segmentation = Segmentation {
            kind: Kind::Tcp4,
            congestion: false,
            header_bytes: 54,
            segment_bytes: 1000,
        };
        let checksum = Checksum::Partial { start: 34, at: 16 };
        (Offload { checksum, segmentation: Some(segmentation), vlan: Some(5) }, frame)
    }

    fn send(end: &mut Cable, now: u64, offload: Offload, frame: &[u8]) -> Result<(), NotSent> {
        let sent = end.send(now, &FrameInPlace { offload, start: frame, rest: None });
        end.flush(now);
        sent
    }

    fn receive(end: &mut Cable, now: u64) -> Vec<(Offload, Vec<u8>)> {
        let mut frames = Vec::new();
        end.receive(now, 64, &mut |offload, frame| frames.push((offload, frame.to_vec()))).unwrap();
        frames
    }

    #[test]
    fn frames_come_as_they_were_given_where_they_take_no_time() {
        let [mut one, mut other] = cable(CableOptions::default());
        let (offload, long) = segments(64_000);
        for (offload, frame) in [(Offload::NONE, frame(60)), (offload, long)] {
            send(&mut one, 5, offload, &frame).unwrap();
            assert_eq!(receive(&mut other, 5), [(offload, frame)]);
        }
        assert_eq!(receive(&mut other, 6), []);
        assert_eq!((one.counters().frames_sent, other.counters().frames_received), (2, 2));
        assert_eq!((other.capabilities().rate, other.due()), (None, None));
    }

    #[test]
    fn frames_come_in_segments_and_when_the_rate_has_carried_them() {
        let [mut one, mut other] = cable(timed(1000, 2_000));
        let (offload, long) = segments(3_500);
        send(&mut one, 1_000, offload, &long).unwrap();
        // 1054 bytes and 24 of Ethernet's at a gigabit a second, and the last is of 554.
        let arrivals = [1_078_u64, 2 * 1_078, 3 * 1_078, 3 * 1_078 + 578].map(|at| 1_000 + 8 * at);
        assert_eq!(
            (receive(&mut other, arrivals[0] - 1), other.due()),
            (vec![], Some(arrivals[0]))
        );
        for (number, arrival) in (0..).zip(arrivals) {
            let frames = receive(&mut other, arrival);
            let [(offload, frame)] = &frames[..] else { panic!("{number}: {}", frames.len()) };
            assert_eq!(*offload, Offload { vlan: Some(5), ..Offload::NONE });
            assert_eq!(frame.len(), if number == 3 { 554 } else { 1054 });
            assert_eq!(other.due(), arrivals.get(number + 1).copied());
        }
    }

    #[test]
    fn queue_of_the_transmitter_is_bounded_and_says_when_it_has_room() {
        let [mut one, mut other] = cable(timed(100, 8_000));
        let mut sent = 0;
        while send(&mut one, 1_000, Offload::NONE, &frame(1514)).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 5);
        let due = one.due().unwrap();
        assert!(send(&mut one, 1_001, Offload::NONE, &frame(1514)).is_err());
        send(&mut one, due, Offload::NONE, &frame(1514)).unwrap();
        assert_eq!((receive(&mut other, 10_000_000).len(), one.counters().dropped_unsent), (6, 0));
    }

    #[test]
    fn frame_of_many_segments_goes_whole_and_waits_for_a_receiver_that_is_late() {
        let [mut one, mut other] = cable(timed(10_000, 1 << 20));
        // 251 segments are more than a path has buffers for, and 60 of 1054 bytes more than the rest of its window.
        let (mut small, many) = segments(50_200);
        if let Some(segmentation) = &mut small.segmentation {
            segmentation.segment_bytes = 200;
        }
        let (large, long) = segments(60_000);
        let mut now = 1_000;
        for (offload, frame, each) in [(small, many, 251), (large, long, 60)] {
            let (mut sent, mut came) = (0, 0);
            while send(&mut one, now, offload, &frame).is_ok() {
                sent += each;
                now += 1_000_000;
            }
            assert!(sent > 0 && one.due().is_some());
            for _ in 0..100 {
                now += 2_000_000;
                came += receive(&mut other, now).len();
                one.flush(now);
            }
            assert_eq!((came, one.counters().dropped_unsent), (sent, 0));
            assert!(send(&mut one, now, offload, &frame).is_ok(), "there is room again");
            for _ in 0..100 {
                now += 2_000_000;
                receive(&mut other, now);
                one.flush(now);
            }
        }
    }

    #[test]
    fn whoever_sleeps_is_told_of_what_comes_and_nobody_else() {
        let [mut one, mut other] = cable(CableOptions::default());
        let is_readable = |end: &Cable| {
            let time = Some(Duration::ZERO);
            os::poller::wait_any([end.descriptor()], time).unwrap() == [true]
        };
        send(&mut one, 5, Offload::NONE, &frame(60)).unwrap();
        assert!(!is_readable(&other) && !other.announce_sleep(), "it is there already");
        assert_eq!(receive(&mut other, 5).len(), 1);
        assert!(other.announce_sleep());
        send(&mut one, 6, Offload::NONE, &frame(60)).unwrap();
        assert!(is_readable(&other));
        assert!(!other.on_ready(), "the cable goes on");
        assert_eq!(receive(&mut other, 6).len(), 1);
        assert!(!is_readable(&other));
        drop(one);
        assert!(other.on_ready() || other.look().0 == Carrier::Gone);
        assert_eq!(receive(&mut other, 7).len(), 0);
        assert!(other.announce_sleep(), "nobody is to look again and again");
        assert_eq!(send(&mut other, 7, Offload::NONE, &frame(60)), Err(NotSent::Dropped));
    }

    #[test]
    fn messages_that_are_no_frames_are_dropped_and_times_are_bounded() {
        let [mut rogue, own] = halves();
        let mut end = Cable::new(own, Box::new(()), MACS[1], CableOptions::default());
        let sender = &mut rogue.senders[0];
        let head = |time_ns, content| Record { time_ns, content }.head();
        let whole = head(5, Content::Frame(Offload::NONE));
        for (head, body) in [
            (&whole[..23], 60),
            (&whole[..], 13),
            (&head(5, Content::Lost(3)), 0),
            (&[], 60),
            (&whole, 1 << 20),
        ] {
            sender.send(head, &vec![0; body]).unwrap();
        }
        sender.send(&head(u64::MAX, Content::Frame(Offload::NONE)), &frame(60)).unwrap();
        sender.send(&whole, &frame(61)).unwrap();
        assert_eq!(receive(&mut end, 5), []);
        assert_eq!(end.counters().dropped_bad, 5);
        let due = end.due().unwrap();
        assert!(due <= 5 + 2 * DELAY_MAX.as_nanos() as u64);
        assert_eq!(receive(&mut end, due).len(), 2);
    }
}
