//! The process of the adapters that are tortured.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use os::processor::now_ns;
use siga::lan::Mac;
use siga::osa::{Conditions, MemoryWire, Server, ServerOptions, Wire};
use siga::{Guest, Wait};

use super::super::lan::Post;
use super::super::lan::wire::Report;
use super::{ADAPTERS, Arguments, Wiring, cable};
use crate::crew;

/// How long to wait for a host, and for the host to have noticed that the life before is over.
const RETRY: Duration = Duration::from_millis(2);

/// How long an adapter is served between two looks at what it has.
const SLICE_NS: u64 = 4_000_000;

/// The port's addresses at a wire in memory, which stay the same: what others know of them stays true.
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 3, 1]), Mac([2, 0, 0, 0, 3, 2])];

/// What adapters count: devices, and addresses that these have registered.
pub const DEVICES: &str = "devices";
pub const ADDRESSES: &str = "addresses";

/// What an adapter has.
#[derive(Debug, Default)]
struct Held {
    devices: AtomicU64,
    addresses: AtomicU64,
}

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.party.birth.die_with_parent();
    let mut post = Post::new(&arguments.party);
    arguments.enter();
    let wires: Vec<Box<dyn Wire>> = match arguments.wiring {
        Wiring::Memory => {
            let conditions = Conditions { mtu: 1500, ..Conditions::default() };
            let ends = MemoryWire::pair(conditions, 0, MACS).expect("a wire in memory");
            ends.into_iter().map(|end| Box::new(end) as Box<dyn Wire>).collect()
        }
        Wiring::Cable => match cable::open(arguments.wire) {
            Ok(wire) => vec![wire],
            Err(error) => {
                post.check(Err(format!("no wire of kind {:?}: {error}", arguments.wire)));
                return ExitCode::FAILURE;
            }
        },
    };
    let (mut held, mut threads) = (Vec::new(), Vec::new());
    for (name, wire) in ADAPTERS.into_iter().zip(wires) {
        let Some(guest) = attach(arguments, name, &mut post) else { return ExitCode::SUCCESS };
        let mut options = ServerOptions::default();
        options.wait = Wait::Block;
        let server = Server::new(guest, wire, &options).expect("nothing is lacking");
        let own = Arc::<Held>::default();
        held.push(own.clone());
        threads.push(thread::spawn(move || serve(server, &own)));
    }
    while post.obey(|| report(&held)) {
        if threads.iter().any(thread::JoinHandle::is_finished) {
            post.check(Err("an adapter is served no longer".to_owned()));
            return ExitCode::FAILURE;
        }
        thread::sleep(RETRY);
    }
    ExitCode::SUCCESS
}

/// The guest that an adapter is, as soon as there can be one; none once the supervisor is gone.
fn attach(arguments: &Arguments, name: &str, post: &mut Post) -> Option<Guest> {
    let host = crew::host_socket(&arguments.party.birth.directory);
    while post.obey(Report::default) {
        if let Ok(guest) = Guest::attach(&host, name) {
            return Some(guest);
        }
        thread::sleep(RETRY);
    }
    None
}

fn serve(mut server: Server, held: &Held) {
    loop {
        server.serve_until(now_ns() + SLICE_NS).expect("nothing is lacking");
        let devices = server.report();
        let addresses = devices.iter().map(|device| device.addresses.len() as u64).sum();
        held.devices.store(devices.len() as u64, Ordering::Relaxed);
        held.addresses.store(addresses, Ordering::Relaxed);
    }
}

fn report(held: &[Arc<Held>]) -> Report {
    let sum = |of: fn(&Held) -> &AtomicU64| -> u64 {
        held.iter().map(|held| of(held).load(Ordering::Relaxed)).sum()
    };
    let counters = vec![
        (DEVICES.to_owned(), sum(|held| &held.devices)),
        (ADDRESSES.to_owned(), sum(|held| &held.addresses)),
    ];
    Report { counters, ..Report::default() }
}
