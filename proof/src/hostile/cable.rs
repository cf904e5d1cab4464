//! A LAN for stacks of TCP/IP that is no more than queues of frames: a script decides what becomes of each.

use std::collections::VecDeque;
use std::net::IpAddr;

use net::lan::frame::Mac;
use net::lan::link::Frame;
use net::lan::offload::{Checksum, Offload, complete_checksum};
use net::tcpip::{Link, Options, Secret, Stack, Unsent, address};

/// Frames that one side has room for.
const FRAMES_MAX: usize = 1024;

/// Polls of a stack at one time, until nothing is left to be done. One that never comes to an end would serve nobody else.
const POLLS_MAX: usize = 10_000;

pub(super) const SECOND: u64 = 1_000_000_000;

/// The member that sends from an address that is not its own.
pub(super) const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 66));

/// What one stack has sent.
pub(super) struct Cable {
    own: Mac,
    pub(super) frames: VecDeque<(Offload, Vec<u8>)>,
    /// Whether the other side has no room.
    pub(super) is_full: bool,
}

impl Cable {
    pub(super) fn new(own: Mac) -> Cable {
        Cable { own, frames: VecDeque::new(), is_full: false }
    }
}

impl Link for Cable {
    fn transmit(
        &mut self,
        _: usize,
        _: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        if self.is_full || self.frames.len() >= FRAMES_MAX {
            return Err(Unsent::Full);
        }
        address(frame, Mac([2, 0, 0, 0, 0, 9]), self.own);
        // What the LAN would refuse is a fault of the stack.
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload), "a frame for the LAN");
        self.frames.push_back((offload, frame.to_vec()));
        Ok(())
    }

    fn send(&mut self, _: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        if self.is_full || self.frames.len() >= FRAMES_MAX {
            return Err(Unsent::Full);
        }
        self.frames.push_back((offload, frame.to_vec()));
        Ok(())
    }

    fn may_send_from(&mut self, _: usize, _: &[u8], address: IpAddr) -> bool {
        address != STRANGER
    }
}

/// A stack with both families of addresses, whose last byte is `number`.
pub(super) fn stack(number: u8, options: Options) -> (Stack, Cable) {
    let mac = Mac([2, 0, 0, 0, 0, number]);
    let stack = Stack::new(mac, &[v4(number), v6(number)], options, Secret([number; 16]));
    (stack, Cable::new(mac))
}

pub(super) fn v4(number: u8) -> IpAddr {
    IpAddr::from([10, 1, 0, number])
}

pub(super) fn v6(number: u8) -> IpAddr {
    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number.into()])
}

/// Gives a stack a frame, as a LAN would.
pub(super) fn give(now: u64, stack: &mut Stack, cable: &mut Cable, offload: Offload, bytes: &[u8]) {
    let Ok(offload) = Offload::parse(&offload.head(), bytes) else { return };
    stack.receive(now, 0, Frame { offload, bytes }, cable);
}

/// Has a stack do what there is to do.
pub(super) fn serve(now: u64, stack: &mut Stack, cable: &mut Cable) {
    let polls = (0..POLLS_MAX).take_while(|_| stack.poll(now, cable)).count();
    assert!(polls < POLLS_MAX, "there is always more to do");
}

/// A packet of IP with an Ethernet header that says so, for `bytes` of what follows.
pub(super) fn packet(from: IpAddr, to: IpAddr, protocol: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + bytes) as u16;
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            seal(&mut frame);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((bytes as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => unreachable!("both are of one family"),
    }
    frame
}

/// Puts the checksum into a header of IPv4 that nothing follows yet.
pub(super) fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    complete_checksum(Checksum::Partial { start: 14, at: 10 }, frame);
}
