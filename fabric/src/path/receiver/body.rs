//! Messages that are received in parts, wherever they lie.

use super::Receiver;
use super::incoming::{InPage, Picked, Spot};
use super::large::{Announced, PullError};
use crate::path::record::HEAD_BYTES_MAX;

/// The body of a message, and how much of it was received: for conversations over a path that receive in
/// parts. Give it back with [`Body::release`].
#[derive(Debug)]
pub struct Body {
    source: Source,
    bytes: usize,
    at: usize,
}

#[derive(Debug)]
enum Source {
    /// In the receiver's memory, until the next message is picked from its queue.
    Spot(Spot),
    /// In a page of the source's. Such messages are long, and their shape would be that of all.
    InPage(Box<InPage>),
    /// In the storage of the source, which may still be filling it in.
    Announced(Box<Announced>),
    /// In memory of our own.
    Parked(Box<[u8]>),
}

impl Body {
    /// The body of a message that was picked, and what `parse` makes of its head. A list is no message: it is
    /// given back.
    #[inline]
    pub fn open<T>(
        receiver: &mut Receiver,
        picked: Picked,
        parse: impl FnOnce(&[u8]) -> T,
    ) -> Option<(T, Body)> {
        Some(match picked {
            Picked::Message(spot) => {
                (parse(receiver.message(spot).head), Body::at_spot(receiver, spot))
            }
            Picked::InPage(message) => {
                let mut head = [0; HEAD_BYTES_MAX];
                let head = &mut head[..message.head_bytes()];
                message.view().read(0, head).expect("within the message");
                (parse(head), Body::in_page(message))
            }
            Picked::Announced(message) => (parse(message.head()), Body::announced(message)),
            Picked::List(list) => {
                receiver.give_back_list(list);
                return None;
            }
        })
    }

    /// The body of a message in the receiver's memory.
    #[inline]
    pub fn at_spot(receiver: &Receiver, spot: Spot) -> Body {
        let bytes = receiver.message(spot).body.len();
        Body { source: Source::Spot(spot), bytes, at: 0 }
    }

    fn in_page(message: InPage) -> Body {
        Body { bytes: message.body_bytes(), source: Source::InPage(Box::new(message)), at: 0 }
    }

    fn announced(message: Announced) -> Body {
        Body { bytes: message.body_bytes(), source: Source::Announced(Box::new(message)), at: 0 }
    }

    /// The same, of which so many bytes were received.
    pub fn from(self, at: usize) -> Body {
        Body { at, ..self }
    }

    /// None at all.
    pub fn none() -> Body {
        Body { source: Source::Parked(Box::default()), bytes: 0, at: 0 }
    }

    /// How many bytes there are.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many of them were not received.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes - self.at
    }

    /// Copies the next bytes into `target`: as many as fit and are in place.
    ///
    /// # Errors
    /// [`PullError`].
    #[inline]
    pub fn read(&mut self, receiver: &mut Receiver, target: &mut [u8]) -> Result<usize, PullError> {
        let bytes = self.left().min(target.len());
        let target = &mut target[..bytes];
        let from = self.at;
        let copied = match &mut self.source {
            Source::Spot(spot) => {
                target.copy_from_slice(&receiver.message(*spot).body[from..from + bytes]);
                bytes
            }
            Source::InPage(message) => {
                message.read(from, target).expect("within the message");
                bytes
            }
            Source::Announced(message) => {
                let mut copied = 0;
                while copied < bytes {
                    match receiver.pull(message, &mut target[copied..])? {
                        0 => break,
                        more => copied += more,
                    }
                }
                copied
            }
            Source::Parked(parked) => {
                target.copy_from_slice(&parked[from..from + bytes]);
                bytes
            }
        };
        self.at += copied;
        Ok(copied)
    }

    /// All bytes, if they lie in memory of our own.
    #[inline]
    pub fn whole<'a>(&'a self, receiver: &'a Receiver) -> Option<&'a [u8]> {
        match &self.source {
            Source::Spot(spot) => Some(receiver.message(*spot).body),
            Source::Parked(bytes) => Some(bytes),
            Source::InPage(_) | Source::Announced(_) => None,
        }
    }

    /// Where it is, if it is in the receiver's memory.
    #[inline]
    pub fn spot(&self) -> Option<Spot> {
        match self.source {
            Source::Spot(spot) => Some(spot),
            _ => None,
        }
    }

    /// Whether more can be read now, or never.
    pub fn is_readable(&self, receiver: &Receiver) -> bool {
        match &self.source {
            Source::Announced(message) => receiver.is_pullable(message),
            _ => true,
        }
    }

    /// Sees to it that the queue can go on: copies what is in its way into memory of our own.
    pub fn park(mut self, receiver: &mut Receiver) -> Parked {
        let parked = match &self.source {
            Source::Spot(spot) if self.bytes <= SHORT_BYTES_MAX => {
                let mut short = Short { bytes: [0; _], end: self.bytes as u8, at: self.at as u8 };
                short.bytes[..self.bytes].copy_from_slice(receiver.message(*spot).body);
                return Parked(Place::Here(short));
            }
            Source::Spot(spot) => receiver.message(*spot).body.into(),
            Source::InPage(message) => {
                let mut bytes = vec![0; self.bytes];
                message.read(0, &mut bytes).expect("within the message");
                bytes.into_boxed_slice()
            }
            Source::Announced(_) | Source::Parked(_) => return Parked(Place::There(self)),
        };
        std::mem::replace(&mut self.source, Source::Parked(parked)).release(receiver);
        Parked(Place::There(self))
    }

    /// Gives back what it keeps of the source's.
    #[inline]
    pub fn release(self, receiver: &mut Receiver) {
        self.source.release(receiver);
    }
}

/// A body that is in no queue's way.
#[derive(Debug)]
pub struct Parked(Place);

#[derive(Debug)]
enum Place {
    /// Here: it is found with what is known of its message. (Of 10,000 messages of 64 B one is received
    /// sooner by what an allocation of its own would take to come into the cache.)
    Here(Short),
    There(Body),
}

/// Bytes that are parked here at most: a line of the cache.
const SHORT_BYTES_MAX: usize = 64;

#[derive(Debug)]
struct Short {
    bytes: [u8; SHORT_BYTES_MAX],
    end: u8,
    at: u8,
}

impl Short {
    fn left(&self) -> &[u8] {
        &self.bytes[usize::from(self.at)..usize::from(self.end)]
    }
}

impl Parked {
    /// None at all.
    pub fn none() -> Parked {
        Parked(Place::Here(Short { bytes: [0; _], end: 0, at: 0 }))
    }

    /// How many bytes were not received.
    pub fn left(&self) -> usize {
        match &self.0 {
            Place::Here(short) => short.left().len(),
            Place::There(body) => body.left(),
        }
    }

    /// How many bytes of our own memory it keeps.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Place::Here(short) => short.end.into(),
            Place::There(Body { source: Source::Parked(bytes), .. }) => bytes.len(),
            Place::There(_) => 0,
        }
    }

    /// As [`Body::read`].
    ///
    /// # Errors
    /// [`PullError`].
    pub fn read(&mut self, receiver: &mut Receiver, target: &mut [u8]) -> Result<usize, PullError> {
        match &mut self.0 {
            Place::Here(short) => {
                let bytes = short.left().len().min(target.len());
                target[..bytes].copy_from_slice(&short.left()[..bytes]);
                short.at += bytes as u8;
                Ok(bytes)
            }
            Place::There(body) => body.read(receiver, target),
        }
    }

    /// As [`Body::whole`].
    pub fn whole<'a>(&'a self, receiver: &'a Receiver) -> Option<&'a [u8]> {
        match &self.0 {
            Place::Here(short) => Some(&short.bytes[..usize::from(short.end)]),
            Place::There(body) => body.whole(receiver),
        }
    }

    /// As [`Body::is_readable`].
    pub fn is_readable(&self, receiver: &Receiver) -> bool {
        match &self.0 {
            Place::Here(_) => true,
            Place::There(body) => body.is_readable(receiver),
        }
    }

    /// As [`Body::release`].
    pub fn release(self, receiver: &mut Receiver) {
        if let Place::There(body) = self.0 {
            body.release(receiver);
        }
    }
}

impl Source {
    fn release(self, receiver: &mut Receiver) {
        match self {
            Source::InPage(message) => receiver.give_back(*message),
            Source::Announced(message) => receiver.release(*message),
            Source::Spot(_) | Source::Parked(_) => {}
        }
    }
}
