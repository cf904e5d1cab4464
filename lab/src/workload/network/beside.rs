//! Who is a client of the machine beside those that are measured: idle clients, and a neighbour with clients that stall or flood.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;

use os::memory::{own_footprint, resident};
use os::sync::pause;
use siga::tcpip::{ClientLimits, ClientOptions, Stack, TcpListener, TcpStream};
use siga::{Guest, Name};

use super::super::prelude::*;
use crate::role::{Address, CLIENT_STACK};
use crate::transport::stacks::MACHINES;
use crate::transport::wait;

/// The role of the process whose clients are idle.
pub(super) const IDLE: &str = "idle";

/// How long idle clients are left alone before memory is looked at: both sides of a path give storage back after a second without news.
const REST: Duration = Duration::from_millis(2500);

/// Of all idle clients, so many parts are there when memory is looked at first: what the two looks differ by is what clients take, and
/// not what a process has once.
const PARTS: usize = 4;

/// Memory that an idle client takes, with its socket: in its own process, with page tables, and in that of the machine.
const OF_CLIENT: &str = "resident_idle_client";
const OF_MACHINE: &str = "resident_idle_client_machine";

/// Clients of the neighbour that stall or flood, and with what their names begin.
const CLIENTS: usize = 10;
const NEIGHBOUR: &str = "BESIDE";

/// Bytes that the neighbour offers a client that reads nothing.
const PIECE_BYTES: usize = 64 << 10;

/// Clients stall who have taken nothing for so long.
const SETTLED_NS: u64 = 50_000_000;

/// Connections that wait to be accepted.
const BACKLOG: usize = 16;

/// A port at which nobody listens.
const NO_PORT: u16 = 1;

/// A client of the machine, as a guest of this name.
fn client(name: &str, order: &Order) -> Result<Stack, Fault> {
    let socket = order.socket.as_ref().expect("trials with machines have a host");
    let guest = Guest::attach(socket, name).doing("attach to the host")?;
    let options = ClientOptions { wait: wait(order), ..ClientOptions::default() };
    Stack::of_machine(guest, MACHINES[0], &options).doing("be a client of a machine")
}

fn address(stack: &Stack) -> Result<IpAddr, Fault> {
    stack.addresses().first().copied().ok_or(Fault::Ended)
}

/// What each client may have: a neighbour has a share of 1, and the others the share that is a factor.
pub(super) fn limits(order: &Order) -> impl Fn(Name) -> ClientLimits + use<> {
    let introduce = order.word("link") == "introduced";
    let share = order.factors.get("share").map_or(1, |_| order.number("share") as u32);
    move |guest| {
        let is_neighbour = guest.to_string().starts_with(NEIGHBOUR);
        let share = if is_neighbour { 1 } else { share };
        ClientLimits { introduce, share, ..ClientLimits::default() }
    }
}

/// Tells the idle clients that the machine serves, and which process that is.
pub(super) fn tell_idle(control: &Control) -> Result<(), Fault> {
    control.pass_to(&Address::of(IDLE, 0), &std::process::id().to_string(), &[])
}

/// Clients with a listener each, who say nothing until the others are done.
pub(super) fn idle(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let count = order.number("idle") as usize;
    let machine = control.note_from(&Address::of(CLIENT_STACK, 0))?;
    let machine: u32 = machine.parse().doing("read the number of a process")?;
    let look = || -> Result<[u64; 2], Fault> {
        thread::sleep(REST);
        let of_client = own_footprint().doing("look at our memory")?;
        let of_machine = resident(machine).doing("look at the machine's memory")?;
        Ok([of_client, of_machine.bytes])
    };
    let first = count / PARTS;
    let (mut clients, mut before) = (Vec::with_capacity(count), [0; 2]);
    for number in 0..count {
        if number == first {
            before = look()?;
        }
        let stack = client(&format!("I{number}"), order)?;
        let listener = TcpListener::bind(&stack, (address(&stack)?, 0)).doing("listen")?;
        clients.push((listener, stack));
    }
    let after = look()?;
    let mut report = super::super::attend(control)?;
    for (name, (before, after)) in
        [OF_CLIENT, OF_MACHINE].into_iter().zip(before.into_iter().zip(after))
    {
        let each = after.saturating_sub(before) as f64 / (count - first) as f64;
        report.levels.insert(name.to_owned(), each);
    }
    Ok(report)
}

/// Goes about its own, without a pause, until the window is over.
pub(super) fn neighbour(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let clients: Vec<Stack> = match order.word("beside") {
        "burns" => Vec::new(),
        _ => (0..CLIENTS)
            .map(|number| client(&format!("{NEIGHBOUR}{number}"), order))
            .collect::<Result<_, _>>()?,
    };
    let stalled = match order.word("beside") {
        "stalls" => Some(Stalled::begin(&clients, order)?),
        _ => None,
    };
    let mut act: Box<dyn FnMut() -> Result<u64, Fault>> = match (stalled, order.word("beside")) {
        (Some(mut stalled), _) => Box::new(move || stalled.offer()),
        (None, "floods") => Box::new(|| flood(&clients)),
        _ => Box::new(|| {
            pause();
            Ok(0)
        }),
    };
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[]);
    let mut deeds = 0;
    let counts = |deeds| [("deeds".to_owned(), deeds)].into();
    while meter.poll(now_ns(), 0, || counts(deeds)) < window.end_ns {
        deeds += act()?;
    }
    meter.close(0, || counts(deeds))
}

/// Clients in mid-transfer, none of which reads, and one that goes on offering them more.
struct Stalled {
    streams: Vec<TcpStream>,
    /// The other ends, which nobody reads.
    _unread: Vec<TcpStream>,
    _sender: Stack,
    piece: Vec<u8>,
}

impl Stalled {
    fn begin(clients: &[Stack], order: &Order) -> Result<Stalled, Fault> {
        let sender = client(&format!("{NEIGHBOUR}S"), order)?;
        let at = SocketAddr::new(address(&sender)?, 0);
        let listener = TcpListener::bind_with_backlog(&sender, at, BACKLOG).doing("listen")?;
        let at = listener.local_addr().doing("listen")?;
        let (mut streams, mut unread) = (Vec::new(), Vec::new());
        for client in clients {
            unread.push(TcpStream::connect(client, at).doing("connect")?);
            let (stream, _) = listener.accept().doing("accept")?;
            stream.set_nonblocking(true).doing("keep writing from waiting")?;
            streams.push(stream);
        }
        let piece = vec![0; PIECE_BYTES];
        let mut stalled = Stalled { streams, _unread: unread, _sender: sender, piece };
        // They stall when the buffers on the way are full.
        let mut last = now_ns();
        while now_ns() - last < SETTLED_NS {
            if stalled.offer()? > 0 {
                last = now_ns();
            }
        }
        Ok(stalled)
    }

    /// Offers all of them something, and returns how many pieces were taken.
    fn offer(&mut self) -> Result<u64, Fault> {
        let mut taken = 0;
        for stream in &mut self.streams {
            match stream.write(&self.piece) {
                Ok(_) => taken += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).doing("write"),
            }
        }
        Ok(taken)
    }
}

/// Each client asks for a connection with nobody, and gives it up. Returns how many were asked for.
fn flood(clients: &[Stack]) -> Result<u64, Fault> {
    let mut asked = 0;
    for client in clients {
        match TcpStream::start_connecting(client, (address(client)?, NO_PORT).into()) {
            Ok(_) => asked += 1,
            // The machine has not yet said what became of those before.
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {}
            Err(error) => return Err(error).doing("ask for a connection"),
        }
        client.poll().doing("take in what has come")?;
    }
    Ok(asked)
}
