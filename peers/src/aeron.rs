//! Aeron IPC: a log in shared memory for each direction.
//!
//! Aeron has no way to sleep until a message comes: both sides spin.

use std::ffi::CString;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

use lab::worker::{Doing, End, Fault, Order};
use rusteron_client::{
    Aeron, AeronBufferClaim, AeronContext, AeronExclusivePublication, AeronImage, AeronOfferError,
    AeronSubscription, Handlers,
};

use crate::driver;

/// The length of a term, of which a log has three. (64 MiB, which is usual, leave the caches: a third of the
/// messages of 64 B.)
const TERM_BYTES: usize = 4 << 20;

/// The longest term.
const TERM_BYTES_MAX: usize = 1 << 30;

/// A message is at most this part of a term.
const TERM_MESSAGES_MIN: usize = 8;

/// The longest frame: with the usual 1408 B longer messages would be put together from many.
const FRAME_BYTES_MAX: usize = 65504;

/// A frame begins with this many bytes of header.
const HEADER_BYTES: usize = 32;

/// Frames that one call shows at most. Aeron's own samples take ten; with more its price is shared by more.
const FRAMES_MAX: usize = 256;

/// How long the two sides may take to find each other.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The streams: source to target, and target to source.
const STREAMS: [i32; 2] = [1, 2];

/// How messages get into the log.
pub trait Way {
    /// Publishes one message that `build` makes, or waits until there is room.
    fn publish(
        output: &mut Output,
        bytes: usize,
        build: impl FnMut(&mut [u8]),
    ) -> Result<(), Fault>;
}

/// Built by the program, and copied into the log.
pub struct Offered;

/// Built in the log. A message is one frame then.
pub struct Claimed;

/// One end of two logs.
pub struct AeronEnd<W> {
    output: Output,
    input: Input,
    term_bytes: usize,
    way: std::marker::PhantomData<W>,
    // Dropped after what is made of it.
    _aeron: Aeron,
}

/// The publishing half.
pub struct Output {
    publication: AeronExclusivePublication,
    claim: AeronBufferClaim,
    buffer: Vec<u8>,
}

/// The subscribing half.
struct Input {
    image: AeronImage,
    _subscription: AeronSubscription,
    /// How much of a message in several frames has been shown.
    at: usize,
    has_ended: bool,
}

impl<W: Way> AeronEnd<W> {
    pub fn open(order: &Order) -> Result<AeronEnd<W>, Fault> {
        let bytes = order.number("bytes") as usize;
        let term_bytes = (bytes * TERM_MESSAGES_MIN).next_power_of_two().max(TERM_BYTES);
        if term_bytes > TERM_BYTES_MAX {
            return Err(Fault::Unable(format!("no message of {bytes} B goes over Aeron")));
        }
        let channel = format!("aeron:ipc?term-length={term_bytes}|mtu={FRAME_BYTES_MAX}");
        let channel = CString::new(channel).expect("no zero byte");
        let context = AeronContext::new().doing("make an Aeron context")?;
        context.set_dir(&driver::directory(order)).doing("set Aeron's directory")?;
        context.set_pre_touch_mapped_memory(true).doing("let Aeron touch its memory")?;
        let aeron = Aeron::new(&context).doing("connect to Aeron's media driver")?;
        aeron.start().doing("start an Aeron client")?;
        let [forth, back] = STREAMS;
        let (output, input) = if order.is_source() { (forth, back) } else { (back, forth) };
        let subscription = aeron
            .add_subscription(&channel, input, Handlers::NONE, Handlers::NONE, CONNECT_TIME_MAX)
            .doing("subscribe")?;
        let publication = aeron
            .add_exclusive_publication(&channel, output, CONNECT_TIME_MAX)
            .doing("make a publication")?;
        let until = Instant::now() + CONNECT_TIME_MAX;
        let image = loop {
            let image = subscription.image_at_index(0);
            if let Some(image) = image.filter(|_| publication.is_connected()) {
                break image;
            }
            if Instant::now() > until {
                return Err(Fault::Ended);
            }
            std::thread::yield_now();
        };
        let claim = AeronBufferClaim::new_zeroed_on_heap();
        let output = Output { publication, claim, buffer: vec![0; bytes] };
        let input = Input { image, _subscription: subscription, at: 0, has_ended: false };
        Ok(AeronEnd { output, input, term_bytes, way: std::marker::PhantomData, _aeron: aeron })
    }
}

/// Whether a message was taken: false if it is to be tried again.
#[inline(always)]
fn was_taken(position: Result<i64, AeronOfferError>) -> Result<bool, Fault> {
    match position {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => {
            spin_loop();
            Ok(false)
        }
        Err(error) => Err(error).doing("publish"),
    }
}

impl Output {
    #[inline(always)]
    fn offer(&self, message: &[u8]) -> Result<(), Fault> {
        while !was_taken(self.publication.offer(message))? {}
        Ok(())
    }
}

impl Way for Offered {
    #[inline(always)]
    fn publish(
        output: &mut Output,
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), Fault> {
        build(&mut output.buffer[..bytes]);
        output.offer(&output.buffer[..bytes])
    }
}

impl Way for Claimed {
    #[inline(always)]
    fn publish(
        output: &mut Output,
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), Fault> {
        while !was_taken(output.publication.try_claim(bytes, &output.claim))? {}
        build(output.claim.data_mut());
        output.claim.commit().map(|_| ()).doing("commit a claim")
    }
}

impl Input {
    /// Shows the frames that have come, at most so many, where they lie in the log. False if the other side has finished.
    #[inline(always)]
    fn show(
        &mut self,
        bytes: usize,
        most: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        let mut is_right = true;
        let show = |piece: &[u8]| {
            if piece.is_empty() {
                self.has_ended = true;
            } else if piece.len() > bytes - self.at {
                is_right = false;
            } else {
                read(self.at, piece);
                self.at += piece.len();
                if self.at == bytes {
                    self.at = 0;
                }
            }
        };
        if poll(&self.image, show, most)? == 0 {
            spin_loop();
        }
        if is_right {
            Ok(!self.has_ended)
        } else {
            Err(Fault::Refused { what: "receive", why: "another length".into() })
        }
    }
}

/// Shows up to `most` frames to `show`, and says how many.
#[inline(always)]
fn poll(image: &AeronImage, mut show: impl FnMut(&[u8]), most: usize) -> Result<i32, Fault> {
    image.poll_fn(|frame, _| show(frame), most).doing("poll")
}

impl<W: Way> End for AeronEnd<W> {
    #[inline(always)]
    fn send(&mut self, bytes: usize, build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        W::publish(&mut self.output, bytes, build)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    const SHOWS_MANY: bool = true;

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let mut shown = 0;
        while shown < bytes {
            // None of the next message.
            let frames = (bytes - shown).div_ceil(FRAME_BYTES_MAX - HEADER_BYTES);
            let goes_on = self.input.show(bytes, frames, |at, piece| {
                read(at, piece);
                shown = at + piece.len();
            })?;
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline(always)]
    fn show(&mut self, bytes: usize, read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        self.input.show(bytes, FRAMES_MAX, read)
    }

    /// A message of no bytes is the last one.
    fn finish(&mut self) -> Result<(), Fault> {
        self.output.offer(&[])
    }

    fn settings(&self) -> std::collections::BTreeMap<String, u64> {
        [("aeron_term_bytes", self.term_bytes), ("aeron_frame_bytes_max", FRAME_BYTES_MAX)]
            .map(|(name, bytes)| (name.to_owned(), bytes as u64))
            .into()
    }
}
