//! A member of the LAN with a TCP/IP stack, and conversations with all others: see `dialogue.rs`.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Counter, Drive, Stack, StackOptions, TcpListener};
use siga::{Guest, Wait};

use super::super::dialogue::{SILENCE_MAX, Speaker};
use super::wire::FromParty;
use super::{Arguments, INTERFACE, MEMBERS, Post, address, mac, name};
use crate::crew;

/// How long it waits before it tries again to become a member.
const RETRY: Duration = Duration::from_millis(5);

/// How long to wait for work.
const NAP: Duration = Duration::from_millis(2);

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.birth.die_with_parent();
    let mut member = Member::new(arguments);
    let Some(stack) = member.join(arguments) else { return ExitCode::SUCCESS };
    let listener =
        TcpListener::bind(&stack, ("0.0.0.0", super::PORT)).expect("nobody else listens");
    listener.set_nonblocking(true).expect("a listener");
    while member.obey() {
        member.serve(&stack, &listener);
    }
    ExitCode::SUCCESS
}

struct Member {
    post: Post,
    own: usize,
    speaker: Speaker,
}

impl Member {
    fn new(arguments: &Arguments) -> Member {
        let own = arguments.party;
        let others = (0..MEMBERS).filter(|peer| *peer != own);
        let peers =
            others.map(|peer| (peer, SocketAddr::new(address(peer).into(), super::PORT))).collect();
        let who = (own, arguments.birth.life);
        Member {
            post: Post::new(arguments),
            own,
            speaker: Speaker::new(who, peers, MEMBERS, is_explained),
        }
    }

    /// Does what it was told. False once the supervisor is gone.
    fn obey(&mut self) -> bool {
        let Member { post, speaker, .. } = self;
        post.obey(|| speaker.report())
    }

    /// Becomes a member as soon as that is possible, with a stack; none once the supervisor is gone.
    fn join(&mut self, arguments: &Arguments) -> Option<Stack> {
        let options = LanOptions {
            address: Address::This(IpAddr::V4(address(self.own))),
            mac: Some(mac(self.own)),
            wait: Wait::Block,
            ..LanOptions::default()
        };
        let stack_options = StackOptions {
            silence_max: SILENCE_MAX,
            connect_max: SILENCE_MAX,
            drive: if self.own.is_multiple_of(2) { Drive::Thread } else { Drive::Inline },
            ..StackOptions::default()
        };
        while self.obey() {
            let host = crew::host_socket(&arguments.birth.directory);
            if let Ok(guest) = Guest::attach(host, &name(self.own))
                && let Ok(lan) = Lan::join(guest, INTERFACE, &options)
            {
                return Some(Stack::new(lan, &stack_options).expect("it has an address"));
            }
            thread::sleep(RETRY);
        }
        None
    }

    fn trouble(&self, what: String) {
        self.post.send(&FromParty::Trouble(what));
    }

    fn serve(&mut self, stack: &Stack, listener: &TcpListener) {
        if let Err(error) = stack.wait(NAP) {
            self.trouble(format!("the stack: {error}"));
        }
        for counter in [Counter::Malformed, Counter::BadChecksum] {
            if stack.counter(counter) > 0 {
                self.trouble(format!("{} is {}", counter.name(), stack.counter(counter)));
            }
        }
        if let Err(error) = self.speaker.accept(listener) {
            return self.trouble(format!("accepting: {error}"));
        }
        if !self.post.is_paused {
            self.speaker.ask(stack);
        }
        if let Err(wrong) = self.speaker.go_on() {
            self.trouble(wrong.join("; "));
        }
    }
}

/// Whether the end of another member, or a host, explains an error of a connection.
fn is_explained(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::TimedOut
            | ErrorKind::BrokenPipe
    )
}
