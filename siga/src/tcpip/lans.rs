//! The LANs and lines that a stack is at, as one thing to wait for.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use os::poller::{Poller, Sleeper};
use os::processor::now_ns;
use os::words::Words;

use super::driver::Port;
use crate::lan::Lan;
use crate::line::Line;
use crate::osa::Osa;
use crate::waiter::Looked;
use crate::waiting::{SPIN_NS_MAX, Wait, after};

/// How long one of several LANs is looked at before the next has its turn.
const LOOK_NS: u64 = 1_000;

/// What a stack is at.
#[derive(Debug)]
pub(super) enum Attached {
    /// A LAN.
    Lan(Box<Port>),
    /// A line.
    Line(Box<Line>),
    /// A device at an adapter.
    Osa(Box<Osa>),
}

/// What a stack is to be at. Each has a guest of its own.
#[derive(Debug, Default)]
pub struct Links {
    /// LANs.
    pub lans: Vec<Lan>,
    /// Lines.
    pub lines: Vec<Line>,
    /// Devices at adapters.
    pub devices: Vec<Osa>,
}

impl Links {
    pub(super) fn into_attached(self) -> Vec<Attached> {
        let lans = self.lans.into_iter().map(Attached::of_lan);
        let lines = self.lines.into_iter().map(|line| Attached::Line(Box::new(line)));
        let devices = self.devices.into_iter().map(|osa| Attached::Osa(Box::new(osa)));
        lans.chain(lines).chain(devices).collect()
    }
}

impl Attached {
    /// A LAN whose driver is inline.
    pub(super) fn of_lan(lan: Lan) -> Attached {
        Attached::Lan(Box::new(Port::new(Box::new(lan))))
    }

    /// The LAN, if it is one.
    pub(super) fn lan(&self) -> Option<&Port> {
        match self {
            Attached::Lan(lan) => Some(lan),
            Attached::Line(_) | Attached::Osa(_) => None,
        }
    }

    fn lan_mut(&mut self) -> Option<&mut Port> {
        match self {
            Attached::Lan(lan) => Some(lan),
            Attached::Line(_) | Attached::Osa(_) => None,
        }
    }

    fn line(&self) -> Option<&Line> {
        match self {
            Attached::Line(line) => Some(line),
            Attached::Lan(_) | Attached::Osa(_) => None,
        }
    }

    fn line_mut(&mut self) -> Option<&mut Line> {
        match self {
            Attached::Line(line) => Some(line),
            Attached::Lan(_) | Attached::Osa(_) => None,
        }
    }

    fn osa(&self) -> Option<&Osa> {
        match self {
            Attached::Osa(osa) => Some(osa),
            Attached::Lan(_) | Attached::Line(_) => None,
        }
    }

    fn osa_mut(&mut self) -> Option<&mut Osa> {
        match self {
            Attached::Osa(osa) => Some(osa),
            Attached::Lan(_) | Attached::Line(_) => None,
        }
    }

    /// Where a stack can show itself.
    pub(super) fn board(&self) -> &Words {
        match self {
            Attached::Lan(lan) => lan.board(),
            Attached::Line(line) => line.board(),
            Attached::Osa(osa) => osa.board(),
        }
    }

    pub(super) fn sleeper(&self, interrupt: impl AsFd) -> io::Result<Sleeper> {
        match self {
            Attached::Lan(lan) => lan.sleeper(interrupt),
            Attached::Line(line) => line.sleeper(interrupt),
            Attached::Osa(osa) => osa.sleeper(interrupt),
        }
    }

    fn wait_policy(&self) -> Wait {
        match self {
            Attached::Lan(lan) => lan.wait_policy(),
            Attached::Line(line) => line.wait_policy(),
            Attached::Osa(osa) => osa.wait_policy(),
        }
    }

    fn flush(&mut self) {
        match self {
            Attached::Lan(lan) => lan.flush(),
            Attached::Line(line) => line.flush(),
            Attached::Osa(osa) => osa.flush(),
        }
    }

    fn look(&mut self, until_ns: u64, is_wanted: impl Fn() -> bool) -> io::Result<Looked> {
        match self {
            Attached::Lan(lan) => lan.look(until_ns, is_wanted),
            Attached::Line(line) => line.look(until_ns, is_wanted),
            Attached::Osa(osa) => osa.look(until_ns, is_wanted),
        }
    }

    fn prepare_sleep(&mut self) -> Option<u64> {
        match self {
            Attached::Lan(lan) => lan.prepare_sleep(),
            Attached::Line(line) => line.prepare_sleep(),
            Attached::Osa(osa) => osa.prepare_sleep(),
        }
    }

    fn prepare_wait(&mut self) -> bool {
        match self {
            Attached::Lan(lan) => lan.prepare_wait(),
            Attached::Line(line) => line.prepare_wait(),
            Attached::Osa(osa) => osa.prepare_wait(),
        }
    }

    fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        match self {
            Attached::Lan(lan) => lan.heard(rang, slept_ns),
            Attached::Line(line) => line.heard(rang, slept_ns),
            Attached::Osa(osa) => osa.heard(rang, slept_ns),
        }
    }
}

/// The LANs and lines, of which there is one at least. Each keeps its number while the stack is at it.
#[derive(Debug)]
pub(super) struct Lans {
    lans: Vec<Option<Attached>>,
    sleeper: Arc<LansSleeper>,
}

impl Lans {
    /// The LANs and lines of a stack whose driver's sleep `interrupt` ends, too.
    ///
    /// # Errors
    /// No descriptors left: with several it takes one.
    ///
    /// # Panics
    /// If there is none: a broken promise inside this program.
    pub(super) fn new(lans: Vec<Attached>, interrupt: impl AsFd) -> io::Result<Lans> {
        assert!(!lans.is_empty(), "a stack is at one LAN or line at least");
        let sleeper = |lan: &Attached| lan.sleeper(interrupt.as_fd()).map(Some);
        let each = lans.iter().map(sleeper).collect::<io::Result<_>>()?;
        let sleeper = Arc::new(LansSleeper::new(each)?);
        Ok(Lans { lans: lans.into_iter().map(Some).collect(), sleeper })
    }

    /// The number that the next LAN gets.
    pub(super) fn next(&self) -> usize {
        self.lans.iter().position(Option::is_none).unwrap_or(self.lans.len())
    }

    /// Puts a LAN where `next` was, and sleeps there from now on.
    pub(super) fn add(&mut self, lan: Attached, sleeper: LansSleeper) {
        let next = self.next();
        self.lans.resize_with(self.lans.len().max(next + 1), || None);
        self.lans[next] = Some(lan);
        self.sleeper = Arc::new(sleeper);
    }

    /// Sleeps there from now on.
    pub(super) fn set_sleeper(&mut self, sleeper: LansSleeper) {
        self.sleeper = Arc::new(sleeper);
    }

    /// Takes a LAN out.
    pub(super) fn remove(&mut self, lan: usize, sleeper: LansSleeper) -> Option<Attached> {
        let removed = self.lans.get_mut(lan)?.take();
        while self.lans.pop_if(|last| last.is_none()).is_some() {}
        self.sleeper = Arc::new(sleeper);
        removed
    }

    /// Sleeps until one of the LANs has something, while others have them.
    pub(super) fn sleeper(&self) -> &Arc<LansSleeper> {
        &self.sleeper
    }

    /// One more than the greatest number.
    pub(super) fn end(&self) -> usize {
        self.lans.len()
    }

    /// Whether the stack is at a LAN of this number.
    pub(super) fn has(&self, lan: usize) -> bool {
        self.at(lan).is_some_and(|attached| attached.lan().is_some())
    }

    /// Whether the stack is at a line of this number.
    pub(super) fn has_line(&self, number: usize) -> bool {
        self.at(number).is_some_and(|attached| attached.line().is_some())
    }

    /// The LAN or line of this number.
    pub(super) fn at(&self, number: usize) -> Option<&Attached> {
        self.lans.get(number)?.as_ref()
    }

    /// # Panics
    /// If the stack is not at this LAN: a broken promise inside this program.
    pub(super) fn get(&mut self, lan: usize) -> &mut Port {
        self.lan(lan).expect("the stack is at this LAN")
    }

    /// The LAN of this number. None: it is a line.
    pub(super) fn lan(&mut self, number: usize) -> Option<&mut Port> {
        self.lans.get_mut(number)?.as_mut()?.lan_mut()
    }

    /// The line of this number. None: it is a LAN.
    pub(super) fn line(&mut self, number: usize) -> Option<&mut Line> {
        self.lans.get_mut(number)?.as_mut()?.line_mut()
    }

    /// Whether the stack has a device at an adapter of this number.
    pub(super) fn has_osa(&self, number: usize) -> bool {
        self.at(number).is_some_and(|attached| attached.osa().is_some())
    }

    /// The device at an adapter of this number. None: it is a LAN or a line.
    pub(super) fn osa(&mut self, number: usize) -> Option<&mut Osa> {
        self.lans.get_mut(number)?.as_mut()?.osa_mut()
    }

    /// The devices at adapters.
    pub(super) fn osas(&self) -> impl Iterator<Item = (usize, &Osa)> {
        self.all().filter_map(|(number, one)| Some((number, one.osa()?)))
    }

    /// All, LANs, lines and devices at adapters.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Attached)> {
        self.lans.iter().enumerate().filter_map(|(number, one)| Some((number, one.as_ref()?)))
    }

    /// The LANs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Port)> {
        self.all().filter_map(|(number, one)| Some((number, one.lan()?)))
    }

    /// The same.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Port)> {
        let lans = self.lans.iter_mut().enumerate();
        lans.filter_map(|(number, one)| Some((number, one.as_mut()?.lan_mut()?)))
    }

    /// The lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.all().filter_map(|(number, one)| Some((number, one.line()?)))
    }

    /// The one on whose board the stack shows itself: the first LAN, or if it is at lines alone the first line.
    pub(super) fn first(&self) -> Option<&Attached> {
        let mut all = self.all();
        let lan = self.all().find(|(_, one)| one.lan().is_some());
        lan.or_else(|| all.next()).map(|(_, one)| one)
    }

    /// Lends the host the board of the first line if the stack shows itself there, and takes down what others have shown before.
    pub(super) fn show_at_line(&mut self, now: u64) {
        let mut is_elsewhere = self.iter().next().is_some();
        for one in self.lans.iter_mut().flatten() {
            match (one, is_elsewhere) {
                (Attached::Lan(_), _) => continue,
                (Attached::Line(line), true) => line.hide_stack(),
                (Attached::Line(line), false) => line.show_stack(now),
                (Attached::Osa(osa), true) => osa.hide_stack(),
                (Attached::Osa(osa), false) => osa.show_stack(now),
            }
            is_elsewhere = true;
        }
    }

    /// The first LAN. None: the stack is at lines alone.
    pub(super) fn first_mut(&mut self) -> Option<&mut Port> {
        self.iter_mut().next().map(|(_, lan)| lan)
    }

    /// How the stack waits: as the first does.
    fn wait_policy(&self) -> Wait {
        self.all().next().map_or(Wait::default(), |(_, one)| one.wait_policy())
    }

    /// Hands over what was held back.
    pub(super) fn flush(&mut self) {
        self.lans.iter_mut().flatten().for_each(Attached::flush);
    }

    /// Which addresses the members have whose paths have ended since this was asked last, and at which LAN.
    pub(super) fn take_parted(&mut self) -> Vec<(usize, IpAddr)> {
        let mut parted = Vec::new();
        for (number, lan) in self.iter_mut() {
            parted.extend(lan.take_parted().into_iter().map(|at| (number, at)));
        }
        parted
    }

    /// As [`Lan::look`].
    pub(super) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        if let [Some(only)] = &mut self.lans[..] {
            return only.look(deadline_ns, is_wanted);
        }
        let until_ns = match self.wait_policy() {
            Wait::Block => 0,
            Wait::Adaptive => deadline_ns.min(now_ns() + SPIN_NS_MAX / 2),
            Wait::Spin => deadline_ns,
        };
        loop {
            for lan in self.lans.iter_mut().flatten() {
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
        let mut lans = self.lans.iter_mut().flatten();
        lans.try_fold(u64::MAX, |until, lan| Some(until.min(lan.prepare_sleep()?)))
    }

    /// As [`Lan::prepare_wait`].
    pub(super) fn prepare_wait(&mut self) -> bool {
        self.lans.iter_mut().flatten().all(Attached::prepare_wait)
    }

    /// A sleep was ended by these doorbells, after so long. Whether one of them is a member's.
    pub(super) fn heard(&mut self, rang: &Rang, slept_ns: u64) -> bool {
        let lans = self.lans.iter_mut().zip(&rang.of_lans);
        let rung = lans.filter_map(|(lan, rang)| Some((lan.as_mut()?, rang)));
        rung.filter(|(_, rang)| !rang.is_empty())
            .fold(false, |has_heard, (lan, rang)| lan.heard(rang, slept_ns) | has_heard)
    }
}

/// The doorbells that have ended a sleep, by LAN.
#[derive(Debug, Default)]
pub(super) struct Rang {
    of_lans: Vec<Vec<u64>>,
}

impl Rang {
    /// The doorbells of the first, or only, one.
    pub(super) fn of_first(&self) -> Option<&[u64]> {
        self.of_lans.first().map(Vec::as_slice)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_lans.iter().all(Vec::is_empty)
    }
}

/// Sleeps until one of the LANs has something.
#[derive(Debug)]
pub(super) struct LansSleeper {
    each: Vec<Option<Sleeper>>,
    /// The only one that there is, or readable if one of several is.
    all: Result<usize, Poller>,
}

impl LansSleeper {
    /// # Errors
    /// No descriptors left: with several LANs it takes one.
    pub(super) fn new(each: Vec<Option<Sleeper>>) -> io::Result<LansSleeper> {
        let mut present = (0..).zip(&each).filter_map(|(lan, each)| Some((lan, each.as_ref()?)));
        let all = match (present.next(), present.next()) {
            (Some((only, _)), None) => Ok(only),
            (first, second) => {
                let all = Poller::new()?;
                for (lan, each) in first.into_iter().chain(second).chain(present) {
                    all.add(each, lan as u64)?;
                }
                Err(all)
            }
        };
        Ok(LansSleeper { each, all })
    }

    /// One that sleeps at this LAN, too, or at this LAN no longer.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn with(&self, lan: usize, sleeper: Option<Sleeper>) -> io::Result<LansSleeper> {
        let mut each = self.each.clone();
        each.resize(each.len().max(lan + 1), None);
        each[lan] = sleeper;
        LansSleeper::new(each)
    }

    /// Sleeps at most for `time`, and says what has ended it.
    pub(super) fn wait(&self, time: Option<Duration>, rang: &mut Rang) -> io::Result<()> {
        rang.of_lans.resize_with(self.each.len(), Vec::new);
        let all = match &self.all {
            Ok(only) => return self.wait_at(*only, time, rang),
            Err(all) => all,
        };
        let until_ns = time.map_or(u64::MAX, after);
        let mut ready = Vec::new();
        loop {
            let now = now_ns();
            let time =
                (until_ns != u64::MAX).then(|| Duration::from_nanos(until_ns.saturating_sub(now)));
            all.sleeper().wait(time, &mut ready)?;
            rang.of_lans.iter_mut().for_each(Vec::clear);
            for lan in &ready {
                self.wait_at(*lan as usize, Some(Duration::ZERO), rang)?;
            }
            // Without names the time is over, or a signal has come. Names of which nothing has rung are of those that were woken up early.
            if ready.is_empty() || !rang.is_empty() || now >= until_ns {
                return Ok(());
            }
        }
    }

    /// As [`Sleeper::prepare_early`].
    pub(super) fn prepare_early(&self) {
        self.each.iter().flatten().for_each(Sleeper::prepare_early);
    }

    fn wait_at(&self, lan: usize, time: Option<Duration>, rang: &mut Rang) -> io::Result<()> {
        let each = self.each[lan].as_ref().expect("the stack is at this LAN");
        each.wait(time, &mut rang.of_lans[lan])
    }
}

impl AsFd for LansSleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.all {
            Ok(only) => self.each[*only].as_ref().expect("the stack is at this LAN").as_fd(),
            Err(all) => all.as_fd(),
        }
    }
}
