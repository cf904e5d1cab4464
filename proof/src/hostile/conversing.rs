//! An honest side of a path of IUCV, and a peer driven by a script.

use fabric::path::{NO_DATA, Reason};
use fabric::queue::QUEUE_BUFFERS;
use message::iucv::{
    Audit, Completion, Event, Limits, MessageId, Outgoing, PARAMETER_BYTES, Path, PendingMessage,
    ReceiveError, Received, Which,
};
use os::doorbell::Listen;

use super::liar::{Known, Liar, OURS, Sent, THEIRS};
use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, TERMS, Watch};
use crate::bare::face_iucv;
use crate::honest::body;

/// Messages that the honest side's user remembers to have seen.
const SEEN_MAX: usize = 10;

/// The longest message that is received at once.
const ROOM_BYTES: usize = 100_000;

/// What there may be to say at a time: something about each message, and whether to be quiet.
const PENDING_CONTROLS_MAX: usize = (OURS + THEIRS + 1) as usize;

/// An honest side, and what its user knows.
struct Conversing {
    path: Path,
    seen: Vec<PendingMessage>,
    known: Known,
    buffer: Vec<u8>,
    serial: u32,
}

/// A side that may say anything about messages, at any time between two verbs of the other side: about its
/// own and the other's, those that are and those that are not, in any form; that announces what it never
/// fills in, takes nothing of what it is sent, and ends in any way.
///
/// # Panics
/// If it does harm.
pub fn iucv_peer(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let limits = Limits {
            ours: OURS,
            theirs: THEIRS,
            parameters_for_us: script.below(4) > 0,
            parameters_for_them: true,
        };
        let (queues, path) = face_iucv(TERMS, limits);
        let keeps_all = script.below(8) == 0;
        let mut liar = Liar::new(queues, keeps_all);
        let mut conversing = Conversing::new(path);
        if keeps_all {
            conversing.fill_queue();
        }
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            if script.below(2) == 0 {
                liar.act(&mut script, &mut conversing.known);
            } else {
                conversing.act(&mut script);
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        conversing.finish();
        neighbour.visit();
    }
    watch.stop();
}

impl Conversing {
    fn new(path: Path) -> Conversing {
        let (seen, known, buffer) = (Vec::new(), Known::default(), vec![0; ROOM_BYTES]);
        Conversing { path, seen, known, buffer, serial: 0 }
    }

    /// Says so much that there is no room for more.
    fn fill_queue(&mut self) {
        for _ in 0..QUEUE_BUFFERS {
            self.path.quiesce();
            self.path.resume();
        }
        self.path.quiesce();
        assert!(self.path.has_pending_controls());
    }

    /// One verb.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(20) {
            0..4 => self.send(script),
            4..8 => self.receive(script),
            8 => self.receive_in_place(script),
            9 => self.describe(script),
            10 | 11 => self.reply(script),
            12 => {
                let Some(PendingMessage { id, .. }) = self.seen(script) else { return };
                if script.below(4) == 0 {
                    self.path.skip(id);
                } else if self.path.reject(id).is_ok() {
                    self.has_ended(id);
                }
            }
            13 => self.purge(script),
            14 | 15 => {
                let which = self.which_of_ours(script);
                self.complete(which, script.pick(&[ROOM_BYTES, ROOM_BYTES, 0, 10]));
            }
            16 => {
                let mask = script.pick(&[u16::MAX, u16::MAX, 0b11_0000_0000, 0b1111_0000]);
                let event = self.path.next_event(|interrupt| mask & 1 << interrupt as u16 != 0);
                match event {
                    Some(Event::Pending(pending)) => self.see(pending),
                    Some(Event::Complete(completion)) => self.check(&completion),
                    _ => {}
                }
            }
            17 => match script.below(8) {
                0 | 1 => self.path.quiesce(),
                2 | 3 => self.path.resume(),
                4 if script.below(8) == 0 => self.path.sever([1; 16]),
                _ => {
                    self.path.hear_arrivals(Listen::Now);
                    self.path.hear_returns();
                }
            },
            18 => {
                self.path.poll();
                self.path.trim();
            }
            _ => self.path.flush(),
        }
        let counts = self.path.counts();
        assert!(counts.sent + counts.complete <= OURS as usize, "{counts:?}");
        assert!(counts.pending + counts.received <= THEIRS as usize, "{counts:?}");
        let pending = self.path.pending_controls();
        assert!(pending <= PENDING_CONTROLS_MAX, "{pending} controls are pending");
    }

    fn send(&mut self, script: &mut Script<'_>) {
        self.serial += 1;
        let outgoing = Outgoing {
            target_class: script.below(3) as u32,
            source_class: script.below(3) as u32,
            tag: self.serial,
            priority: script.below(3) == 0,
            reply_bytes_max: script.pick(&[None, Some(0), Some(8), Some(5000), Some(200_000)]),
            quiet: script.below(4) == 0,
        };
        let data = body(2, script.pick(&[0, 8, 50, 300, 5000, 30_000, 100_000]));
        let sent = match script.below(4) {
            0 => self.path.push(&outgoing, data),
            1 => self.path.send(&outgoing, data),
            2 => self.path.send_built(&outgoing, data.len(), |t| t.copy_from_slice(data)),
            _ => self.path.send_parameters(&outgoing, [1; PARAMETER_BYTES]),
        };
        let Ok(MessageId(id)) = sent else { return };
        let Outgoing { source_class: class, tag, reply_bytes_max, quiet, .. } = outgoing;
        // Of those who had this index before nothing is heard any more.
        let is_over = |sent: &Sent| sent.is_purged || sent.quiet && sent.reply_bytes_max.is_none();
        self.known.sent.retain(|before, sent| {
            let is_before = (*before ^ id) & 0xffff == 0;
            assert!(!is_before || is_over(sent), "the index of {before:08x} is taken");
            !is_before
        });
        self.known.sent.insert(id, Sent { class, tag, reply_bytes_max, quiet, is_purged: false });
    }

    /// Which message to receive: any, one of a class, one that was seen, or one that never was.
    fn which(&mut self, script: &mut Script<'_>) -> Which {
        match script.below(6) {
            0..3 => Which::Any,
            3 => Which::Class(script.below(3) as u32),
            _ => match self.seen(script) {
                Some(PendingMessage { id, class, .. }) => Which::Message { id, class },
                None => Which::Message { id: MessageId(script.number() as u32), class: 0 },
            },
        }
    }

    fn which_of_ours(&self, script: &mut Script<'_>) -> Which {
        let at = script.below(self.known.sent.len().max(1));
        match (script.below(6), self.known.sent.iter().nth(at)) {
            (3, _) => Which::Class(script.below(3) as u32),
            (4 | 5, Some((id, Sent { class, .. }))) => {
                Which::Message { id: MessageId(*id), class: *class }
            }
            _ => Which::Any,
        }
    }

    fn see(&mut self, pending: PendingMessage) {
        assert!(pending.id.0 & 0xffff < THEIRS, "{pending:?} has no index");
        assert!(!pending.parameters || self.path.limits().parameters_for_us, "{pending:?}");
        if self.seen.len() == SEEN_MAX {
            self.seen.remove(0);
        }
        self.seen.push(pending);
    }

    fn seen(&self, script: &mut Script<'_>) -> Option<PendingMessage> {
        (!self.seen.is_empty()).then(|| self.seen[script.below(self.seen.len())])
    }

    /// Nothing more is done about a message of the other side's.
    fn has_ended(&mut self, id: MessageId) {
        self.known.indexes[(id.0 & 0xffff) as usize].0 = false;
    }

    fn receive(&mut self, script: &mut Script<'_>) {
        let which = self.which(script);
        let room = script.pick(&[ROOM_BYTES, ROOM_BYTES, 0, 1, 50]);
        let received = self.path.receive(which, &mut self.buffer[..room]);
        if let Ok(Received { message, bytes, residual }) = received {
            assert!(bytes <= room && bytes + residual <= message.bytes);
            self.see(message);
            if residual == 0 && message.reply_bytes_max.is_none() {
                self.has_ended(message.id);
            }
        }
    }

    fn receive_in_place(&mut self, script: &mut Script<'_>) {
        let which = self.which(script);
        let received = match script.below(2) {
            0 => self.path.receive_in_place(which).unwrap_or(None),
            _ => self.path.receive_packed(),
        };
        if let Some((pending, shown)) = received {
            let data = self.path.data(shown);
            assert_eq!(data.len(), pending.bytes);
            self.buffer[..data.len()].copy_from_slice(data);
            self.see(pending);
            if pending.reply_bytes_max.is_none() {
                self.has_ended(pending.id);
            }
        }
    }

    fn describe(&mut self, script: &mut Script<'_>) {
        let which = self.which(script);
        if let Ok(pending) = self.path.describe(which) {
            self.see(pending);
            self.path.is_readable(pending.id, pending.priority);
        }
    }

    fn reply(&mut self, script: &mut Script<'_>) {
        let Some(PendingMessage { id, .. }) = self.seen(script) else { return };
        let priority = script.below(2) == 0;
        let data = body(3, script.pick(&[0, 8, 100, 5000, 70_000]));
        let replied = match script.below(3) {
            0 => self.path.reply(id, priority, data),
            1 => self.path.reply_built(id, priority, data.len(), |t| t.copy_from_slice(data)),
            _ => self.path.reply_parameters(id, priority, [2; PARAMETER_BYTES]),
        };
        if replied.is_ok() {
            self.has_ended(id);
        }
    }

    fn purge(&mut self, script: &mut Script<'_>) {
        let at = script.below(self.known.sent.len().max(1));
        let Some((id, sent)) = self.known.sent.iter_mut().nth(at) else { return };
        if self.path.purge(MessageId(*id), sent.class).is_ok() {
            assert!(!sent.is_purged, "{id:08x} was purged before");
            sent.is_purged = true;
        }
    }

    /// Takes a completion, and says whether there was one.
    fn complete(&mut self, which: Which, room: usize) -> bool {
        match self.path.complete(which, &mut self.buffer[..room]) {
            Ok(Some((completion, bytes, residual))) => {
                assert!(bytes <= room && bytes + residual <= completion.reply_bytes.unwrap_or(0));
                self.check(&completion);
                if residual == 0 {
                    self.known.sent.remove(&completion.id.0);
                }
                true
            }
            Ok(None) => false,
            Err(ReceiveError::WrongClass { .. }) => panic!("the class was right"),
            Err(error) => panic!("a message of ours is lost: {error}"),
        }
    }

    /// What is said to be complete is a message of ours, as we have sent it.
    fn check(&self, completion: &Completion) {
        let Completion { id, source_class, tag, audit, reply_bytes, .. } = *completion;
        let Some(sent) = self.known.sent.get(&id.0) else { panic!("{completion:?} twice") };
        assert_eq!((source_class, tag), (sent.class, sent.tag));
        assert!(!sent.is_purged, "{completion:?} was purged");
        assert!(audit != Audit::SEVERED || self.path.severed().is_some(), "{completion:?}");
        assert!(
            !sent.quiet || sent.reply_bytes_max.is_some() || !audit.is_good(),
            "{completion:?}"
        );
        assert!(
            reply_bytes.is_none_or(|bytes| bytes <= sent.reply_bytes_max.unwrap_or(0) as usize)
        );
        assert!(
            !audit.is_good() || reply_bytes.is_some() == sent.reply_bytes_max.is_some(),
            "{completion:?}"
        );
    }

    /// Ends, and takes what is left: each message of ours is complete, or was severed first.
    fn finish(mut self) {
        self.path.poll();
        self.path.sever(NO_DATA);
        let severed = self.path.severed().expect("just now at the latest");
        assert!(!matches!(severed.reason, Reason::Lacking(_)), "{severed}");
        let nothing = self.path.receive(Which::Any, &mut self.buffer);
        assert!(matches!(nothing, Err(ReceiveError::Severed(_))), "{nothing:?}");
        while self.complete(Which::Any, ROOM_BYTES) {}
        // What was received in part is found by its identity alone.
        for (id, Sent { class, .. }) in self.known.sent.clone() {
            let which = Which::Message { id: MessageId(id), class };
            while self.complete(which, ROOM_BYTES) {}
        }
        for (id, sent) in &self.known.sent {
            let is_over = sent.is_purged || sent.quiet && sent.reply_bytes_max.is_none();
            assert!(is_over, "{id:08x} is lost: {sent:?}");
        }
    }
}
