//! Guests of IUCV: messages over their paths, and masks.

use std::os::fd::{AsFd, BorrowedFd};

use proptest::prelude::*;
use proptest::sample::select;
use siga::iucv::{
    self, ControlMask, GuestEvent, Interrupt, IucvPath, Mask, MessageId, Options, Outgoing, PathId,
    SendError, Which,
};
use siga::raw::iucv::TrySendError;
use siga::{ConnectError, Guest, Wait};

use crate::conversing::{self, End, Event, News, data_of, number_of};

/// One deed of a guest: on a path, or alone.
#[derive(Clone, Copy, Debug)]
pub enum Verb {
    Send {
        priority: bool,
        two_way: bool,
        pushes: bool,
    },
    Flush,
    Receive {
        replies: bool,
    },
    Purge,
    /// Takes a completion that it may not have been told of.
    Complete,
    Quiesce,
    Resume,
    SetMask {
        mask: u8,
        control: u8,
    },
}

pub fn verb() -> impl Strategy<Value = Verb> {
    let flag = any::<bool>;
    let mask = || select(vec![0xf8, 0xf8, 0xf8, 0x08, 0xf0, 0x78, 0xd8, 0xe8, 0]);
    prop_oneof![
        20 => (flag(), flag(), flag())
            .prop_map(|(priority, two_way, pushes)| Verb::Send { priority, two_way, pushes }),
        4 => Just(Verb::Flush),
        14 => flag().prop_map(|replies| Verb::Receive { replies }),
        3 => Just(Verb::Purge),
        4 => Just(Verb::Complete),
        2 => Just(Verb::Quiesce),
        3 => Just(Verb::Resume),
        4 => (mask(), mask()).prop_map(|(mask, control)| Verb::SetMask { mask, control }),
    ]
}

/// A guest with its masks.
#[derive(Debug)]
pub struct Party {
    guest: iucv::IucvGuest,
    masks: [u8; 2],
    next_message: u32,
}

impl AsFd for Party {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guest.as_fd()
    }
}

impl conversing::Party for Party {
    type Id = PathId;
    type Talk = Talk;
    type Verb = Verb;
    type Event = iucv::Event;

    const LAST: &[Verb] = &[Verb::SetMask { mask: 0xf8, control: 0xf8 }, Verb::Resume, Verb::Flush];

    fn declare(guest: Guest) -> Party {
        let guest = iucv::IucvGuest::declare(guest, Wait::Block).unwrap();
        Party { guest, masks: [0xf8; 2], next_message: 1 }
    }

    fn guest(&self) -> &Guest {
        self.guest.guest()
    }

    fn ask(&mut self, target: &str, number: u64) -> Result<PathId, ConnectError> {
        self.guest.connect(target, &options(number))
    }

    fn accept(&mut self, id: PathId, number: u64) -> Result<(), String> {
        self.guest.accept(id, &options(number)).map_err(|error| error.to_string())
    }

    fn has(&mut self, id: PathId) -> bool {
        self.guest.path(id).is_ok()
    }

    fn sever(&mut self, id: PathId) -> bool {
        self.guest.sever(id, [0; 16]).is_ok()
    }

    fn prepare_wait(&mut self) -> bool {
        self.guest.prepare_wait()
    }

    fn next_event(&mut self) -> Option<Event<Party>> {
        let event = self.guest.try_event().unwrap()?;
        assert!(self.lets_through(event.interrupt()), "masked: {event:?}");
        Some(match event {
            GuestEvent::ConnectionPending { path, data, .. } => {
                Event::Pending(path, number_of(data))
            }
            GuestEvent::ConnectionComplete { path, .. } => Event::Complete(path),
            GuestEvent::ConnectionSevered { path, .. } => Event::Severed(path),
            GuestEvent::Path(path, event) => Event::Said(path, event),
            event => panic!("{event:?}"),
        })
    }

    fn wants(&self, news: News) -> bool {
        self.lets_through(match news {
            News::Pending => Interrupt::ConnectionPending,
            News::Complete => Interrupt::ConnectionComplete,
            News::Severed => Interrupt::PathSevered,
        })
    }

    fn act(&mut self, verb: Verb, end: Option<(PathId, &mut Talk, usize)>) {
        if let Verb::SetMask { mask, control } = verb {
            return self.set_masks([mask, control]);
        }
        let Some((id, talk, side)) = end else { return };
        let path = self.guest.path(id).unwrap();
        match verb {
            Verb::Send { priority, two_way, pushes } => {
                let number = self.next_message;
                self.next_message += 1;
                let outgoing = Outgoing {
                    target_class: number,
                    source_class: number,
                    tag: number,
                    priority,
                    reply_bytes_max: two_way.then_some(8),
                    quiet: false,
                };
                talk.send(side, path, &outgoing, pushes);
            }
            Verb::Flush => {
                path.raw().flush();
                talk.handed_over(side);
            }
            Verb::Receive { replies } => talk.receive(side, path, replies),
            Verb::Purge => talk.purge(side, path),
            Verb::Complete => talk.complete(side, path),
            Verb::Quiesce => {
                path.raw().quiesce();
                talk.is_quiet[1 - side] = true;
            }
            Verb::Resume => {
                path.raw().resume();
                talk.is_quiet[1 - side] = false;
            }
            Verb::SetMask { .. } => unreachable!("done above"),
        }
    }
}

impl Party {
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

    fn set_masks(&mut self, masks: [u8; 2]) {
        // Each alone: one call must not make up for what the other leaves out.
        if masks[0] != self.masks[0] {
            self.guest.set_mask(Mask(masks[0]));
        }
        if masks[1] != self.masks[1] {
            self.guest.set_control_mask(ControlMask(masks[1]));
        }
        self.masks = masks;
    }
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

/// A path. What is of two is of its sides.
#[derive(Debug, Default)]
pub struct Talk {
    sent: [Vec<Sent>; 2],
    /// What the other side has asked for, and what the side was told.
    is_quiet: [bool; 2],
    was_quiet: [bool; 2],
    /// Who has ended it, and who was told.
    has_ended: [bool; 2],
    was_severed: [bool; 2],
}

impl conversing::Talk<Party> for Talk {
    fn new(_number: u64) -> Talk {
        Talk::default()
    }

    fn due(&self, side: usize, party: &Party) -> Option<String> {
        let due = self.due(side).into_iter().find(|due| party.lets_through(*due))?;
        Some(format!("{due:?}"))
    }

    fn told(&mut self, side: usize, event: iucv::Event) {
        match event {
            iucv::Event::Severed(_) => {
                assert!(self.has_ended[1 - side], "severed by nobody");
                assert!(!self.was_severed[side], "told twice");
                self.was_severed[side] = true;
            }
            iucv::Event::Quiesced => self.was_quiet[side] = true,
            iucv::Event::Resumed => self.was_quiet[side] = false,
            iucv::Event::Complete(completion) => {
                let sent = self.sent[side].iter_mut().find(|sent| sent.number == completion.tag);
                let sent = sent.expect("sent");
                assert!(!sent.was_complete, "complete twice: {completion:?}");
                (sent.was_complete, sent.is_complete) = (true, false);
            }
            iucv::Event::Pending(pending) => {
                let others = &mut self.sent[1 - side];
                let at = others.iter().position(|sent| sent.number == pending.class);
                let at = at.expect("sent");
                let of_its_rank = |sent: &&Sent| sent.priority == pending.priority && sent.is_due;
                let first = others.iter().find(of_its_rank).map(|sent| sent.number);
                assert!(first.is_none_or(|first| first >= pending.class), "out of order");
                assert!(!others[at].was_told, "told twice: {pending:?}");
                (others[at].was_told, others[at].is_due) = (true, false);
            }
        }
    }

    fn slept(&mut self, side: usize) {
        self.handed_over(side);
    }

    fn ended(&mut self, side: usize, end: End) {
        self.has_ended[side] = true;
        if end == End::Gone {
            // What lies in memory that is gone is lost.
            for sent in &mut self.sent[side] {
                sent.is_due = false;
            }
        }
        for sent in &mut self.sent[1 - side] {
            sent.is_complete = false;
        }
    }

    fn is_over(&self, side: usize) -> bool {
        self.was_severed[side] && self.due(side).is_empty()
    }
}

impl Talk {
    /// What a side has to be told for certain.
    fn due(&self, side: usize) -> Vec<Interrupt> {
        let mut due = Vec::new();
        if self.has_ended[1 - side] && !self.was_severed[side] {
            due.push(Interrupt::PathSevered);
        }
        if !self.has_ended[1 - side] && self.is_quiet[side] != self.was_quiet[side] {
            let to_quiet = self.is_quiet[side];
            due.push(if to_quiet { Interrupt::PathQuiesced } else { Interrupt::PathResumed });
        }
        let others = self.sent[1 - side].iter().filter(|sent| sent.is_due);
        due.extend(others.map(|sent| match sent.priority {
            true => Interrupt::PriorityMessagePending,
            false => Interrupt::MessagePending,
        }));
        let own = self.sent[side].iter().filter(|sent| sent.is_complete);
        due.extend(own.map(|sent| match sent.priority {
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
            Err(error) => return assert!(self.has_ended[1 - side], "{error}"),
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
        sent.is_complete = is_over && !sent.was_purged && self.has_ended == [false; 2];
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
}

/// The terms of a path go by its number.
fn options(number: u64) -> Options {
    let limit = [1, 2, 3, 10][number as usize % 4];
    Options { limit, wait: Wait::Block, data: data_of(number), ..Options::default() }
}
