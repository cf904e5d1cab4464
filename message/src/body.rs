//! Messages that are received in parts, wherever they lie.

use fabric::path::{Announced, HEAD_BYTES_MAX, InPage, Incoming, MessageRef, Receiver, Severed};
use fabric::queue::Violation;

/// Why giving back cannot fail.
const OWN: &str = "a body is of the receiver that it is used with";

/// Bytes that are kept in the reader itself at most: a line of the cache. (Of 10,000 messages of 64 B one is
/// received sooner by what an allocation of its own would take to come into the cache.)
const SHORT_BYTES_MAX: usize = 64;

/// Bytes of a large message that one call copies at most, so that a thread that serves many is not kept by one, and
/// one that waits looks at the clock.
const READ_BYTES_MAX: usize = 1 << 20;

/// Pulls of one call at most: a source could fill in a byte for each. An honest one fills in 64 KiB at a time.
const READ_PULLS_MAX: usize = READ_BYTES_MAX / (64 << 10);

/// The body of a message, and how much of it was received. It is given back with [`BodyReader::release`].
#[derive(Debug)]
pub struct BodyReader(Memory);

#[derive(Debug)]
enum Memory {
    /// In the receiver's memory, until the next message of its queue is asked for.
    Received { message: MessageRef, at: usize },
    /// In a page of the source's. Such messages are long, and their shape would be that of all.
    InPage(Box<(InPage, usize)>),
    /// In the storage of the source, which may still be filling it in.
    Announced(Box<Announced>),
    /// In memory of our own.
    Buffered { bytes: Box<[u8]>, at: usize },
    /// In memory of our own, right here.
    Short { bytes: [u8; SHORT_BYTES_MAX], at: u8, end: u8 },
}

impl BodyReader {
    /// What `parse` makes of the head of what has come, and its body. A list is no message: it is given back,
    /// and breaks the rules.
    #[inline]
    pub fn open<T>(
        receiver: &mut Receiver,
        incoming: Incoming,
        parse: impl FnOnce(&[u8]) -> Result<T, Violation>,
    ) -> (Result<T, Violation>, BodyReader) {
        let (parsed, memory) = match incoming {
            Incoming::Message(message) => {
                (parse(receiver.message(message).head), Memory::Received { message, at: 0 })
            }
            Incoming::InPage(message) => {
                let mut head = [0; HEAD_BYTES_MAX];
                let head = &mut head[..message.head_bytes()];
                message.view().read(0, head).expect("within the message");
                (parse(head), Memory::InPage(Box::new((message, 0))))
            }
            Incoming::Announced(message) => {
                (parse(message.head()), Memory::Announced(Box::new(message)))
            }
            Incoming::List(list) => {
                assert!(receiver.give_back_list(list).is_ok(), "{OWN}");
                return (Err(Violation::Record), BodyReader::none());
            }
        };
        (parsed, BodyReader(memory))
    }

    /// The body of a message in the receiver's memory, of which so many bytes were received.
    pub fn at(message: MessageRef, at: usize) -> BodyReader {
        BodyReader(Memory::Received { message, at })
    }

    /// None at all.
    pub fn none() -> BodyReader {
        BodyReader(Memory::Short { bytes: [0; _], at: 0, end: 0 })
    }

    /// How many bytes were not received.
    #[inline]
    pub fn left(&self) -> usize {
        match &self.0 {
            Memory::Received { message, at } => message.body_bytes() - at,
            Memory::InPage(page) => page.0.body_bytes() - page.1,
            Memory::Announced(message) => message.left_bytes(),
            Memory::Buffered { bytes, at } => bytes.len() - at,
            Memory::Short { at, end, .. } => usize::from(end - at),
        }
    }

    /// How many bytes of our own memory it takes.
    pub fn buffered_bytes(&self) -> usize {
        match &self.0 {
            Memory::Buffered { bytes, .. } => bytes.len(),
            Memory::Short { end, .. } => usize::from(*end),
            _ => 0,
        }
    }

    /// Copies the next bytes into `target`: as many as fit and are in place, and of a large message 1 MiB at most.
    ///
    /// # Errors
    /// [`Severed`] if the path has ended, and the rest is not to be had.
    #[inline]
    pub fn read(&mut self, receiver: &mut Receiver, target: &mut [u8]) -> Result<usize, Severed> {
        receiver.refuse_child()?;
        let copy = |source: &[u8], target: &mut [u8]| {
            let bytes = source.len().min(target.len());
            target[..bytes].copy_from_slice(&source[..bytes]);
            bytes
        };
        match &mut self.0 {
            Memory::Received { message, at } => {
                let bytes = copy(&receiver.message(*message).body[*at..], target);
                *at += bytes;
                Ok(bytes)
            }
            Memory::InPage(page) => {
                let (message, at) = &mut **page;
                let bytes = target.len().min(message.body_bytes() - *at);
                message.read(*at, &mut target[..bytes]).expect("within the message");
                *at += bytes;
                Ok(bytes)
            }
            Memory::Announced(message) => {
                let end = target.len().min(READ_BYTES_MAX).min(message.left_bytes());
                let mut copied = 0;
                for _ in 0..READ_PULLS_MAX {
                    if copied == end {
                        break;
                    }
                    match receiver.pull(message, &mut target[copied..end])? {
                        0 => break,
                        more => copied += more,
                    }
                }
                Ok(copied)
            }
            Memory::Buffered { bytes, at } => {
                let copied = copy(&bytes[*at..], target);
                *at += copied;
                Ok(copied)
            }
            Memory::Short { bytes, at, end } => {
                let copied = copy(&bytes[usize::from(*at)..usize::from(*end)], target);
                *at += copied as u8;
                Ok(copied)
            }
        }
    }

    /// Where it is, if it is in the receiver's memory.
    #[inline]
    pub fn message(&self) -> Option<MessageRef> {
        match self.0 {
            Memory::Received { message, .. } => Some(message),
            _ => None,
        }
    }

    /// Whether more can be read now, or never.
    pub fn is_readable(&self, receiver: &Receiver) -> bool {
        match &self.0 {
            Memory::Announced(message) => receiver.is_pullable(message),
            _ => true,
        }
    }

    /// Copies a body that keeps its queue from going on into memory of our own.
    pub fn buffer(self, receiver: &mut Receiver) -> BodyReader {
        let memory = match self.0 {
            Memory::Received { message, at } => match receiver.message(message).body {
                body if body.len() <= SHORT_BYTES_MAX => {
                    let mut bytes = [0; SHORT_BYTES_MAX];
                    bytes[..body.len()].copy_from_slice(body);
                    Memory::Short { bytes, at: at as u8, end: body.len() as u8 }
                }
                body => Memory::Buffered { bytes: body.into(), at },
            },
            Memory::InPage(page) => {
                let (message, at) = *page;
                let mut bytes = vec![0; message.body_bytes()].into_boxed_slice();
                message.read(0, &mut bytes).expect("within the message");
                assert!(receiver.give_back(message).is_ok(), "{OWN}");
                Memory::Buffered { bytes, at }
            }
            memory => memory,
        };
        BodyReader(memory)
    }

    /// Gives back the page or the storage of the source that it keeps.
    #[inline]
    pub fn release(self, receiver: &mut Receiver) {
        match self.0 {
            Memory::InPage(page) => assert!(receiver.give_back(page.0).is_ok(), "{OWN}"),
            Memory::Announced(message) => assert!(receiver.release(*message).is_ok(), "{OWN}"),
            Memory::Received { .. } | Memory::Buffered { .. } | Memory::Short { .. } => {}
        }
    }
}
