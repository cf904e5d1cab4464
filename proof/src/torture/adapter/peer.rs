//! The kernel at the other end of the cable: it answers streams that last. It is not killed.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::super::lan::wire::{FromParty, Report};
use super::super::lan::{OPEN, Post};
use super::super::machine::lasting::Lasting;
use super::super::machine::party::FRAMES;
use super::guest::is_explained;
use super::{Arguments, LASTING_PORT, place};

/// How long to wait for work.
const NAP: Duration = Duration::from_millis(2);

/// Lives until its supervisor ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.party.birth.die_with_parent();
    let mut post = Post::new(&arguments.party);
    arguments.enter();
    let (own, life) = (arguments.party.party, arguments.party.birth.life);
    let listener = TcpListener::bind(place(own, LASTING_PORT)).expect("nobody else listens");
    listener.set_nonblocking(true).expect("a listener");
    let mut lasting = Lasting::<TcpStream>::new((own, life), Vec::new()).asking_whether_alive();
    while post.obey(|| report(&lasting)) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => lasting.add(stream, None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A connection that has ended before it was accepted.
                Err(error) if is_explained(error.kind()) => {}
                Err(error) => {
                    post.check(Err(format!("accepting: {error}")));
                    break;
                }
            }
        }
        if let Err(wrong) = lasting.serve(!post.is_paused, is_explained) {
            post.check(Err(wrong.join("; ")));
        }
        for news in lasting.news() {
            post.send(&FromParty::News(news));
        }
        thread::sleep(NAP);
    }
    ExitCode::SUCCESS
}

fn report(lasting: &Lasting<TcpStream>) -> Report {
    let counters =
        vec![(OPEN.to_owned(), lasting.open() as u64), (FRAMES.to_owned(), lasting.frames)];
    Report { counters, ..Report::default() }
}
