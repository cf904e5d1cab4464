//! A guest of the channel: its subchannels, where its data come to, and what it is told.

use std::collections::VecDeque;

use fabric::path::{Lendable, SendError, Sender, Shared, View};

use super::commands::CommandSet;
use super::request::{self, Answer, PLACE_BYTES, SKIPPED};
use super::subchannel::{Run, Subchannel};
use super::walk::Piece;
use crate::exchange::{Broken, EXTENT_BYTES, Extent, Pieces};
use crate::format::scsw::{DeviceStatus, SCSW_BYTES, Scsw, SubchannelStatus, control};
use crate::format::sense::SENSE_BYTES;
use crate::format::tsb::TSB_BYTES;

/// Results that are held back for a guest whose path has no room. A guest with more does not take what it has asked for.
pub const HELD_BACK_MAX: usize = 512;
/// Bytes of results that are held back for a guest besides those of its programs: refusals, and news of programs that go on.
const OTHER_RESULT_BYTES_MAX: usize = 1 << 20;
/// Places of the data of a program, and sources: what the head of a result can count, and then some.
const PARTS_MAX: usize = 8192;

/// Bytes of the longest result: status, places, sources, sense, and a status block with its address.
const RESULT_BYTES_MAX: usize = SCSW_BYTES
    + PARTS_MAX * (PLACE_BYTES + EXTENT_BYTES)
    + SENSE_BYTES
    + TSB_BYTES
    + size_of::<u64>();

/// Bytes of results that are held back for a guest with so many subchannels, at most. A guest for which more are held back is ended. One that
/// takes its results has one for each subchannel at a time.
pub const fn held_back_bytes_max(subchannels: u16) -> usize {
    subchannels as usize * RESULT_BYTES_MAX + OTHER_RESULT_BYTES_MAX
}

/// Bytes between the records that one program reads which are copied along.
const GAP_BYTES_MAX: u64 = 4096;

/// The first channel path, in a mask of channel paths.
const FIRST_PATH: u8 = 0x80;

/// Copies begin at the same place in a line of the cache as what they copy (64 records of 4 KiB: 15.4 us, and 16.3 without).
const LINE_BYTES: u64 = 64;
/// Bytes of the next extent that are prefetched while one is copied (the same: 14.7 us; more than 1 KiB is slower).
const FORESEEN_BYTES: usize = 256;

/// Bytes of storage for the results of so many subchannels, whose programs each read up to `result_bytes`.
pub fn result_storage_bytes(subchannels: u16, result_bytes: u32) -> u64 {
    u64::from(subchannels) * (u64::from(result_bytes) + GAP_BYTES_MAX)
}

/// Results that a guest's path had no room for, in their order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    results: VecDeque<(request::Head, Vec<u8>)>,
    /// Bytes of their bodies.
    bytes: usize,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.results.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    fn push(&mut self, head: request::Head, body: Vec<u8>) {
        self.bytes += body.len();
        self.results.push_back((head, body));
    }

    fn drop_first(&mut self) {
        let first = self.results.pop_front();
        self.bytes -= first.map_or(0, |(_, body)| body.len());
    }

    /// Returns true if more results are held back than a guest with so many subchannels may leave unread.
    pub(super) fn is_full(&self, subchannels: u16) -> bool {
        self.results.len() > HELD_BACK_MAX || self.bytes > held_back_bytes_max(subchannels)
    }
}

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) link: usize,
    /// Which of all connections: what comes for this guest's number before the control unit has answered was meant for a guest that had
    /// the number before.
    pub(super) connection: u32,
    /// The control unit has the connection.
    pub(super) is_established: bool,
    pub(super) is_refused: bool,
    /// All of the device's cache.
    pub(super) cache: Option<View>,
    pub(super) cache_segment: u16,
    /// The number under which the guest reads it.
    pub(super) guest_cache: Option<u16>,
    pub(super) lendable: Option<Lendable>,
    /// The guest's storage.
    pub(super) storage: Option<View>,
    pub(super) results: Shared,
    pub(super) results_segment: u16,
    pub(super) result_bytes: u32,
    pub(super) subchannels: Vec<Subchannel>,
    /// How large the device is, and what else the guest is told of it.
    pub(super) capacity: u32,
    pub(super) traits: u8,
    pub(super) may_write: bool,
    /// The guest may see what lies between records in the cache.
    pub(super) are_gaps_public: bool,
    /// The commands of its control unit.
    pub(super) commands: CommandSet,
    /// Operations that the control unit has ended, modulo 65536, and what is released of them.
    pub(super) ended: u16,
    pub(super) released: u16,
    pub(super) told: u16,
    /// Subchannels to be started again now and then.
    pub(super) busy: VecDeque<u16>,
    /// How many are to be started again when the control unit says that their device is free.
    pub(super) waiting: usize,
    /// Results that the guest's path had no room for.
    pub(super) backlog: Backlog,
    /// Subchannels with a report that the path had no room for.
    pub(super) attentions: usize,
    /// They wait for memory or descriptors of this side, and not for the guest.
    pub(super) lacks: bool,
    /// The body of the result that is sent, to use its memory again.
    pub(super) body: Vec<u8>,
}

/// Results that a guest leaves without saying that it has done with them, at most. What they brought stays pinned. A guest that takes its
/// results has no more than subchannels.
const UNCONSUMED_MAX: u16 = 1024;

impl Guest {
    /// The mask of the channel path that the guest's device has.
    pub(super) fn paths(&self) -> u8 {
        FIRST_PATH >> self.link
    }

    /// Takes note of the last result that the guest has done with. False if it never got that result, or leaves too many.
    pub(super) fn release(&mut self, token: u16) -> bool {
        let unconsumed = self.ended.wrapping_sub(self.released);
        let consumed = token.wrapping_sub(self.released);
        if consumed > unconsumed || unconsumed - consumed > UNCONSUMED_MAX {
            return false;
        }
        self.released = token;
        true
    }

    /// Takes data in, as far as there is room and a place for them. None if the control unit breaks the rules.
    pub(super) fn take_data<'a>(
        &mut self,
        subchannel: u16,
        targets: impl Iterator<Item = &'a Piece>,
        pieces: Pieces<'_>,
    ) -> Option<()> {
        if self.subchannels[usize::from(subchannel)].run.lost != SubchannelStatus::default() {
            // The guest gets none of this either.
            return Some(());
        }
        let taken = self.absorb(subchannel, targets, pieces)?;
        if taken != SubchannelStatus::default() {
            // The guest gets none of it: what it would get is not what it asked for.
            let run = &mut self.subchannels[usize::from(subchannel)].run;
            run.lost = taken;
        }
        Some(())
    }

    /// Takes data in: into the guest's result storage, or as extents of the cache that the guest has been lent. Returns what is
    /// wrong: nothing, chaining check for want of room, or incorrect length for want of a place.
    fn absorb<'a>(
        &mut self,
        subchannel: u16,
        targets: impl Iterator<Item = &'a Piece>,
        pieces: Pieces<'_>,
    ) -> Option<SubchannelStatus> {
        let Guest {
            subchannels,
            cache,
            guest_cache,
            results,
            results_segment,
            result_bytes,
            are_gaps_public,
            ..
        } = self;
        let run = &mut subchannels[usize::from(subchannel)].run;
        let base = result_storage_bytes(subchannel, *result_bytes);
        let room = |run: &Run, bytes: u64| {
            let end = u64::from(run.result_bytes) + bytes;
            let at = base + u64::from(run.result_bytes) + u64::from(run.gap_bytes);
            (end <= u64::from(*result_bytes)).then_some(at as usize)
        };
        let is_too_much =
            |answer: &Answer| answer.places.len() > PARTS_MAX || answer.sources.len() > PARTS_MAX;
        let mut moved: u64 = 0;
        match pieces {
            Pieces::Bytes(bytes) => {
                if !bytes.is_empty() {
                    let Some(at) = room(run, bytes.len() as u64) else {
                        return Some(SubchannelStatus::CHAINING_CHECK);
                    };
                    results.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
                    let source = Extent::plain(*results_segment, at as u64, bytes.len() as u32);
                    run.answer.add_source(source);
                    run.result_bytes += bytes.len() as u32;
                    moved = bytes.len() as u64;
                }
            }
            Pieces::Extents(_) => {
                let cache = cache.as_ref()?;
                let mut extents = pieces.extents().peekable();
                while let Some(extent) = extents.next() {
                    let extent = extent?;
                    let bytes = extent.bytes();
                    if extent.end() > View::bytes(cache) as u64 {
                        return None;
                    }
                    moved += bytes;
                    if let Some(segment) = guest_cache {
                        if is_too_much(&run.answer) {
                            return Some(SubchannelStatus::CHAINING_CHECK);
                        }
                        run.answer.add_source(Extent { segment: *segment, ..extent });
                        continue;
                    }
                    let Some(mut at) = room(run, bytes) else {
                        return Some(SubchannelStatus::CHAINING_CHECK);
                    };
                    if let Some(Some(next)) = extents.peek() {
                        cache.expect(next.offset as usize, FORESEEN_BYTES);
                    }
                    let gaps = extent.end() - extent.offset - bytes;
                    // To the same place in a line as where the bytes come from, if there is room: that copy is faster.
                    let skipped = extent.offset.wrapping_sub(at as u64) % LINE_BYTES;
                    if *are_gaps_public
                        && u64::from(run.gap_bytes) + gaps + skipped <= GAP_BYTES_MAX
                    {
                        run.gap_bytes += skipped as u32;
                        at += skipped as usize;
                        // In one piece, with what is between the records: many short copies take longer.
                        let target = &mut results.bytes_mut()[at..at + (bytes + gaps) as usize];
                        cache.read(extent.offset as usize, target).ok()?;
                        let offset = at as u64;
                        run.answer.add_source(Extent {
                            offset,
                            segment: *results_segment,
                            ..extent
                        });
                        run.result_bytes += bytes as u32;
                        run.gap_bytes += gaps as u32;
                        continue;
                    }
                    let source = Extent::plain(*results_segment, at as u64, bytes as u32);
                    for place in extent.places() {
                        let record_bytes = extent.record_bytes as usize;
                        let target = &mut results.bytes_mut()[at..at + record_bytes];
                        cache.read(place as usize, target).ok()?;
                        at += record_bytes;
                    }
                    run.answer.add_source(source);
                    run.result_bytes += bytes as u32;
                }
            }
        }
        let mut left = moved;
        for piece in targets {
            if is_too_much(&run.answer) {
                break;
            }
            let bytes = u64::from(piece.bytes).min(left) as u32;
            if bytes == 0 {
                break;
            }
            let address = if piece.skip { SKIPPED } else { u32::try_from(piece.address).ok()? };
            run.answer.add_place(address, bytes);
            left -= u64::from(bytes);
        }
        if is_too_much(&run.answer) {
            return Some(SubchannelStatus::CHAINING_CHECK);
        }
        let is_placed = left == 0;
        Some(if is_placed {
            SubchannelStatus::default()
        } else {
            SubchannelStatus::INCORRECT_LENGTH
        })
    }

    /// The control unit was busy, before the program wrote anything: the program begins again after a while; or, if the exchange `waits` for
    /// its device, when the control unit says that the device is free.
    pub(super) fn retry(&mut self, subchannel: u16, waits: Option<u32>, now: u64) {
        let run = &mut self.subchannels[usize::from(subchannel)].run;
        let (orb, started_ns, queue_ns) = (run.orb, run.started_ns, run.queue_ns);
        let (origin, disconnect_ns) = (run.origin, run.disconnect_ns);
        run.begin(orb, started_ns);
        (run.queue_ns, run.busy_ns, run.is_busy) = (queue_ns, now, true);
        run.disconnect_ns = disconnect_ns;
        (run.origin, run.waits) = (origin, waits);
        match waits {
            Some(_) => self.waiting += 1,
            None => self.busy.push_back(subchannel),
        }
    }

    /// A program that is to be started again is not, or now. Returns the exchange that the control unit has to be told of, if that still
    /// keeps the device for the program, or will.
    pub(super) fn stop_waiting(&mut self, subchannel: u16) -> Option<u32> {
        self.busy.retain(|waiting| *waiting != subchannel);
        let waits = self.subchannels[usize::from(subchannel)].run.waits.take();
        self.waiting -= usize::from(waits.is_some());
        waits
    }

    /// Returns true if more results are held back than the guest may leave unread.
    pub(super) fn is_behind(&self) -> bool {
        self.backlog.is_full(self.subchannels.len() as u16)
    }

    pub(super) fn refuse(
        &mut self,
        subchannel: u16,
        code: u32,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        let mut head = request::Head::new(request::Kind::Refused, subchannel);
        head.values[0] = code;
        self.send(&head, &[], sender)
    }

    /// Tells the guest what the device of a subchannel reports unasked. What the path has no room for waits, one report for each subchannel: a
    /// device that reports again and again cannot fill a guest's backlog.
    pub(super) fn tell_attention(
        &mut self,
        subchannel: u16,
        device: DeviceStatus,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        let attention = &mut self.subchannels[usize::from(subchannel)].attention;
        self.attentions += usize::from(*attention == DeviceStatus(0));
        *attention = attention.with(device);
        self.send_attentions(sender)
    }

    /// Sends what devices have reported unasked, behind results that wait.
    fn send_attentions(&mut self, sender: &mut Sender) -> Result<(), Broken> {
        if self.attentions == 0 || !self.backlog.is_empty() {
            return Ok(());
        }
        for (number, one) in self.subchannels.iter_mut().enumerate() {
            if one.attention == DeviceStatus(0) {
                continue;
            }
            let device = one.attention;
            let control = control::ALERT | control::PENDING;
            let scsw = Scsw { control, device, ..Scsw::default() };
            let mut head = request::Head::new(request::Kind::Attention, number as u16);
            head.values = [one.settings.parameter, self.may_write.into()];
            match sender.send(&head.emit(), &scsw.emit()) {
                Ok(()) => {}
                Err(SendError::Severed(severed)) => return Err(severed.into()),
                Err(error) => {
                    self.lacks = matches!(error, SendError::Lacking(_));
                    return Ok(());
                }
            }
            one.attention = DeviceStatus(0);
            self.attentions -= 1;
        }
        Ok(())
    }

    /// Tells the guest how a program is that goes on.
    pub(super) fn send_intermediate(
        &mut self,
        subchannel: u16,
        scsw: Scsw,
        tsb: Option<(u64, [u8; TSB_BYTES])>,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        let run = &mut self.subchannels[usize::from(subchannel)].run;
        let parameter = run.orb.parameter;
        if scsw.subchannel.has(SubchannelStatus::INTERRUPT) && !self.backlog.is_empty() {
            // Status is pending that the guest has not taken: the program's next status says that it asked for an interruption.
            run.is_interrupt_held = true;
            return Ok(());
        }
        let answer = Answer { scsw, tsb, ..Answer::default() };
        let mut head = answer.head(subchannel);
        head.flags |= request::flag::INTERMEDIATE;
        (head.token, head.values[0]) = (self.ended, parameter);
        let mut body = Vec::new();
        answer.emit(&mut body);
        self.send(&head, &body, sender)
    }

    pub(super) fn send(
        &mut self,
        head: &request::Head,
        body: &[u8],
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        send(sender, &mut self.backlog, &mut self.lacks, head, body)
    }

    /// Sends what the path had no room for, as far as there is room now. Returns whether anything was sent.
    pub(super) fn send_backlog(&mut self, sender: &mut Sender) -> Result<bool, Broken> {
        let mut has_sent = false;
        while let Some((head, body)) = self.backlog.results.front() {
            match sender.send(&head.emit(), body) {
                Ok(()) => self.backlog.drop_first(),
                Err(SendError::Severed(severed)) => return Err(severed.into()),
                Err(error) => {
                    self.lacks = matches!(error, SendError::Lacking(_));
                    return Ok(has_sent);
                }
            }
            has_sent = true;
        }
        self.lacks = false;
        let attentions = self.attentions;
        self.send_attentions(sender)?;
        Ok(has_sent || self.attentions < attentions)
    }
}

/// Sends a message to a guest. What the path has no room for waits. A guest for which too much waits is ended when it is polled: see
/// [`Backlog::is_full`].
pub(super) fn send(
    sender: &mut Sender,
    backlog: &mut Backlog,
    lacks: &mut bool,
    head: &request::Head,
    body: &[u8],
) -> Result<(), Broken> {
    if backlog.is_empty() {
        match sender.send(&head.emit(), body) {
            Ok(()) => return Ok(()),
            Err(SendError::Severed(severed)) => return Err(severed.into()),
            Err(error) => *lacks = matches!(error, SendError::Lacking(_)),
        }
    }
    backlog.push(*head, body.to_vec());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_are_held_back_are_bounded_in_number_and_in_bytes() {
        let head = request::Head::new(request::Kind::Result, 0);
        let mut backlog = Backlog::default();
        (0..HELD_BACK_MAX).for_each(|_| backlog.push(head, vec![0; 100]));
        assert!(!backlog.is_full(1));
        backlog.push(head, Vec::new());
        assert!(backlog.is_full(128));
        (0..HELD_BACK_MAX).for_each(|_| backlog.drop_first());
        assert_eq!((backlog.len(), backlog.bytes, backlog.is_full(1)), (1, 0, false));
        // As many long results as there are subchannels.
        (0..128).for_each(|_| backlog.push(head, vec![0; RESULT_BYTES_MAX]));
        assert_eq!((backlog.is_full(128), backlog.is_full(100)), (false, true));
        (0..128).for_each(|_| backlog.drop_first());
        assert_eq!(backlog.bytes, RESULT_BYTES_MAX);
    }
}
