//! Frames of a LAN: each message is the content of an Ethernet frame.

use host::report::Counts;
use host::system::System;
use host::system::lan::{FRAME_BYTES, HEADROOM_BYTES};
use siga::Guest;
use siga::lan::{Counter, Frame, Lan, LanOptions, Mac, Offload, TrySendFrameError};

use super::path::{OVER_PATHS, SOURCE, TARGET, guest_name, own_name};
use super::{Can, End, MESSAGES_AND_PAIRS, MessageBytes, Opening, Transport, wait};
use crate::control::Order;
use crate::fault::{Doing, Fault};

pub(super) const LAN: Transport = Transport {
    name: "lan",
    meaning: "each in an Ethernet frame between two members; in a stream small frames go together",
    can: MESSAGES_AND_PAIRS,
    carry: |opening| opening.over(LanEnd::open),
    bytes: MessageBytes::Most((FRAME_BYTES_MAX - HEADER_BYTES) as u64),
    ..OVER_PATHS
};

/// The LAN of a system without a file, and its largest frame.
pub(crate) const LAN_NAME: &str = "hs0";
const FRAME_BYTES_MAX: usize = 16 << 10;

/// The MTU of the LAN of a trial with this level of the factor `mtu`: the greatest that a LAN can have and that is not more.
/// None if a LAN's is always more.
pub(crate) fn mtu(level: u64) -> Option<u32> {
    let mtus = FRAME_BYTES.iter().map(|frame_bytes| frame_bytes - HEADROOM_BYTES);
    mtus.rev().find(|mtu| u64::from(*mtu) <= level)
}

/// Gives the LANs of a system the MTU of the order, if its transport goes over a LAN and has one.
pub(crate) fn set_mtu(system: &mut System, order: &Order) {
    let Some(mtu) = ordered_mtu(order) else { return };
    system.lans.iter_mut().for_each(|lan| lan.frame_bytes = mtu + HEADROOM_BYTES);
}

/// The MTU of the LAN that the order asks for.
fn ordered_mtu(order: &Order) -> Option<u32> {
    mtu(order.number_if_any("mtu")?)
}

/// Checks that the LAN has the MTU of the order: one of a system file may have another.
pub(crate) fn check_mtu(lan: &Lan, order: &Order) -> Result<(), Fault> {
    match ordered_mtu(order) {
        Some(wanted) if wanted != lan.mtu() => Err(Fault::Unable(format!(
            "{LAN_NAME} has an MTU of {}: must be {wanted} for this mtu (in the system file, frame = {})",
            lan.mtu(),
            wanted + HEADROOM_BYTES
        ))),
        _ => Ok(()),
    }
}

/// Bytes of an Ethernet header.
pub(crate) const HEADER_BYTES: usize = 14;

/// Types of Ethernet frames for local experiments: a message, and the end of them (IEEE Std 802, 9.2.4).
pub(crate) const MESSAGE: [u8; 2] = [0x88, 0xb5];
pub(crate) const END: [u8; 2] = [0x88, 0xb6];

/// One end: a member of the LAN that talks with one other.
#[derive(Debug)]
struct LanEnd {
    lan: Lan,
    /// The frame that is being built, its header at the start.
    frame: Vec<u8>,
    pushes: bool,
}

impl LanEnd {
    fn open(opening: &mut Opening<'_>) -> Result<LanEnd, Fault> {
        let Opening { what, order, control, bytes } = opening;
        // The source comes after the target.
        if order.is_source() {
            control.parcel()?;
        }
        let mut lan = member(order, &own_name(order))?;
        control.pass("joined", &[])?;
        // Each waits until the other is there.
        let name = guest_name(if order.is_source() { TARGET } else { SOURCE }, order);
        let to = loop {
            let found = lan.members().find(|member| member.name.as_str() == name);
            if let Some(member) = found {
                break member.mac;
            }
            control.parcel()?;
        };
        let mut frame = vec![0; HEADER_BYTES + *bytes];
        header(&mut frame, to, lan.mac(), MESSAGE);
        Ok(LanEnd { lan, frame, pushes: matches!(what, Can::Stream) })
    }

    /// Sends what was built, up to `end`.
    #[inline(always)]
    fn send_frame(&mut self, end: usize) -> Result<(), Fault> {
        let frame = &self.frame[..end];
        let sent = if self.pushes {
            push(&mut self.lan, frame)
        } else {
            self.lan.send(Offload::NONE, frame).map_err(TrySendFrameError::Send)
        };
        sent.doing("send a frame")
    }
}

/// Pushes a frame, and waits while its target is too far behind.
#[inline(always)]
pub(crate) fn push(lan: &mut Lan, frame: &[u8]) -> Result<(), TrySendFrameError> {
    match lan.try_push(Offload::NONE, frame) {
        Err(TrySendFrameError::Full) => Ok(lan.send(Offload::NONE, frame)?),
        sent => sent,
    }
}

/// A member of this name.
pub(crate) fn member(order: &Order, name: &str) -> Result<Lan, Fault> {
    let socket = order.socket.as_ref().expect("trials with paths have a host");
    let guest = Guest::attach(socket, name).doing("attach to the host")?;
    member_of(order, guest)
}

/// A guest as a member.
pub(crate) fn member_of(order: &Order, guest: Guest) -> Result<Lan, Fault> {
    let options = LanOptions { wait: wait(order), ..LanOptions::default() };
    Lan::join(guest, LAN_NAME, &options).doing("join a LAN")
}

/// Puts a header in front of a frame.
pub(crate) fn header(frame: &mut [u8], to: Mac, from: Mac, kind: [u8; 2]) {
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    frame[12..HEADER_BYTES].copy_from_slice(&kind);
}

/// What is in a frame; none if it says that no more will come.
#[inline(always)]
pub(crate) fn content(frame: Frame<'_>) -> Option<&[u8]> {
    (frame.bytes[12..HEADER_BYTES] == MESSAGE).then(|| &frame.bytes[HEADER_BYTES..])
}

/// What a member has counted.
pub(crate) fn counts_of_lan(lan: &Lan) -> Counts {
    let count = |counter: Counter| (format!("lan_{}", counter.name()), lan.counter(counter));
    Counter::ALL.into_iter().map(count).collect()
}

impl End for LanEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let end = HEADER_BYTES + bytes;
        build(&mut self.frame[HEADER_BYTES..end]);
        self.send_frame(end)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.lan.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(
        &mut self,
        _bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        match content(self.lan.receive().doing("receive a frame")?) {
            Some(message) => {
                read(0, message);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.frame[12..HEADER_BYTES].copy_from_slice(&END);
        self.pushes = false;
        self.send_frame(HEADER_BYTES)
    }

    fn counts(&mut self) -> Counts {
        counts_of_lan(&self.lan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lan_has_the_greatest_mtu_that_is_not_more() {
        let found = [8191, 8192, 9000, 16_384, 57_343, 57_344, 65_535].map(mtu);
        let kib = |kib: u32| Some(kib << 10);
        assert_eq!(found, [None, kib(8), kib(8), kib(16), kib(32), kib(56), kib(56)]);
    }
}
