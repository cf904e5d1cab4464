//! Starting programs, and sending their commands as far as the control unit takes them.

use std::collections::VecDeque;
use std::io;

use fabric::path::{Lendable, Message, Receiver, Ringing, SendError, Sender, Shared, View};
use os::storage::StorageOptions;

use super::commands::CommandSet;
use super::ending::conditions;
use super::guest::{Backlog, Guest, result_storage_bytes};
use super::request::{self, Modification, START_BYTES};
use super::storage::{Storage, gather_behind, gather_most};
use super::stream;
use super::subchannel::{Flight, Measurement, Stop, Subchannel};
use super::walk::{Next, Walk};
use crate::exchange::{
    Broken, FIRST_BURST_BYTES, Head, Kind, Link, OUTPUT_BYTES_MAX, PARAMETER_BYTES,
    UNITS_PER_POLL_MAX, cancel, establish, flag,
};
use crate::format::ccw::Direction;
use crate::format::orb::{ORB_BYTES, Orb, OrbFlags, PROGRAM_AT};
use crate::format::scsw::{CONDITION_CODE, DeviceStatus, Scsw, SubchannelStatus, control};
use crate::format::tcw::PREFETCH_BYTES;
use crate::format::u32_at;

/// Subchannels of one guest's path: fewer than its queue has buffers, so that every result finds room.
pub const SUBCHANNELS_MAX: u16 = 128;
/// Guests of a channel.
pub const GUESTS_MAX: usize = 4096;
/// Messages of one guest that one poll takes.
const MESSAGES_PER_POLL_MAX: usize = 128;
/// Starts whose programs are prefetched.
const STARTS_FORESEEN: usize = 4;
/// Channel paths of a channel: the path mask of an ORB has a bit for each.
pub const PATHS_MAX: usize = u8::BITS as usize;

/// The guests' paths: who owns them lends their halves for the length of a call.
pub trait Guests {
    /// Both halves of a guest's path. None if the guest is gone.
    fn halves(&mut self, guest: usize) -> Option<(&mut Sender, &mut Receiver)>;
}

/// Bytes of a guest's storage at most. A guest that lends more has none.
pub const STORAGE_BYTES_MAX: usize = 1 << 31;

/// What a guest is to have.
#[derive(Debug)]
pub struct Use {
    /// Which device of the control unit.
    pub device: u32,
    /// What the control unit is told of the use: the channel hands it on as it is.
    pub parameters: [u8; PARAMETER_BYTES],
    /// How large the device is, in the measure of its control unit, such as cylinders: the guest is told.
    pub capacity: u32,
    /// Whether it may write.
    pub may_write: bool,
    /// Subchannels: how many programs can run at a time.
    pub subchannels: u16,
    /// Bytes that a program can read into storage of the channel.
    pub result_bytes: u32,
    /// Whether what is read for the guest stays in the control unit's cache.
    pub is_cached: bool,
    /// The cache of the device, for a guest that has all of it for itself: it reads in place.
    pub cache: Option<Lendable>,
    /// Whether the guest may see what lies between records in the cache: the channel can then copy both together, which is faster.
    pub are_gaps_public: bool,
    /// The commands of the control unit.
    pub commands: CommandSet,
}

/// Why a guest was not attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// More guests than a channel has.
    #[error("more than {GUESTS_MAX} guests")]
    Guests,
    /// No subchannels, or too many.
    #[error("{subchannels} subchannels: must be 1 to {SUBCHANNELS_MAX}")]
    Subchannels {
        /// How many there were to be.
        subchannels: u16,
    },
    /// No memory or no descriptors left.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The guest's path takes nothing.
    #[error(transparent)]
    Send(#[from] SendError),
    /// There is no path to the control unit.
    #[error("no path to the control unit")]
    NoLink,
}

/// What a channel has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Programs that were started.
    pub starts: u64,
    /// Results that were sent to guests, without intermediate ones.
    pub results: u64,
    /// Of them, those of programs that were wrong.
    pub program_checks: u64,
    /// Starts that were repeated because the control unit was busy.
    pub repeats: u64,
    /// Guests whose path was ended because they broke the rules.
    pub violations: u64,
    /// Bytes of output data that were sent to control units.
    pub output_bytes: u64,
}

/// A channel: it runs the programs of guests.
#[derive(Debug, Default)]
pub struct Channel {
    pub(super) links: Vec<Link>,
    /// By link: guests and subchannels whose chains wait because the link is behind.
    pub(super) waiting: Vec<VecDeque<(usize, u32)>>,
    pub(super) guests: Vec<Option<Guest>>,
    pub(super) next_connection: u32,
    pub(super) next_exchange: u32,
    /// The body of a transport command, to use its memory again.
    pub(super) body: Vec<u8>,
    /// The guest whose programs are begun again first when those of all have found the control unit busy.
    repeat_next: usize,
    /// Guests to whom something may have been sent in this pass: they are rung together.
    to_ring: Vec<u16>,
    pub(super) counters: Counters,
}

impl Channel {
    /// A channel without paths and guests.
    pub fn new() -> Channel {
        Channel::default()
    }

    /// Adds a channel path: the channel's end. In path masks the first path that is added has the leftmost bit, the next path the bit to the
    /// right of that, and so on. A path that broke keeps its bit.
    ///
    /// # Panics
    /// If the channel has [`PATHS_MAX`] channel paths, broken ones included: no path mask could name another.
    pub fn add_link(&mut self, mut link: Link) {
        assert!(self.links.len() < PATHS_MAX, "a channel has at most {PATHS_MAX} channel paths");
        // The control unit's end stops receiving while it is behind.
        link.always_receive();
        self.links.push(link);
        self.waiting.push(VecDeque::new());
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Units that were sent to control units, by kind.
    pub fn sent_of(&self, kind: Kind) -> u64 {
        self.links.iter().map(|link| link.sent_of(kind)).sum()
    }

    /// What was sent over the channel paths, by path, and how many guests use each.
    pub fn links(&self) -> impl Iterator<Item = (&Link, usize)> {
        let guests = |index| self.guests.iter().flatten().filter(move |guest| guest.link == index);
        self.links.iter().enumerate().map(move |(index, link)| (link, guests(index).count()))
    }

    /// Why the channel path of a guest is of no more use, if it was given up.
    pub fn broken(&self, guest: usize) -> Option<Broken> {
        let guest = self.guests.get(guest)?.as_ref()?;
        self.links[guest.link].broken()
    }

    /// Whether there is a channel path that is of use.
    pub fn has_links(&self) -> bool {
        self.links.iter().any(|link| link.broken().is_none())
    }

    /// Over which channel path a guest's programs run.
    pub fn link_of(&self, guest: usize) -> Option<usize> {
        Some(self.guests.get(guest)?.as_ref()?.link)
    }

    /// The measurement blocks of a guest's subchannels.
    pub fn measurements(&self, guest: usize) -> impl Iterator<Item = Measurement> {
        let guest = self.guests.get(guest).and_then(Option::as_ref);
        guest.into_iter().flat_map(|guest| guest.subchannels.iter().map(|one| one.measurement))
    }

    /// Attaches a guest with a path: it can start programs once it has been told what it has. From now on the channel rings, once for all
    /// that it sends in a pass: whoever else sends to the guest over `sender` has to ring himself.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(
        &mut self,
        guest: usize,
        sender: &mut Sender,
        wish: impl Into<Use>,
    ) -> Result<(), AttachError> {
        let wish: Use = wish.into();
        if guest >= GUESTS_MAX {
            return Err(AttachError::Guests);
        }
        let Use { may_write, subchannels, result_bytes, cache, .. } = wish;
        if !(1..=SUBCHANNELS_MAX).contains(&subchannels) {
            return Err(AttachError::Subchannels { subchannels });
        }
        if !self.has_links() {
            return Err(AttachError::NoLink);
        }
        let result_bytes = result_bytes.next_multiple_of(4096);
        let bytes = result_storage_bytes(subchannels, result_bytes) as usize;
        let results = Shared::create(bytes, StorageOptions::default())?;
        let results_segment = sender.lend_shared(&results)?;
        // Whether the guest sleeps is looked up once for all results of a pass.
        sender.set_ringing(Ringing::Deferred);
        let in_turn = (0..self.links.len()).map(|index| (guest + index) % self.links.len());
        let mut of_use = in_turn.filter(|link| self.links[*link].broken().is_none());
        let link = of_use.next().ok_or(AttachError::NoLink)?;
        self.next_connection = self.next_connection.wrapping_add(1);
        let connection = self.next_connection;
        let mut head = Head::new(Kind::Establish, guest as u16, connection);
        if may_write {
            head.code |= establish::MAY_WRITE;
        }
        if !wish.is_cached {
            head.code |= establish::UNCACHED;
        }
        if cache.is_none() {
            head.code |= establish::COPIED;
        }
        head.count = wish.device;
        self.links[link].send(&head, &wish.parameters).map_err(|_| AttachError::NoLink)?;
        self.links[link].flush();
        if self.guests.len() <= guest {
            self.guests.resize_with(guest + 1, || None);
        }
        let mut all = Vec::new();
        all.resize_with(subchannels.into(), Subchannel::default);
        self.guests[guest] = Some(Guest {
            link,
            connection,
            is_established: false,
            is_refused: false,
            cache: None,
            cache_segment: 0,
            guest_cache: None,
            lendable: cache,
            storage: None,
            results,
            results_segment,
            result_bytes,
            subchannels: all,
            capacity: wish.capacity,
            may_write,
            traits: 0,
            are_gaps_public: wish.are_gaps_public,
            commands: wish.commands,
            ended: 0,
            released: 0,
            told: 0,
            busy: VecDeque::new(),
            waiting: 0,
            backlog: Backlog::default(),
            attentions: 0,
            lacks: false,
            body: Vec::new(),
        });
        Ok(())
    }

    /// Forgets a guest whose path has ended.
    pub fn detach(&mut self, guest: usize) {
        let Some(gone) = self.guests.get_mut(guest).and_then(Option::take) else { return };
        self.waiting[gone.link].retain(|(number, _)| *number != guest);
        // A link that has ended has no connections any more.
        let _ = self.links[gone.link].send(&Head::new(Kind::Disconnect, guest as u16, 0), &[]);
        self.links[gone.link].flush();
    }

    /// Takes what control units have sent, and answers guests. Returns whether there was anything, or something waits to be sent.
    ///
    /// # Errors
    /// [`Broken`], once, if a control unit is gone, or broke the rules. Its channel path is used no more, and [`Channel::poll_guest`]
    /// ends the guests whose programs run over it. Those of other channel paths are served all the same.
    pub fn poll_units(&mut self, guests: &mut impl Guests, now: u64) -> Result<bool, Broken> {
        let found = self.take_units(guests, now);
        for number in self.to_ring.drain(..) {
            if let Some((sender, _)) = guests.halves(number.into()) {
                sender.ring();
            }
        }
        found
    }

    fn take_units(&mut self, guests: &mut impl Guests, now: u64) -> Result<bool, Broken> {
        let (mut found, mut broken) = (false, None);
        for index in 0..self.links.len() {
            if self.links[index].broken().is_some() {
                continue;
            }
            match self.take_units_of(index, guests, now) {
                Ok(has_come) => found |= has_come,
                Err(error) => {
                    self.links[index].give_up(error);
                    self.waiting[index].clear();
                    broken.get_or_insert(error);
                }
            }
        }
        broken.map_or(Ok(found), Err)
    }

    fn take_units_of(
        &mut self,
        index: usize,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<bool, Broken> {
        let mut found = self.links[index].is_behind();
        self.links[index].begin_pass();
        // First those that have waited, in turn: the chains that go on with what has come could fill each pass.
        for _ in 0..self.waiting[index].len() {
            if self.links[index].is_behind() {
                break;
            }
            let Some((number, exchange)) = self.waiting[index].pop_front() else { break };
            found = true;
            if let Some((sender, _)) = guests.halves(number) {
                // A guest that is gone is noticed when it is polled.
                let _ = self.go_on(number, exchange, sender, now);
                sender.ring();
            }
        }
        for _ in 0..UNITS_PER_POLL_MAX {
            let Some(unit) = self.links[index].receive()? else {
                found |= self.links[index].is_ready();
                break;
            };
            found = true;
            if self.to_ring.last() != Some(&unit.head.connection) {
                self.to_ring.push(unit.head.connection);
            }
            self.take_unit(index, unit, guests, now)?;
        }
        // What guests send next has a share of its own: chains without end do not keep starts and halts from being seen.
        self.links[index].begin_pass();
        self.links[index].flush();
        Ok(found || !self.waiting[index].is_empty())
    }

    /// Takes what a guest has sent, a bounded number of messages. Returns whether there was anything.
    ///
    /// # Errors
    /// [`Broken`] if the guest's path has ended, or the guest broke the rules, or its control unit did: the caller ends the path then.
    pub fn poll_guest(
        &mut self,
        number: usize,
        sender: &mut Sender,
        receiver: &mut Receiver,
        now: u64,
    ) -> Result<bool, Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(false) };
        let mut found = guest.send_backlog(sender)?;
        let link = guest.link;
        if let Some(broken) = self.links[link].broken() {
            return Err(broken);
        }
        let mut foreseen = 0;
        for _ in 0..MESSAGES_PER_POLL_MAX {
            while foreseen < STARTS_FORESEEN && self.foresee(number, receiver, foreseen) {
                foreseen += 1;
            }
            foreseen = foreseen.saturating_sub(1);
            if self.links[link].is_behind() {
                // What the guest has sent stays where it is, until the control unit has taken what is before it.
                break;
            }
            let Some(message) = receiver.fetch()? else { break };
            found = true;
            let Message { head, body } = receiver.message(message);
            let Some(head) = request::Head::parse(head) else {
                self.counters.violations += 1;
                return Err(Broken::Rules);
            };
            let mut start = [0; START_BYTES];
            if let Some(bytes) = body.first_chunk::<START_BYTES>() {
                start = *bytes;
            }
            let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(found) };
            if head.kind == request::Kind::Storage {
                let segment = u16::try_from(head.values[0]).ok();
                let view = segment.and_then(|segment| receiver.lent(segment));
                if guest.storage.is_some() {
                    // Programs that run have addresses in it.
                    self.counters.violations += 1;
                    return Err(Broken::Rules);
                }
                // Addresses in results have 32 bits.
                guest.storage = view.filter(|view| View::bytes(view) <= STORAGE_BYTES_MAX);
                continue;
            }
            self.request(number, head, start, sender, now)?;
            let guest = self.guests.get(number).and_then(Option::as_ref);
            if guest.is_some_and(Guest::is_behind) {
                self.counters.violations += 1;
                return Err(Broken::Rules);
            }
        }
        if found {
            self.links[link].flush();
        }
        sender.ring();
        Ok(found)
    }

    /// Prefetches the program of a start that has come and was not taken. False if there is no such message.
    #[inline]
    fn foresee(&self, number: usize, receiver: &Receiver, behind: usize) -> bool {
        let Some(Some(Guest { storage: Some(storage), .. })) = self.guests.get(number) else {
            return false;
        };
        let Some(bytes) = receiver.foresee(behind) else { return false };
        if bytes[0] == request::Kind::Start as u8 {
            let program = u32_at(&bytes, request::HEAD_BYTES + PROGRAM_AT);
            storage.expect(program as usize, PREFETCH_BYTES);
        }
        true
    }

    /// Results of a guest, and reports of its devices, that its path had no room for. They go when the guest is polled next and its path has room.
    pub fn held_back(&self, guest: usize) -> usize {
        self.guests
            .get(guest)
            .and_then(Option::as_ref)
            .map_or(0, |guest| guest.backlog.len() + guest.attentions)
    }

    /// Whether a result waits because something is lacking here, of whose return nobody tells: to be polled again after a while.
    pub fn lacks(&self) -> bool {
        self.guests.iter().flatten().any(|guest| guest.lacks)
    }

    /// Returns true if a program waits because the control unit was busy.
    pub fn is_busy(&self) -> bool {
        self.is_to_repeat() || self.guests.iter().flatten().any(|guest| guest.waiting > 0)
    }

    /// Returns true if a program waits because the control unit was busy and will not announce when it is free. The caller decides when it
    /// begins again: see [`Channel::repeat`].
    pub fn is_to_repeat(&self) -> bool {
        self.guests.iter().flatten().any(|guest| !guest.busy.is_empty())
    }

    /// The device of a program is free that has waited for that: it begins again. The control unit is told of one that does not begin.
    pub(super) fn take_device_end(
        &mut self,
        number: usize,
        exchange: u32,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let subchannel = (exchange & 0xff) as u16;
        let one = guest.subchannels.get(usize::from(subchannel)).ok_or(Broken::Rules)?;
        if one.run.waits == Some(exchange)
            && let Some((sender, _)) = guests.halves(number)
        {
            guest.stop_waiting(subchannel);
            self.counters.repeats += 1;
            // A guest that is gone is noticed when it is polled.
            let _ = self.begin(number, subchannel, sender, now);
        }
        let Some(Some(guest)) = self.guests.get(number) else { return Ok(()) };
        if guest.subchannels[usize::from(subchannel)].run.exchange.is_none() {
            self.dismiss(number, exchange);
        }
        Ok(())
    }

    /// A program that waits for its device, or was told that the device is free, does not begin.
    pub(super) fn dismiss(&mut self, number: usize, exchange: u32) {
        let Some(Some(guest)) = self.guests.get(number) else { return };
        // A link that has ended says so when it is polled.
        let head = Head::new(Kind::Cancel, number as u16, exchange);
        let _ = self.links[guest.link].send(&head, &[]);
    }

    /// Begins programs again for which the control unit was busy, without saying when that is over. It may be busy again at once: to be called
    /// now and then.
    pub fn repeat(&mut self, guests: &mut impl Guests, now: u64) {
        if !self.is_to_repeat() {
            return;
        }
        // In turn: a guest whose programs fill a channel path each time does not keep the path from the others.
        let first = self.repeat_next;
        for number in (first..self.guests.len()).chain(0..first.min(self.guests.len())) {
            let waiting = self.guests[number].as_ref().map_or(0, |guest| guest.busy.len());
            if waiting > 0 {
                self.repeat_next = number + 1;
            }
            for _ in 0..waiting {
                let Some(Some(guest)) = self.guests.get_mut(number) else { break };
                if self.links[guest.link].is_behind() {
                    break;
                }
                let Some(subchannel) = guest.busy.pop_front() else { break };
                let Some((sender, _)) = guests.halves(number) else { break };
                self.counters.repeats += 1;
                // A guest that is gone is noticed when it is polled.
                let _ = self.begin(number, subchannel, sender, now);
                sender.ring();
            }
        }
        self.links.iter_mut().for_each(Link::flush);
    }

    /// Tells control units what guests have done with, where no command takes the news along. To be called before the
    /// caller sleeps.
    pub fn flush(&mut self) {
        for (number, guest) in self.guests.iter_mut().enumerate() {
            let Some(guest) = guest else { continue };
            if guest.told != guest.released && guest.is_established {
                guest.told = guest.released;
                let head =
                    Head { number: guest.released, ..Head::new(Kind::Release, number as u16, 0) };
                // A link that has ended has no pins any more.
                let _ = self.links[guest.link].send(&head, &[]);
                self.links[guest.link].flush();
            }
        }
    }

    fn request(
        &mut self,
        number: usize,
        head: request::Head,
        start: [u8; START_BYTES],
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        if guest.guest_cache.is_some() && !guest.release(head.token) {
            self.counters.violations += 1;
            return Err(Broken::Rules);
        }
        let index = usize::from(head.subchannel);
        let Some(subchannel) = guest.subchannels.get_mut(index) else {
            return guest.refuse(head.subchannel, 3, sender);
        };
        match head.kind {
            request::Kind::Start => {
                let is_there = guest.is_established && guest.storage.is_some();
                if !is_there || !subchannel.settings.is_enabled {
                    return guest.refuse(head.subchannel, 3, sender);
                }
                if subchannel.is_running {
                    return guest.refuse(head.subchannel, 2, sender);
                }
                let mut bytes = [0; ORB_BYTES];
                bytes[..START_BYTES].copy_from_slice(&start);
                self.counters.starts += 1;
                subchannel.measurement.starts += u64::from(subchannel.settings.is_measured);
                subchannel.is_running = true;
                match Orb::parse(&bytes) {
                    Some(orb) => {
                        subchannel.run.begin(orb, now);
                        self.begin(number, head.subchannel, sender, now)
                    }
                    None => {
                        let parameter = u32_at(&bytes, 0);
                        subchannel.run.begin(Orb { parameter, ..Orb::default() }, now);
                        self.program_check(number, head.subchannel, 0, sender, now)
                    }
                }
            }
            request::Kind::Halt | request::Kind::Clear => {
                let has_none = !subchannel.is_running || subchannel.run.exchange.is_none();
                if has_none && guest.commands.halts_idle {
                    let last = subchannel.last_exchange & !0xff | u32::from(head.subchannel);
                    let head = Head::new(Kind::Cancel, number as u16, last);
                    // A link that has ended says so when it is polled.
                    let _ = self.links[guest.link].send(&head, &[]);
                }
                if !subchannel.is_running {
                    // There is nothing to end: the program has its status, or will have.
                    return guest.refuse(head.subchannel, 1, sender);
                }
                let is_clear = head.kind == request::Kind::Clear;
                let stop = if is_clear { Stop::Clear } else { Stop::Halt };
                let run = &mut subchannel.run;
                let is_first = !matches!(run.stop, Some(Stop::Halt | Stop::Clear));
                run.stop = Some(stop);
                match run.exchange {
                    Some(exchange) if is_first => {
                        let is_unsent =
                            run.commands == 0 && !run.orb.flags.has(OrbFlags::TRANSPORT);
                        // A program that was told that its device is free, and does not begin, is dismissed by this, too.
                        let cancel = Head::new(Kind::Cancel, number as u16, exchange);
                        let _ = self.links[guest.link].send(&cancel, &[]);
                        if !is_unsent {
                            return Ok(());
                        }
                        // The link was behind when the program began: the control unit knows no such exchange, and sends no status.
                        let status = Scsw { device: DeviceStatus(0), ..Scsw::default() };
                        self.finish(number, head.subchannel, status, sender, now)
                    }
                    Some(_) => Ok(()),
                    None => {
                        if let Some(exchange) = guest.stop_waiting(head.subchannel) {
                            self.dismiss(number, exchange);
                        }
                        let status = Scsw { device: DeviceStatus(0), ..Scsw::default() };
                        self.finish(number, head.subchannel, status, sender, now)
                    }
                }
            }
            request::Kind::Resume => {
                if !subchannel.is_running || !subchannel.run.is_suspended {
                    return guest.refuse(head.subchannel, 2, sender);
                }
                let run = &mut subchannel.run;
                run.is_suspended = false;
                subchannel.measurement.starts += u64::from(subchannel.settings.is_measured);
                if let Some(walk) = &mut run.walk {
                    walk.resume();
                }
                run.origin = run.walk;
                // What was read before is done with.
                (run.result_bytes, run.gap_bytes) = (0, 0);
                (run.started_ns, run.responded_ns) = (now, None);
                (run.queue_ns, run.disconnect_ns) = (0, 0);
                self.open_exchange(number, head.subchannel, sender, now)
            }
            request::Kind::Cancel => self.cancel(number, head.subchannel, sender, now),
            request::Kind::Modify => {
                if subchannel.is_running {
                    return guest.refuse(head.subchannel, 2, sender);
                }
                match Modification::parse(&start) {
                    Some(modification) => subchannel.settings = modification,
                    None => {
                        self.counters.violations += 1;
                        return Err(Broken::Rules);
                    }
                }
                Ok(())
            }
            request::Kind::Consumed => Ok(()),
            request::Kind::Storage
            | request::Kind::Attached
            | request::Kind::Result
            | request::Kind::Refused
            | request::Kind::Attention => {
                self.counters.violations += 1;
                Err(Broken::Rules)
            }
        }
    }

    /// Begins a program, or begins it again.
    fn begin(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let paths = guest.paths();
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        let orb = run.orb;
        run.end_queuing(now);
        if orb.paths & paths == 0 {
            // No path that may be used: not operational, which the program learns from its status.
            let status = Scsw { conditions: CONDITION_CODE, ..Scsw::default() };
            return self.finish(number, subchannel, status, sender, now);
        }
        if orb.flags.has(OrbFlags::TRANSPORT) {
            return match self.begin_transport(number, subchannel) {
                Ok(()) => Ok(()),
                Err(stream::Wrong) => {
                    self.program_check(number, subchannel, orb.program, sender, now)
                }
            };
        }
        run.walk = Some(run.origin.unwrap_or_else(|| Walk::new(&orb)));
        self.open_exchange(number, subchannel, sender, now)
    }

    /// A number that the last exchange of the guest's subchannel had not: the control unit ignores what comes late of that one.
    fn new_exchange(&mut self, number: usize, subchannel: u16) -> u32 {
        let guest = self.guests.get_mut(number).and_then(Option::as_mut);
        let last = guest.map(|guest| &mut guest.subchannels[usize::from(subchannel)].last_exchange);
        let mut next = || {
            self.next_exchange = self.next_exchange.wrapping_add(1);
            self.next_exchange << 8 | u32::from(subchannel)
        };
        let Some(last) = last else { return next() };
        let found = Some(next()).filter(|found| found != last);
        *last = found.unwrap_or_else(next);
        *last
    }

    /// A new exchange in command mode, from where the walk is.
    fn open_exchange(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let exchange = self.new_exchange(number, subchannel);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        run.exchange = Some(exchange);
        (run.is_sent, run.commands, run.responses) = (false, 0, 0);
        run.flights.clear();
        run.awaits_status = false;
        self.advance(number, subchannel, sender, now)
    }

    /// Goes on with an exchange that has waited until the link was not behind, if it is still there.
    fn go_on(
        &mut self,
        number: usize,
        exchange: u32,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get(number) else { return Ok(()) };
        let subchannel = (exchange & 0xff) as u16;
        let one = guest.subchannels.get(usize::from(subchannel));
        let Some(run) = one.map(|one| &one.run).filter(|run| run.exchange == Some(exchange)) else {
            return Ok(());
        };
        if run.orb.flags.has(OrbFlags::TRANSPORT) {
            self.send_output(number, subchannel);
            return Ok(());
        }
        self.advance(number, subchannel, sender, now)
    }

    /// Sends commands as far as pacing allows.
    pub(super) fn advance(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let Guest { subchannels, storage, link, released, told, commands, .. } = guest;
        let Some(Subchannel { run, .. }) = subchannels.get_mut(usize::from(subchannel)) else {
            return Ok(());
        };
        let (Some(storage), Some(exchange)) = (storage, run.exchange) else { return Ok(()) };
        let link_index = *link;
        let link = &mut self.links[link_index];
        let mut interrupt = false;
        while !run.is_sent
            && !run.awaits_status
            && run.stop.is_none()
            && run.commands < run.commands_max()
        {
            if link.is_behind() {
                self.waiting[link_index].push_back((number, exchange));
                break;
            }
            let Some(walk) = &mut run.walk else { break };
            let next = walk.next(&*storage, commands.is_immediate);
            link.charge(walk.take_fetched_bytes());
            let step = match next {
                Ok(Next::Step(step)) => step,
                Ok(Next::Suspend) => {
                    run.stop = Some(Stop::Suspend);
                    break;
                }
                Err(check) => {
                    run.stop = Some(Stop::Check(check));
                    break;
                }
            };
            interrupt |= step.interrupt;
            let output = match step.direction() {
                Direction::Input => None,
                Direction::Output => {
                    match gather_most(storage, step.pieces.iter(), commands.output_bytes_max) {
                        Some(bytes) => Some(bytes),
                        None => {
                            let address = step.end;
                            let status = SubchannelStatus::PROGRAM_CHECK;
                            run.stop = Some(Stop::Check(super::walk::Check { status, address }));
                            break;
                        }
                    }
                }
            };
            let mut head = Head::new(Kind::Command, number as u16, exchange);
            head.flags = if step.chained { flag::CHAINED } else { 0 }
                | if step.suppress_length { flag::SUPPRESS_LENGTH } else { 0 };
            (head.code, head.count, head.number) = (step.command, step.count, *released);
            *told = *released;
            // A link that has ended says so when it is polled.
            // With chained data a wrong length is suppressed in the last CCW alone.
            let last_bytes = step.before.iter().fold(step.count, |left, (bytes, _)| left - bytes);
            let last_bytes = (last_bytes as u16).to_le_bytes();
            let is_chained = !step.before.is_empty();
            let _ = link.send(&head, if is_chained { &last_bytes } else { &[] });
            if let Some(bytes) = output
                && !bytes.is_empty()
            {
                self.counters.output_bytes += bytes.len() as u64;
                let _ = link.send(&Head::new(Kind::Data, number as u16, exchange), &bytes);
            }
            run.flights.push_back(Flight {
                sequence: run.commands,
                pieces: step.pieces,
                count: step.count,
                end: step.end,
                before: step.before,
                has_data: false,
            });
            run.commands += 1;
            run.is_sent = !step.chained;
            run.awaits_status = step.chained && (commands.is_branch)(step.command);
        }
        let (stop, is_empty) = (run.stop, run.commands == 0);
        if interrupt {
            let conditions = conditions(&run.orb);
            let scsw = Scsw {
                conditions,
                control: control::START
                    | control::SUBCHANNEL_ACTIVE
                    | control::INTERMEDIATE
                    | control::PENDING,
                address: run.flights.back().map_or(0, |flight| flight.end),
                subchannel: SubchannelStatus::INTERRUPT,
                ..Scsw::default()
            };
            guest.send_intermediate(subchannel, scsw, None, sender)?;
        }
        match stop {
            Some(stop @ (Stop::Check(_) | Stop::Suspend)) => {
                if is_empty {
                    // The control unit knows nothing of it.
                    return self.stopped(number, subchannel, stop, sender, now);
                }
                // What was sent before is to be done.
                let head = Head {
                    code: cancel::IN_ORDER,
                    ..Head::new(Kind::Cancel, number as u16, exchange)
                };
                let link = self.guests[number].as_ref().map_or(0, |guest| guest.link);
                let _ = self.links[link].send(&head, &[]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin_transport(&mut self, number: usize, subchannel: u16) -> Result<(), stream::Wrong> {
        let exchange = self.new_exchange(number, subchannel);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let Guest { subchannels, storage, link, released, told, .. } = guest;
        let run = &mut subchannels[usize::from(subchannel)].run;
        let storage = storage.as_ref().ok_or(stream::Wrong)?;
        let address = run.orb.program;
        let tcw = stream::fetch_tcw(storage, address)?;
        let is_bidirectional = tcw.output.is_some() && tcw.input.is_some();
        if is_bidirectional || !storage.holds(tcw.tsb, crate::format::tsb::TSB_BYTES as u64) {
            return Err(stream::Wrong);
        }
        let body = &mut self.body;
        body.clear();
        stream::fetch_tccb(storage, &tcw, body)?;
        run.input.clear();
        if let Some(input) = tcw.input {
            stream::add_pieces(storage, input, Direction::Input, &mut run.input)?;
        }
        run.tsb = tcw.tsb;
        let mut head = Head::new(Kind::TransportCommand, number as u16, exchange);
        run.interrogate = tcw.interrogate;
        (head.code, head.number) = ((tcw.tccb_bytes / 4) as u8, *released);
        if let Some(output) = tcw.output {
            head.flags |= flag::WRITES;
            run.output.clear();
            stream::add_pieces(storage, output, Direction::Output, &mut run.output)?;
            let all: u64 = run.output.iter().map(|piece| u64::from(piece.bytes)).sum();
            if all > OUTPUT_BYTES_MAX as u64 {
                return Err(stream::Wrong);
            }
            head.count = all as u32;
            if all > FIRST_BURST_BYTES as u64 {
                run.output_bytes = head.count;
            } else {
                gather_behind(storage, run.output.iter(), body).ok_or(stream::Wrong)?;
                self.counters.output_bytes += all;
            }
        }
        // Only now: a program that is wrong sends no unit that could tell of it.
        *told = *released;
        run.exchange = Some(exchange);
        // A link that has ended says so when it is polled.
        let _ = self.links[*link].send(&head, body);
        Ok(())
    }
}
