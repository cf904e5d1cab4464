//! A guest that forks while it is attached.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;
use std::{io, thread};

use fabric::path::Terms;
use message::iucv::{Limits, Outgoing, ReceiveError, Which};
use os::fork;
use os::memory::own_storage_mappings;
use proof::honest;
use siga::lan::{Address, Counter, Lan, LanOptions, Mac, Offload, SendFrameError};
use siga::tcpip::{Drive, Placement, Stack, StackOptions, UdpSocket};
use siga::{Guest, Path, PathOptions, Reason, SendError, Severed, TrySendError, Wait, Waiter};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "forked",
    about: "a child forked while attached can neither use nor harm the path, nor hide its parent's death",
    cast: &[one("peer", peer), one("parent", parent)],
    ..Check::USUAL
};

const MESSAGE_BYTES_MAX: usize = 300_000;

/// How long an orphan waits for the order to end.
const ORPHAN_TIME: Duration = Duration::from_secs(30);

fn messages(part: &Part) -> u64 {
    part.size(1000, 50_000)
}

/// Sends back what comes, until the other side is gone; then takes care of its orphan.
fn peer(part: &Part) -> Outcome {
    let guest = part.attach("PEER")?;
    let mut path = guest.accept()?;
    let mut orphan = None;
    let mut echoed = 0;
    let severed = loop {
        let body = match path.receive() {
            Ok(message) if message.head == b"orphan" => {
                orphan = Some(u32::from_le_bytes(message.body.try_into()?));
                continue;
            }
            Ok(message) => message.body.to_vec(),
            Err(severed) => break severed,
        };
        path.send(&body)?;
        echoed += 1;
    };
    ensure(severed.reason == Reason::Gone, || format!("the parent ended: {severed}"))?;
    let orphan = orphan.ok_or("the parent ended before it had forked")?;
    let stat = fs::read_to_string(format!("/proc/{orphan}/stat"))?;
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    ensure(state.is_some_and(|state| state != "Z"), || format!("the orphan is dead: {stat}"))?;
    fs::write(part.directory.join("orphan may end"), "")?;
    Ok(format!("{echoed} messages; the parent's death was heard though its child lives"))
}

fn parent(part: &Part) -> Outcome {
    let guest = part.attach("PARENT")?;
    let path = part.connect(&guest, "PEER", &PathOptions::default())?;
    let mut party = Party { guest: Some(guest), path: Some(path) };
    let mut talk = Talk { messages: Messages::new(part.seed, MESSAGE_BYTES_MAX), next: 0 };
    talk.go_on(&mut party, messages(part))?;

    // One that tries everything, and drops what it has inherited.
    let child = fork::fork(|| {
        let tried = party.try_everything();
        let seen = tried.and_then(|()| nothing_inherited());
        drop((party.path.take(), party.guest.take()));
        match seen.and_then(|()| nothing_inherited()) {
            Ok(()) => 0,
            Err(wrong) => {
                println!("in the child: {wrong}");
                1
            }
        }
    })?;
    talk.go_on(&mut party, messages(part))?;
    let status = child.wait()?;
    ensure(status == Some(0), || format!("the child ended with {status:?}"))?;
    talk.go_on(&mut party, messages(part))?;

    conversations_in_a_child()?;
    members_in_a_child(part)?;
    driver_in_a_child(part)?;
    party.path = Some(waiter_in_a_child(party.path.take().expect("ours"))?);
    talk.go_on(&mut party, messages(part))?;

    // One that tries everything again and again while its parent uses the path.
    let (mut end, mut ends) = io::pipe()?;
    let child = fork::fork(|| {
        let mut byte = [0];
        let mut tries = 0_u8;
        while tries < 100 && party.try_everything().is_ok() {
            tries += 1;
            thread::sleep(Duration::from_millis(1));
        }
        match end.read(&mut byte) {
            Ok(1) => tries,
            _ => 0,
        }
    })?;
    talk.go_on(&mut party, messages(part))?;
    ends.write_all(&[1])?;
    let tries = child.wait()?;
    ensure(tries == Some(100), || format!("the child could use the path after {tries:?} tries"))?;
    talk.go_on(&mut party, messages(part))?;

    // One that lives on when its parent ends.
    let may_end = part.directory.join("orphan may end");
    let orphan = fork::fork(|| {
        let start = os::processor::now_ns();
        while !may_end.exists() && os::processor::now_ns() - start < ORPHAN_TIME.as_nanos() as u64 {
            thread::sleep(Duration::from_millis(5));
        }
        0
    })?;
    let path = party.path.as_mut().expect("ours");
    path.sender().send_with_head(b"orphan", &orphan.process().to_le_bytes())?;
    // No destructor reports the end: only the kernel does.
    std::mem::forget((party, orphan));
    Ok(format!("{} messages came back whole; 2 children could do nothing", talk.next))
}

/// A child has nothing of what stood in front of its parent's queues, wherever it lies.
fn conversations_in_a_child() -> Result<(), Wrong> {
    let limits =
        Limits { ours: 8, theirs: 8, parameters_for_us: false, parameters_for_them: false };
    let cases = [8, 1000, 5000, 200_000].map(|bytes| [(bytes, false), (bytes, true)]);
    for (bytes, priority) in cases.into_iter().flatten() {
        let [mut source, mut target] = honest::iucv(Terms::DEFAULT, limits);
        let outgoing = Outgoing { reply_bytes_max: Some(8), priority, ..Outgoing::default() };
        let id = source.send(&outgoing, &vec![1; bytes])?;
        target.describe(Which::Any)?;
        let child = fork::fork(|| {
            // Each would take what stands in front out of the way.
            target.poll();
            target.next_event(|_| true);
            let _ = target.describe(Which::Class(9));
            let found = target.receive(Which::Any, &mut [0; 8]);
            let replied = target.reply(id, false, b"reply");
            let sent = target.send(&outgoing, b"question");
            source.flush();
            target.trim();
            match (found, replied, sent) {
                (Err(ReceiveError::Severed(severed)), Err(_), Err(_)) => {
                    u8::from(severed.reason != Reason::Forked)
                }
                _ => 2,
            }
        })?;
        let status = child.wait()?;
        ensure(status == Some(0), || {
            format!("{bytes} B over IUCV: a child ended with {status:?}")
        })?;
        let received = target.receive(Which::Any, &mut vec![0; bytes])?;
        ensure(received.residual == 0, || "the parent has lost a message".to_owned())?;
    }
    Ok(())
}

/// A child of a member is none: it neither sends nor receives, and takes nothing from its parent's LAN.
fn members_in_a_child(part: &Part) -> Result<(), Wrong> {
    let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
    let mut members = Vec::new();
    for name in ["MEMBER0", "MEMBER1", "MEMBER2", "MEMBER3"] {
        members.push(Lan::join(part.attach(name)?, "hs0", &options)?);
    }
    let macs: Vec<Mac> = members.iter().map(Lan::mac).collect();
    let frame = |to: Mac, body: &[u8]| [&to.0[..], &macs[0].0, &[0x88, 0xb5], body].concat();
    members[0].send(Offload::NONE, &frame(Mac::BROADCAST, b"path"))?;
    for at in (1..members.len()).chain([1]) {
        while members[at].try_receive()?.is_none() {
            members[0].try_receive()?;
        }
        if at == members.len() - 1 {
            // An audience, a pack that is being given out, and frames that were not handed over.
            for body in [b"1", b"2"] {
                members[0].try_push(Offload::NONE, &frame(Mac::BROADCAST, body))?;
            }
            members[0].flush();
        }
    }
    members[0].try_push(Offload::NONE, &frame(Mac::BROADCAST, b"3"))?;
    members[0].try_push(Offload::NONE, &frame(macs[1], b"4"))?;
    let mut members: Vec<_> = members.into_iter().map(Some).collect();
    let child = fork::fork(|| {
        for (at, place) in members.iter_mut().enumerate() {
            let Some(lan) = place else { return 1 };
            for to in [Mac::BROADCAST, macs[1], macs[2]] {
                let sent = frame(to, b"child");
                let is_none = [
                    lan.send(Offload::NONE, &sent) == Err(SendFrameError::NotMember),
                    lan.try_push(Offload::NONE, &sent) == Err(SendFrameError::NotMember.into()),
                ];
                if is_none.contains(&false) {
                    return 2;
                }
            }
            let is_none = |found: io::Result<()>| {
                found.is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
            };
            let received = lan.receive_within(ORPHAN_TIME).map(drop);
            if ![received, lan.try_receive().map(drop), lan.receive().map(drop)]
                .map(is_none)
                .iter()
                .all(|none| *none)
            {
                return 3;
            }
            lan.flush();
            lan.count(Counter::DroppedDevice, 1);
            siga::waiter::Member::trim(lan);
            if lan.prepare_wait() || lan.members().count() != macs.len() {
                return 4;
            }
            if lan.register([10, 1, 7, 7].into()).is_ok() {
                return 5;
            }
            // One leaves, and the others are dropped.
            if let Some(lan) = place.take()
                && at == 0
                && lan.leave().is_ok()
            {
                return 6;
            }
        }
        0
    })?;
    let status = child.wait()?;
    ensure(status == Some(0), || format!("a child of a member ended with {status:?}"))?;
    let mut members: Vec<Lan> = members.into_iter().flatten().collect();
    members[0].flush();
    for expected in [b"2", b"3", b"4"] {
        let received = members[1].receive_within(ORPHAN_TIME)?.ok_or("a frame is lost")?;
        ensure(received.bytes[14..] == *expected, || format!("{:?} is next", received.bytes))?;
    }
    Ok(())
}

/// A child of a program whose stack has a driver uses nothing of that driver, which may hold any lock, and takes nothing from its parent's stack.
fn driver_in_a_child(part: &Part) -> Result<(), Wrong> {
    let options =
        LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
    let stack = |name: &str, drive: Drive| -> Result<Stack, Wrong> {
        let lan = Lan::join(part.attach(name)?, "hs0", &options)?;
        Ok(Stack::new(lan, &StackOptions { drive, ..StackOptions::default() })?)
    };
    // Nobody but this thread and the driver is at work with the first. Children leave the other alone.
    let (driven, other) = (stack("DRIVEN", Drive::Inline)?, stack("OTHER", Drive::Thread)?);
    let (socket, far) =
        (UdpSocket::bind(&driven, "0.0.0.0:7")?, UdpSocket::bind(&other, "0.0.0.0:7")?);
    let (to, from) = ((driven.addresses()[0], 7), (other.addresses()[0], 7));
    let processor = Placement::Processor(os::processor::allowed()[0]);
    let placed = driven.set_driver(0, processor)?;
    ensure(placed == processor, || format!("the driver is {placed:?}"))?;
    let talk = || -> Result<(), Wrong> {
        let mut body = [0; 8];
        for (source, target, to) in [(&far, &socket, to), (&socket, &far, from)] {
            source.send_to(b"datagram", to)?;
            ensure(target.recv_from(&mut body)?.0 == 8 && body == *b"datagram", || {
                format!("{body:?}")
            })?;
        }
        Ok(())
    };
    talk()?;
    let mut inherited = Some((driven, socket));
    for _ in 0..part.size(20, 200) {
        // The driver is at work, or is about to sleep.
        far.send_to(b"datagram", to)?;
        let child = fork::fork_beside("siga ", || {
            let Some((driven, socket)) = inherited.take() else { return 1 };
            let is_none = |done: io::Result<()>| {
                done.is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
            };
            let tried = [
                driven.set_driver(0, Placement::Inline).map(drop),
                driven.set_driver(0, processor).map(drop),
                socket.send_to(b"of child", from).map(drop),
                socket.recv_from(&mut [0; 8]).map(drop),
            ];
            if let Some(at) = tried.into_iter().position(|done| !is_none(done)) {
                return 2 + at as u8;
            }
            drop((socket, driven));
            0
        })?;
        let status = child.wait()?;
        ensure(status == Some(0), || format!("a child beside a driver ended with {status:?}"))?;
        let (_, socket) = inherited.as_ref().ok_or("it is the parent's")?;
        ensure(socket.recv_from(&mut [0; 8])?.0 == 8, || "a datagram is lost".to_owned())?;
    }
    let (driven, socket) = inherited.take().ok_or("it is the parent's")?;
    socket.send_to(b"of parent", from)?;
    let mut body = [0; 9];
    ensure(far.recv_from(&mut body)?.0 == 9 && body == *b"of parent", || {
        format!("{body:?} has come")
    })?;
    let driver = driven.drivers()?[0];
    let is_as_before = driver.placement == processor && driver.counters.takeovers == 0;
    ensure(is_as_before, || format!("{driver:?} after children have ended"))?;
    // The threads end, and later checks fork by themselves.
    driven.set_driver(0, Placement::Inline)?;
    drop((socket, driven, far, other));
    while fs::read_dir("/proc/self/task")?.count() > 1 {
        thread::yield_now();
    }
    Ok(())
}

/// A child cannot wait with the waiter of its parent, and puts no member to sleep.
fn waiter_in_a_child(path: Path) -> Result<Path, Wrong> {
    let mut waiter = Waiter::new(Wait::Block)?;
    let member = waiter.add(path)?;
    let child = fork::fork(|| {
        let can_sleep = waiter.prepare_wait();
        let heard = waiter.try_next().map(|found| found.map(|(key, _)| key));
        let heard = heard.map_err(|error| error.kind());
        u8::from(can_sleep || heard != Err(io::ErrorKind::NotConnected))
    })?;
    let status = child.wait()?;
    ensure(status == Some(0), || format!("a child with a waiter ended with {status:?}"))?;
    Ok(waiter.remove(member).expect("added above"))
}

/// What a process has inherited, or has of its own.
struct Party {
    guest: Option<Guest>,
    path: Option<Path>,
}

impl Party {
    /// Calls each verb as a child, and sees to it that none does anything.
    fn try_everything(&mut self) -> Result<(), Wrong> {
        let (Some(path), Some(guest)) = (&mut self.path, &self.guest) else {
            return Err("there is nothing to try".into());
        };
        let forked = |ended: Result<(), Severed>| match ended {
            Err(severed) if severed.reason == Reason::Forked => Ok(()),
            other => Err(Wrong::from(format!("a child's receive brings {other:?}"))),
        };
        let refused = |sent: Result<(), SendError>| match sent {
            Err(SendError::Severed(severed)) => forked(Err(severed)),
            other => Err(format!("a child's send brings {other:?}").into()),
        };
        for bytes in [8, 5000, 200_000] {
            let body = vec![0xbb; bytes];
            refused(path.send(&body))?;
            refused(path.push(&body))?;
            match path.try_send(&body) {
                Err(TrySendError::Send(error)) => refused(Err(error))?,
                other => return Err(format!("a child's send brings {other:?}").into()),
            }
        }
        forked(path.try_receive().map(drop))?;
        forked(path.receive().map(drop))?;
        path.flush();
        path.quiesce();
        path.resume();
        path.trim();
        path.end_sending_with([0xbb; 16]);
        let (sender, receiver) = path.halves();
        sender[0].raw().wake_peer();
        sender[0].raw().sever([0xbb; 16]);
        receiver[0].raw().announce_sleep();
        receiver[0].raw().sever([0xbb; 16]);
        let connected = guest.connect("PEER", &PathOptions::default()).is_err();
        ensure(connected, || "a child has connected".into())?;
        ensure(guest.accept().is_err(), || "a child has accepted".into())
    }
}

/// Whether a child has no storage, no doorbell and no connection of its parent's.
fn nothing_inherited() -> Result<(), Wrong> {
    let mappings = own_storage_mappings("siga ")?;
    ensure(mappings.is_empty(), || format!("a child has {mappings:?}"))?;
    for entry in fs::read_dir("/proc/self/fd")? {
        // The directory itself is closed by now.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let link = link.to_string_lossy().into_owned();
        let ours =
            ["socket:", "/memfd:siga", "anon_inode:"].iter().any(|kind| link.starts_with(kind));
        ensure(!ours, || format!("a child has {link}"))?;
    }
    Ok(())
}

/// Messages that are sent, and come back.
struct Talk {
    messages: Messages,
    next: u64,
}

impl Talk {
    fn go_on(&mut self, party: &mut Party, count: u64) -> Result<(), Wrong> {
        let path = party.path.as_mut().expect("ours");
        for number in self.next..self.next + count {
            path.send(self.messages.body(number))?;
            self.messages.verify(number, path.receive()?.body)?;
        }
        self.next += count;
        Ok(())
    }
}
