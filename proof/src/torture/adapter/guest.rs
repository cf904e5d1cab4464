//! A guest with a stack at an adapter, which talks with all others.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use os::processor::now_ns;
use siga::osa::{Osa, OsaOptions};
use siga::tcpip::{Counter, Drive, Links, Routing, Stack, StackOptions, TcpListener};
use siga::{Guest, Wait};

use super::super::dialogue::{STILL_MAX, Speaker};
use super::super::lan::wire::{FromParty, Report};
use super::super::lan::{OPEN, Post};
use super::super::machine::News;
use super::super::machine::lasting::Lasting;
use super::super::machine::party::FRAMES;
use super::{
    Arguments, GUESTS, LASTING_PORT, NETWORK_BITS, PARTIES, TALK_PORT, Wiring, address, name, place,
};
use crate::crew;

/// How long to wait for a host, and for the host to have noticed that the life before is over.
const RETRY: Duration = Duration::from_millis(2);

/// How long to wait for work.
const NAP: Duration = Duration::from_millis(2);

/// How long a device is waited for before the supervisor is listened to again.
const SLICE: Duration = Duration::from_millis(20);

/// How long a side may leave what was sent without an answer: longer than adapters are dead, and less than what counts as hanging.
const SILENCE_MAX: Duration = STILL_MAX.saturating_sub(Duration::from_secs(2));

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.party.birth.die_with_parent();
    let mut guest = Party::new(arguments);
    let Some(stack) = guest.start(arguments) else { return ExitCode::SUCCESS };
    let listen = |port: u16| {
        let listener = TcpListener::bind(&stack, ("0.0.0.0", port)).expect("nobody else listens");
        listener.set_nonblocking(true).expect("a listener");
        listener
    };
    let (talks, streams) = (listen(TALK_PORT), listen(LASTING_PORT));
    while guest.obey() {
        let served = stack.wait(NAP).and_then(|_| guest.serve(&stack, &talks, &streams));
        guest.post.check(served.map_err(|error| format!("the stack: {error}")));
    }
    ExitCode::SUCCESS
}

struct Party {
    post: Post,
    own: usize,
    speaker: Speaker,
    lasting: Lasting,
}

impl Party {
    fn new(arguments: &Arguments) -> Party {
        let own = arguments.party.party;
        let who = (own, arguments.party.birth.life);
        let others = (0..GUESTS).filter(|peer| *peer != own);
        let talks = others.map(|peer| (peer, place(peer, TALK_PORT))).collect();
        // One for each two parties.
        let behind = arguments.wiring.speakers().into_iter().filter(|peer| *peer > own);
        let streams = behind.map(|peer| (peer, place(peer, LASTING_PORT))).collect();
        Party {
            post: Post::new(&arguments.party),
            own,
            speaker: Speaker::new(who, talks, PARTIES, is_explained).asking_whether_alive(),
            lasting: Lasting::new(who, streams).asking_whether_alive(),
        }
    }

    /// Does what it was told. False once the supervisor is gone.
    fn obey(&mut self) -> bool {
        let Party { post, speaker, lasting, .. } = self;
        post.obey(|| {
            let mut report: Report = speaker.report();
            for (name, count) in &mut report.counters {
                if name == OPEN {
                    *count += lasting.open() as u64;
                }
            }
            report.counters.push((FRAMES.to_owned(), lasting.frames));
            report
        })
    }

    /// A stack, as soon as there can be one; none once the supervisor is gone.
    fn start(&mut self, arguments: &Arguments) -> Option<Stack> {
        let host = crew::host_socket(&arguments.party.birth.directory);
        while self.obey() {
            if let Ok(guest) = Guest::attach(&host, &name(self.own))
                && let Some(device) = self.device(guest, arguments.wiring)
            {
                self.post.send(&FromParty::News(News::Attached { at_ns: now_ns() }));
                let options = StackOptions {
                    silence_max: SILENCE_MAX,
                    connect_max: SILENCE_MAX,
                    drive: if self.own.is_multiple_of(2) { Drive::Thread } else { Drive::Inline },
                    ..StackOptions::default()
                };
                let links = Links { devices: vec![device], ..Links::default() };
                let stack = Stack::at(links, &Routing::default(), &options);
                return Some(stack.expect("it has an address"));
            }
            thread::sleep(RETRY);
        }
        None
    }

    /// The device, as soon as the adapter gives it the address; none if the address is the dead guest's still.
    fn device(&mut self, guest: Guest, wiring: Wiring) -> Option<Osa> {
        let mut options = OsaOptions::default();
        options.wait = Wait::Block;
        let mut osa = Osa::open(guest, wiring.adapter_of(self.own), &options).ok()?;
        osa.add_address(IpAddr::V4(address(self.own)), NETWORK_BITS);
        while self.obey() {
            match osa.wait_until_up(SLICE) {
                Ok(()) => return Some(osa),
                Err(siga::osa::OpenOsaError::NotUp { .. }) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Does what there is to do, and reports what is wrong.
    fn serve(
        &mut self,
        stack: &Stack,
        talks: &TcpListener,
        streams: &TcpListener,
    ) -> io::Result<()> {
        for counter in [Counter::Malformed, Counter::BadChecksum] {
            let count = stack.counter(counter);
            if count > 0 {
                self.post.check(Err(format!("{} is {count}", counter.name())));
            }
        }
        self.speaker.accept(talks)?;
        self.lasting.accept(streams)?;
        if !self.post.is_paused {
            self.speaker.ask(stack);
            self.lasting.ask(stack);
        }
        let goes_on = !self.post.is_paused;
        let done = [self.speaker.go_on(), self.lasting.serve(goes_on, is_explained)];
        for wrong in done.into_iter().filter_map(Result::err) {
            self.post.check(Err(wrong.join("; ")));
        }
        for news in self.lasting.news() {
            self.post.send(&FromParty::News(news));
        }
        Ok(())
    }
}

/// Returns true if the end of another guest explains an error of a connection.
pub fn is_explained(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::TimedOut
            | ErrorKind::BrokenPipe
    )
}
