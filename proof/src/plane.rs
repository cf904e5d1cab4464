//! A host that a test drives step by step, and parties that send it packets of the test's choice.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{
    Allowance, Kind, Malformed, PACKET_BYTES_MAX, Problem, Reply, Request, Target, VERSION,
};
use fabric::name::Name;
use fabric::path::{NO_DATA, Shape, Side, SideDescriptors};
use host::config::Source;
use host::report::SystemReport;
use host::system::System;
use host::{Handle, Host};
use os::foreign::Foreign;
use os::packets::Packets;
use os::storage::Borrowed;

/// Turns within which a host answers that has nothing else to read: one to take a connection in, one to
/// hear it.
const TURNS_MAX: usize = 2;

/// Turns within which a host has read what a script has asked for, all of it as one user.
const BUSY_TURNS_MAX: usize = 32;

/// What honest guests ask for.
pub const ALLOWANCE: Allowance = Allowance { storage_bytes: 1 << 20, messages: 8 };

/// A host that works only when the test polls it, at the time that the test passes.
#[derive(Debug)]
pub struct Plane {
    host: Host,
    handle: Handle,
    /// The time.
    pub now_ns: u64,
}

/// A connection to it.
#[derive(Debug)]
pub struct Party {
    packets: Packets,
    /// What was heard while something else was waited for.
    inbox: VecDeque<Heard>,
    /// Of the last request.
    pub serial: u32,
}

/// What the host said.
#[derive(Debug)]
pub struct Heard {
    /// Of the request it answers; 0 if it is no answer.
    pub serial: u32,
    /// What it said.
    pub reply: Reply,
    /// What it passed.
    pub descriptors: Vec<Foreign>,
}

impl Plane {
    /// A host for the system that this text of a system file describes.
    ///
    /// # Panics
    /// If the text makes no sense, or the machine has no descriptors left.
    pub fn new(system: &str) -> Plane {
        let system = System::parse(&Source::of("system.toml", system)).expect("a system file");
        let (host, handle) = Host::new(system).expect("a host");
        Plane { host, handle, now_ns: 1 }
    }

    /// A new connection.
    ///
    /// # Panics
    /// If the machine has no descriptors left.
    pub fn connect(&self) -> Party {
        let packets = self.handle.connect().expect("a connection");
        Party { packets, inbox: VecDeque::new(), serial: 0 }
    }

    /// A guest that is attached.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn attach(&mut self, name: &str) -> Party {
        let mut party = self.connect();
        let name = name.parse().expect("a name");
        let attached = self.answer(&mut party, &Request::Attach { name }, &[]);
        assert_eq!(attached, Reply::Attached);
        party
    }

    /// Lets the host do what there is to do, once. Whether there is more: a turn reads only so much of one user.
    ///
    /// # Panics
    /// If the host fails.
    pub fn turn(&mut self) -> bool {
        let next = self.host.poll(self.now_ns).expect("nothing keeps it from polling");
        next == Some(Duration::ZERO)
    }

    /// Lets the host do all that there is to do.
    ///
    /// # Panics
    /// If it finds no end.
    #[track_caller]
    pub fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..BUSY_TURNS_MAX {
            // What a turn has accepted is read in the next.
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle == TURNS_MAX {
                return;
            }
        }
        panic!("the host has something to do in each of {BUSY_TURNS_MAX} turns");
    }

    /// What the host answers, as soon as it must.
    ///
    /// # Panics
    /// If it does not answer.
    #[track_caller]
    pub fn answer(
        &mut self,
        party: &mut Party,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Reply {
        self.answer_with(party, request, descriptors).reply
    }

    /// The same, with what it passes.
    ///
    /// # Panics
    /// If it does not answer.
    #[track_caller]
    pub fn answer_with(
        &mut self,
        party: &mut Party,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Heard {
        assert!(party.ask(request, descriptors), "the host is there for {request:?}");
        let serial = party.serial;
        self.heard(party, |heard| heard.serial == serial)
    }

    /// The reply that is wanted, as soon as the host must send it. Other replies are kept.
    ///
    /// # Panics
    /// If it does not come.
    #[track_caller]
    pub fn heard(&mut self, party: &mut Party, wanted: impl Fn(&Heard) -> bool) -> Heard {
        let kept = party.inbox.iter().position(&wanted);
        if let Some(heard) = kept.and_then(|at| party.inbox.remove(at)) {
            return heard;
        }
        let mut idle = 0;
        for _ in 0..BUSY_TURNS_MAX {
            while let Some(heard) = party.hear() {
                if wanted(&heard) {
                    return heard;
                }
                party.inbox.push_back(heard);
            }
            if idle == TURNS_MAX {
                break;
            }
            idle += usize::from(!self.turn());
        }
        panic!("the host is silent, but for {:?}", party.inbox);
    }

    /// The report that an observer gets.
    ///
    /// # Panics
    /// If no report comes.
    #[track_caller]
    pub fn report(&mut self, observer: &mut Party) -> SystemReport {
        let Heard { reply, descriptors, .. } = self.answer_with(observer, &Request::Query, &[]);
        let Reply::Report { bytes } = reply else { panic!("{reply:?} instead of a report") };
        let storage = Borrowed::borrow(&descriptors[0], 1..=usize::MAX).expect("a storage");
        let mut text = vec![0; bytes as usize];
        storage.read(0, &mut text).expect("all of it is there");
        serde_json::from_slice(&text).expect("a report")
    }
}

impl Heard {
    /// What comes with [`Reply::Joined`]: the peer's storages, and our ends of the doorbells.
    ///
    /// # Panics
    /// If the storages are missing.
    pub fn lent(self) -> (SideDescriptors<Foreign>, Vec<Foreign>) {
        let mut descriptors = self.descriptors.into_iter();
        let mut next = || descriptors.next().expect("a board and lines");
        let peer = SideDescriptors { board: next(), lines: next() };
        (peer, descriptors.collect())
    }
}

impl AsFd for Party {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

impl Party {
    /// Asks with the next serial. Whether it went.
    pub fn ask(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> bool {
        self.serial += 1;
        self.say(&request.bytes(self.serial), descriptors)
    }

    /// Sends any bytes. Whether they went.
    pub fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        self.packets.send(bytes, descriptors).is_ok()
    }

    /// Asks for a path, as an honest guest does. Whether that went; the side that is to be joined.
    ///
    /// # Panics
    /// If the machine has no memory or no descriptors left.
    pub fn ask_for_path(&mut self, target: Name, shape: Shape) -> (bool, Side) {
        let (side, SideDescriptors { board, lines }) = Side::create(shape).expect("a side");
        let request = Request::Connect {
            target: Target::Guest(target),
            kind: Kind::MESSAGES,
            flags: 0,
            data: NO_DATA,
            shape,
            allowance: ALLOWANCE,
        };
        (self.ask(&request, &[board.as_fd(), lines.as_fd()]), side)
    }

    /// What the host has said next; none if nothing more has come, or the host has hung up.
    ///
    /// # Panics
    /// If the host sends a malformed packet.
    pub fn receive(&mut self) -> Option<Heard> {
        self.inbox.pop_front().or_else(|| self.hear())
    }

    fn hear(&self) -> Option<Heard> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = self.packets.receive(&mut buffer).ok().filter(|packet| packet.bytes > 0)?;
        assert!(!packet.truncated, "no packet of a host is too long");
        let bytes = &mut buffer[..packet.bytes];
        if let Err(Malformed::Version { .. }) = Reply::parse(bytes) {
            // A guest of another version gets the refusal in that version.
            bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
            let refused = Reply::parse(bytes).expect("a refusal").1;
            assert!(matches!(refused, Reply::Failed { problem: Problem::Version, .. }));
        }
        let (serial, reply) = Reply::parse(bytes).expect("a reply");
        let descriptors = packet.passed().expect("the machine has descriptors left");
        Some(Heard { serial, reply, descriptors })
    }

    /// Whether the host has hung up, once all it said was received.
    pub fn is_cut(&self) -> bool {
        let mut buffer = [0; PACKET_BYTES_MAX];
        self.packets.receive(&mut buffer).map_or_else(
            |error| error.kind() != std::io::ErrorKind::WouldBlock,
            |packet| packet.bytes == 0,
        )
    }
}
