//! The control unit that is tortured.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use siga::disk::ckd::volume::Access;
use siga::disk::{Device, OpenVolume, Server};
use siga::{Guest, Wait};

use super::super::birth::Birth;
use super::{MINIDISK_CYLINDERS, Plan, UNIT, VOLUMES, WRITERS, volume};
use crate::crew;

/// How long to wait for a host, and for the host to have noticed that the life before is over.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// Lives until it is killed, or its parent is.
pub fn run(birth: &Birth) -> ExitCode {
    birth.die_with_parent();
    let guest = attach(birth, UNIT);
    let mut server = Server::new(guest, Wait::Block).expect("a server");
    let volumes = VOLUMES.iter().enumerate().map(|(number, _)| {
        let file = volume(&birth.directory, number);
        let open = OpenVolume::open(&file, Access::Write).expect("the life before is over");
        // The one with minidisks is larger than its cache.
        let (open, cache_bytes) = match number {
            0 => (open, 16 << 20),
            _ => (open.read_directly(), 1 << 20),
        };
        server.mount(open, cache_bytes).expect("memory for a cache")
    });
    let volumes: Vec<usize> = volumes.collect();
    for writer in 0..WRITERS {
        let plan = Plan::of(writer);
        let device = Device {
            volume: volumes[plan.volume],
            first_cylinder: plan.first_cylinder.unwrap_or(0),
            cylinders: plan.first_cylinder.map(|_| MINIDISK_CYLINDERS),
            dedicated: plan.first_cylinder.is_none(),
            uncached: plan.uncached,
            guests: vec![plan.guest()],
            ..Device::default()
        };
        server.add_device(&plan.device, device).expect("a device");
    }
    let Err(error) = server.serve();
    eprintln!("siga-proof: the control unit: {error}");
    ExitCode::FAILURE
}

/// Attaches as soon as there is a host that lets it.
pub(super) fn attach(birth: &Birth, name: &str) -> Guest {
    loop {
        match Guest::attach(crew::host_socket(&birth.directory), name) {
            Ok(guest) => return guest,
            Err(_) => thread::sleep(RETRY),
        }
    }
}
