//! Both sides of a path, and the model of it.

mod complete;
mod end;
mod event;
mod receive;
mod reply;
mod send;

use fabric::path::Terms;
use message::iucv::{Counts, Limits, MessageId, Path, ReceiveError, Which};
use proof::honest::iucv;

use super::deeds::{Deed, Pick};
use super::model::{Flow, Message, Source, Target};

/// The longest message.
const BYTES_MAX: usize = 1 << 20;

/// Messages of more bytes, head included, are announced: how many can be depends on the terms.
const LARGE_BYTES: usize = 65_000;

/// A class that no message has.
const NOBODYS: Which = Which::Class(99);

/// How a path ends.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Which side ends it.
    pub side: usize,
    /// It severs with this data, or it is dropped.
    pub data: Option<[u8; 16]>,
    /// Whether either side knows what the other has done before.
    pub is_settled: bool,
}

/// Both sides of a path, and what is known of it. Flow `n` has the messages from side `n` to the other.
pub struct World {
    paths: [Path; 2],
    flows: [Flow; 2],
    limits: Limits,
    quiet: [Quiet; 2],
    /// Messages and replies so far: each has data of its own.
    numbers: usize,
    buffer: Vec<u8>,
}

/// Whether a side wants quiet, and has certainly said so; and whether the other was told by an event.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    is_wanted: bool,
    is_sent: bool,
    is_notified: bool,
}

fn other(side: usize) -> usize {
    1 - side
}

impl World {
    pub fn new(limits: Limits) -> World {
        World {
            paths: iucv(Terms::DEFAULT, limits),
            flows: [Flow::new(limits.ours), Flow::new(limits.theirs)],
            limits,
            quiet: Default::default(),
            numbers: 0,
            buffer: vec![0; BYTES_MAX],
        }
    }

    /// Does one deed to the path and to the model, and compares what they answer.
    pub fn act(&mut self, side: usize, deed: Deed) {
        match deed {
            Deed::Send { way, outgoing, bytes } => {
                self.send(side, way, outgoing, bytes);
            }
            Deed::Receive { which, room } => {
                let which = self.received(side, which);
                self.receive(side, which, room);
            }
            Deed::ReceiveInPlace(which) => self.receive_in_place(side, which),
            Deed::ReceivePacked => self.receive_packed(side),
            Deed::Skip(which) => self.skip(side, which),
            Deed::Discard(which) => self.discard(side, which),
            Deed::Describe(which) => self.describe(side, which),
            Deed::Reply { which, way, priority, bytes } => {
                if let Some(at) = self.pick(other(side), which) {
                    self.reply(side, at, way, priority, bytes);
                }
            }
            Deed::Reject(which) => {
                if let Some(at) = self.pick(other(side), which) {
                    self.reject(side, at);
                }
            }
            Deed::Purge { which, is_class_right } => {
                if let Some(at) = self.pick(side, which) {
                    self.purge(side, at, is_class_right);
                }
            }
            Deed::Complete { which, room } => {
                let which = self.completed(side, which);
                self.complete(side, which, room);
            }
            Deed::NextEvent(mask) => self.next_event(side, mask),
            Deed::Quiesce | Deed::Resume => {
                let is_wanted = matches!(deed, Deed::Quiesce);
                if is_wanted {
                    self.paths[side].quiesce()
                } else {
                    self.paths[side].resume()
                }
                let quiet = &mut self.quiet[side];
                (quiet.is_wanted, quiet.is_sent) = (is_wanted, false);
                self.flows[side].hand_over(|_| true);
            }
            Deed::Flush => {
                self.paths[side].flush();
                self.flows[side].hand_over(|_| true);
            }
            Deed::Poll => {
                self.paths[side].poll();
                self.has_polled(side);
            }
            Deed::Trim => {
                self.paths[side].trim();
                self.flows[side].hand_over(|_| true);
            }
            Deed::Settle => self.settle(),
        }
        self.has_acted();
    }

    /// A verb is done: what there was to say was said, if there was room.
    fn has_acted(&mut self) {
        for side in 0..2 {
            if !self.paths[side].has_pending_controls() {
                self.flows[side].source_has_said_all();
                self.flows[other(side)].target_has_said_all();
                self.quiet[side].is_sent = true;
            }
        }
        self.flows.iter_mut().for_each(Flow::tick);
    }

    /// A verb has looked at all that was said, or at the first of much: then the rest is looked at here.
    fn has_polled(&mut self, side: usize) {
        (0..3).for_each(|_| self.paths[side].poll());
        self.flows[side].source_has_polled();
        self.flows[other(side)].target_has_polled();
    }

    /// Both sides flush and poll until each knows all. What they know is compared.
    fn settle(&mut self) {
        let mut rounds = 0;
        while rounds < 3 || self.paths.iter().any(Path::has_pending_controls) {
            for path in &mut self.paths {
                path.flush();
                path.poll();
            }
            rounds += 1;
            assert!(rounds < 1000, "they have something to say and cannot say it");
        }
        for _ in 0..3 {
            for side in 0..2 {
                self.flows[side].hand_over(|_| true);
                self.has_polled(side);
            }
            self.has_acted();
        }
        for side in 0..2 {
            let (found, expected) = (self.paths[side].counts(), self.counts(side));
            assert!(found.pending <= expected.pending, "side {side}: {found:?}, not {expected:?}");
            let found = Counts { pending: expected.pending, ..found };
            assert_eq!(found, expected, "side {side}");
        }
    }

    /// What the counts are once all is settled, and the target has looked at every message.
    fn counts(&self, side: usize) -> Counts {
        let ours =
            |is_it: fn(&&Message) -> bool| self.flows[side].messages.iter().filter(is_it).count();
        let theirs = |is_it: fn(&&Message) -> bool| {
            self.flows[other(side)].messages.iter().filter(is_it).count()
        };
        Counts {
            sent: ours(|message| message.source == Source::Waits && message.outcome.is_none()),
            complete: ours(|message| message.outcome.is_some()),
            pending: theirs(|message| message.is_pending()),
            received: theirs(|message| message.target == Target::AwaitsReply),
        }
    }

    /// Settles, and takes every message out of the queues, by looking for one that is not there.
    fn clear(&mut self) {
        self.settle();
        for side in 0..2 {
            let nobodys = until_all_is_seen(
                &mut self.paths[side],
                |path| path.describe(NOBODYS),
                |found, path| *found == Err(ReceiveError::NotFound) && path.is_ready(),
            );
            assert_eq!(nobodys, Err(ReceiveError::NotFound));
            for message in &mut self.flows[other(side)].messages {
                if let Target::Pending { is_seen, .. } = &mut message.target {
                    *is_seen = true;
                }
            }
            assert_eq!(self.paths[side].counts(), self.counts(side), "side {side}");
        }
    }

    fn pick(&self, side: usize, which: u16) -> Option<usize> {
        let count = self.flows[side].messages.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    /// Which message a side means that receives.
    fn received(&self, side: usize, which: Pick) -> Which {
        self.which(other(side), which, |message| message.outgoing.target_class)
    }

    /// Which message a side means that takes completions.
    fn completed(&self, side: usize, which: Pick) -> Which {
        self.which(side, which, |message| message.outgoing.source_class)
    }

    fn which(&self, flow: usize, which: Pick, class: impl Fn(&Message) -> u32) -> Which {
        match which {
            Pick::Any => Which::Any,
            Pick::Class(class) => Which::Class(class),
            Pick::Message { which, is_class_right } => match self.pick(flow, which) {
                Some(at) => {
                    let message = &self.flows[flow].messages[at];
                    let class = class(message) + u32::from(!is_class_right);
                    Which::Message { id: message.id, class }
                }
                None => Which::Message { id: MessageId(which.into()), class: 0 },
            },
        }
    }
}

/// Does a verb again that found nothing, while there is more to poll.
fn until_all_is_seen<T>(
    path: &mut Path,
    mut verb: impl FnMut(&mut Path) -> T,
    is_in_vain: impl Fn(&T, &Path) -> bool,
) -> T {
    loop {
        let done = verb(path);
        if !is_in_vain(&done, path) || path.severed().is_some() {
            return done;
        }
    }
}

/// The target may have no such message.
fn assert_gone(message: &Message) {
    let is_gone = match message.target {
        Target::Pending { is_seen, .. } => !is_seen,
        Target::AwaitsReply => false,
        Target::Done => true,
    };
    assert!(is_gone || message.is_purged(), "{message:?} is not gone");
}
