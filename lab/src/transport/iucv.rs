//! Paths of IUCV: messages one way, or questions and their replies.

use host::report::Counts;
use siga::Guest;
use siga::connect::END_DATA_BYTES;
use siga::iucv::{Answered, IucvPath, MessageId, Options, Outgoing, ReceiveError};

use super::path::{OVER_PATHS, TARGET, add_counters};
use super::{Can, End, Opening, PIECE_BYTES, Transport, attach, ended, wait};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};

pub(super) const IUCV: Transport = Transport {
    name: "iucv",
    meaning: "a path of IUCV; quiet one-way messages in a stream, two-way messages and replies elsewhere",
    carry: |opening| match opening.what {
        Can::Stream => opening.over(|opening| IucvEnd::open(opening, Way::Pushed)),
        _ if opening.order.is_source() => {
            opening.over(|opening| IucvEnd::open(opening, Way::Asked))
        }
        _ => opening.over(|opening| IucvEnd::open(opening, Way::Replied)),
    },
    ..OVER_PATHS
};

pub(super) const IUCV_SEND: Transport = Transport {
    name: "iucv-send",
    meaning: "a path of IUCV, each message receivable before the next is made",
    can: &[Can::Stream],
    carry: |opening| opening.over(|opening| IucvEnd::open(opening, Way::Sent)),
    ..OVER_PATHS
};

/// Messages that a stream may have outstanding. A limit that is reached is a round trip in which nothing goes,
/// and from some thousands on it is not reached. (64 B, M/s on a busy machine: 255 6.4, 1000 8.0, 4000 10.6,
/// 10 000 10.6, 65 535 10.4.)
const LIMIT: u32 = 10_000;

/// Makes a path of IUCV on which so many messages may be outstanding.
pub(crate) fn connect_iucv(
    order: &Order,
    control: &mut Control,
    limit: u32,
) -> Result<(Guest, IucvPath), Fault> {
    let options = Options { limit, wait: wait(order), ..Options::default() };
    let guest = attach(order, control)?;
    let path = if order.is_source() {
        IucvPath::connect(&guest, TARGET, &options).doing("connect")?
    } else {
        IucvPath::accept(&guest, &options).doing("accept")?
    };
    Ok((guest, path))
}

/// The counters of a path, of both queues together.
pub(crate) fn counts_of_iucv(path: &mut IucvPath) -> Counts {
    let mut counts = Counts::new();
    let (senders, receivers) = path.raw().halves();
    senders.iter_mut().for_each(|half| add_counters(&mut counts, "output", half.counters()));
    receivers.iter_mut().for_each(|half| add_counters(&mut counts, "input", half.counters()));
    counts
}

/// How an end sends its messages.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One way, and nobody wants to know when they were received. They may go together while the receiver is behind.
    Pushed,
    /// The same, one by one.
    Sent,
    /// As questions.
    Asked,
    /// As replies to what was received last.
    Replied,
}

/// One end of a path.
#[derive(Debug)]
struct IucvEnd {
    path: IucvPath,
    way: Way,
    outgoing: Outgoing,
    /// What was asked and not replied to.
    asked: Option<MessageId>,
    buffer: Vec<u8>,
    _guest: Guest,
}

impl IucvEnd {
    fn open(opening: &mut Opening<'_>, way: Way) -> Result<IucvEnd, Fault> {
        let Opening { order, control, bytes, .. } = opening;
        let one_way = Outgoing { quiet: true, ..Outgoing::default() };
        let two_way = Outgoing { reply_bytes_max: Some(*bytes as u32), ..Outgoing::default() };
        let (limit, outgoing) = match way {
            Way::Pushed | Way::Sent => (LIMIT, one_way),
            Way::Asked | Way::Replied => (Options::DEFAULT.limit, two_way),
        };
        let (guest, path) = connect_iucv(order, control, limit)?;
        let buffer = vec![0; *bytes];
        Ok(IucvEnd { path, way, outgoing, asked: None, buffer, _guest: guest })
    }

    fn take_asked(&mut self) -> MessageId {
        self.asked.take().expect("a reply comes after its question")
    }

    /// Receives a reply of at most so many bytes, piece by piece.
    #[inline(always)]
    fn receive_reply(
        &mut self,
        bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        let asked = self.take_asked();
        let room = bytes.min(PIECE_BYTES);
        let mut at = 0;
        loop {
            let answered = self.path.answer(asked, 0, &mut self.buffer[..room]);
            let Answered { bytes, residual, .. } = answered.doing("take a reply")?;
            read(at, &self.buffer[..bytes]);
            at += bytes;
            if residual == 0 {
                return Ok(true);
            }
        }
    }
}

impl End for IucvEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        build(&mut self.buffer[..bytes]);
        if let Way::Replied = self.way {
            let asked = self.take_asked();
            return self.path.reply(asked, &self.buffer[..bytes]).doing("reply");
        }
        let body = &self.buffer[..bytes];
        let sent = match self.way {
            Way::Pushed => self.path.push(&self.outgoing, body),
            _ => self.path.send(&self.outgoing, body),
        };
        self.asked = Some(sent.doing("send")?);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.path.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        if let Way::Asked = self.way {
            return self.receive_reply(bytes, read);
        }
        match self.path.next() {
            Ok((pending, body)) => {
                read(0, body);
                self.asked = Some(pending.id);
                Ok(true)
            }
            Err(ReceiveError::Severed(severed)) => ended(severed),
            Err(error) => Err(error).doing("receive"),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.path.raw().sever([0; END_DATA_BYTES]);
        Ok(())
    }

    fn counts(&mut self) -> Counts {
        counts_of_iucv(&mut self.path)
    }
}
