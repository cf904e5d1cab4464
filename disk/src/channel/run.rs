//! Starting programs, and what comes back from the control unit.

use std::collections::VecDeque;
use std::io;

use fabric::path::{Lendable, Message, Receiver, SendError, Sender, Shared, View};
use os::storage::StorageOptions;

use super::request::{self, Answer, Attached, SKIPPED, START_BYTES};
use super::storage::Storage;
use super::stream;
use super::subchannel::{Flight, Measurement, Run, Stop, Subchannel};
use super::walk::{Next, Piece, Walk};
use crate::exchange::{
    Broken, Extent, Head, Kind, Link, Pieces, UNITS_PER_POLL_MAX, Unit, establish, flag,
};
use crate::format::ccw::Direction;
use crate::format::eckd::Search;
use crate::format::orb::{ORB_BYTES, Orb, OrbFlags};
use crate::format::scsw::{DeviceStatus, Scsw, SubchannelStatus, TSB_STORED, control};
use crate::format::sense::{SENSE_BYTES, Sense};
use crate::format::tcw::{Stream, TCW_BYTES, Tcw};
use crate::format::tsb::{TransportStatus, Tsb};
use crate::unit::COMMAND_OUTPUT_BYTES_MAX;

/// Subchannels of one guest's path: fewer than its queue has buffers, so that every result finds room.
pub const SUBCHANNELS_MAX: u16 = 128;
/// Guests of a channel.
pub const GUESTS_MAX: usize = 4096;
/// Messages of one guest that one poll takes.
const MESSAGES_PER_POLL_MAX: usize = 128;
/// Bytes of the longest TCCB.
const TCCB_BYTES_MAX: usize = 272;
/// Channel paths that an ORB can name.
const PATHS: u8 = 0xf0;
/// Bytes of output data of a transport mode operation.
const OUTPUT_BYTES_MAX: u64 = crate::unit::OUTPUT_BYTES_MAX as u64;
/// Results that are held back for a guest whose path has no room. A guest with more does not take what it has asked for.
pub const HELD_BACK_MAX: usize = 512;
/// Places of the data of a program, and sources: what the head of a result can count, and then some.
const PARTS_MAX: usize = 8192;

/// Bytes of count fields between the records that one program reads which are copied along.
const GAP_BYTES_MAX: u64 = 4096;

/// Bytes of storage for the results of so many subchannels, whose programs each read up to `result_bytes`.
pub fn result_storage_bytes(subchannels: u16, result_bytes: u32) -> u64 {
    u64::from(subchannels) * (u64::from(result_bytes) + GAP_BYTES_MAX)
}

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
    /// Which volume of the control unit.
    pub volume: usize,
    /// The first cylinder.
    pub first_cylinder: u32,
    /// How many cylinders.
    pub cylinders: u32,
    /// Whether it may write.
    pub may_write: bool,
    /// Subchannels: how many programs can run at a time.
    pub subchannels: u16,
    /// Bytes that a program can read into storage of the channel.
    pub result_bytes: u32,
    /// Whether tracks that are read for the guest stay in the control unit's cache.
    pub is_cached: bool,
    /// The cache of the volume, for a guest that has the volume for itself: it reads in place.
    pub cache: Option<Lendable>,
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

#[derive(Debug)]
struct Guest {
    link: usize,
    /// Which of all connections: what comes for this guest's number before the control unit has answered was meant for a guest that had
    /// the number before.
    connection: u32,
    /// The control unit has the connection.
    is_established: bool,
    is_refused: bool,
    /// All of the volume's cache.
    cache: Option<View>,
    cache_segment: u16,
    /// The number under which the guest reads it.
    guest_cache: Option<u16>,
    lendable: Option<Lendable>,
    /// The guest's storage.
    storage: Option<View>,
    results: Shared,
    results_segment: u16,
    result_bytes: u32,
    subchannels: Vec<Subchannel>,
    cylinders: u32,
    may_write: bool,
    /// Count fields on the volume are those that the guest sees.
    has_own_counts: bool,
    /// Operations that the control unit has ended, modulo 65536, and what is released of them.
    ended: u16,
    released: u16,
    told: u16,
    /// Subchannels to be started again.
    busy: VecDeque<u16>,
    /// Results that the guest's path had no room for.
    backlog: VecDeque<(request::Head, Vec<u8>)>,
    /// Results that were sent and not consumed, as far as is known, are bounded by the subchannels.
    body: Vec<u8>,
}

/// A channel: it runs the programs of guests.
#[derive(Debug, Default)]
pub struct Channel {
    links: Vec<Link>,
    /// By link: guests and subchannels whose chains wait because the link is behind.
    waiting: Vec<VecDeque<(usize, u16)>>,
    guests: Vec<Option<Guest>>,
    next_connection: u32,
    next_exchange: u32,
    counters: Counters,
}

impl Channel {
    /// A channel without paths and guests.
    pub fn new() -> Channel {
        Channel::default()
    }

    /// Adds a channel path: the channel's end.
    pub fn add_link(&mut self, mut link: Link) {
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

    /// Over which channel path a guest's programs run.
    pub fn link_of(&self, guest: usize) -> Option<usize> {
        Some(self.guests.get(guest)?.as_ref()?.link)
    }

    /// The measurement blocks of a guest's subchannels.
    pub fn measurements(&self, guest: usize) -> impl Iterator<Item = Measurement> {
        let guest = self.guests.get(guest).and_then(Option::as_ref);
        guest.into_iter().flat_map(|guest| guest.subchannels.iter().map(|one| one.measurement))
    }

    /// Attaches a guest with a path: it can start programs once it has been told what it has.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(
        &mut self,
        guest: usize,
        sender: &mut Sender,
        wish: Use,
    ) -> Result<(), AttachError> {
        if guest >= GUESTS_MAX {
            return Err(AttachError::Guests);
        }
        let Use { first_cylinder, cylinders, may_write, subchannels, result_bytes, cache, .. } =
            wish;
        if !(1..=SUBCHANNELS_MAX).contains(&subchannels) {
            return Err(AttachError::Subchannels { subchannels });
        }
        if self.links.is_empty() {
            return Err(AttachError::NoLink);
        }
        let result_bytes = result_bytes.next_multiple_of(4096);
        let bytes = result_storage_bytes(subchannels, result_bytes) as usize;
        let results = Shared::create(bytes, StorageOptions::default())?;
        let results_segment = sender.lend_shared(&results)?;
        let link = guest % self.links.len();
        let mut body = [0; 8];
        body[..4].copy_from_slice(&first_cylinder.to_le_bytes());
        body[4..].copy_from_slice(&cylinders.to_le_bytes());
        self.next_connection = self.next_connection.wrapping_add(1);
        let connection = self.next_connection;
        let mut head = Head::new(Kind::Establish, guest as u16, connection);
        if may_write {
            head.code |= establish::MAY_WRITE;
        }
        if !wish.is_cached {
            head.code |= establish::UNCACHED;
        }
        head.count = wish.volume as u32;
        self.links[link].send(&head, &body).map_err(|_| AttachError::NoLink)?;
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
            cylinders,
            may_write,
            has_own_counts: first_cylinder == 0,
            ended: 0,
            released: 0,
            told: 0,
            busy: VecDeque::new(),
            backlog: VecDeque::new(),
            body: Vec::new(),
        });
        Ok(())
    }

    /// Forgets a guest whose path has ended.
    pub fn detach(&mut self, guest: usize) {
        let Some(gone) = self.guests.get_mut(guest).and_then(Option::take) else { return };
        // A link that has ended has no connections any more.
        let _ = self.links[gone.link].send(&Head::new(Kind::Disconnect, guest as u16, 0), &[]);
        self.links[gone.link].flush();
    }

    /// Takes what control units have sent, and answers guests. Returns whether there was anything, or something waits to be sent.
    ///
    /// # Errors
    /// [`Broken`] if a control unit is gone, or broke the rules.
    pub fn poll_units(&mut self, guests: &mut impl Guests, now: u64) -> Result<bool, Broken> {
        let mut found = false;
        for index in 0..self.links.len() {
            found |= self.links[index].is_behind();
            self.links[index].begin_pass();
            for _ in 0..UNITS_PER_POLL_MAX {
                let Some(unit) = self.links[index].receive()? else {
                    found |= self.links[index].is_ready();
                    break;
                };
                found = true;
                self.take_unit(index, unit, guests, now)?;
            }
            for _ in 0..self.waiting[index].len() {
                if self.links[index].is_behind() {
                    break;
                }
                let Some((number, subchannel)) = self.waiting[index].pop_front() else { break };
                found = true;
                if let Some((sender, _)) = guests.halves(number) {
                    // A guest that is gone is noticed when it is polled.
                    let _ = self.advance(number, subchannel, sender, now);
                }
            }
            self.links[index].flush();
        }
        Ok(found)
    }

    /// Takes what a guest has sent, a bounded number of messages. Returns whether there was anything.
    ///
    /// # Errors
    /// [`Broken`] if the guest's path has ended, or the guest broke the rules: the caller ends the path then.
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
        for _ in 0..MESSAGES_PER_POLL_MAX {
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
                // Addresses in results have 32 bits.
                guest.storage = view.filter(|view| View::bytes(view) <= STORAGE_BYTES_MAX);
                continue;
            }
            self.request(number, head, start, sender, now)?;
            if self.held_back(number) > HELD_BACK_MAX {
                self.counters.violations += 1;
                return Err(Broken::Rules);
            }
        }
        if found {
            self.links[link].flush();
        }
        Ok(found)
    }

    /// Results of a guest that its path had no room for. They go when the guest is polled next and its path has room.
    pub fn held_back(&self, guest: usize) -> usize {
        self.guests.get(guest).and_then(Option::as_ref).map_or(0, |guest| guest.backlog.len())
    }

    /// Whether a program waits because the control unit was busy. The caller decides when it begins again.
    pub fn is_busy(&self) -> bool {
        self.guests.iter().flatten().any(|guest| !guest.busy.is_empty())
    }

    /// Begins programs again for which the control unit was busy. It may be busy again at once: to be called now and then.
    pub fn repeat(&mut self, guests: &mut impl Guests, now: u64) {
        if !self.is_busy() {
            return;
        }
        for number in 0..self.guests.len() {
            let waiting = self.guests[number].as_ref().map_or(0, |guest| guest.busy.len());
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
        if guest.guest_cache.is_some() {
            guest.released = head.token;
        }
        let index = usize::from(head.subchannel);
        let Some(subchannel) = guest.subchannels.get_mut(index) else {
            return guest.refuse(head.subchannel, 3, sender);
        };
        match head.kind {
            request::Kind::Start => {
                if !guest.is_established || guest.storage.is_none() {
                    return guest.refuse(head.subchannel, 3, sender);
                }
                if subchannel.is_running {
                    return guest.refuse(head.subchannel, 2, sender);
                }
                let mut bytes = [0; ORB_BYTES];
                bytes[..START_BYTES].copy_from_slice(&start);
                self.counters.starts += 1;
                subchannel.measurement.starts += 1;
                subchannel.is_running = true;
                match Orb::parse(&bytes) {
                    Some(orb) => {
                        subchannel.run.begin(orb, now);
                        self.begin(number, head.subchannel, sender, now)
                    }
                    None => {
                        subchannel.run.begin(Orb::default(), now);
                        self.program_check(number, head.subchannel, 0, sender, now)
                    }
                }
            }
            request::Kind::Halt | request::Kind::Clear => {
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
                        let head = Head::new(Kind::Cancel, number as u16, exchange);
                        let _ = self.links[guest.link].send(&head, &[]);
                        Ok(())
                    }
                    Some(_) => Ok(()),
                    None => {
                        guest.busy.retain(|waiting| usize::from(*waiting) != index);
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
                subchannel.measurement.starts += 1;
                if let Some(walk) = &mut run.walk {
                    walk.resume();
                }
                run.origin = run.walk;
                (run.started_ns, run.responded_ns, run.queue_ns) = (now, None, 0);
                self.open_exchange(number, head.subchannel, sender, now)
            }
            request::Kind::Consumed => Ok(()),
            request::Kind::Storage
            | request::Kind::Attached
            | request::Kind::Result
            | request::Kind::Refused => {
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
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        let orb = run.orb;
        run.end_queuing(now);
        if orb.paths & PATHS == 0 {
            // No path that may be used: not operational, which the program learns from its status.
            let status = Scsw { conditions: 0x0300, ..Scsw::default() };
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

    fn new_exchange(&mut self, subchannel: u16) -> u32 {
        self.next_exchange = self.next_exchange.wrapping_add(1);
        self.next_exchange << 8 | u32::from(subchannel)
    }

    /// A new exchange in command mode, from where the walk is.
    fn open_exchange(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let exchange = self.new_exchange(subchannel);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let run = &mut guest.subchannels[usize::from(subchannel)].run;
        run.exchange = Some(exchange);
        (run.is_sent, run.commands, run.responses) = (false, 0, 0);
        run.flights.clear();
        run.awaits_status = false;
        self.advance(number, subchannel, sender, now)
    }

    /// Sends commands as far as pacing allows.
    fn advance(
        &mut self,
        number: usize,
        subchannel: u16,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let Guest { subchannels, storage, link, released, told, .. } = guest;
        let run = &mut subchannels[usize::from(subchannel)].run;
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
                self.waiting[link_index].push_back((number, subchannel));
                break;
            }
            let Some(walk) = &mut run.walk else { break };
            let step = match walk.next(&*storage) {
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
                Direction::Output => match gather_most(storage, step.pieces.iter()) {
                    Some(bytes) => Some(bytes),
                    None => {
                        let address = step.end;
                        let status = SubchannelStatus::PROGRAM_CHECK;
                        run.stop = Some(Stop::Check(super::walk::Check { status, address }));
                        break;
                    }
                },
            };
            let mut head = Head::new(Kind::Command, number as u16, exchange);
            head.flags = if step.chained { flag::CHAINED } else { 0 }
                | if step.suppress_length { flag::SUPPRESS_LENGTH } else { 0 };
            (head.code, head.count, head.number) = (step.command, step.count, *released);
            *told = *released;
            // A link that has ended says so when it is polled.
            let _ = link.send(&head, &[]);
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
            });
            run.commands += 1;
            run.is_sent = !step.chained;
            run.awaits_status = step.chained && Search::of(step.command).is_some();
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
            let parameter = run.orb.parameter;
            guest.send_intermediate(subchannel, parameter, scsw, sender)?;
        }
        match stop {
            Some(stop @ (Stop::Check(_) | Stop::Suspend)) => {
                if is_empty {
                    // The control unit knows nothing of it.
                    return self.stopped(number, subchannel, stop, sender, now);
                }
                let head = Head::new(Kind::Cancel, number as u16, exchange);
                let link = self.guests[number].as_ref().map_or(0, |guest| guest.link);
                let _ = self.links[link].send(&head, &[]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A program has ended by itself, and everything before has been done.
    fn stopped(
        &mut self,
        number: usize,
        subchannel: u16,
        stop: Stop,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        match stop {
            Stop::Check(check) => {
                self.program_check(number, subchannel, check.address, sender, now)
            }
            Stop::Suspend => {
                let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
                let run = &mut guest.subchannels[usize::from(subchannel)].run;
                (run.exchange, run.stop, run.is_suspended) = (None, None, true);
                let scsw = Scsw {
                    conditions: conditions(&run.orb),
                    control: control::START
                        | control::SUSPENDED
                        | control::INTERMEDIATE
                        | control::PENDING,
                    address: run.flights.back().map_or(run.orb.program, |flight| flight.end),
                    ..Scsw::default()
                };
                // What was read so far goes with it: the control unit may use its place again once the guest has
                // consumed this, or what ended after it.
                run.answer.scsw = scsw;
                let mut head = run.answer.head(subchannel);
                head.flags |= request::flag::INTERMEDIATE;
                (head.token, head.values[0]) = (guest.ended, run.orb.parameter);
                run.answer.emit(&mut guest.body);
                run.answer.clear();
                send(sender, &mut guest.backlog, &head, &guest.body)
            }
            Stop::Halt | Stop::Clear => {
                self.finish(number, subchannel, Scsw::default(), sender, now)
            }
            Stop::Lost => {
                let guest = self.guests.get(number).and_then(Option::as_ref);
                let run = guest.map(|guest| &guest.subchannels[usize::from(subchannel)].run);
                let address =
                    run.and_then(|run| run.flights.front()).map_or(0, |flight| flight.end);
                let scsw = Scsw { address, device: DeviceStatus::ENDED, ..Scsw::default() };
                self.finish(number, subchannel, scsw, sender, now)
            }
        }
    }

    fn begin_transport(&mut self, number: usize, subchannel: u16) -> Result<(), stream::Wrong> {
        let exchange = self.new_exchange(subchannel);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let Guest { subchannels, storage, link, released, told, .. } = guest;
        let run = &mut subchannels[usize::from(subchannel)].run;
        let storage = storage.as_ref().ok_or(stream::Wrong)?;
        let address = run.orb.program;
        let mut bytes = [0; TCW_BYTES];
        if !address.is_multiple_of(TCW_BYTES as u32) || !storage.fetch(address.into(), &mut bytes) {
            return Err(stream::Wrong);
        }
        let tcw = Tcw::parse(&bytes).ok_or(stream::Wrong)?;
        let is_bidirectional = tcw.output.is_some() && tcw.input.is_some();
        if is_bidirectional || !storage.holds(tcw.tsb, crate::format::tsb::TSB_BYTES as u64) {
            return Err(stream::Wrong);
        }
        let count = tcw.tccb_bytes as usize;
        let mut tccb = [0; TCCB_BYTES_MAX];
        let tccb = &mut tccb[..count];
        if tcw.tccb_is_indirect {
            let stream = Stream { address: tcw.tccb, count: tcw.tccb_bytes, is_indirect: true };
            let pieces = stream::pieces(storage, stream)?;
            tccb.copy_from_slice(&gather(storage, pieces.iter()).ok_or(stream::Wrong)?);
        } else {
            let crosses = tcw.tccb % 4096 + count as u64 > 4096;
            if crosses || !tcw.tccb.is_multiple_of(8) || !storage.fetch(tcw.tccb, tccb) {
                return Err(stream::Wrong);
            }
        }
        run.input.clear();
        if let Some(input) = tcw.input {
            if input.is_indirect {
                run.input = stream::pieces(storage, input)?;
            } else if storage.holds(input.address, input.count.into()) {
                run.input.push(Piece { address: input.address, bytes: input.count, skip: false });
            } else {
                return Err(stream::Wrong);
            }
        }
        run.tsb = tcw.tsb;
        let mut head = Head::new(Kind::TransportCommand, number as u16, exchange);
        (head.count, head.number) = (count as u32, *released);
        *told = *released;
        run.exchange = Some(exchange);
        let link = &mut self.links[*link];
        // A link that has ended says so when it is polled.
        let _ = match tcw.output {
            None => link.send(&head, tccb),
            Some(output) => {
                head.flags |= flag::WRITES;
                let pieces = stream::pieces(storage, output)?;
                let mut body = tccb.to_vec();
                let count =
                    gather_behind(storage, pieces.iter(), &mut body).ok_or(stream::Wrong)?;
                self.counters.output_bytes += count;
                link.send(&head, &body)
            }
        };
        Ok(())
    }

    fn take_unit(
        &mut self,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let number = usize::from(head.connection);
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        if guest.link != link {
            return Err(Broken::Rules);
        }
        if head.kind == Kind::Established {
            if head.exchange != guest.connection {
                return Ok(());
            }
            guest.is_established = head.code == 0;
            guest.is_refused = head.code != 0;
            guest.cache_segment = head.count as u16;
            guest.cache = self.links[link].lent(guest.cache_segment);
            return self.tell_attached(number, guests);
        }
        if !guest.is_established {
            return Ok(());
        }
        let subchannel = (head.exchange & 0xff) as u16;
        let Some(one) = guest.subchannels.get_mut(usize::from(subchannel)) else {
            return Err(Broken::Rules);
        };
        let is_end = matches!(head.kind, Kind::Status | Kind::TransportResponse);
        if is_end {
            guest.ended = guest.ended.wrapping_add(1);
            if guest.guest_cache.is_none() {
                // What was read has been copied by now, or is with this unit.
                guest.released = guest.ended;
            }
        }
        if !one.is_running || one.run.exchange != Some(head.exchange) {
            // Of an exchange that has ended here.
            return Ok(());
        }
        let run = &mut one.run;
        if run.responded_ns.is_none() {
            run.responded_ns = Some(now);
        }
        match head.kind {
            Kind::CommandResponse => {
                match DeviceStatus(head.code) {
                    DeviceStatus(0) => run.respond(),
                    status if run.end_search(status) => {}
                    _ => return Err(Broken::Rules),
                }
                if let Some((sender, _)) = guests.halves(number) {
                    // A guest that is gone is noticed when it is polled.
                    let _ = self.advance(number, subchannel, sender, now);
                }
                Ok(())
            }
            Kind::Data => {
                let body = self.links[link].body(unit);
                let pieces = data_of(&head, body);
                let is_of = |flight: &Flight| flight.sequence as u16 == head.number;
                while run.flights.front().is_some_and(|flight| !is_of(flight)) {
                    run.flights.pop_front();
                }
                let flight = run.flights.front_mut().ok_or(Broken::Rules)?;
                let targets = std::mem::take(&mut flight.pieces);
                guest.take_data(subchannel, targets.iter(), pieces).ok_or(Broken::Rules)?;
                let run = &mut guest.subchannels[usize::from(subchannel)].run;
                if run.lost != SubchannelStatus::default() && run.stop.is_none() {
                    run.stop = Some(Stop::Lost);
                    let head = Head::new(Kind::Cancel, number as u16, head.exchange);
                    // A link that has ended says so when it is polled.
                    let _ = self.links[link].send(&head, &[]);
                }
                Ok(())
            }
            Kind::Status => self.take_status(number, subchannel, link, unit, guests, now),
            Kind::TransportResponse => {
                self.take_response(number, subchannel, link, unit, guests, now)
            }
            _ => Err(Broken::Rules),
        }
    }

    fn tell_attached(&mut self, number: usize, guests: &mut impl Guests) -> Result<(), Broken> {
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        if guest.is_refused {
            let _ = guest.refuse(0, 3, sender);
            return Ok(());
        }
        if let Some(lendable) = guest.lendable.take() {
            // A guest that cannot be lent the cache gets copies.
            guest.guest_cache = sender.lend(&lendable).ok();
        }
        let attached = Attached {
            cylinders: guest.cylinders,
            subchannels: guest.subchannels.len() as u16,
            may_write: guest.may_write,
            cache: guest.guest_cache,
            results: guest.results_segment,
            result_bytes: guest.result_bytes,
        };
        let head = request::Head::new(request::Kind::Attached, 0);
        let _ = guest.send(&head, &attached.emit(), sender);
        Ok(())
    }

    fn take_status(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let one = &mut guest.subchannels[usize::from(subchannel)];
        let run = &mut one.run;
        if head.flags & flag::SENSE != 0 {
            let sense = self.links[link].body(unit);
            let sense: [u8; SENSE_BYTES] = sense.try_into().map_err(|_| Broken::Rules)?;
            run.answer.sense = Some(Sense(sense));
        }
        let device = DeviceStatus(head.code);
        let stop = run.stop;
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        // A guest that is gone is noticed when it is polled.
        if device == DeviceStatus::BUSY {
            match stop {
                Some(stop @ (Stop::Halt | Stop::Clear)) => {
                    let _ = self.stopped(number, subchannel, stop, sender, now);
                }
                _ => guest.retry(subchannel, now),
            }
            return Ok(());
        }
        let is_good = device == DeviceStatus::ENDED && head.flags & flag::INCORRECT_LENGTH == 0;
        if is_good && let Some(stop) = stop {
            let _ = self.stopped(number, subchannel, stop, sender, now);
            return Ok(());
        }
        let is_of = |flight: &&Flight| flight.sequence as u16 == head.number;
        let flight = run.flights.iter().find(is_of);
        let (address, count) = flight.map_or((0, 0), |flight| (flight.end, flight.count));
        let incorrect = head.flags & flag::INCORRECT_LENGTH != 0;
        let subchannel_status = if incorrect {
            SubchannelStatus::INCORRECT_LENGTH
        } else {
            SubchannelStatus::default()
        };
        let scsw = Scsw {
            address,
            device,
            subchannel: subchannel_status,
            count: head.count.min(count) as u16,
            ..Scsw::default()
        };
        let _ = self.finish(number, subchannel, scsw, sender, now);
        Ok(())
    }

    fn take_response(
        &mut self,
        number: usize,
        subchannel: u16,
        link: usize,
        unit: Unit,
        guests: &mut impl Guests,
        now: u64,
    ) -> Result<(), Broken> {
        let head = unit.head;
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        let mut body = self.links[link].body(unit);
        let mut sense = Sense::default();
        if head.flags & flag::SENSE != 0 {
            let (rest, bytes) = body.split_last_chunk::<SENSE_BYTES>().ok_or(Broken::Rules)?;
            (body, sense) = (rest, Sense(*bytes));
        }
        let device = DeviceStatus(head.code);
        if device == DeviceStatus::BUSY {
            let stop = guest.subchannels[usize::from(subchannel)].run.stop;
            let Some(stop) = stop else {
                guest.retry(subchannel, now);
                return Ok(());
            };
            let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
            // A guest that is gone is noticed when it is polled.
            let _ = self.stopped(number, subchannel, stop, sender, now);
            return Ok(());
        }
        let index = usize::from(subchannel);
        let targets = std::mem::take(&mut guest.subchannels[index].run.input);
        let pieces = data_of(&head, body);
        let absorbed = guest.take_data(subchannel, targets.iter(), pieces);
        let run = &mut guest.subchannels[index].run;
        run.input = targets;
        absorbed.ok_or(Broken::Rules)?;
        let mut scsw = Scsw { address: run.orb.program, device, ..Scsw::default() };
        let is_check = device.has(DeviceStatus::UNIT_CHECK);
        if is_check
            || head.count > 0
            || head.flags & flag::CACHE_MISS != 0
            || device != DeviceStatus::ENDED
        {
            let is_program = head.flags & flag::PROGRAM_CHECK != 0;
            let device_us = (now.saturating_sub(run.started_ns) / 1000) as u32;
            let tsb = Tsb {
                dcw_offset: (device != DeviceStatus::ENDED).then_some(head.number),
                residual_bytes: head.count,
                cache_miss: head.flags & flag::CACHE_MISS != 0,
                status: match is_program {
                    true => TransportStatus::ProgramCheck { reason: sense.0[8], sense },
                    false => TransportStatus::Io { device_us, queue_us: 0, sense },
                },
            };
            run.answer.tsb = Some((run.tsb, tsb.emit()));
            run.answer.sense = is_check.then_some(sense);
            scsw.count = TSB_STORED;
            if is_program {
                scsw.subchannel = SubchannelStatus::PROGRAM_CHECK;
                self.counters.program_checks += 1;
            }
        }
        let Some((sender, _)) = guests.halves(number) else { return Ok(()) };
        let _ = self.finish(number, subchannel, scsw, sender, now);
        Ok(())
    }

    fn program_check(
        &mut self,
        number: usize,
        subchannel: u16,
        address: u32,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        self.counters.program_checks += 1;
        let scsw = Scsw { address, subchannel: SubchannelStatus::PROGRAM_CHECK, ..Scsw::default() };
        self.finish(number, subchannel, scsw, sender, now)
    }

    /// A program has ended: its status goes to the guest.
    fn finish(
        &mut self,
        number: usize,
        subchannel: u16,
        scsw: Scsw,
        sender: &mut Sender,
        now: u64,
    ) -> Result<(), Broken> {
        let Some(Some(guest)) = self.guests.get_mut(number) else { return Ok(()) };
        self.counters.results += 1;
        let token = guest.ended;
        let Guest { subchannels, backlog, body, .. } = guest;
        let Subchannel { run, is_running, measurement } = &mut subchannels[usize::from(subchannel)];
        *is_running = false;
        measurement.samples += 1;
        let responded_ns = run.responded_ns.unwrap_or(now);
        run.end_queuing(now);
        let pending_ns = responded_ns.saturating_sub(run.started_ns + run.queue_ns);
        measurement.pending_ns += pending_ns;
        measurement.initial_response_ns += pending_ns;
        measurement.queue_ns += run.queue_ns;
        measurement.connect_ns += now.saturating_sub(responded_ns);
        run.exchange = None;
        let function = match run.stop {
            Some(Stop::Halt) => control::START | control::HALT,
            Some(Stop::Clear) => control::CLEAR,
            _ => control::START,
        };
        let is_clear = run.stop == Some(Stop::Clear);
        let mut scsw = scsw;
        if run.lost != SubchannelStatus::default() {
            scsw.subchannel.0 |= run.lost.0;
            run.answer.places.clear();
            run.answer.sources.clear();
        }
        let is_alert = scsw.subchannel.0 & !0x80 != 0 || scsw.device.has(DeviceStatus::UNIT_CHECK);
        let ends = match is_clear {
            true => control::PENDING,
            false => control::PRIMARY | control::SECONDARY | control::PENDING,
        };
        run.answer.scsw = Scsw {
            conditions: scsw.conditions | conditions(&run.orb),
            control: function | ends | if is_alert { control::ALERT } else { 0 },
            ..scsw
        };
        let mut head = run.answer.head(subchannel);
        (head.token, head.values[0]) = (token, run.orb.parameter);
        run.answer.emit(body);
        send(sender, backlog, &head, body)
    }
}

impl Guest {
    /// Takes data in, as far as there is room and a place for them. None if the control unit breaks the rules.
    fn take_data<'a>(
        &mut self,
        subchannel: u16,
        targets: impl Iterator<Item = &'a Piece>,
        pieces: Pieces<'_>,
    ) -> Option<()> {
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
            has_own_counts,
            ..
        } = self;
        let run = &mut subchannels[usize::from(subchannel)].run;
        let base = result_storage_bytes(subchannel, *result_bytes);
        let room = |run: &Run, bytes: u64| {
            let end = u64::from(run.result_bytes) + bytes;
            let at = base + u64::from(run.result_bytes) + u64::from(run.gap_bytes);
            (end <= u64::from(*result_bytes)).then_some(at as usize)
        };
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
                for extent in pieces.extents() {
                    let extent = extent?;
                    let bytes = extent.bytes();
                    if extent.end() > View::bytes(cache) as u64 {
                        return None;
                    }
                    moved += bytes;
                    if let Some(segment) = guest_cache {
                        run.answer.add_source(Extent { segment: *segment, ..extent });
                        continue;
                    }
                    let Some(mut at) = room(run, bytes) else {
                        return Some(SubchannelStatus::CHAINING_CHECK);
                    };
                    let gaps = extent.end() - extent.offset - bytes;
                    if *has_own_counts && u64::from(run.gap_bytes) + gaps <= GAP_BYTES_MAX {
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
        let is_too_much =
            |answer: &Answer| answer.places.len() > PARTS_MAX || answer.sources.len() > PARTS_MAX;
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

    /// The control unit was busy, before the program wrote anything: the program begins again with the next poll.
    fn retry(&mut self, subchannel: u16, now: u64) {
        let run = &mut self.subchannels[usize::from(subchannel)].run;
        let (orb, started_ns, queue_ns) = (run.orb, run.started_ns, run.queue_ns);
        let origin = run.origin;
        run.begin(orb, started_ns);
        (run.queue_ns, run.busy_ns, run.is_busy) = (queue_ns, now, true);
        run.origin = origin;
        self.busy.push_back(subchannel);
    }

    fn refuse(&mut self, subchannel: u16, code: u32, sender: &mut Sender) -> Result<(), Broken> {
        let mut head = request::Head::new(request::Kind::Refused, subchannel);
        head.values[0] = code;
        self.send(&head, &[], sender)
    }

    fn send_intermediate(
        &mut self,
        subchannel: u16,
        parameter: u32,
        scsw: Scsw,
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        if !self.backlog.is_empty() {
            // The guest has not taken its status: a condition that is pending already is not made pending again.
            return Ok(());
        }
        let answer = Answer { scsw, ..Answer::default() };
        let mut head = answer.head(subchannel);
        head.flags |= request::flag::INTERMEDIATE;
        (head.token, head.values[0]) = (self.ended, parameter);
        let mut body = Vec::new();
        answer.emit(&mut body);
        self.send(&head, &body, sender)
    }

    fn send(
        &mut self,
        head: &request::Head,
        body: &[u8],
        sender: &mut Sender,
    ) -> Result<(), Broken> {
        send(sender, &mut self.backlog, head, body)
    }

    /// Sends what the path had no room for, as far as there is room now. Returns whether anything was sent.
    fn send_backlog(&mut self, sender: &mut Sender) -> Result<bool, Broken> {
        let mut has_sent = false;
        while let Some((head, body)) = self.backlog.front() {
            match sender.send(&head.emit(), body) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(SendError::Severed(severed)) => return Err(severed.into()),
                Err(_) => break,
            }
            has_sent = true;
        }
        Ok(has_sent)
    }
}

/// Sends a message to a guest. What the path has no room for waits. A guest for which more than [`HELD_BACK_MAX`] wait is ended
/// when it is polled.
fn send(
    sender: &mut Sender,
    backlog: &mut VecDeque<(request::Head, Vec<u8>)>,
    head: &request::Head,
    body: &[u8],
) -> Result<(), Broken> {
    if backlog.is_empty() {
        match sender.send(&head.emit(), body) {
            Ok(()) => return Ok(()),
            Err(SendError::Severed(severed)) => return Err(severed.into()),
            Err(_) => {}
        }
    }
    backlog.push_back((*head, body.to_vec()));
    Ok(())
}

/// What an SCSW says of the ORB: key, suspend, format, prefetch.
fn conditions(orb: &Orb) -> u16 {
    let bit = |flag: OrbFlags, bit: u16| if orb.flags.has(flag) { bit } else { 0 };
    u16::from(orb.key) << 12
        | bit(OrbFlags::SUSPEND, 0x0800)
        | bit(OrbFlags::FORMAT_1, 0x0080)
        | bit(OrbFlags::PREFETCH, 0x0040)
}

/// Copies data to be written out of the guest's storage, once.
fn gather<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    gather_behind(storage, pieces, &mut bytes)?;
    Some(bytes)
}

/// The same, behind what is there already. Returns how many bytes.
fn gather_behind<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
    bytes: &mut Vec<u8>,
) -> Option<u64> {
    let all: u64 = pieces.clone().map(|piece| u64::from(piece.bytes)).sum();
    if all > OUTPUT_BYTES_MAX {
        return None;
    }
    let mut at = bytes.len();
    bytes.resize(at + all as usize, 0);
    for piece in pieces {
        let end = at + piece.bytes as usize;
        if !storage.fetch(piece.address, &mut bytes[at..end]) {
            return None;
        }
        at = end;
    }
    Some(all)
}

/// Copies data of a command to be written out of the guest's storage, once: as many bytes as a command can use.
fn gather_most<'a>(
    storage: &(impl Storage + ?Sized),
    pieces: impl Iterator<Item = &'a Piece> + Clone,
) -> Option<Vec<u8>> {
    let all: u64 = pieces.clone().map(|piece| u64::from(piece.bytes)).sum();
    if all <= COMMAND_OUTPUT_BYTES_MAX.into() {
        return gather(storage, pieces);
    }
    let mut left = COMMAND_OUTPUT_BYTES_MAX;
    let mut used = Vec::new();
    for piece in pieces {
        let bytes = piece.bytes.min(left);
        if bytes > 0 {
            used.push(Piece { bytes, ..*piece });
        }
        left -= bytes;
    }
    gather(storage, used.iter())
}

fn data_of<'a>(head: &Head, body: &'a [u8]) -> Pieces<'a> {
    if head.flags & flag::EXTENTS != 0 { Pieces::Extents(body) } else { Pieces::Bytes(body) }
}
