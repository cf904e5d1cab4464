//! A port between a device and a LAN. The device is one end of a pair of sockets, whose other end sends any frame with any
//! head; two members send the port what a LAN takes.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::thread;

use host::config::Source;
use net::lan::frame::{Mac, destination, source};
use net::lan::offload::Offload;
use os::tap::{HEAD_BYTES, Tap};
use port::agent::{Agent, Ready};
use port::head::from_kernel;
use port::serve::Moves;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siga::host::{Embedded, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::{Guest, Wait};

use super::lan::{check, frame, head};
use super::script::Script;
use super::{DEEDS_MAX, Watch};

const SYSTEM: &str = r#"
    [[guest]]
    name = "*"
    [[lan]]
    name = "hs0"
    [[lan.member]]
    guest = "PORT"
    vlans = [7]
    [[lan.member]]
    guest = "MEMBER0"
    vlans = [7, 8]
"#;

const MEMBERS: [&str; 2] = ["MEMBER0", "MEMBER1"];

/// Nobody's address.
const NOBODY: Mac = Mac([2, 9, 9, 9, 9, 9]);

/// The longest frame of the device, with its head and a tag.
const PACKET_BYTES_MAX: usize = 1 << 17;

/// Rounds at the end, in which paths come about and all that waits goes.
const ROUNDS: usize = 200;

/// A port whose device, and whose members, send anything.
///
/// # Panics
/// If a member or the device gets a frame that was not sent to it, twice, changed, or out of order; if the port's counts do
/// not account for each frame; or if anything is left over.
pub fn port_frames(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut world = World::new();
        for _ in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            world.act(&mut script);
        }
        world.end();
    }
    watch.stop();
}

struct World {
    agent: Agent,
    mac: Mac,
    members: Vec<Lan>,
    device: Tap,
    /// What the device has sent to each member, and to all of them: frames as the LAN has them.
    to_members: Vec<[VecDeque<Vec<u8>>; 2]>,
    /// What each member has sent to the port.
    to_device: Vec<VecDeque<Vec<u8>>>,
    sent: u64,
    answers: u64,
    _host: Embedded,
}

impl World {
    fn new() -> World {
        let system = System::parse(&Source::of("system.toml", SYSTEM)).expect("a system file");
        let host = Embedded::start(system).expect("a host");
        let member = |name: &str| {
            let guest = Guest::attach_embedded(&host, name).expect("a guest");
            let options =
                LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
            Lan::join(guest, "hs0", &options).expect("a member")
        };
        let port = member("PORT");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair: (OwnedFd, OwnedFd) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        World {
            mac: port.mac(),
            agent: Agent::new(port, Tap::adopt(pair.0), Vec::new(), None),
            members: MEMBERS.map(member).into(),
            device: Tap::adopt(pair.1),
            to_members: MEMBERS.map(|_| Default::default()).into(),
            to_device: MEMBERS.map(|_| VecDeque::new()).into(),
            sent: 0,
            answers: 0,
            _host: host,
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let member = script.below(MEMBERS.len());
        match script.below(16) {
            0..6 => self.send_by_device(script),
            6..8 => self.send_by_member(member, script),
            8..11 => self.poll(true),
            11 => self.poll(false),
            12 | 13 => self.receive(member),
            14 => self.drain(),
            _ => {
                self.agent.prepare_wait();
                self.agent.trim();
            }
        }
    }

    fn send_by_device(&mut self, script: &mut Script<'_>) {
        let mut frame = frame(script);
        if script.below(8) == 0 {
            frame = self.question(script);
        }
        let macs = [self.members[0].mac(), self.members[1].mac(), Mac::BROADCAST, NOBODY, self.mac];
        if frame.len() >= 12 && script.below(16) > 0 {
            frame[..6].copy_from_slice(&script.pick(&macs).0);
            frame[6..12].copy_from_slice(&self.mac.0);
        }
        if frame.len() >= 16 && script.below(8) == 0 {
            frame[12..16].copy_from_slice(&[0x81, 0, 0, script.pick(&[0, 7, 8])]);
        }
        let mut head = [0; HEAD_BYTES];
        if script.below(4) == 0 {
            // As a LAN's, which has the same fields elsewhere.
            head[0] = script.pick(&[0, 1, 1, 2, 3]);
            head[1] = script.pick(&[0, 0, 1, 4, 5, 129]);
            for (at, choices) in [(4, [1448, 100, 1, 0]), (6, [34, 14, 54, 0]), (8, [16, 6, 0, 50])]
            {
                let number: u16 = script.pick(&choices);
                head[at..at + 2].copy_from_slice(&number.to_le_bytes());
            }
        } else if script.below(4) == 0 {
            script.bytes(HEAD_BYTES).iter().zip(&mut head).for_each(|(byte, at)| *at = *byte);
        }
        if self.device.write(&[&head, &frame], None).is_err() {
            // The port is behind.
            return;
        }
        self.sent += 1;
        if let Ok((_, start)) = from_kernel(&head, &mut frame) {
            let sent = frame[start..].to_vec();
            let Some(to) = destination(&sent) else { return };
            for (member, expected) in self.members.iter().zip(&mut self.to_members) {
                if to.is_group() || to == member.mac() {
                    expected[usize::from(to.is_group())].push_back(sent.clone());
                }
            }
        }
    }

    /// Who has this address? By ARP, and well formed but for a byte, perhaps.
    fn question(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut frame = vec![0xff; 12];
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(self.mac.0);
        frame.extend([10, 1, 0, 99, 0, 0, 0, 0, 0, 0]);
        match self.members[script.below(MEMBERS.len())].addresses() {
            [IpAddr::V4(address), ..] if script.below(4) > 0 => frame.extend(address.octets()),
            _ => frame.extend([10, 1, 0, 77]),
        }
        if script.below(4) == 0 {
            let at = 14 + script.below(frame.len() - 14);
            frame[at] ^= 1 << script.below(8);
        }
        frame
    }

    fn send_by_member(&mut self, member: usize, script: &mut Script<'_>) {
        let lan = &mut self.members[member];
        let mut frame = frame(script);
        if frame.len() >= 12 {
            frame[..6].copy_from_slice(&self.mac.0);
            frame[6..12].copy_from_slice(&lan.mac().0);
        }
        let offload = Offload::parse(&head(script), &frame).unwrap_or(Offload::NONE);
        // Refused, or given back.
        if lan.try_send(offload, &frame).is_ok() {
            self.to_device[member].push_back(frame);
        }
    }

    fn poll(&mut self, device: bool) {
        let polled = self.agent.poll(Ready { device, network: true });
        polled.expect("the device and the host are there");
    }

    /// A member takes all that has come.
    fn receive(&mut self, member: usize) {
        let (lan, expected) = (&mut self.members[member], &mut self.to_members[member]);
        let own = lan.mac();
        while let Some(frame) = lan.try_receive().expect("a member receives") {
            assert_eq!(source(frame.bytes), Some(self.mac), "only the port sends to members");
            check(frame);
            let to = destination(frame.bytes).expect("a frame");
            assert!(to == own || to.is_group(), "a frame for {to}");
            take(&mut expected[usize::from(to.is_group())], frame.bytes);
        }
    }

    /// The device takes all that has come.
    fn drain(&mut self) {
        let (mut head, mut room) = ([0; HEAD_BYTES], vec![0; PACKET_BYTES_MAX]);
        while let Some(bytes) = self.device.read(&mut head, &mut room).expect("a socket") {
            let frame = &mut room[..bytes];
            let (_, start) = from_kernel(&head, frame).expect("a head of the kernel's");
            let frame = &frame[start..];
            let from = source(frame).expect("a frame");
            let from = self.members.iter().position(|member| member.mac() == from);
            let expected = from.map(|from| &mut self.to_device[from]);
            match expected.filter(|expected| expected.iter().any(|sent| sent == frame)) {
                Some(expected) => take(expected, frame),
                // Nothing else is made here.
                None => self.answers += 1,
            }
        }
    }

    fn end(mut self) {
        for _ in 0..ROUNDS {
            self.poll(true);
            (0..MEMBERS.len()).for_each(|member| self.receive(member));
            self.drain();
            thread::yield_now();
        }
        let counters = self.agent.counters();
        assert_eq!(counters.frames_read, self.sent);
        // What the LAN refuses because it is too long is answered with an ICMP message.
        let answers_max = counters.frames_answered + counters.dropped_bad;
        assert!(self.answers <= answers_max, "frames that nobody sent");
        let dropped = counters.dropped_bad + counters.dropped_no_member + counters.dropped_full;
        assert!(dropped + counters.frames_answered <= counters.frames_read, "{counters:?}");
    }
}

/// Takes a frame that was sent; those before it were dropped.
fn take(sent: &mut VecDeque<Vec<u8>>, frame: &[u8]) {
    while let Some(next) = sent.pop_front() {
        if next == frame {
            return;
        }
    }
    panic!(
        "a frame of {} bytes that was not sent, or is out of order: {:02x?}",
        frame.len(),
        &frame[..frame.len().min(60)]
    );
}
