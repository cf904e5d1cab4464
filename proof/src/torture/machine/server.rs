//! A TCPIP machine that is tortured.

use std::net::IpAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use os::processor;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Machine, MachineOptions, Placement, Routing, StackOptions};
use siga::{Guest, Wait};

use super::super::dialogue::SILENCE_MAX;
use super::super::lan::wire::Report;
use super::super::lan::{Arguments, Post};
use super::{INTERFACE, address, mac, member_name, name};
use crate::crew;

/// How long to wait for a host, and for the host to have noticed that the life before is over.
const RETRY: Duration = Duration::from_millis(2);

/// How long it serves between two looks at what it was told.
const SLICE: Duration = Duration::from_millis(4);

/// What machines count.
pub const CLIENTS: &str = "clients";
pub const SOCKETS: &str = "sockets";
pub const BUFFERS: &str = "buffers";
/// Clients that were sent away for what they wrote.
pub const FAULTS: &str = "faults";
pub const INTRODUCED: &str = "introduced";
pub const MOVED: &str = "moved";
pub const DRIVER_MOVES: &str = "driver moves";

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.birth.die_with_parent();
    let mut post = Post::new(arguments);
    let Some(mut machine) = start(arguments, &mut post) else { return ExitCode::SUCCESS };
    let processors = processor::allowed();
    let mut turn = 0;
    while post.obey(|| report(&machine)) {
        // The driver of the other machine is inline.
        if arguments.party == 1 {
            let at = turn % (processors.len() + 1);
            let placement =
                processors.get(at).map_or(Placement::Inline, |at| Placement::Processor(*at));
            post.check(placed(&mut machine, placement));
        }
        turn += 1;
        let served = machine.serve_within(SLICE);
        post.check(served.map_err(|error| format!("the machine: {error}")));
    }
    ExitCode::SUCCESS
}

/// Has the driver run there.
fn placed(machine: &mut Machine, placement: Placement) -> Result<(), String> {
    match machine.set_driver(0, placement) {
        Ok(placed) if placed == placement => Ok(()),
        Ok(placed) => Err(format!("the driver is at {placed:?}: must be {placement:?}")),
        Err(error) => Err(format!("the driver: {error}")),
    }
}

/// A machine, as soon as there can be one; none once the supervisor is gone.
fn start(arguments: &Arguments, post: &mut Post) -> Option<Machine> {
    let own = arguments.party;
    let host = crew::host_socket(&arguments.birth.directory);
    let options = LanOptions {
        address: Address::This(IpAddr::V4(address(own))),
        mac: Some(mac(own)),
        wait: Wait::Block,
        ..LanOptions::default()
    };
    let stack = StackOptions {
        silence_max: SILENCE_MAX,
        connect_max: SILENCE_MAX,
        ..StackOptions::default()
    };
    let machine_options = MachineOptions { wait: Wait::Block, stack, ..MachineOptions::default() };
    while post.obey(Report::default) {
        if let Ok(guest) = Guest::attach(&host, &name(own))
            && let Ok(member) = Guest::attach(&host, &member_name(own))
            && let Ok(lan) = Lan::join(member, INTERFACE, &options)
        {
            let lans = vec![lan];
            let machine =
                Machine::new(guest, lans, Vec::new(), &Routing::default(), &machine_options);
            return Some(machine.expect("it has an address"));
        }
        thread::sleep(RETRY);
    }
    None
}

fn report(machine: &Machine) -> Report {
    let (mut clients, mut sockets, mut buffers, mut moved) = (0, 0, 0, 0);
    for client in machine.clients() {
        clients += 1;
        sockets += client.counters.sockets as u64;
        buffers += client.counters.buffers_bytes as u64;
        moved += client.counters.moved;
    }
    let driver_moves = machine.drivers().iter().map(|driver| driver.counters.moves).sum();
    let counters = [
        (CLIENTS, clients),
        (SOCKETS, sockets),
        (BUFFERS, buffers),
        (FAULTS, machine.counters().faults),
        (INTRODUCED, machine.counters().introduced),
        (MOVED, moved),
        (DRIVER_MOVES, driver_moves),
    ];
    let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    Report { counters, ..Report::default() }
}
