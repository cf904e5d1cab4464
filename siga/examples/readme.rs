//! The snippets of the README, each as it stands there, with the other side that it needs.
//!
//! A test compares them with the README, and runs this program: it is its own host, at the usual place.

use std::error::Error;
use std::io::{Read, Write};
use std::thread;

use siga::connect::Scope;
use siga::host::{Embedded, System};
use siga::iucv::{IucvPath, Options};
use siga::tcpip::TcpListener;
use siga::{Guest, appc};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn attach(name: &str) -> Result<Guest> {
    Ok(Guest::attach(siga::default_socket()?, name)?)
}

fn path() -> Result<()> {
    let guest = siga::Guest::attach(siga::default_socket()?, "CLIENT")?;
    let mut path = guest.connect("SERVER", &siga::PathOptions::default())?;
    path.send(b"hello")?; // can be received when `send` returns
    let reply = path.receive()?; // reply.body is valid until the next verb

    assert_eq!(reply.body, b"hello");
    Ok(())
}

fn answer_over_a_path(guest: &Guest) -> Result<()> {
    let mut path = guest.accept()?;
    let question = path.receive()?.body.to_vec();
    path.send(&question)?;
    // The path lasts until the other side has read the answer, and ends it.
    let _ = path.receive();
    Ok(())
}

fn tcp() -> Result<()> {
    use siga::lan::{Lan, LanOptions};
    use siga::tcpip::{Stack, StackOptions, TcpStream};

    let guest = siga::Guest::attach(siga::default_socket()?, "ALICE")?;
    let stack =
        Stack::new(Lan::join(guest, "hs0", &LanOptions::default())?, &StackOptions::default())?;
    let mut stream = TcpStream::connect(&stack, "10.1.0.1:80")?; // the manner of std::net, for any number of threads
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;

    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    assert_eq!(page, "HTTP/1.0 204 No Content\r\n\r\n");
    Ok(())
}

fn serve_tcp(listener: &TcpListener) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut question = Vec::new();
    while !question.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        question.extend(byte);
    }
    stream.write_all(b"HTTP/1.0 204 No Content\r\n\r\n")?;
    Ok(())
}

fn iucv() -> Result<()> {
    let guest = attach("ASKER")?;
    let mut answer = [0; 64];
    use siga::iucv::{IucvPath, Options, Outgoing};

    let mut path = IucvPath::connect(&guest, "ORACLE", &Options::DEFAULT)?;
    let answered =
        path.call(&Outgoing { target_class: 1, ..Outgoing::default() }, b"what?", &mut answer)?;

    let _ = answered;
    assert_eq!(&answer[..2], b"42");
    Ok(())
}

fn reply(guest: &Guest) -> Result<()> {
    let mut path = IucvPath::accept(guest, &Options::DEFAULT)?;
    let (question, _) = path.next()?;
    path.reply(question.id, b"42")?;
    // Until the other side ends it.
    let _ = path.next();
    Ok(())
}

fn appc() -> Result<()> {
    let guest = attach("CLERK")?;
    use siga::appc::{Conversation, Level, Options, Then};

    let options = Options { level: Level::Confirm, ..Options::DEFAULT };
    let mut pay = Conversation::allocate(&guest, "PAYROLL", &options)?; // with the resource's manager
    pay.send(b"increase by 3 %", Then::Confirm)?; // returns once it has confirmed

    pay.send_without_data(Then::ConfirmSever)?;
    Ok(())
}

fn pay(manager: &Guest) -> Result<()> {
    let mut order = Vec::new();
    let options = appc::Options::DEFAULT;
    let mut conversation = appc::Conversation::accept_for(manager, "PAYROLL", &options)?;
    while conversation.receive_whole(&mut order)?.status != appc::State::ConfirmSever {
        conversation.confirmed()?;
    }
    conversation.confirmed()?;
    Ok(())
}

fn main() -> Result<()> {
    let mut system = System::open();
    system.socket = Some(siga::own_socket()?);
    let _host = Embedded::start(system)?;
    // Each of them is there before the snippet asks for it.
    let server = attach("SERVER")?;
    let answering = thread::spawn(move || answer_over_a_path(&server));
    path()?;
    let lan = siga::lan::Lan::join(attach("WEB")?, "hs0", &siga::lan::LanOptions::default())?;
    let stack = siga::tcpip::Stack::new(lan, &siga::tcpip::StackOptions::default())?;
    let listener = TcpListener::bind(&stack, "10.1.0.1:80")?;
    let serving = thread::spawn(move || serve_tcp(&listener));
    tcp()?;
    let oracle = attach("ORACLE")?;
    let replying = thread::spawn(move || reply(&oracle));
    iucv()?;
    let manager = attach("MANAGER")?;
    manager.identify("PAYROLL", Scope::Local)?;
    let paying = thread::spawn(move || pay(&manager));
    appc()?;
    for other in [answering, serving, replying, paying] {
        other.join().expect("it does not panic")?;
    }
    println!("all snippets have run");
    Ok(())
}
