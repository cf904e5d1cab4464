//! Paths of IUCV: messages one way, or questions and their replies.

use host::report::Counts;
use siga::Guest;
use siga::connect::END_DATA_BYTES;
use siga::iucv::{Answered, IucvPath, MessageId, Options, Outgoing, ReceiveError};

use super::path::{OVER_PATHS, TARGET, add_counters};
use super::{End, Opened, Opening, PIECE_BYTES, Transport, attach, ended, is_source, wait};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};

pub(super) const IUCV: Transport = Transport {
    name: "iucv",
    meaning: "a path of IUCV; quiet one-way messages in a stream, two-way messages and replies elsewhere",
    stream: Some(|opening| opening.stream(|opening| OneWayEnd::open(opening, true))),
    exchange: Some(|opening| opening.exchange(TwoWayEnd::open)),
    request: Some(|opening| opening.request(TwoWayEnd::open)),
    ..OVER_PATHS
};

pub(super) const IUCV_SEND: Transport = Transport {
    name: "iucv-send",
    meaning: "a path of IUCV, each message receivable before the next is made",
    stream: Some(|opening| opening.stream(|opening| OneWayEnd::open(opening, false))),
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
    let path = if is_source(order) {
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

/// What can still be received has been, and the path has ended; everything else is a fault.
#[cold]
pub(crate) fn ended_iucv(error: ReceiveError) -> Result<bool, Fault> {
    match error {
        ReceiveError::Severed(severed) => ended(severed),
        error => Err(error).doing("receive"),
    }
}

/// One end of a path over which messages go one way, and nobody wants to know when they were received.
#[derive(Debug)]
pub(crate) struct OneWayEnd {
    path: IucvPath,
    outgoing: Outgoing,
    /// Whether messages may go together while the receiver is behind.
    is_pushed: bool,
    buffer: Vec<u8>,
    _guest: Guest,
}

impl OneWayEnd {
    pub(crate) fn open(opening: Opening<'_>, is_pushed: bool) -> Opened<OneWayEnd> {
        let Opening { order, control, bytes, .. } = opening;
        let (guest, path) = connect_iucv(order, control, LIMIT)?;
        let outgoing = Outgoing { quiet: true, ..Outgoing::default() };
        Ok(OneWayEnd { path, outgoing, is_pushed, buffer: vec![0; bytes], _guest: guest })
    }
}

impl End for OneWayEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let body = &mut self.buffer[..bytes];
        build(body);
        let sent = if self.is_pushed {
            self.path.push(&self.outgoing, body)
        } else {
            self.path.send(&self.outgoing, body)
        };
        sent.map(drop).doing("send")
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.path.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(
        &mut self,
        _bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        match self.path.next() {
            Ok((_, body)) => {
                read(0, body);
                Ok(true)
            }
            Err(error) => ended_iucv(error),
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

/// One end of a path over which the source asks and the target replies.
#[derive(Debug)]
pub(crate) struct TwoWayEnd {
    path: IucvPath,
    is_source: bool,
    /// What was asked and not replied to.
    asked: Option<MessageId>,
    buffer: Vec<u8>,
    _guest: Guest,
}

impl TwoWayEnd {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<TwoWayEnd> {
        let Opening { order, control, bytes, .. } = opening;
        let (guest, path) = connect_iucv(order, control, Options::DEFAULT.limit)?;
        let (is_source, buffer) = (is_source(order), vec![0; bytes]);
        Ok(TwoWayEnd { path, is_source, asked: None, buffer, _guest: guest })
    }
}

impl End for TwoWayEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let most = self.buffer.len() as u32;
        let body = &mut self.buffer[..bytes];
        build(body);
        if self.is_source {
            let outgoing = Outgoing { reply_bytes_max: Some(most), ..Outgoing::default() };
            self.asked = Some(self.path.send(&outgoing, body).doing("send")?);
            return Ok(());
        }
        let asked = self.asked.take().expect("a reply comes after its question");
        self.path.reply(asked, body).doing("reply")
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.path.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        if self.is_source {
            let asked = self.asked.take().expect("a reply comes after its question");
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
        match self.path.next() {
            Ok((pending, body)) => {
                read(0, body);
                self.asked = Some(pending.id);
                Ok(true)
            }
            Err(error) => ended_iucv(error),
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
