//! The work of one user beside a tenant: another user of the same host, who repeats one legal action as fast as possible.
//!
//! The source makes exchanges over a path, exchanges on a LAN, or reads of a disk. The tenant attaches, registers, joins, opens,
//! connects or sends, or only burns processor time. The rate beside a tenant who acts, over the rate beside one who burns,
//! is the part of the rate that the tenant leaves to the source.
//!
//! Source and target are one user, the tenant is another, and the host is a third: the lab's own. So the lab has to be root. Each
//! worker opens the host's socket as root, since the directory of the trial is closed to other users, and becomes its user then.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use host::config::Source;
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_groups, set_thread_uid};
use siga::disk::ckd::create::{NewVolume, create};
use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Device, Disk, DiskOptions, OpenVolume, Server};
use siga::host::System;
use siga::lan::{Lan, Offload};
use siga::{ConnectError, Connecting, Guest, PathOptions, Wait};

use super::attend;
use super::prelude::*;
use crate::role::NEIGHBOUR;
use crate::transport::lan::{HEADER_BYTES, MESSAGE, content, header, member_of};
use crate::transport::wait;

pub(super) const WORKLOAD: Workload = Workload {
    name: "tenant-beside",
    summary: "one user works beside a tenant: another user who repeats one legal action as fast as possible",
    factors: &[
        Factor {
            name: "work",
            meaning: "what the first user does: exchanges of 1000 bytes, or reads of blocks of 4096",
            domain: Domain::Words(&["path", "lan", "disk"]),
            usual: &["path", "lan", "disk"],
        },
        Factor {
            name: "beside",
            meaning: "what the tenant does meanwhile, on the processors of the others",
            domain: Domain::Words(ACTIONS),
            usual: ACTIONS,
        },
        WAIT,
    ],
    roles: &[
        role::host(|_| 1),
        role::neighbour(|_| 1),
        RoleSpec { is_measured: true, ..A_SOURCE },
        RoleSpec { is_measured: false, ..A_TARGET },
    ],
    measures: &[&["rate_messages_per_s", "cpu_ns_per_message", "deeds_per_s"]],
    work,
    check,
    ..PLAIN
};

/// What the tenant does. One that burns only takes processor time.
const ACTIONS: &[&str] = &[BURNS, "attaches", "registers", "joins", "opens", "asks", "rings"];
const BURNS: &str = "burns";

/// The users of source and target, and of the tenant. Accounts of these numbers are unlikely, and none is needed.
const WORKING_USER: u32 = 64_101;
const TENANT_USER: u32 = 64_102;

/// Bytes of a message of an exchange.
const MESSAGE_BYTES: usize = 1000;

/// Blocks that the source reads in turn.
const BLOCKS: u64 = 100;

/// Connections that the tenant asks for before it withdraws them all.
const ASKED_MAX: usize = 1000;

/// Bytes of a message that needs storage of its own, whose descriptor goes to the receiver.
const LARGE_BYTES: usize = 1 << 20;

/// Such messages that the tenant sends over each path that it makes.
const LARGE_MESSAGES: usize = 4;

/// How long a connection may take until the guest that it is for is notified.
const REFUSED_AFTER: Duration = Duration::from_secs(1);

/// The guest that serves the disks.
const UNIT: &str = "UNIT";

/// The system of a trial: two users who may each attach as some guests, a LAN, and a control unit.
pub(super) fn system() -> Result<System, Fault> {
    let text = format!(
        r#"
        [host]
        mode = "0666"
        [[guest]]
        name = "{UNIT}"
        users = [{WORKING_USER}]
        [[guest]]
        name = "N*"
        users = [{WORKING_USER}]
        connect = ["N*", "{UNIT}"]
        [[guest]]
        name = "T*"
        users = [{TENANT_USER}]
        connect = ["T*", "{UNIT}"]
        [[lan]]
        name = "hs0"
        range = "10.9.0.0/16"
        members = ["N*", "T*"]
        "#
    );
    System::parse(&Source::of("tenant.toml", &text)).doing("read the system")
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    let socket = order.socket.as_ref().expect("trials with paths have a host");
    let file = rustix::fs::open(socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = file.doing("open the host's socket")?;
    // A path that leads this process to the socket, also after the directory of the trial is gone.
    let socket = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match &*order.role {
        SOURCE => {
            become_user(WORKING_USER)?;
            source(order, control, &socket)
        }
        NEIGHBOUR => {
            become_user(TENANT_USER)?;
            tenant(order, control, &socket)
        }
        _ => {
            let volume = volume(order)?;
            become_user(WORKING_USER)?;
            target(order, control, &socket, volume)
        }
    }
}

/// Makes this thread, and those that it starts, another user's.
///
/// # Errors
/// [`Fault::Unable`] if this process is not allowed to: a tenant of the same user would share the limits of the others, and
/// a rate beside that tenant would say nothing.
fn become_user(user: u32) -> Result<(), Fault> {
    let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
    let changed = set_thread_groups(&[])
        .and_then(|()| set_thread_gid(group))
        .and_then(|()| set_thread_uid(user));
    changed.map_err(|error| {
        Fault::Unable(format!("the tenant must be another user: run the lab as root ({error})"))
    })?;
    // The kernel resets both when a process changes its user.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
        .doing("let this process see its own files")?;
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the lab")
}

fn attach(socket: &Path, name: &str) -> Result<Guest, Fault> {
    Guest::attach(socket, name).doing("attach to the host")
}

fn options(order: &Order) -> PathOptions {
    PathOptions { wait: wait(order), ..PathOptions::default() }
}

fn source(order: &Order, control: &mut Control, socket: &Path) -> Result<Report, Fault> {
    control.parcel()?;
    let report = match order.word("work") {
        "path" => {
            let guest = attach(socket, "NSOURCE")?;
            let mut path = guest.connect("NTARGET", &options(order)).doing("connect")?;
            let mut body = vec![0; MESSAGE_BYTES];
            repeat(order, control, MESSAGE_BYTES, |number| {
                fill(&mut body, number);
                path.send(&body).doing("send")?;
                verify(path.receive().doing("receive")?.body, MESSAGE_BYTES, number)
            })
        }
        "lan" => {
            let mut lan = member_of(order, attach(socket, "NSOURCE")?)?;
            let mut members = lan.members();
            let target = members.find(|member| member.name.as_str() == "NTARGET");
            let Some(to) = target.map(|member| member.mac) else { return Err(Fault::Ended) };
            drop(members);
            let mut frame = vec![0; HEADER_BYTES + MESSAGE_BYTES];
            header(&mut frame, to, lan.mac(), MESSAGE);
            repeat(order, control, MESSAGE_BYTES, |number| {
                fill(&mut frame[HEADER_BYTES..], number);
                lan.send(Offload::NONE, &frame).doing("send a frame")?;
                loop {
                    // Other members announce themselves with frames of other kinds.
                    if let Some(body) = content(lan.receive().doing("receive a frame")?) {
                        return verify(body, MESSAGE_BYTES, number);
                    }
                }
            })
        }
        _ => {
            let guest = attach(socket, "NDISK")?;
            let options = DiskOptions { first_track: Some(0), ..DiskOptions::default() };
            let mut disk = Disk::open(&guest, UNIT, "NDISK", &options).doing("open a disk")?;
            let mut block = vec![0; BLOCK_BYTES];
            for number in 0..BLOCKS {
                fill(&mut block, number);
                disk.write(number, &block).doing("write a block")?;
            }
            repeat(order, control, BLOCK_BYTES, |number| {
                let number = number % BLOCKS;
                disk.read(number, &mut block).doing("read a block")?;
                verify(&block, BLOCK_BYTES, number)
            })
        }
    };
    // The target serves until the source is done.
    control.pass("done", &[])?;
    report
}

/// Repeats the work until the window is over, once before it opens.
fn repeat(
    order: &Order,
    control: &mut Control,
    bytes: usize,
    mut once: impl FnMut(u64) -> Result<(), Fault>,
) -> Result<Report, Fault> {
    once(0)?;
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let mut number = 1;
    while meter.poll(now_ns(), number, Counts::new) < window.end_ns {
        once(number)?;
        number += 1;
    }
    meter.close(number, Counts::new)
}

/// A new volume with a minidisk for each user, opened as the lab's user.
fn volume(order: &Order) -> Result<OpenVolume, Fault> {
    let socket = order.socket.as_ref().expect("trials with paths have a host");
    let file = socket.with_file_name("shared.ckd");
    let new = NewVolume { cylinders: 5, name: "SHARED".into(), today: (2000, 1), split: false };
    create(&file, &new, |_| ()).doing("create a volume")?;
    OpenVolume::open(&file, Access::Write).doing("open a volume")
}

/// Answers the source, and serves the disks of both users, each in a thread of its own.
fn target(
    order: &Order,
    control: &mut Control,
    socket: &Path,
    volume: OpenVolume,
) -> Result<Report, Fault> {
    let (ready, is_ready) = channel();
    let unit = attach(socket, UNIT)?;
    let serving = ready.clone();
    thread::spawn(move || serve(unit, volume, &serving));
    match order.word("work") {
        "path" => {
            let guest = attach(socket, "NTARGET")?;
            let options = options(order);
            thread::spawn(move || answer_messages(&guest, &options));
        }
        "lan" => {
            let lan = member_of(order, attach(socket, "NTARGET")?)?;
            thread::spawn(move || answer_frames(lan));
        }
        _ => {}
    }
    is_ready.recv().map_err(|_| Fault::Ended)??;
    control.pass("attached", &[])?;
    attend(control)
}

/// Serves the disks until the process ends. An error before the first I/O goes to the target, which waits for it.
fn serve(unit: Guest, volume: OpenVolume, ready: &Sender<Result<(), Fault>>) {
    let made = || -> Result<Server, Fault> {
        let mut server = Server::new(unit, Wait::Block).doing("serve disks")?;
        let volume = server.mount(volume, 8 << 20).doing("mount a volume")?;
        for (name, first_cylinder) in [("NDISK", 1), ("TDISK", 3)] {
            let device = Device { volume, first_cylinder, cylinders: Some(2), ..Device::default() };
            server.add_device(name, device).doing("add a device")?;
        }
        Ok(server)
    };
    // The target is there as long as its process is.
    match made() {
        Err(fault) => drop(ready.send(Err(fault))),
        Ok(mut server) => {
            let _ = ready.send(Ok(()));
            let _ = server.serve();
        }
    }
}

/// Sends each message back. The source reports an error of the path.
fn answer_messages(guest: &Guest, options: &PathOptions) {
    let Ok(mut path) = guest.accept_with(options) else { return };
    let mut body = Vec::with_capacity(MESSAGE_BYTES);
    while let Ok(message) = path.receive() {
        body.clear();
        body.extend_from_slice(message.body);
        if path.send(&body).is_err() {
            return;
        }
    }
}

/// Sends each frame back. The source reports an error of the LAN.
fn answer_frames(mut lan: Lan) {
    let mut answer = Vec::with_capacity(HEADER_BYTES + MESSAGE_BYTES);
    let own = lan.mac();
    loop {
        let Ok(frame) = lan.receive() else { return };
        if frame.bytes[12..HEADER_BYTES] != MESSAGE {
            continue;
        }
        answer.clear();
        answer.extend_from_slice(frame.bytes);
        let (to, from) = answer[..12].split_at_mut(6);
        to.copy_from_slice(from);
        from.copy_from_slice(&own.0);
        if lan.send(Offload::NONE, &answer).is_err() {
            return;
        }
    }
}

/// Counters of the tenant.
pub(crate) const COUNTERS: [&str; 2] = ["deeds", "refused"];

/// Actions of the tenant: those that the host and others let it do, and those that were refused.
#[derive(Default)]
struct Deeds {
    done: u64,
    refused: u64,
}

impl Deeds {
    /// Counts the outcome of an action, and returns what came of it.
    fn tried<T, E>(&mut self, outcome: Result<T, E>) -> Option<T> {
        let count = if outcome.is_ok() { &mut self.done } else { &mut self.refused };
        *count += 1;
        outcome.ok()
    }

    fn counts(&self) -> Counts {
        COUNTERS.map(str::to_owned).into_iter().zip([self.done, self.refused]).collect()
    }
}

/// Repeats one action until the window is over.
fn tenant(order: &Order, control: &mut Control, socket: &Path) -> Result<Report, Fault> {
    match order.word("beside") {
        BURNS => act(order, control, |_| {}),
        "attaches" => {
            let mut guests = Vec::new();
            act(order, control, |deeds| {
                match deeds.tried(Guest::attach(socket, &format!("T{}", guests.len()))) {
                    Some(guest) => guests.push(guest),
                    None => guests.clear(),
                }
            })
        }
        "registers" => {
            let mut lan = member_of(order, attach(socket, "T")?)?;
            let address = IpAddr::from([10, 9, 200, 7]);
            act(order, control, |deeds| {
                deeds.tried(lan.register(address));
                deeds.tried(lan.unregister(address));
            })
        }
        "joins" => act(order, control, |deeds| {
            if let Some(guest) = deeds.tried(Guest::attach(socket, "T")) {
                deeds.tried(member_of(order, guest));
            }
        }),
        "opens" => {
            let guest = attach(socket, "T")?;
            let options = DiskOptions { first_track: Some(0), ..DiskOptions::default() };
            act(order, control, |deeds| {
                deeds.tried(Disk::open(&guest, UNIT, "TDISK", &options));
            })
        }
        "asks" => {
            let _deaf = attach(socket, "T1")?;
            let mut guest = None;
            let mut asked: Vec<Connecting> = Vec::new();
            act(order, control, |deeds| {
                // A host that does not get to read thousands of withdrawals counts as gone. The tenant comes again.
                if guest.is_none() {
                    guest = Guest::attach(socket, "T0").ok();
                }
                let started = guest.as_ref().map(|guest| {
                    let mut connecting = guest.start_connecting("T1", &PathOptions::default())?;
                    guest.try_complete(&mut connecting)?;
                    Ok::<Connecting, ConnectError>(connecting)
                });
                let started = started.unwrap_or(Err(ConnectError::HostGone));
                if matches!(started, Err(ConnectError::HostGone)) {
                    guest = None;
                }
                match deeds.tried(started) {
                    Some(connecting) if asked.len() < ASKED_MAX => asked.push(connecting),
                    _ => asked.clear(),
                }
            })
        }
        _ => {
            let (guest, other) = (attach(socket, "T0")?, attach(socket, "T1")?);
            let large = vec![7; LARGE_BYTES];
            act(order, control, |deeds| {
                let made = deeds.tried(path_between(&guest, &other));
                let Some((mut sender, mut receiver)) = made else { return };
                for _ in 0..LARGE_MESSAGES {
                    // What was not sent does not come.
                    if deeds.tried(sender.send(&large)).is_some() {
                        deeds.tried(receiver.receive().map(drop));
                    }
                }
                sender.close();
            })
        }
    }
}

/// A path between two guests of this thread: a tenant who acts is one thread, as one who burns is.
fn path_between(from: &Guest, to: &Guest) -> Result<(siga::Path, siga::Path), ConnectError> {
    let connecting = from.start_connecting(to.name().as_str(), &PathOptions::default())?;
    match to.accept_within(&PathOptions::default(), REFUSED_AFTER)? {
        Some(receiver) => Ok((from.complete(connecting)?, receiver)),
        // It was refused, which its own side is told.
        None => Err(from.complete(connecting).err().unwrap_or(ConnectError::TimedOut)),
    }
}

/// Repeats an action until the window is over. It begins when all parties are ready.
fn act(
    order: &Order,
    control: &mut Control,
    mut action: impl FnMut(&mut Deeds),
) -> Result<Report, Fault> {
    let window = control.ready()?;
    // One who burns has no actions to count.
    let units: &[_] = if order.word("beside") == BURNS { &[] } else { &[("deeds", 1.0)] };
    let mut meter = Meter::new(window, order, units);
    let mut deeds = Deeds::default();
    while meter.poll(now_ns(), deeds.done, || deeds.counts()) < window.end_ns {
        action(&mut deeds);
    }
    meter.close(deeds.done, || deeds.counts())
}

/// Checks that the source worked, and that a tenant who was to act did.
fn check(reports: &Reports) -> Result<(), Fault> {
    let is_still = |role, kind| reports.of(role).any(|report| report.work.get(kind) == Some(&0));
    match (is_still(SOURCE, "messages"), is_still(NEIGHBOUR, "deeds")) {
        (true, _) => Err(Fault::Nothing),
        (false, true) => Err(Fault::Nothing).doing("count the actions of the tenant"),
        (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Party;

    #[test]
    fn tenant_who_was_to_act_and_did_not_fails_the_trial() {
        let party = |role: &str, kind: &str, done| {
            let report = Report { work: [(kind.to_owned(), done)].into(), ..Report::default() };
            Party { role: role.into(), report, ..Party::default() }
        };
        let trial = |messages, kind, done| {
            check(&Reports(vec![party(SOURCE, "messages", messages), party(NEIGHBOUR, kind, done)]))
        };
        assert!(trial(1, "deeds", 1).is_ok());
        assert!(matches!(trial(1, "deeds", 0), Err(Fault::Refused { .. })));
        assert!(trial(1, "bytes", 0).is_ok(), "one who burns has no actions to count");
        assert!(matches!(trial(0, "deeds", 1), Err(Fault::Nothing)));
    }
}
