//! A guest's end of its path to a channel: it starts programs and gets what became of them.

use std::io;

use fabric::path::{Message, Receiver, SendError, Sender, Severed, Shared, View};
use os::storage::StorageOptions;

use crate::channel::request::{Answer, Attached, Head, Kind, Place, SKIPPED, flag};
use crate::exchange::Extent;
use crate::format::orb::{ORB_BYTES, Orb};

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
    /// A program wants attention on its way: it was suspended, or asked for an interruption.
    Intermediate {
        /// Where it runs.
        subchannel: u16,
        /// From its ORB.
        parameter: u32,
    },
    /// A request was not accepted.
    Refused {
        /// Of which subchannel.
        subchannel: u16,
        /// The condition code: 1 nothing to do it to, 2 busy, 3 not there.
        code: u8,
    },
}

/// A guest's end.
#[derive(Debug)]
pub struct Client {
    storage: Shared,
    attached: Option<Attached>,
    cache: Option<View>,
    results: Option<View>,
    answer: Answer,
    /// Of the last result, and of the last one that the guest has done with.
    token: u16,
    consumed: u16,
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
            answer: Answer::default(),
            token: 0,
            consumed: 0,
        })
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
        self.consumed = self.token;
        let head = Head { token: self.consumed, ..Head::new(Kind::Start, subchannel) };
        sender.send(&head.emit(), bytes.first_chunk::<12>().expect("12 of 32"))
    }

    /// Asks that a program be halted, cleared or resumed.
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
        assert!(matches!(kind, Kind::Halt | Kind::Clear | Kind::Resume), "halt, clear or resume");
        let head = Head { token: self.consumed, ..Head::new(kind, subchannel) };
        sender.send(&head.emit(), &[])
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
    /// to be read any more once something is started.
    ///
    /// # Errors
    /// [`ClientError`].
    #[inline]
    pub fn poll(&mut self, receiver: &mut Receiver) -> Result<Option<Event>, ClientError> {
        let Some(message) = receiver.fetch()? else { return Ok(None) };
        let Message { head, body } = receiver.message(message);
        let head = Head::parse(head).ok_or(ClientError::Rules)?;
        match head.kind {
            Kind::Result => {
                self.answer.parse(&head, body).ok_or(ClientError::Rules)?;
                self.token = head.token;
                let (subchannel, parameter) = (head.subchannel, head.values[0]);
                let event = match head.flags & flag::INTERMEDIATE {
                    0 => Event::Ended { subchannel, parameter },
                    _ => Event::Intermediate { subchannel, parameter },
                };
                Ok(Some(event))
            }
            Kind::Attached => {
                let attached = Attached::parse(body).ok_or(ClientError::Rules)?;
                self.attached = Some(attached);
                self.results = receiver.lent(attached.results);
                self.cache = attached.cache.and_then(|segment| receiver.lent(segment));
                if self.results.is_none() || (attached.cache.is_some() && self.cache.is_none()) {
                    return Err(ClientError::Rules);
                }
                Ok(Some(Event::Attached(attached)))
            }
            Kind::Refused => {
                let code = head.values[0] as u8;
                Ok(Some(Event::Refused { subchannel: head.subchannel, code }))
            }
            _ => Err(ClientError::Rules),
        }
    }

    /// What became of the program that ended last.
    #[inline]
    pub fn answer(&self) -> &Answer {
        &self.answer
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
        self.answer.sources.iter().map(Extent::bytes).sum()
    }

    /// Copies what was read, from the start, into memory of the program's own. Returns how many bytes.
    ///
    /// # Errors
    /// [`ClientError::Rules`] if the channel names what it has not lent.
    pub fn copy(&self, target: &mut [u8]) -> Result<usize, ClientError> {
        let mut at = 0;
        for extent in &self.answer.sources {
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
        for extent in &self.answer.sources {
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
        let Client { storage, attached, cache, results, answer, .. } = self;
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
