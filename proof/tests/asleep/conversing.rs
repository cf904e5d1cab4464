//! A guest of IUCV with many paths, and a guest that has the other ends of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use siga::connect::Scope;
use siga::iucv::{
    self, ControlMask, Event, GuestEvent, Interrupt, IucvPath, Mask, MessageId, Options, Outgoing,
    PathId, SendError, Which,
};
use siga::raw::iucv::TrySendError;
use siga::{Guest, Pending, Wait};

use crate::place::{Place, READY_WITH_NOTHING_MAX, is_readable, later_ns, settle};

/// The guest that sleeps, and the one that does not.
const SLEEPER: &str = "SLEEPER";
const PEER: &str = "PEER";

/// Paths, and connections that were asked for, at most.
const PATHS_MAX: usize = 8;

/// One deed. Which path is meant is picked by remainder.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// The sleeper takes an event, if there is one.
    Event,
    Sleep,
    Ask {
        is_sleeper: bool,
        limit: u32,
    },
    /// The peer takes a connection that waits for it back.
    TakeBack(u16),
    /// Whoever has it.
    Accept(u16),
    Refuse(u16),
    /// Verbs past the sleeper.
    Identify,
    Poll,
    Send {
        path: u16,
        is_sleeper: bool,
        priority: bool,
        two_way: bool,
        pushes: bool,
    },
    Flush(u16),
    Receive {
        path: u16,
        is_sleeper: bool,
        replies: bool,
    },
    Purge {
        path: u16,
        is_sleeper: bool,
    },
    /// The sleeper takes a completion that it may not have been told of.
    Complete(u16),
    Quiesce {
        path: u16,
        is_sleeper: bool,
    },
    Resume {
        path: u16,
        is_sleeper: bool,
    },
    Sever {
        path: u16,
        is_sleeper: bool,
        drops: bool,
    },
    SetMask {
        mask: u8,
        control: u8,
    },
    Kill,
    Start,
}

pub fn deed() -> impl Strategy<Value = Deed> {
    let (path, flag) = (any::<u16>, any::<bool>);
    let limit = select(vec![1, 2, 3, 10]);
    let mask = || select(vec![0xf8, 0xf8, 0xf8, 0x08, 0xf0, 0x78, 0xd8, 0xe8, 0]);
    prop_oneof![
        14 => Just(Deed::Event),
        16 => Just(Deed::Sleep),
        8 => (flag(), limit).prop_map(|(is_sleeper, limit)| Deed::Ask { is_sleeper, limit }),
        1 => path().prop_map(Deed::TakeBack),
        12 => path().prop_map(Deed::Accept),
        1 => path().prop_map(Deed::Refuse),
        3 => Just(Deed::Identify),
        3 => Just(Deed::Poll),
        20 => (path(), flag(), flag(), flag(), flag()).prop_map(
            |(path, is_sleeper, priority, two_way, pushes)| {
                Deed::Send { path, is_sleeper, priority, two_way, pushes }
            }
        ),
        4 => path().prop_map(Deed::Flush),
        14 => (path(), flag(), flag())
            .prop_map(|(path, is_sleeper, replies)| Deed::Receive { path, is_sleeper, replies }),
        3 => (path(), flag()).prop_map(|(path, is_sleeper)| Deed::Purge { path, is_sleeper }),
        4 => path().prop_map(Deed::Complete),
        2 => (path(), flag()).prop_map(|(path, is_sleeper)| Deed::Quiesce { path, is_sleeper }),
        3 => (path(), flag()).prop_map(|(path, is_sleeper)| Deed::Resume { path, is_sleeper }),
        1 => (path(), flag(), flag())
            .prop_map(|(path, is_sleeper, drops)| Deed::Sever { path, is_sleeper, drops }),
        4 => (mask(), mask()).prop_map(|(mask, control)| Deed::SetMask { mask, control }),
        1 => Just(Deed::Kill),
        2 => Just(Deed::Start),
    ]
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The sleeper has to be told that it waits.
    Waits,
    /// It waits at the peer, or the sleeper was told that it waits.
    Held,
    /// The sleeper has to be told that it is there.
    Complete,
    /// The sleeper has to be told that it will not be.
    Refused,
    /// It is there, as the sleeper knows.
    Joined,
    /// A host has died: nothing is certain.
    Unknown,
}

/// A message, as its source knows it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u32,
    id: MessageId,
    priority: bool,
    two_way: bool,
    /// Whether the target has to be told of it: it was handed over, was not taken back, and the target was not told.
    is_due: bool,
    was_told: bool,
    was_received: bool,
    was_purged: bool,
    /// Whether its source has to be told that it is complete.
    is_complete: bool,
    was_complete: bool,
}

#[derive(Debug)]
struct Line {
    stage: Stage,
    /// Of the sleeper.
    path: Option<PathId>,
    /// What the peer has.
    connecting: Option<siga::Connecting>,
    pending: Option<Pending>,
    peer: Option<IucvPath>,
    limit: u32,
    /// Messages of the sleeper's, and of the peer's.
    sent: [Vec<Sent>; 2],
    /// What the peer has asked for, and what the sleeper was told.
    is_quiet: bool,
    was_quiet: bool,
    is_severed: bool,
    was_severed: bool,
}

pub struct World {
    place: Place,
    sleeper: iucv::IucvGuest,
    peer: Guest,
    is_known: bool,
    lines: BTreeMap<u64, Line>,
    next: u64,
    next_message: u32,
    masks: [u8; 2],
    sleeps: bool,
}

impl World {
    pub fn new() -> World {
        let mut place = Place::new();
        let sleeper = iucv::IucvGuest::declare(place.guest(SLEEPER), Wait::Block).unwrap();
        let peer = place.guest(PEER);
        World {
            place,
            sleeper,
            peer,
            is_known: true,
            lines: BTreeMap::new(),
            next: 1,
            next_message: 1,
            masks: [0xf8; 2],
            sleeps: false,
        }
    }

    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Event => {
                self.event();
            }
            Deed::Sleep => self.sleep(),
            Deed::Ask { is_sleeper, limit } => self.ask(is_sleeper, limit),
            Deed::TakeBack(which) => self.take_back(which),
            Deed::Accept(which) => self.accept(which),
            Deed::Refuse(which) => self.refuse(which),
            Deed::Identify => {
                let World { place, sleeper, .. } = self;
                // Whether it is theirs does not matter.
                let _ = place.meanwhile(|| sleeper.guest().identify("RESOURCE", Scope::Local));
            }
            Deed::Poll => self.sleeper.guest().poll(),
            Deed::Send { path, is_sleeper, priority, two_way, pushes } => {
                let reply_bytes_max = two_way.then_some(8);
                let number = self.next_message;
                self.next_message += 1;
                let outgoing = Outgoing {
                    target_class: number,
                    source_class: number,
                    tag: number,
                    priority,
                    reply_bytes_max,
                    quiet: false,
                };
                self.with(path, is_sleeper, |line, side, path| {
                    line.send(side, path, &outgoing, pushes);
                });
            }
            Deed::Flush(path) => self.with(path, false, |line, side, path| {
                path.raw().flush();
                line.handed_over(side);
            }),
            Deed::Receive { path, is_sleeper, replies } => {
                self.with(path, is_sleeper, |line, side, path| line.receive(side, path, replies));
            }
            Deed::Purge { path, is_sleeper } => self.with(path, is_sleeper, Line::purge),
            Deed::Complete(path) => self.with(path, true, Line::complete),
            Deed::Quiesce { path, is_sleeper } => {
                self.with(path, is_sleeper, |line, side, path| {
                    path.raw().quiesce();
                    line.is_quiet |= side == 1;
                })
            }
            Deed::Resume { path, is_sleeper } => self.with(path, is_sleeper, |line, side, path| {
                path.raw().resume();
                line.is_quiet &= side == 0;
            }),
            Deed::Sever { path, is_sleeper, drops } => self.sever(path, is_sleeper, drops),
            Deed::SetMask { mask, control } => self.set_masks([mask, control]),
            Deed::Kill => self.kill(),
            Deed::Start => self.start(),
        }
        self.place.turn();
        self.check();
    }

    pub fn end(mut self) {
        self.set_masks([0xf8; 2]);
        self.start();
        for which in 0..self.lines.len() as u16 {
            self.with(which, false, |line, _, path| {
                path.raw().resume();
                line.is_quiet = false;
            });
        }
        for _ in 0..4 {
            self.sleep();
            self.place.turn();
            self.check();
        }
        let missed = self.to_tell();
        assert!(missed.is_none(), "never told: {missed:?}");
    }

    /// Whoever sleeps with something to tell would sleep for ever.
    fn check(&self) {
        if !self.sleeps || is_readable(&self.sleeper) {
            return;
        }
        if let Some(missed) = self.to_tell() {
            settle();
            assert!(is_readable(&self.sleeper), "asleep with something to tell: {missed}");
        }
    }

    fn lets_through(&self, interrupt: Interrupt) -> bool {
        let [mask, control] = self.masks;
        let has = |bits: u8, bit: u8| bits & bit != 0;
        let about_paths = |bit: ControlMask| has(mask, Mask::CONTROL.0) && has(control, bit.0);
        match interrupt {
            Interrupt::ConnectionPending => about_paths(ControlMask::PENDING),
            Interrupt::ConnectionComplete => about_paths(ControlMask::COMPLETE),
            Interrupt::PathSevered => about_paths(ControlMask::SEVERED),
            Interrupt::PathQuiesced => about_paths(ControlMask::QUIESCED),
            Interrupt::PathResumed => about_paths(ControlMask::RESUMED),
            Interrupt::PriorityMessageComplete => has(mask, Mask::PRIORITY_REPLIES.0),
            Interrupt::MessageComplete => has(mask, Mask::REPLIES.0),
            Interrupt::PriorityMessagePending => has(mask, Mask::PRIORITY_MESSAGES.0),
            Interrupt::MessagePending => has(mask, Mask::MESSAGES.0),
        }
    }

    /// Something that the sleeper has to be told for certain.
    fn to_tell(&self) -> Option<String> {
        self.lines.iter().find_map(|(id, line)| {
            let due = line.due().into_iter().find(|due| self.lets_through(*due))?;
            Some(format!("{due:?} of line {id}, {:?}, {:?}", line.path, line.stage))
        })
    }

    fn sleep(&mut self) {
        let mut nothing = 0;
        loop {
            self.sleeps = self.sleeper.prepare_wait();
            self.check();
            if self.sleeps && !is_readable(&self.sleeper) {
                return;
            }
            nothing = if self.event() { 0 } else { nothing + 1 };
            assert!(nothing < READY_WITH_NOTHING_MAX, "ready for ever with nothing");
        }
    }

    /// The next event. Whether there was one.
    fn event(&mut self) -> bool {
        self.sleeps = false;
        let Some(event) = self.sleeper.try_event().unwrap() else { return false };
        assert!(self.lets_through(event.interrupt()), "masked: {event:?}");
        match event {
            GuestEvent::ConnectionPending { path, data, .. } => {
                let id = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
                self.forget_number(path);
                if let Some(line) = self.lines.get_mut(&id) {
                    assert!(line.path.is_none(), "told twice: {event:?}");
                    line.path = Some(path);
                    if line.stage == Stage::Waits {
                        line.stage = Stage::Held;
                    }
                }
            }
            GuestEvent::ConnectionComplete { path, .. } => {
                let (_, line) = self.line_of(path).expect("asked for");
                assert!(matches!(line.stage, Stage::Complete | Stage::Unknown), "{event:?}");
                line.stage = Stage::Joined;
            }
            GuestEvent::ConnectionSevered { path, .. } => {
                let (id, line) = self.line_of(path).expect("asked for");
                assert!(matches!(line.stage, Stage::Refused | Stage::Unknown), "{event:?}");
                self.lines.remove(&id);
                // The peer may know of it, and a number that was told of is free.
            }
            GuestEvent::Path(path, event) => {
                let (_, line) = self.line_of(path).expect("a path that is there");
                if line.told(event) {
                    self.sleeper.sever(path, [0; 16]).unwrap();
                    self.lines.retain(|_, line| line.path != Some(path));
                }
            }
        }
        true
    }

    fn line_of(&mut self, path: PathId) -> Option<(u64, &mut Line)> {
        let found = self.lines.iter_mut().find(|(_, line)| line.path == Some(path));
        found.map(|(id, line)| (*id, line))
    }

    /// What had a number before was withdrawn.
    fn forget_number(&mut self, path: PathId) {
        if let Some((id, line)) = self.line_of(path) {
            assert!(matches!(line.stage, Stage::Held | Stage::Unknown), "{path} is {line:?}");
            self.lines.remove(&id);
        }
    }

    fn ask(&mut self, is_sleeper: bool, limit: u32) {
        if self.lines.len() >= PATHS_MAX {
            return;
        }
        let id = self.next;
        let options = options(id, limit);
        let mut line = Line::new(limit);
        let is_known = self.is_known && self.place.has_host();
        if is_sleeper {
            let Ok(path) = self.sleeper.connect(PEER, &options) else { return };
            self.forget_number(path);
            line.path = Some(path);
            line.stage = if is_known { Stage::Held } else { Stage::Unknown };
        } else {
            let below = siga::PathOptions {
                kind: siga::connect::Kind::IUCV,
                outputs: 2,
                inputs: 2,
                messages: limit,
                data: options.data,
                flags: 0x80,
                ..siga::PathOptions::default()
            };
            let Ok(connecting) = self.peer.start_connecting(SLEEPER, &below) else { return };
            line.connecting = Some(connecting);
            line.stage = if is_known { Stage::Waits } else { Stage::Unknown };
        }
        self.next += 1;
        self.lines.insert(id, line);
    }

    fn take_back(&mut self, which: u16) {
        let ids = self.lines.iter().filter(|(_, line)| line.connecting.is_some());
        let Some(id) = pick(ids.map(|(id, _)| *id), which) else { return };
        let line = self.lines.get_mut(&id).expect("picked");
        line.connecting = None;
        if line.stage == Stage::Joined {
            line.is_severed = false;
        } else {
            line.stage = Stage::Unknown;
        }
        if line.path.is_none() {
            self.lines.remove(&id);
        }
    }

    /// The peer takes what waits for it.
    fn take_pending(&mut self) {
        while let Some(pending) = self.peer.pending() {
            let id = u64::from_le_bytes(pending.data[..8].try_into().expect("eight bytes"));
            if let Some(line) = self.lines.get_mut(&id) {
                line.pending = Some(pending);
            }
        }
    }

    fn accept(&mut self, which: u16) {
        self.take_pending();
        let Some(id) = pick(self.held().into_iter(), which) else { return };
        let World { place, sleeper, peer, lines, .. } = self;
        let line = lines.get_mut(&id).expect("picked");
        let options = options(id, line.limit);
        let is_known = line.stage == Stage::Held;
        if let Some(pending) = line.pending.take() {
            let accepted = place.meanwhile(|| IucvPath::accept_pending(peer, pending, &options));
            match accepted {
                Ok(path) => {
                    line.peer = Some(path);
                    if is_known {
                        line.stage = Stage::Complete;
                    }
                }
                Err(error) => assert!(!is_known, "{error}"),
            }
            return;
        }
        self.sleeps = false;
        let path = line.path.expect("held by the sleeper");
        let accepted = place.meanwhile(|| sleeper.accept(path, &options));
        if let Err(error) = accepted {
            assert!(!is_known, "{error}");
            self.lines.remove(&id);
            return;
        }
        line.stage = Stage::Joined;
        if let Some(connecting) = &mut line.connecting {
            match peer.try_complete(connecting) {
                Ok(Some(path)) => line.peer = Some(IucvPath::over(path, &options)),
                Ok(None) => assert!(!is_known, "accepted, and not complete"),
                Err(error) => assert!(!is_known, "{error}"),
            }
        }
        line.connecting = None;
    }

    fn held(&self) -> Vec<u64> {
        let is_held = |line: &Line| {
            let waits = line.connecting.is_some()
                && line.path.is_some()
                && matches!(line.stage, Stage::Held | Stage::Unknown);
            waits || line.pending.is_some()
        };
        self.lines.iter().filter(|(_, line)| is_held(line)).map(|(id, _)| *id).collect()
    }

    fn refuse(&mut self, which: u16) {
        self.take_pending();
        let Some(id) = pick(self.held().into_iter(), which) else { return };
        let line = self.lines.get_mut(&id).expect("picked");
        if let Some(pending) = line.pending.take() {
            self.peer.refuse(pending, [0; 16]);
            if line.stage == Stage::Held {
                line.stage = Stage::Refused;
            }
            return;
        }
        let severed = self.sleeper.sever(line.path.expect("held by the sleeper"), [0; 16]);
        assert!(severed.is_ok() || line.stage == Stage::Unknown);
        self.lines.remove(&id);
    }

    fn sever(&mut self, which: u16, is_sleeper: bool, drops: bool) {
        let Some(id) = self.joined(which) else { return };
        let line = self.lines.get_mut(&id).expect("picked");
        if is_sleeper {
            self.sleeper.sever(line.path.expect("joined"), [0; 16]).unwrap();
            self.lines.remove(&id);
            return;
        }
        let Some(path) = line.peer.take() else { return };
        line.is_severed = true;
        if drops {
            drop(path);
            // What lies in memory that is gone is lost.
            for sent in &mut line.sent[1] {
                sent.is_due = false;
            }
        } else {
            path.close();
        }
        for sent in &mut line.sent[0] {
            sent.is_complete = false;
        }
    }

    fn set_masks(&mut self, masks: [u8; 2]) {
        self.sleeps = false;
        // Each alone: one call must not make up for what the other leaves out.
        if masks[0] != self.masks[0] {
            self.sleeper.set_mask(Mask(masks[0]));
        }
        if masks[1] != self.masks[1] {
            self.sleeper.set_control_mask(ControlMask(masks[1]));
        }
        self.masks = masks;
    }

    fn kill(&mut self) {
        self.place.kill();
        self.is_known = false;
        self.lines.retain(|_, line| line.path.is_some());
        for line in self.lines.values_mut() {
            line.pending = None;
            if line.stage != Stage::Joined {
                line.connecting = None;
                line.stage = Stage::Unknown;
                line.is_severed |= line.peer.take().is_some();
            }
        }
    }

    fn start(&mut self) {
        if self.place.has_host() && self.is_known {
            return;
        }
        self.place.start();
        for times in 1..5 {
            self.sleeper.guest().poll_at(later_ns(times));
            self.peer.poll(later_ns(times));
            self.place.turn();
        }
        assert!(self.sleeper.guest().is_attached() && self.peer.is_attached());
        self.is_known = true;
    }

    fn joined(&self, which: u16) -> Option<u64> {
        let joined = self.lines.iter().filter(|(_, line)| line.stage == Stage::Joined);
        pick(joined.map(|(id, _)| *id), which)
    }

    /// Does something with an end of a path; the peer hands over all at once unless it pushes.
    fn with(
        &mut self,
        which: u16,
        is_sleeper: bool,
        verb: impl FnOnce(&mut Line, usize, &mut IucvPath),
    ) {
        let Some(id) = self.joined(which) else { return };
        let line = self.lines.get_mut(&id).expect("picked");
        if is_sleeper {
            self.sleeps = false;
            verb(line, 0, self.sleeper.path(line.path.expect("joined")).unwrap());
        } else if let Some(mut path) = line.peer.take() {
            verb(line, 1, &mut path);
            line.peer = Some(path);
        }
    }
}

impl Line {
    fn new(limit: u32) -> Line {
        Line {
            stage: Stage::Unknown,
            path: None,
            connecting: None,
            pending: None,
            peer: None,
            limit,
            sent: Default::default(),
            is_quiet: false,
            was_quiet: false,
            is_severed: false,
            was_severed: false,
        }
    }

    /// What the sleeper has to be told for certain.
    fn due(&self) -> Vec<Interrupt> {
        match self.stage {
            Stage::Waits => return vec![Interrupt::ConnectionPending],
            Stage::Complete => return vec![Interrupt::ConnectionComplete],
            Stage::Refused => return vec![Interrupt::PathSevered],
            Stage::Held | Stage::Unknown => return Vec::new(),
            Stage::Joined => {}
        }
        let [own, others] = &self.sent;
        let mut due = Vec::new();
        if self.is_severed && !self.was_severed {
            due.push(Interrupt::PathSevered);
        }
        if !self.is_severed && self.is_quiet != self.was_quiet {
            let to_quiet = self.is_quiet;
            due.push(if to_quiet { Interrupt::PathQuiesced } else { Interrupt::PathResumed });
        }
        due.extend(others.iter().filter(|sent| sent.is_due).map(|sent| match sent.priority {
            true => Interrupt::PriorityMessagePending,
            false => Interrupt::MessagePending,
        }));
        due.extend(own.iter().filter(|sent| sent.is_complete).map(|sent| match sent.priority {
            true => Interrupt::PriorityMessageComplete,
            false => Interrupt::MessageComplete,
        }));
        due
    }

    fn send(&mut self, side: usize, path: &mut IucvPath, outgoing: &Outgoing, pushes: bool) {
        let sent = match pushes {
            true => path.raw().push(outgoing, &[0; 8]),
            false => path.raw().send(outgoing, &[0; 8]),
        };
        let id = match sent {
            Ok(id) => id,
            Err(
                TrySendError::Full
                | TrySendError::Send(SendError::Limit { .. } | SendError::Quiesced),
            ) => return,
            Err(error) => return assert!(self.is_severed, "{error}"),
        };
        self.sent[side].push(Sent {
            number: outgoing.target_class,
            id,
            priority: outgoing.priority,
            two_way: outgoing.reply_bytes_max.is_some(),
            is_due: false,
            was_told: false,
            was_received: false,
            was_purged: false,
            is_complete: false,
            was_complete: false,
        });
        if !pushes {
            self.sent[side].last_mut().expect("pushed").is_due = true;
        }
    }

    /// What was pushed is with the target.
    fn handed_over(&mut self, side: usize) {
        for sent in &mut self.sent[side] {
            sent.is_due = !(sent.was_told || sent.was_received || sent.was_purged);
        }
    }

    fn receive(&mut self, side: usize, path: &mut IucvPath, replies: bool) {
        let Ok(received) = path.raw().receive(Which::Any, &mut [0; 8]) else { return };
        let number = received.message.class;
        let sent = self.sent[1 - side].iter_mut().find(|sent| sent.number == number);
        let sent = sent.expect("sent");
        assert!(!sent.was_received, "received twice");
        sent.was_received = true;
        sent.is_due = false;
        let is_over =
            !sent.two_way || replies && path.raw().reply(sent.id, sent.priority, &[]).is_ok();
        path.raw().flush();
        // Nothing is told of it once it was purged, and nothing more is said over a path that has ended.
        sent.is_complete = is_over && !sent.was_purged && !self.is_severed;
    }

    fn purge(&mut self, side: usize, path: &mut IucvPath) {
        let sent = self.sent[side].iter_mut().rev().find(|sent| !sent.was_purged);
        let Some(sent) = sent else { return };
        if path.raw().purge(sent.id, sent.number).is_ok() {
            sent.was_purged = true;
            sent.is_due = false;
            sent.is_complete = false;
        }
    }

    fn complete(&mut self, side: usize, path: &mut IucvPath) {
        let Ok(Some((completion, ..))) = path.raw().complete(Which::Any, &mut []) else { return };
        let sent = self.sent[side].iter_mut().find(|sent| sent.number == completion.tag);
        sent.expect("sent").is_complete = false;
    }

    /// The sleeper was told. Whether it has to sever the path.
    fn told(&mut self, event: Event) -> bool {
        match event {
            Event::Severed(_) => {
                assert!(!self.was_severed, "told twice");
                self.was_severed = true;
            }
            Event::Quiesced => self.was_quiet = true,
            Event::Resumed => self.was_quiet = false,
            Event::Complete(completion) => {
                let sent = self.sent[0].iter_mut().find(|sent| sent.number == completion.tag);
                let sent = sent.expect("sent");
                assert!(!sent.was_complete, "complete twice: {completion:?}");
                (sent.was_complete, sent.is_complete) = (true, false);
            }
            Event::Pending(pending) => {
                let others = &mut self.sent[1];
                let at = others.iter().position(|sent| sent.number == pending.class);
                let at = at.expect("sent");
                let of_its_rank = |sent: &&Sent| sent.priority == pending.priority && sent.is_due;
                let first = others.iter().find(of_its_rank).map(|sent| sent.number);
                assert!(first.is_none_or(|first| first >= pending.class), "out of order");
                assert!(!others[at].was_told, "told twice: {pending:?}");
                (others[at].was_told, others[at].is_due) = (true, false);
            }
        }
        self.was_severed && self.due().is_empty()
    }
}

fn options(id: u64, limit: u32) -> Options {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&id.to_le_bytes());
    Options { limit, wait: Wait::Block, data, ..Options::default() }
}

fn pick(from: impl Iterator<Item = u64>, which: u16) -> Option<u64> {
    let all: Vec<_> = from.collect();
    (!all.is_empty()).then(|| all[which as usize % all.len()])
}
