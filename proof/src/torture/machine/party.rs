//! A party that talks with all others: a client of a machine, or a member of the LAN with a stack of its own.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use os::processor::now_ns;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{ClientOptions, Counter, Drive, Stack, StackOptions, TcpListener};
use siga::{Guest, Wait};

use super::super::dialogue::{SILENCE_MAX, Speaker};
use super::super::lan::wire::{FromParty, Report};
use super::super::lan::{Arguments, OPEN, Post};
use super::lasting::Lasting;
use super::wire::News;
use super::{
    INTERFACE, LASTING_PORT, PARTIES, TALK_PORT, address, mac, machine_of, name, place, speakers,
};
use crate::crew;

/// How long to wait for a host or a machine, and for them to have noticed that the life before is over.
const RETRY: Duration = Duration::from_millis(2);

/// How long to wait for work.
const NAP: Duration = Duration::from_millis(2);

/// How long to wait for the answer of a machine, which may die meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Steps in which a stream of a machine that is gone has its error, at most: what has come is read before, 64 KiB in a step.
const STEPS_TO_END: usize = 32;

/// What a party counts beside its conversations: frames of streams that last.
pub const FRAMES: &str = "frames";

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.birth.die_with_parent();
    let mut party = Party::new(arguments);
    let Some(stack) = party.start(arguments) else { return ExitCode::SUCCESS };
    while party.obey() {
        // A client finds that its machine is gone by a verb of a socket.
        let waited = stack.wait(NAP);
        match party.serve(&stack) {
            Err(error) if party.machine.is_some() => party.lose_machine(&stack, &error),
            served => party.check_stack(waited.and(served)),
        }
    }
    ExitCode::SUCCESS
}

struct Party {
    post: Post,
    own: usize,
    /// Of a client.
    machine: Option<String>,
    speaker: Speaker,
    lasting: Lasting,
    /// For conversations, and for streams that last.
    listeners: Option<[TcpListener; 2]>,
    /// Machines that it has lost.
    lost: u64,
}

impl Party {
    fn new(arguments: &Arguments) -> Party {
        let own = arguments.party;
        let who = (own, arguments.birth.life);
        let others = speakers().filter(|peer| *peer != own);
        let talks = others.clone().map(|peer| (peer, place(peer, TALK_PORT))).collect();
        // One for each two parties.
        let streams = others.filter(|peer| *peer > own);
        let streams = streams.map(|peer| (peer, place(peer, LASTING_PORT))).collect();
        Party {
            post: Post::new(arguments),
            own,
            machine: machine_of(own).map(name),
            speaker: Speaker::new(who, talks, PARTIES, is_explained),
            lasting: Lasting::new(who, streams),
            listeners: None,
            lost: 0,
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
        let host = crew::host_socket(&arguments.birth.directory);
        while self.obey() {
            if let Ok(guest) = Guest::attach(&host, &name(self.own)) {
                let stack = match &self.machine {
                    Some(machine) => Stack::of_machine(guest, machine, &self.client()).ok(),
                    None => self.join(guest),
                };
                if stack.is_some() {
                    self.tell(News::Attached { at_ns: now_ns() });
                    return stack;
                }
            }
            thread::sleep(RETRY);
        }
        None
    }

    fn drive(&self) -> Drive {
        if self.own.is_multiple_of(2) { Drive::Thread } else { Drive::Inline }
    }

    fn client(&self) -> ClientOptions {
        ClientOptions { wait: Wait::Block, drive: self.drive(), time: ANSWER_MAX }
    }

    /// A stack of its own.
    fn join(&self, guest: Guest) -> Option<Stack> {
        let options = LanOptions {
            address: Address::This(IpAddr::V4(address(self.own))),
            mac: Some(mac(self.own)),
            wait: Wait::Block,
            ..LanOptions::default()
        };
        let stack_options = StackOptions {
            silence_max: SILENCE_MAX,
            connect_max: SILENCE_MAX,
            drive: self.drive(),
            ..StackOptions::default()
        };
        let lan = Lan::join(guest, INTERFACE, &options).ok()?;
        Some(Stack::new(lan, &stack_options).expect("it has an address"))
    }

    fn check_stack(&self, done: io::Result<()>) {
        self.post.check(done.map_err(|error| format!("the stack: {error}")));
    }

    fn tell(&self, news: News) {
        self.post.send(&FromParty::News(news));
    }

    /// Does what there is to do, and reports what is wrong.
    ///
    /// # Errors
    /// The machine is gone.
    fn serve(&mut self, stack: &Stack) -> io::Result<()> {
        for counter in [Counter::Malformed, Counter::BadChecksum] {
            let count = stack.counter(counter);
            if count > 0 {
                self.post.check(Err(format!("{} is {count}", counter.name())));
            }
        }
        self.listen(stack)?;
        if let Some([talks, streams]) = &self.listeners {
            self.speaker.accept(talks)?;
            self.lasting.accept(streams)?;
        }
        if !self.post.is_paused {
            self.speaker.ask(stack);
            self.lasting.ask(stack);
        }
        self.go_on();
        Ok(())
    }

    /// Listens, as soon as nobody else does at these ports: the machine may not know yet that the life before is over.
    fn listen(&mut self, stack: &Stack) -> io::Result<()> {
        if self.listeners.is_some() {
            return Ok(());
        }
        let bind = |port: u16| -> io::Result<TcpListener> {
            let listener = TcpListener::bind(stack, ("0.0.0.0", port + self.own as u16))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = match (bind(TALK_PORT), bind(LASTING_PORT)) {
            (Ok(talks), Ok(streams)) => Some([talks, streams]),
            (Err(error), _) | (_, Err(error)) if error.kind() != ErrorKind::AddrInUse => {
                return Err(error);
            }
            _ => None,
        };
        self.listeners = listeners;
        Ok(())
    }

    /// Sends and receives what it can.
    fn go_on(&mut self) {
        let goes_on = !self.post.is_paused;
        let done = [self.speaker.go_on(), self.lasting.serve(goes_on, is_explained)];
        for wrong in done.into_iter().filter_map(Result::err) {
            self.post.check(Err(wrong.join("; ")));
        }
        for news in self.lasting.news() {
            self.tell(news);
        }
    }

    /// Every stream has an error now, before or after the client is one of the next machine.
    fn lose_machine(&mut self, stack: &Stack, error: &io::Error) {
        self.tell(News::Gone { at_ns: now_ns(), error: error.to_string() });
        if error.kind() != ErrorKind::ConnectionAborted {
            self.post.check(Err(format!("the machine is gone: {error}")));
        }
        self.lost += 1;
        let ends_before = self.lost.is_multiple_of(2);
        if ends_before {
            self.end_streams();
        }
        self.listeners = None;
        while self.obey() && stack.attach_again(&self.client()).is_err() {
            thread::sleep(RETRY);
        }
        self.tell(News::Attached { at_ns: now_ns() });
        if !ends_before {
            self.end_streams();
        }
    }

    fn end_streams(&mut self) {
        let mut steps = 0;
        while self.speaker.open() + self.lasting.open() > 0 && steps < STEPS_TO_END {
            self.go_on();
            steps += 1;
        }
        let open = self.speaker.open() + self.lasting.open();
        if open > 0 {
            let what = format!(
                "{open} streams have no error, though their machine is gone: {:?} {:?}",
                self.speaker, self.lasting
            );
            self.post.check(Err(what));
        }
    }
}

/// Whether the end of another party, a machine or a host explains an error of a connection.
fn is_explained(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::TimedOut
            | ErrorKind::BrokenPipe
    )
}
