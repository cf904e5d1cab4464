//! A device, and the frames that its full targets have not taken yet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::name::Name;
use net::lan::frame::{Mac, destination};
use net::lan::offload::Offload;

use crate::lan::{Lan, SendFrameError, TrySendFrameError};

/// Frames in all backlogs at most. A target's own backlog has at most as many as there is room for in all: one has half of them, two a third each,
/// and there is some for another. More frames for a full target are dropped, and counted: those for other targets go.
pub(super) const BACKLOG_FRAMES_MAX: usize = 1024;

/// When something that had run out is looked for again.
const LACK_RETRY_NS: u64 = 1_000_000;

/// A frame on its way from a stack to a LAN.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) offload: Offload,
    pub(super) bytes: Vec<u8>,
    /// The guest that it is for, if it is for one alone.
    pub(super) target: Option<Name>,
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving { offload: Offload::NONE, bytes: Vec::new(), target: None }
    }
}

/// The targets that have a backlog. The stack reads them while a driver has the device.
#[derive(Debug, Default)]
pub(super) struct FullTargets {
    /// (w) whoever has the device.
    count: AtomicUsize,
    targets: Mutex<HashSet<Mac>>,
}

impl FullTargets {
    pub(super) fn has(&self, target: Mac) -> bool {
        // Acquire: pairs with the Release in `change`.
        self.count.load(Ordering::Acquire) > 0 && self.targets().contains(&target)
    }

    fn change(&self, change: impl FnOnce(&mut HashSet<Mac>)) {
        let mut targets = self.targets();
        change(&mut targets);
        self.count.store(targets.len(), Ordering::Release);
    }

    fn targets(&self) -> MutexGuard<'_, HashSet<Mac>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It has gone.
    Gone,
    /// It waits until its target has room.
    Waits,
    /// Nobody takes it: its target has left, or is full, as the backlogs are.
    Dropped,
}

/// The frames of full targets, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    of_targets: HashMap<Mac, VecDeque<Leaving>>,
    frames: usize,
    full: Arc<FullTargets>,
    /// When to try again, if something has run out of which nobody says when it is there again.
    retry_ns: Option<u64>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    fn is_full(&self, target: Mac) -> bool {
        let own = self.of_targets.get(&target).map_or(0, VecDeque::len);
        own >= BACKLOG_FRAMES_MAX.saturating_sub(self.frames)
    }

    pub(super) fn retry_ns(&self) -> Option<u64> {
        self.retry_ns
    }

    pub(super) fn has(&self, target: Mac) -> bool {
        self.frames > 0 && self.of_targets.contains_key(&target)
    }

    pub(super) fn full(&self) -> &Arc<FullTargets> {
        &self.full
    }

    /// Puts the counts right, after a panic in the middle of a turn.
    pub(super) fn recount(&mut self) {
        let Backlog { of_targets, full, frames, retry_ns } = self;
        *frames = of_targets.values().map(VecDeque::len).sum();
        if *frames == 0 {
            *retry_ns = None;
        }
        full.change(|targets| *targets = of_targets.keys().copied().collect());
    }

    fn push(&mut self, target: Mac, frame: Leaving) {
        self.frames += 1;
        let Backlog { of_targets, full, .. } = self;
        let of_target = of_targets.entry(target).or_insert_with(|| {
            full.change(|targets| {
                targets.insert(target);
            });
            VecDeque::new()
        });
        of_target.push_back(frame);
    }
}

/// A device: the membership in a LAN, and what its full targets have not taken yet. One thread at a time has it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) lan: Box<Lan>,
    pub(super) backlog: Backlog,
}

impl Device {
    /// Sends a frame, or has it wait behind those that its target has not taken yet; it is taken out of `frame` then.
    pub(super) fn send(&mut self, now: u64, frame: &mut Leaving) -> Sent {
        let target = destination(&frame.bytes).unwrap_or(Mac::BROADCAST);
        if !self.backlog.has(target) {
            match self.try_send(frame) {
                Ok(()) => return Sent::Gone,
                Err(TrySendFrameError::Full) => {}
                Err(TrySendFrameError::Send(SendFrameError::Lacking(_))) => {
                    self.backlog.retry_ns = Some(now.saturating_add(LACK_RETRY_NS));
                }
                Err(TrySendFrameError::Send(_)) => return Sent::Dropped,
            }
        }
        if self.backlog.is_full(target) {
            return Sent::Dropped;
        }
        self.backlog.push(target, std::mem::take(frame));
        Sent::Waits
    }

    fn try_send(&mut self, frame: &Leaving) -> Result<(), TrySendFrameError> {
        // Somebody else may have the address now than when the stack looked.
        if let Some(guest) = frame.target
            && let Some(mac) = destination(&frame.bytes)
            && self.lan.find_mac(mac).is_none_or(|member| member.name != guest)
        {
            return Err(SendFrameError::NoMember(mac).into());
        }
        self.lan.try_push(frame.offload, &frame.bytes)
    }

    /// Tries again what waits. Returns true if a target has taken all of its frames, and how many frames have gone and how many were dropped.
    pub(super) fn retry(&mut self, now: u64) -> (bool, u64, u64) {
        let (mut has_room, mut sent, mut dropped) = (false, 0, 0);
        if self.backlog.is_empty() {
            return (has_room, sent, dropped);
        }
        self.backlog.retry_ns = None;
        let mut of_targets = std::mem::take(&mut self.backlog.of_targets);
        of_targets.retain(|target, frames| {
            while let Some(frame) = frames.front() {
                match self.try_send(frame) {
                    Ok(()) => sent += 1,
                    Err(TrySendFrameError::Full) => return true,
                    Err(TrySendFrameError::Send(SendFrameError::Lacking(_))) => {
                        self.backlog.retry_ns = Some(now.saturating_add(LACK_RETRY_NS));
                        return true;
                    }
                    Err(TrySendFrameError::Send(_)) => dropped += 1,
                }
                frames.pop_front();
                self.backlog.frames -= 1;
            }
            has_room = true;
            self.backlog.full.change(|targets| {
                targets.remove(target);
            });
            false
        });
        self.backlog.of_targets = of_targets;
        (has_room, sent, dropped)
    }
}
