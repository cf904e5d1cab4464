//! A control unit that forks while it serves a volume, and a guest that forks while its programs run.

use std::fs;
use std::io::{Read, Write, pipe};
use std::thread;
use std::time::Duration;

use os::fork;
use siga::disk::ckd::create::{NewVolume, create};
use siga::disk::ckd::volume::Access;
use siga::disk::{
    BLOCK_BYTES, Device, Disk, DiskError, DiskOptions, OpenDiskError, OpenVolume, Program, Reading,
    Server, Writing,
};
use siga::{Reason, Wait};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};

pub const CHECK: Check = Check {
    name: "forked-disk",
    about: "a child forked by a control unit, or by its guest, takes nothing of theirs, and keeps no volume in use",
    cast: &[one("unit", unit), one("guest", guest)],
    ..Check::USUAL
};

/// Programs that run at a time.
const DEPTH: u16 = 4;

/// The volume is larger than its cache, so that its tracks are read again and again.
const CYLINDERS: u32 = 4;
const CACHE_BYTES: usize = 256 << 10;
const BLOCKS: u64 = 3 * 15 * 12;

/// Passes of the control unit between two forks: an odd number, so that programs are at another place of their way each time.
const PASSES_PER_FORK: u64 = 7;

/// Serves, and forks again and again.
fn unit(part: &Part) -> Outcome {
    let file = part.directory.join("forked.ckd");
    let new =
        NewVolume { cylinders: CYLINDERS, name: "FORKED".into(), today: (2000, 1), split: false };
    create(&file, &new, |_| ())?;
    let mut server = Server::new(part.attach("UNIT")?, Wait::Block)?;
    let open = OpenVolume::open_checked(&file, Access::Write, |_| ())?.read_directly();
    let volume = server.mount(open, CACHE_BYTES)?;
    let (reading, writing) = (server.reading(volume), server.writing(volume));
    server.add_device("DISK", Device { volume, ..Device::default() })?;
    let mut server = Some(server);
    let forks_max = part.size(40, 1000);
    let (mut passes, mut forks, mut has_guest) = (0_u64, 0, false);
    while let Some(serving) = &mut server
        && !(has_guest && serving.guests() == 0)
    {
        if !serving.poll()? {
            continue;
        }
        has_guest |= serving.guests() > 0;
        passes += 1;
        if has_guest && passes.is_multiple_of(PASSES_PER_FORK) && forks < forks_max {
            forks += 1;
            in_child(|| {
                let refused = serving_refused(server.as_mut());
                drop(server.take());
                refused?;
                nothing_inherited()
            })?;
        }
    }
    // A child that lives on has nothing of the volume.
    let (wait, end) = pipe()?;
    let orphan = fork::fork(|| {
        let is_open = nothing_inherited().is_err();
        u8::from((&wait).read(&mut [0]).is_err() || is_open)
    })?;
    drop(server.take());
    let again = OpenVolume::open(&file, Access::Write).map(drop);
    (&end).write_all(b"e")?;
    let ended = orphan.wait()?;
    again.map_err(|error| format!("while a child lives: {error}"))?;
    ensure(ended == Some(0), || format!("the child that lived on ended with {ended:?}"))?;
    let reading = if reading == Reading::Direct { "direct" } else { "buffered" };
    let writing = if writing == Writing::Direct { "direct" } else { "buffered" };
    Ok(format!("{forks} children; {reading} reads, {writing} writes"))
}

/// A child is refused whatever it asks of its parent's server.
fn serving_refused(server: Option<&mut Server>) -> Result<(), Wrong> {
    let server = server.ok_or("there is no server")?;
    let polled = server.poll().is_err();
    let served = server.serve_within(Duration::ZERO).is_err();
    let added = server.add_device("OTHER", Device::default()).is_err();
    ensure(polled && served && added, || "a child serves".to_owned())
}

/// Writes and reads, and forks while its programs run.
fn guest(part: &Part) -> Outcome {
    let guest = part.attach("USER")?;
    let options = DiskOptions { depth: DEPTH, wait: Wait::Block, ..DiskOptions::default() };
    // The control unit comes when it has its volume.
    let disk = loop {
        match Disk::open(&guest, "UNIT", "DISK", &options) {
            Err(OpenDiskError::Connect(_)) => thread::sleep(Duration::from_millis(1)),
            other => break other?,
        }
    };
    let mut disk = Some(disk);
    let rounds = part.size(200, 5000);
    for round in 0..rounds {
        let Some(open) = &mut disk else { return Err("nothing is open".into()) };
        let first = |program: u64| (round * 97 + program * 131) % BLOCKS;
        let content = vec![round as u8; BLOCK_BYTES];
        // Half of them are writes.
        for program in 0..u64::from(DEPTH) {
            let first = first(program);
            let program = if program % 2 == 0 {
                Program::Read { first, blocks: 1 }
            } else {
                open.data()?.1[..BLOCK_BYTES].copy_from_slice(&content);
                Program::Write { first, blocks: 1 }
            };
            open.start(program)?;
        }
        if round.is_multiple_of(10) {
            in_child(|| try_everything(disk.take().ok_or("nothing is open")?))?;
        }
        let Some(open) = &mut disk else { return Err("nothing is open".into()) };
        for _ in 0..DEPTH {
            open.wait()?.check()?;
        }
        let mut found = vec![0; BLOCK_BYTES];
        open.read(first(1), &mut found)?;
        ensure(found == content, || format!("block {} is not as written", first(1)))?;
    }
    Ok(format!("{rounds} rounds of {DEPTH} programs, each ended and right"))
}

/// A child gets none of its parent's results, and starts nothing.
fn try_everything(mut disk: Disk) -> Result<(), Wrong> {
    let forked = |what: &str, tried: Result<(), DiskError>| match tried {
        Err(DiskError::Severed(severed)) if severed.reason == Reason::Forked => Ok(()),
        other => Err(Wrong::from(format!("a child's {what} brings {other:?}"))),
    };
    forked("look for a result", disk.try_next().map(drop))?;
    forked("wait", disk.wait().map(drop))?;
    forked("halt", disk.halt(0))?;
    forked("clear", disk.clear(0))?;
    drop(disk);
    nothing_inherited()
}

/// Forks, and has the child do `deed`. The child is over before its parent goes on: what the child took would be missed.
fn in_child(deed: impl FnOnce() -> Result<(), Wrong>) -> Result<(), Wrong> {
    let child = fork::fork(|| match deed() {
        Ok(()) => 0,
        Err(wrong) => {
            println!("in the child: {wrong}");
            1
        }
    })?;
    let status = child.wait()?;
    ensure(status == Some(0), || format!("the child ended with {status:?}"))
}

/// Whether a child has no volume, no ring and no connection of its parent's.
fn nothing_inherited() -> Result<(), Wrong> {
    for entry in fs::read_dir("/proc/self/fd")? {
        // The directory itself is closed by now.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let link = link.to_string_lossy().into_owned();
        let is_ours = link.ends_with(".ckd") || link.starts_with("anon_inode:");
        ensure(!is_ours, || format!("a child has {link}"))?;
    }
    Ok(())
}
