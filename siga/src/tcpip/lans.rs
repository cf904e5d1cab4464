//! The LANs that a stack is at, as one thing to wait for.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use os::poller::{Poller, Sleeper};
use os::processor::now_ns;

use crate::lan::Lan;
use crate::waiter::Looked;
use crate::waiting::{SPIN_NS_MAX, Wait};

/// How long one of several LANs is looked at before the next has its turn.
const LOOK_NS: u64 = 1_000;

/// The LANs, of which there is one at least.
#[derive(Debug)]
pub(super) struct Lans {
    lans: Vec<Lan>,
}

impl Lans {
    /// # Panics
    /// If there is none: a broken promise inside this program.
    pub(super) fn new(lans: Vec<Lan>) -> Lans {
        assert!(!lans.is_empty(), "a stack is at one LAN at least");
        Lans { lans }
    }

    pub(super) fn len(&self) -> usize {
        self.lans.len()
    }

    pub(super) fn get(&mut self, lan: usize) -> &mut Lan {
        &mut self.lans[lan]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Lan)> {
        self.lans.iter_mut().enumerate()
    }

    /// The one on whose board the stack shows itself.
    pub(super) fn first(&self) -> &Lan {
        &self.lans[0]
    }

    /// Hands over what was held back.
    pub(super) fn flush(&mut self) {
        self.lans.iter_mut().for_each(Lan::flush);
    }

    /// Which addresses the members have whose paths have ended since this was asked last, and at which LAN.
    pub(super) fn take_parted(&mut self) -> Vec<(usize, IpAddr)> {
        let mut parted = Vec::new();
        for (number, lan) in self.iter_mut() {
            let members = lan.take_parted().into_iter();
            parted.extend(members.flat_map(|member| member.addresses).map(|at| (number, at)));
        }
        parted
    }

    /// As [`Lan::look`].
    pub(super) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        if let [only] = &mut self.lans[..] {
            return only.look(deadline_ns, is_wanted);
        }
        let until_ns = match self.first().wait_policy() {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns() + SPIN_NS_MAX / 2),
            Wait::Spin => deadline_ns,
        };
        loop {
            for lan in &mut self.lans {
                let until_ns = until_ns.min(now_ns() + LOOK_NS);
                match lan.look(until_ns, &is_wanted)? {
                    Looked::Nothing => {}
                    found => return Ok(found),
                }
            }
            if now_ns() >= until_ns {
                return Ok(Looked::Nothing);
            }
        }
    }

    /// As [`Lan::prepare_sleep`].
    pub(super) fn prepare_sleep(&mut self) -> Option<u64> {
        self.lans.iter_mut().try_fold(u64::MAX, |until, lan| Some(until.min(lan.prepare_sleep()?)))
    }

    /// As [`Lan::prepare_wait`].
    pub(super) fn prepare_wait(&mut self) -> bool {
        self.lans.iter_mut().all(Lan::prepare_wait)
    }

    /// A sleep was ended by these doorbells, after so long. Whether one of them is a member's.
    pub(super) fn heard(&mut self, rang: &Rang, slept_ns: u64) -> bool {
        let lans = self.lans.iter_mut().zip(&rang.of_lans);
        lans.filter(|(_, rang)| !rang.is_empty())
            .fold(false, |has_heard, (lan, rang)| lan.heard(rang, slept_ns) | has_heard)
    }

    /// Sleeps until one of the LANs has something, while others have them. `interrupt` ends that sleep, too.
    ///
    /// # Errors
    /// No descriptors left: with several LANs it takes one.
    pub(super) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<LansSleeper> {
        let sleeper = |lan: &Lan| lan.sleeper(interrupt.as_fd());
        let each = self.lans.iter().map(sleeper).collect::<io::Result<Vec<_>>>()?;
        let all = match &each[..] {
            [_] => None,
            several => {
                let all = Poller::new()?;
                for (name, each) in (0..).zip(several) {
                    all.add(each, name)?;
                }
                Some(all)
            }
        };
        Ok(LansSleeper { each, all })
    }
}

/// The doorbells that have ended a sleep, by LAN.
#[derive(Debug, Default)]
pub(super) struct Rang {
    of_lans: Vec<Vec<u64>>,
}

impl Rang {
    pub(super) fn is_empty(&self) -> bool {
        self.of_lans.iter().all(Vec::is_empty)
    }
}

/// Sleeps until one of the LANs has something.
#[derive(Debug)]
pub(super) struct LansSleeper {
    each: Vec<Sleeper>,
    /// Readable if one of several is.
    all: Option<Poller>,
}

impl LansSleeper {
    /// Sleeps at most for `time`, and says what has ended it.
    pub(super) fn wait(&self, time: Option<Duration>, rang: &mut Rang) -> io::Result<()> {
        rang.of_lans.resize_with(self.each.len(), Vec::new);
        let Some(all) = &self.all else {
            return self.each[0].wait(time, &mut rang.of_lans[0]);
        };
        let mut ready = Vec::new();
        all.sleeper().wait(time, &mut ready)?;
        rang.of_lans.iter_mut().for_each(Vec::clear);
        for lan in ready {
            let lan = lan as usize;
            self.each[lan].wait(Some(Duration::ZERO), &mut rang.of_lans[lan])?;
        }
        Ok(())
    }
}

impl AsFd for LansSleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_ref().map_or_else(|| self.each[0].as_fd(), AsFd::as_fd)
    }
}
