//! Serving a port: the agent, asleep while there is nothing to do, and what happens to the program meanwhile.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use os::program::{Change, End, Program};
use os::signals::{HeldSignals, Taken};
use os::tap::Tap;
use siga::{Name, Wait};

use crate::adopted::{Ending, adopted, end_child, is_running, reap};
use crate::agent::{Agent, Counters, Ended, Ready};
use crate::watch::Watch;

/// Names of descriptors that are waited for.
const DEVICE: u64 = 0;
const NETWORK: u64 = 1;
const SIGNALS: u64 = 2;
const WATCH: u64 = 3;

/// How long an adaptive port looks for frames before it sleeps.
const SPIN_NS: u64 = 50_000;

/// How often a port that has no reason to sleep looks at everything that can wake it: each so many rounds, in which it
/// finds nothing, or moves many frames.
const ROUNDS_PER_LOOK: u32 = 64;
const BUSY_ROUNDS_PER_LOOK: u32 = 4;

/// After how long without a frame the members are looked at, for they change in memory and nobody is woken for that; and
/// memory is given back.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// How long a port goes on for what its program has sent and the other ends have not received yet.
const LINGER_NS: u64 = 2_000_000_000;

/// How long processes that were asked to end have for that before they are killed.
const ENDING_NS: u64 = 2_000_000_000;

/// How often the sockets are looked at meanwhile, if nothing else happens.
const LINGER_TIME: Duration = Duration::from_millis(20);

/// An agent that moves frames between the interface of a program and a network: a LAN, or what is behind an adapter.
pub trait Moves: fmt::Debug {
    /// Moves some frames in both directions, and returns true if more may be there. Does not wait.
    ///
    /// # Errors
    /// [`Ended`].
    fn poll(&mut self, ready: Ready) -> Result<bool, Ended>;

    /// Prepares for waiting: true if there is nothing to do until one of the descriptors is readable, or [`Moves::due`] has passed.
    fn prepare_wait(&mut self) -> bool;

    /// When there is something to do though nothing has come.
    fn due(&self) -> Option<u64>;

    /// Returns true if it is to be polled now and then though nothing has come and nothing is due.
    fn has_to_look(&self) -> bool;

    /// Does what frames do not wait for: names of others, for example. To be called now and then.
    fn follow(&mut self);

    /// Returns true while frames from the device wait for their targets.
    fn has_backlog(&self) -> bool;

    /// Gives memory back: to be called when nothing has happened for a while.
    fn trim(&mut self);

    /// Takes the next sentence for the user.
    fn take_notice(&mut self) -> Option<String>;

    /// The name of the guest.
    fn name(&self) -> Name;

    /// What it has done.
    fn counters(&self) -> Counters;

    /// The device of the interface.
    fn tap(&self) -> &Tap;

    /// What is readable when the network has something.
    fn network(&self) -> BorrowedFd<'_>;
}

/// A port that is served.
#[derive(Debug)]
pub struct Server<'a> {
    agent: Box<dyn Moves>,
    held: &'a HeldSignals,
    poller: Poller,
    wait: Wait,
    /// What may have something for the agent.
    ready: Ready,
    /// Since when nothing was found, for an adaptive port.
    idle_since_ns: Option<u64>,
    rounds: u32,
}

/// What ended a port that has no program of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A signal asked for it.
    Asked,
    /// The namespace, or its interface, is gone.
    Gone,
}

/// What woke a server, or was found meanwhile.
enum Event {
    Signal(Taken),
    Watched,
}

impl<'a> Server<'a> {
    /// A server for `agent`, whose program gets the signals in `held`.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new(agent: Box<dyn Moves>, held: &'a HeldSignals, wait: Wait) -> io::Result<Server<'a>> {
        let poller = Poller::new()?;
        poller.add(agent.tap(), DEVICE)?;
        poller.add(held, SIGNALS)?;
        poller.add(agent.network(), NETWORK)?;
        let ready = Ready { device: true, network: true };
        let (idle_since_ns, rounds) = (None, 0);
        let mut server = Server { agent, held, poller, wait, ready, idle_since_ns, rounds };
        server.agent.follow();
        server.tell_notices();
        Ok(server)
    }

    /// Serves until the program and all processes that it has started have ended, and until what they have sent last has gone; returns how
    /// the program ended. `say` is called once if others go on without the program. The children of this process in `own` are none of
    /// those.
    ///
    /// # Errors
    /// As from the kernel, or the network cannot be received from. The program is still there then.
    pub fn serve_program(
        &mut self,
        program: &mut Program,
        sockets: &[File],
        own: &[u32],
        say: impl FnOnce(usize),
    ) -> Result<End, Ended> {
        let mut is_there = true;
        let known: Vec<u32> = own.iter().copied().chain([program.process()]).collect();
        let mut was_asked = false;
        let end = loop {
            // It may have ended before its signal was held.
            if let Some(end) = self.take_changes(program)? {
                break end;
            }
            let event = match is_there {
                true => self.next_event(None),
                // Without an interface there is nothing but signals.
                false => self.next_signal(None),
            };
            match event {
                Ok(Some(Event::Signal(taken))) => {
                    self.pass_on(taken, program);
                    was_asked |= taken.asks_to_end();
                    if taken.is_of_a_child() {
                        // Processes whose parents have ended before them: somebody has to wait for them.
                        reap(&known).map_err(Ended::Network)?;
                    }
                }
                Ok(_) => {}
                // A program that is root in its network can remove its interface.
                Err(Ended::Device) => is_there = false,
                Err(error) => return Err(error),
            }
        };
        // Ctrl-C is meant for all.
        let was_asked = was_asked && end.exit_code() > 128;
        self.serve_others(own, was_asked.then(now_ns), &mut is_there, say)?;
        if is_there {
            // What is lost then would be lost on a wire too.
            let _ = self.linger(sockets);
        }
        Ok(end)
    }

    /// Serves until no process is left that the program has started, since when they have been asked to end, if they have.
    fn serve_others(
        &mut self,
        own: &[u32],
        mut asked_ns: Option<u64>,
        is_there: &mut bool,
        say: impl FnOnce(usize),
    ) -> Result<(), Ended> {
        let mut say = Some(say);
        let mut asked = Vec::new();
        let mut others = Vec::new();
        loop {
            // To find those that have been adopted since, every process of the machine is looked at: only when none is left that is
            // known, or all are to end.
            if others.is_empty() || asked_ns.is_some() {
                others = adopted(own).map_err(Ended::Network)?;
            }
            if others.is_empty() {
                return Ok(());
            }
            match asked_ns {
                None => {
                    if let Some(say) = say.take() {
                        say(others.len());
                    }
                }
                Some(since_ns) if now_ns() - since_ns > ENDING_NS => {
                    others.iter().for_each(|other| end_child(*other, Ending::Killed));
                }
                Some(_) => {
                    // Once each: those whose parents end are found then.
                    let mut new = others.clone();
                    new.retain(|other| !asked.contains(other));
                    new.iter().for_each(|other| end_child(*other, Ending::Asked));
                    asked.extend(new);
                }
            }
            let event = match *is_there {
                true => self.next_event(asked_ns.map(|_| LINGER_TIME)),
                false => self.next_signal(asked_ns.map(|_| LINGER_TIME)),
            };
            match event {
                Ok(Some(Event::Signal(taken))) if taken.asks_to_end() => {
                    asked_ns.get_or_insert(now_ns());
                }
                Ok(Some(Event::Signal(taken))) if taken.asks_to_stop() => self.stop(taken.number),
                Ok(Some(Event::Signal(taken))) if taken.is_of_a_child() => {
                    reap(own).map_err(Ended::Network)?;
                    others.retain(|other| is_running(*other));
                }
                Ok(_) => {}
                Err(Ended::Device) => *is_there = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// Serves until a signal asks to end, or what is watched is gone.
    ///
    /// # Errors
    /// As from the kernel, or the network cannot be received from.
    pub fn serve_namespace(&mut self, watch: &Watch) -> Result<Left, Ended> {
        self.poller.add(watch, WATCH).map_err(Ended::Network)?;
        loop {
            match self.next_event(None) {
                Ok(Some(Event::Signal(taken))) if taken.asks_to_end() => return Ok(Left::Asked),
                Ok(Some(Event::Signal(taken))) if taken.asks_to_stop() => self.stop(taken.number),
                Ok(Some(Event::Watched)) if watch.is_gone() => return Ok(Left::Gone),
                Ok(_) => {}
                Err(Ended::Device) => return Ok(Left::Gone),
                Err(error) => return Err(error),
            }
        }
    }

    /// The agent.
    pub fn agent(&self) -> &dyn Moves {
        &*self.agent
    }

    /// Moves frames until there is an event; none if time for `now_and_then` has come, or something is to be looked at.
    fn next_event(&mut self, now_and_then: Option<Duration>) -> Result<Option<Event>, Ended> {
        loop {
            self.rounds = self.rounds.wrapping_add(1);
            let is_busy = self.agent.poll(std::mem::take(&mut self.ready))?;
            self.tell_notices();
            if is_busy {
                self.idle_since_ns = None;
            }
            let rounds_per_look = if is_busy { BUSY_ROUNDS_PER_LOOK } else { ROUNDS_PER_LOOK };
            let is_to_look = self.rounds.is_multiple_of(rounds_per_look);
            let time = if is_busy || self.is_to_spin() {
                // However busy it is, or is kept by frames that are dropped.
                if !is_to_look {
                    self.ready.device = true;
                    continue;
                }
                Some(Duration::ZERO)
            } else if !self.agent.prepare_wait() {
                continue;
            } else {
                let time = now_and_then.or(self.agent.has_to_look().then_some(QUIET_TIME));
                let due = self.agent.due();
                let due = due.map(|due| Duration::from_nanos(due.saturating_sub(now_ns())));
                time.into_iter().chain(due).min()
            };
            let ready = self.poller.wait(time).map_err(Ended::Network)?;
            self.ready =
                Ready { device: ready.contains(&DEVICE), network: ready.contains(&NETWORK) };
            let (signals, watched) = (ready.contains(&SIGNALS), ready.contains(&WATCH));
            let is_quiet = ready.is_empty() && time.is_some_and(|time| !time.is_zero());
            self.agent.follow();
            if is_quiet {
                self.agent.trim();
            }
            if signals && let Some(taken) = self.held.take().map_err(Ended::Network)? {
                return Ok(Some(Event::Signal(taken)));
            }
            if watched {
                return Ok(Some(Event::Watched));
            }
            if now_and_then.is_some() && (is_quiet || is_to_look) {
                return Ok(None);
            }
        }
    }

    /// Waits for a signal alone, for no longer than this.
    fn next_signal(&mut self, time: Option<Duration>) -> Result<Option<Event>, Ended> {
        os::poller::wait_readable(self.held, time).map_err(Ended::Network)?;
        Ok(self.held.take().map_err(Ended::Network)?.map(Event::Signal))
    }

    fn is_to_spin(&mut self) -> bool {
        match self.wait {
            Wait::Spin => true,
            Wait::Block => false,
            Wait::Adaptive => {
                let now_ns = now_ns();
                let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
                now_ns - since_ns < SPIN_NS
            }
        }
    }

    /// Tells the user what the agent has found.
    fn tell_notices(&mut self) {
        while let Some(notice) = self.agent.take_notice() {
            // A reader that is gone is no reason to end.
            let _ = writeln!(io::stderr(), "siga: {notice}");
        }
    }

    /// Takes note of what the program did; how it ended, if it has.
    fn take_changes(&mut self, program: &mut Program) -> Result<Option<End>, Ended> {
        while let Some(change) = program.poll().map_err(Ended::Network)? {
            match change {
                Change::Ended(end) => return Ok(Some(end)),
                // To the shell this process is the program: so it stops too, and whoever lets the group go on lets both.
                Change::Stopped(signal) if stops_by_terminal(signal) => self.stop(signal),
                // By whom, and for how long, is not for a terminal to know.
                Change::Stopped(_) => {}
            }
        }
        Ok(None)
    }

    fn stop(&self, signal: i32) {
        // There is such a signal: it has just come.
        let _ = self.held.suffer(signal);
    }

    fn pass_on(&self, taken: Taken, program: &Program) {
        // What a key of the terminal sends, the program gets by itself.
        if taken.is_sent && !taken.is_of_a_child() {
            program.send(taken.number);
        }
    }

    /// Goes on until everything that the program sent is received, for a while: a kernel does that for its programs too.
    fn linger(&mut self, sockets: &[File]) -> Result<(), Ended> {
        let deadline_ns = now_ns() + LINGER_NS;
        // What has gone into the device so far is moved before anything is asked.
        self.move_all(deadline_ns)?;
        while (self.agent.has_backlog() || sockets.iter().any(has_unsent)) && now_ns() < deadline_ns
        {
            if let Some(Event::Signal(taken)) = self.next_event(Some(LINGER_TIME))?
                && taken.asks_to_end()
            {
                return Ok(());
            }
        }
        self.move_all(deadline_ns)
    }

    /// Moves frames until there are none.
    fn move_all(&mut self, deadline_ns: u64) -> Result<(), Ended> {
        while self.agent.poll(Ready { device: true, network: true })? && now_ns() < deadline_ns {}
        Ok(())
    }
}

/// Serves a port that is a thread of its program, asleep while there is nothing to do, until its interface is gone or its LAN
/// cannot be received from: says which.
///
/// # Errors
/// As from the kernel: it does not let us wait.
pub fn serve_for_ever(mut agent: Agent) -> io::Result<Ended> {
    let mut poller = Poller::new()?;
    poller.add(agent.tap(), DEVICE)?;
    poller.add(agent.network(), NETWORK)?;
    let mut ready = Ready { device: true, network: true };
    loop {
        match agent.poll(ready) {
            Ok(true) => ready = Ready { device: true, network: false },
            Ok(false) if !agent.prepare_wait() => ready = Ready::default(),
            Ok(false) => {
                let heard = poller.wait(None)?;
                ready =
                    Ready { device: heard.contains(&DEVICE), network: heard.contains(&NETWORK) };
            }
            Err(ended) => return Ok(ended),
        }
    }
}

fn stops_by_terminal(signal: i32) -> bool {
    use rustix::process::Signal;
    [Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|stop| stop.as_raw() == signal)
}

/// Bytes of a list of sockets that are read: those at its end are not looked for.
const LIST_BYTES_MAX: usize = 1 << 18;

/// Whether a list of TCP sockets has one whose program is gone, and whose data or end the other side has not yet.
fn has_unsent(list: &File) -> bool {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    while text.len() < LIST_BYTES_MAX
        && let Ok(bytes @ 1..) = list.read_at(&mut part, text.len() as u64)
    {
        text.extend_from_slice(&part[..bytes]);
    }
    String::from_utf8_lossy(&text).lines().skip(1).any(is_unsent)
}

/// The states FIN_WAIT1, LAST_ACK and CLOSING (`include/net/tcp_states.h`).
fn is_unsent(line: &str) -> bool {
    let state = line.split_ascii_whitespace().nth(3);
    matches!(state, Some("04" | "09" | "0B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_something_unsent_are_told_by_their_state() {
        let line = |state: &str| {
            format!(
                "   0: 0500010A:C350 0100010A:1451 {state} 00000000:00000000 00:00000000 00000000"
            )
        };
        for (state, expected) in [("01", false), ("04", true), ("06", false), ("09", true)] {
            assert_eq!(is_unsent(&line(state)), expected, "{state}");
        }
        assert!(!is_unsent(""));
    }

    #[test]
    fn list_of_sockets_is_read_to_its_end() {
        let mut lines = vec!["  sl  local_address rem_address   st"; 1];
        let plain = "   0: 0500010A:C350 0100010A:1451 01 00000000:00000000";
        lines.extend(std::iter::repeat_n(plain, 200));
        let path = std::env::temp_dir().join(format!("siga-sockets-{}", std::process::id()));
        let has = |lines: &[&str]| {
            std::fs::write(&path, lines.join("\n")).unwrap();
            has_unsent(&File::open(&path).unwrap())
        };
        assert!(!has(&lines));
        lines.push("   0: 0500010A:C350 0100010A:1451 0B 00000000:00000000");
        assert!(has(&lines));
        std::fs::remove_file(&path).unwrap();
    }
}
