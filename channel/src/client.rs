//! A guest's end of its path to a channel: it starts programs and gets what became of them.

use std::io;

use fabric::path::{Message, Receiver, SendError, Sender, Severed, Shared, View};
use os::copy::{EXPECTED_BYTES, expect_writes};
use os::storage::StorageOptions;

use crate::exchange::Extent;
use crate::format::irb::Irb;
use crate::format::orb::{ORB_BYTES, Orb};
use crate::format::scsw::{DeviceStatus, Scsw};
use crate::format::tcw::PREFETCH_BYTES;
use crate::request::{Answer, Attached, Head, Kind, Modification, Place, SKIPPED, flag};

/// Bytes of a guest's storage at most: addresses in results have 32 bits.
pub const STORAGE_BYTES_MAX: usize = 1 << 31;

/// Why a path to a channel is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
    /// The channel has sent what is no result.
    #[error("the channel broke the rules")]
    Rules,
    /// The channel has not, or not yet, given the guest a device.
    #[error("no device is attached")]
    NotAttached,
}

/// What has come from the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The guest can start programs.
    Attached(Attached),
    /// A program has ended: [`Client::answer`] has its status.
    Ended {
        /// Where it ran.
        subchannel: u16,
        /// From its ORB.
        parameter: u32,
    },
    /// A program goes on: it was suspended, asked for an interruption, or was interrogated.
    Intermediate {
        /// Where it runs.
        subchannel: u16,
        /// From its ORB.
        parameter: u32,
    },
    /// The device of a subchannel has changed, and reports it unasked.
    Attention {
        /// Of which subchannel. A device that all subchannels share reports on subchannel 0.
        subchannel: u16,
        /// From the settings of the subchannel.
        parameter: u32,
        /// Attention, device end and unit exception: the state of a disk has changed. Attention: the peer of a channel-to-channel adapter
        /// waits.
        status: DeviceStatus,
        /// Whether the guest may write now.
        may_write: bool,
    },
    /// A request was not accepted.
    Refused {
        /// Of which subchannel.
        subchannel: u16,
        /// The condition code: 1 nothing to do it to, 2 busy, 3 not there.
        code: u8,
    },
}

/// Results that are taken from the path ahead of the one that the guest has.
const AHEAD_MAX: usize = 8;
/// Bytes of records that are prefetched for all results ahead.
const AHEAD_BYTES_MAX: usize = 8192;
/// Bytes of each record that a guest looks at, unless it says otherwise.
pub const LOOK_BYTES: usize = 64;

/// A guest's end.
///
/// While the guest looks at the records of one program, the client prefetches those of the next programs. A guest that looks at a few bytes
/// of many records would otherwise wait for memory most of the time.
#[derive(Debug)]
pub struct Client {
    storage: Shared,
    attached: Option<Attached>,
    cache: Option<View>,
    results: Option<View>,
    /// A ring of what has come: the last event that the guest has, and those ahead, of which there is one more for a moment.
    arrived: [Arrived; AHEAD_MAX + 2],
    current: usize,
    ahead: usize,
    ahead_max: usize,
    look_bytes: usize,
    /// By subchannel: where its last program is.
    programs: Vec<u32>,
    /// The message behind the results ahead broke the rules.
    is_broken: bool,
    /// Of the last result, and of the last one that the guest has done with.
    token: u16,
    consumed: u16,
}

/// An event, and what it brings.
#[derive(Debug, Default)]
struct Arrived {
    event: Option<Event>,
    token: Option<u16>,
    answer: Answer,
}

impl Client {
    /// Makes storage for programs and data, and lends it to the channel.
    ///
    /// # Errors
    /// No memory or no descriptors left, or the path takes nothing.
    ///
    /// # Panics
    /// If there are more bytes than [`STORAGE_BYTES_MAX`].
    pub fn new(bytes: usize, sender: &mut Sender) -> io::Result<Client> {
        assert!(bytes <= STORAGE_BYTES_MAX, "addresses in results have 32 bits");
        let storage = Shared::create(bytes, StorageOptions::default())?;
        let segment = sender.lend_shared(&storage).map_err(io::Error::other)?;
        let mut head = Head::new(Kind::Storage, 0);
        head.values[0] = segment.into();
        sender.send(&head.emit(), &[]).map_err(io::Error::other)?;
        Ok(Client {
            storage,
            attached: None,
            cache: None,
            results: None,
            arrived: Default::default(),
            current: 0,
            ahead: 0,
            ahead_max: AHEAD_MAX,
            look_bytes: LOOK_BYTES,
            programs: Vec::new(),
            is_broken: false,
            token: 0,
            consumed: 0,
        })
    }

    /// Sets how many bytes of each record the guest looks at, as far as it knows: [`LOOK_BYTES`] unless set, 8192 at most. It is a hint.
    pub fn set_look_bytes(&mut self, bytes: usize) {
        self.look_bytes = bytes.min(AHEAD_BYTES_MAX);
        self.ahead_max = (AHEAD_BYTES_MAX / self.look_bytes.max(1)).clamp(1, AHEAD_MAX);
    }

    /// The guest's storage: address 0 is its first byte.
    #[inline]
    pub fn storage(&mut self) -> &mut [u8] {
        self.storage.bytes_mut()
    }

    /// What the guest has been given, once it has.
    pub fn attached(&self) -> Option<Attached> {
        self.attached
    }

    /// Starts a program.
    ///
    /// # Errors
    /// [`SendError`]; nothing was started then.
    #[inline]
    pub fn start(
        &mut self,
        subchannel: u16,
        orb: &Orb,
        sender: &mut Sender,
    ) -> Result<(), SendError> {
        let bytes: [u8; ORB_BYTES] = orb.emit();
        let place = usize::from(subchannel);
        if self.programs.len() <= place {
            self.programs.resize(place + 1, 0);
        }
        self.programs[place] = orb.program;
        self.consumed = self.token;
        let head = Head { token: self.consumed, ..Head::new(Kind::Start, subchannel) };
        sender.send(&head.emit(), bytes.first_chunk::<12>().expect("12 of 32"))
    }

    /// Asks that a program be halted, cleared, resumed or cancelled.
    ///
    /// # Errors
    /// [`SendError`]; nothing was asked then.
    ///
    /// # Panics
    /// If the request is another one.
    pub fn request(
        &mut self,
        kind: Kind,
        subchannel: u16,
        sender: &mut Sender,
    ) -> Result<(), SendError> {
        let is_one = matches!(kind, Kind::Halt | Kind::Clear | Kind::Resume | Kind::Cancel);
        assert!(is_one, "halt, clear, resume or cancel");
        if kind == Kind::Resume {
            // What the program had read before it was suspended is done with.
            self.consumed = self.token;
        }
        let head = Head { token: self.consumed, ..Head::new(kind, subchannel) };
        sender.send(&head.emit(), &[])
    }

    /// Changes the settings of a subchannel. A start that is sent later finds them.
    ///
    /// # Errors
    /// [`SendError`]; nothing was asked then.
    pub fn modify(
        &mut self,
        subchannel: u16,
        modification: Modification,
        sender: &mut Sender,
    ) -> Result<(), SendError> {
        let head = Head { token: self.consumed, ..Head::new(Kind::Modify, subchannel) };
        sender.send(&head.emit(), &modification.emit())
    }

    /// Tells the channel that all results have been done with: for a guest that starts nothing for a while.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn consume(&mut self, sender: &mut Sender) -> Result<(), SendError> {
        if self.consumed == self.token {
            return Ok(());
        }
        self.consumed = self.token;
        sender.send(&Head { token: self.consumed, ..Head::new(Kind::Consumed, 0) }.emit(), &[])
    }

    /// What has come next, if there is something. The last result is done with then, and its data are not
    /// to be read any more once something is started. A caller that is about to sleep polls until nothing comes: results that the client has
    /// taken ahead ring no doorbell.
    ///
    /// # Errors
    /// [`ClientError`].
    #[inline]
    pub fn poll(&mut self, receiver: &mut Receiver) -> Result<Option<Event>, ClientError> {
        receiver.refuse_child()?;
        // Several at a time: the processor translates their addresses side by side.
        if self.ahead <= self.ahead_max / 2 {
            let before = self.ahead;
            while self.ahead <= self.ahead_max && !self.is_broken {
                match self.take(receiver) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(ClientError::Severed(_)) if self.ahead > 0 => break,
                    Err(ClientError::Severed(severed)) => return Err(severed.into()),
                    Err(_) => self.is_broken = true,
                }
                if !receiver.is_ready() {
                    break;
                }
            }
            (before..self.ahead).for_each(|behind| self.expect(behind));
        }
        if self.ahead == 0 {
            return if self.is_broken { Err(ClientError::Rules) } else { Ok(None) };
        }
        let next = self.slot(0);
        let before = std::mem::replace(&mut self.current, next);
        self.ahead -= 1;
        let Arrived { event, token, .. } = self.arrived[self.current];
        match token {
            Some(token) => self.token = token,
            // The answer is that of the last result still.
            None => {
                let answer = std::mem::take(&mut self.arrived[before].answer);
                self.arrived[self.current].answer = answer;
            }
        }
        Ok(event)
    }

    /// Takes what has come from the path. False if there is nothing.
    #[inline]
    fn take(&mut self, receiver: &mut Receiver) -> Result<bool, ClientError> {
        let Some(message) = receiver.fetch()? else { return Ok(false) };
        let Message { head, body } = receiver.message(message);
        let head = Head::parse(head).ok_or(ClientError::Rules)?;
        let place = self.slot(self.ahead);
        let arrived = &mut self.arrived[place];
        arrived.token = None;
        let event = match head.kind {
            Kind::Result => {
                arrived.answer.parse(&head, body).ok_or(ClientError::Rules)?;
                arrived.token = Some(head.token);
                let (subchannel, parameter) = (head.subchannel, head.values[0]);
                match head.flags & flag::INTERMEDIATE {
                    0 => Event::Ended { subchannel, parameter },
                    _ => Event::Intermediate { subchannel, parameter },
                }
            }
            Kind::Attached => {
                if self.attached.is_some() {
                    // What came before it would be taken for another device's.
                    return Err(ClientError::Rules);
                }
                let attached = Attached::parse(body).ok_or(ClientError::Rules)?;
                self.attached = Some(attached);
                self.results = receiver.lent(attached.results);
                self.cache = attached.cache.and_then(|segment| receiver.lent(segment));
                if self.results.is_none() || (attached.cache.is_some() && self.cache.is_none()) {
                    return Err(ClientError::Rules);
                }
                Event::Attached(attached)
            }
            Kind::Attention => {
                let scsw = body.try_into().map_err(|_| ClientError::Rules)?;
                let status = Scsw::parse(scsw).device;
                Event::Attention {
                    subchannel: head.subchannel,
                    parameter: head.values[0],
                    status,
                    may_write: head.values[1] != 0,
                }
            }
            Kind::Refused => {
                Event::Refused { subchannel: head.subchannel, code: head.values[0] as u8 }
            }
            _ => return Err(ClientError::Rules),
        };
        self.arrived[place].event = Some(event);
        self.ahead += 1;
        Ok(true)
    }

    /// Where an event is, by how many are before it.
    #[inline]
    fn slot(&self, behind: usize) -> usize {
        (self.current + 1 + behind) % self.arrived.len()
    }

    /// Prefetches the first bytes of each record of a result, or of each piece if the records were copied; and the lines of the program, which
    /// the channel's processor has, and the guest mostly writes next.
    #[inline]
    fn expect(&mut self, behind: usize) {
        let slot = self.slot(behind);
        let Some(Event::Ended { subchannel, .. }) = self.arrived[slot].event else { return };
        if let Some(at) = self.programs.get(usize::from(subchannel)) {
            let at = *at as usize;
            let program = self.storage.bytes_mut().get_mut(at..at + PREFETCH_BYTES);
            program.unwrap_or_default().chunks_mut(EXPECTED_BYTES).for_each(expect_writes);
        }
        if self.look_bytes == 0 {
            return;
        }
        let mut left = AHEAD_BYTES_MAX / self.ahead_max;
        let Arrived { answer, .. } = &self.arrived[slot];
        for extent in &answer.sources {
            let Some(view) = self.view(extent) else { return };
            let bytes = self.look_bytes.min(extent.record_bytes as usize);
            for at in extent.places() {
                let Some(rest) = left.checked_sub(bytes.max(1)) else { return };
                left = rest;
                view.expect(at as usize, bytes);
            }
        }
    }

    /// What became of the program that ended last.
    #[inline]
    pub fn answer(&self) -> &Answer {
        &self.arrived[self.current].answer
    }

    /// The interruption-response block of the result that came last: its status, the channel path of the device, and the sense. A program
    /// with deferred condition code 3 ran over no path.
    pub fn irb(&self) -> Irb {
        let Answer { scsw, sense, .. } = self.answer();
        let attached = self.attached.filter(|_| !scsw.is_not_operational());
        let paths = attached.map_or(0, |attached| attached.paths);
        Irb::new(*scsw, paths, *sense)
    }

    fn view(&self, extent: &Extent) -> Option<&View> {
        let attached = self.attached?;
        if attached.cache == Some(extent.segment) {
            return self.cache.as_ref();
        }
        (attached.results == extent.segment).then_some(self.results.as_ref()?)
    }

    /// Bytes that the program that ended last has read.
    pub fn read_bytes(&self) -> u64 {
        self.answer().sources.iter().map(Extent::bytes).sum()
    }

    /// Copies what was read, from the start, into memory of the program's own. Returns how many bytes.
    ///
    /// # Errors
    /// [`ClientError::Rules`] if the channel names what it has not lent.
    pub fn copy(&self, target: &mut [u8]) -> Result<usize, ClientError> {
        let mut at = 0;
        for extent in &self.answer().sources {
            let view = self.view(extent).ok_or(ClientError::Rules)?;
            for place in extent.places() {
                let bytes = (extent.record_bytes as usize).min(target.len() - at);
                let target = &mut target[at..at + bytes];
                view.read(place as usize, target).map_err(|_| ClientError::Rules)?;
                at += bytes;
            }
        }
        Ok(at)
    }

    /// Hands out where the records lie that were read: whatever is read from there is as the control unit has it
    /// until the next program is started.
    ///
    /// # Errors
    /// [`ClientError::Rules`] if the channel names what it has not lent.
    #[inline]
    pub fn in_place(&self, mut record: impl FnMut(&View, usize, usize)) -> Result<(), ClientError> {
        for extent in &self.answer().sources {
            let view = self.view(extent).ok_or(ClientError::Rules)?;
            for place in extent.places() {
                record(view, place as usize, extent.record_bytes as usize);
            }
        }
        Ok(())
    }

    /// Places what was read at the addresses that the program named, and its transport-status block. A program of
    /// CCWs finds its data there, as after an interruption.
    ///
    /// # Errors
    /// [`ClientError::Rules`] if the channel names what it has not lent, or places that are not in the storage.
    pub fn place(&mut self) -> Result<(), ClientError> {
        let Client { storage, attached, cache, results, arrived, current, .. } = self;
        let answer = &arrived[*current].answer;
        let attached = attached.ok_or(ClientError::NotAttached)?;
        let bytes = storage.bytes_mut();
        let mut places = answer.places.iter().copied();
        let mut current: Option<Place> = None;
        for extent in &answer.sources {
            let view = match extent.segment {
                segment if attached.cache == Some(segment) => cache.as_ref(),
                segment if attached.results == segment => results.as_ref(),
                _ => None,
            };
            let view = view.ok_or(ClientError::Rules)?;
            for source in extent.places() {
                let (mut at, mut left) = (source as usize, extent.record_bytes);
                while left > 0 {
                    let mut place = match current.take() {
                        Some(place) => place,
                        None => places.next().ok_or(ClientError::Rules)?,
                    };
                    let moved = place.bytes.min(left);
                    if moved == 0 {
                        return Err(ClientError::Rules);
                    }
                    if place.address != SKIPPED {
                        let start = place.address as usize;
                        let end = start.checked_add(moved as usize);
                        let range = end.map(|end| start..end).ok_or(ClientError::Rules)?;
                        let target = bytes.get_mut(range).ok_or(ClientError::Rules)?;
                        view.read(at, target).map_err(|_| ClientError::Rules)?;
                        place.address += moved;
                    }
                    place.bytes -= moved;
                    current = (place.bytes > 0).then_some(place);
                    at += moved as usize;
                    left -= moved;
                }
            }
        }
        if let Some((address, tsb)) = &answer.tsb {
            let start = usize::try_from(*address).map_err(|_| ClientError::Rules)?;
            let end = start.checked_add(tsb.len()).ok_or(ClientError::Rules)?;
            bytes.get_mut(start..end).ok_or(ClientError::Rules)?.copy_from_slice(tsb);
        }
        Ok(())
    }
}
