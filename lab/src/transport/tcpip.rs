//! TCP of the guests' own stack: a connection over a LAN, driven by the verbs of each side.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use host::report::Counts;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Congestion, Counter, Drive, Stack, StackOptions, TcpListener, TcpStream};

use super::adapters;
use super::bytes::read_message;
use super::lan::{LAN_NAME, check_mtu};
use super::path::{OVER_PATHS, TARGET, attach_in_turn, guest_name};
use super::{Can, End, MESSAGES_AND_PAIRS, Opening, Transport, wait};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::pattern::WORD_BYTES;

pub(super) const TCP_LAN: Transport = Transport {
    name: "tcp-lan",
    meaning: "TCP of the guests' own stack over a LAN, driven by the program's verbs, without delay",
    can: MESSAGES_AND_PAIRS,
    carry: |opening| opening.over(|opening| SocketEnd::<false>::open(opening, Drive::Inline)),
    factors: &["mtu"],
    ..OVER_PATHS
};

pub(super) const TCP_LAN_IN_PLACE: Transport = Transport {
    name: "tcp-lan-in-place",
    meaning: "the same, received where it lies in the connection's buffer",
    can: &[Can::Stream, Can::Exchange, Can::Pairs],
    carry: |opening| opening.over(|opening| SocketEnd::<true>::open(opening, Drive::Inline)),
    ..TCP_LAN
};

pub(super) const TCP_LAN_THREAD: Transport = Transport {
    name: "tcp-lan-thread",
    meaning: "TCP of the guests' own stack over a LAN, with a thread of the stack's own",
    carry: |opening| opening.over(|opening| SocketEnd::<false>::open(opening, Drive::Thread)),
    ..TCP_LAN
};

pub(super) const PORT: u16 = 7;

/// Bytes of each buffer of a connection that carries many messages.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// How long an end waits for the other to have all.
pub(super) const FINISH_MAX: Duration = Duration::from_secs(10);

/// Puts a stack of this party on the LAN, whose connections have two buffers of so many bytes; with the address of the target,
/// if that is there already. A source waits for the note of its target that it listens.
pub(super) fn join(
    order: &Order,
    control: &mut Control,
    buffer_bytes: usize,
    drive: Drive,
) -> Result<(Stack, Option<IpAddr>), Fault> {
    if order.is_source() {
        // Other copies pass notes too.
        control.note_from(order.peer.as_ref().expect("a source has a target"))?;
    }
    let guest = attach_in_turn(order, control)?;
    let options =
        LanOptions { wait: wait(order), address: Address::Chosen, ..LanOptions::default() };
    let mut lan = Lan::join(guest, LAN_NAME, &options).doing("join a LAN")?;
    check_mtu(&lan, order)?;
    let target = guest_name(TARGET, order);
    let found = lan.members().find(|member| member.name.as_str() == target);
    let address = found.and_then(|member| member.addresses.first().copied());
    let usual = over_memory(buffer_bytes, drive);
    let idle = order.number_if_any("idle").unwrap_or(0) as usize;
    // Those beside the idle ones have a place each.
    let connections_max = usual.connections_max.max(2 * idle);
    let options = StackOptions { connections_max, ..usual };
    Ok((Stack::new(lan, &options).doing("put a stack on a LAN")?, address))
}

/// How a stack behaves on a link of memory, where a full target is told and nothing is lost. Its connections have two buffers of so
/// many bytes.
pub(super) fn over_memory(buffer_bytes: usize, drive: Drive) -> StackOptions {
    StackOptions {
        congestion: Congestion::None,
        receive_bytes: buffer_bytes,
        send_bytes: buffer_bytes,
        drive,
        ..StackOptions::default()
    }
}

/// What a stack has counted.
pub(super) fn counts_of_stack(stack: &Stack) -> Counts {
    let count = |counter: Counter| (format!("tcpip_{}", counter.name()), stack.counter(counter));
    Counter::ALL.into_iter().map(count).collect()
}

/// One end of a connection. What is received is looked at in the connection's buffer if it is in place, and copied if not.
#[derive(Debug)]
pub(super) struct SocketEnd<const IS_IN_PLACE: bool> {
    // Before the stack, which resets what is not closed.
    stream: TcpStream,
    stack: Stack,
    buffer: Vec<u8>,
}

impl<const IS_IN_PLACE: bool> SocketEnd<IS_IN_PLACE> {
    /// The target listens, and says so; the source connects.
    fn open(opening: &mut Opening<'_>, drive: Drive) -> Result<Self, Fault> {
        let Opening { order, control, bytes, .. } = opening;
        let (stack, address) = join(order, control, BUFFER_BYTES, drive)?;
        let stream = if order.is_source() {
            let address = address.ok_or(Fault::Ended)?;
            TcpStream::connect(&stack, (address, PORT)).doing("connect on a LAN")?
        } else {
            let listener = TcpListener::bind(&stack, ("0.0.0.0", PORT)).doing("listen on a LAN")?;
            control.pass("listening", &[])?;
            listener.accept().doing("accept on a LAN")?.0
        };
        SocketEnd::of(stream, stack, *bytes)
    }

    /// The end of a connection that is there, for messages of so many bytes.
    pub(super) fn of(stream: TcpStream, stack: Stack, bytes: usize) -> Result<Self, Fault> {
        stream.set_nodelay(true).doing("set no delay")?;
        // The stack goes with the target, and the end that it has not sent for want of room would go with the stack.
        stream.set_linger(Some(FINISH_MAX)).doing("set how long a close lasts")?;
        Ok(SocketEnd { stream, stack, buffer: vec![0; bytes] })
    }

    #[inline(always)]
    fn receive_in_place(
        &mut self,
        bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        let stream = &mut self.stream;
        let mut at = 0;
        while at < bytes {
            // A piece starts at a whole word, so only the last one may end elsewhere.
            let taken = stream.receive_with(|piece| {
                let most = piece.len().min(bytes - at);
                let taken = if at + most == bytes { most } else { most - most % WORD_BYTES };
                if taken > 0 {
                    read(at, &piece[..taken]);
                }
                (taken, (!piece.is_empty()).then_some(taken))
            });
            match taken.doing("read")? {
                None if at == 0 => return Ok(false),
                None => return Err(Fault::Ended),
                Some(0) => {
                    let mut word = [0; WORD_BYTES];
                    let rest = &mut word[..(bytes - at).min(WORD_BYTES)];
                    stream.read_exact(rest).doing("read")?;
                    read(at, rest);
                    at += rest.len();
                }
                Some(taken) => at += taken,
            }
        }
        Ok(true)
    }
}

impl<const IS_IN_PLACE: bool> End for SocketEnd<IS_IN_PLACE> {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let message = &mut self.buffer[..bytes];
        build(message);
        self.stream.write_all(message).doing("write")
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        if IS_IN_PLACE {
            return self.receive_in_place(bytes, read);
        }
        let message = &mut self.buffer[..bytes];
        let has_come = read_message(&mut self.stream, message)?;
        if has_come {
            read(0, message);
        }
        Ok(has_come)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        // The stack goes with this end, and what is not acknowledged goes with the stack: so it stays until the other side
        // has closed too.
        self.stream.shutdown(Shutdown::Write).doing("shut a connection")?;
        self.stream.set_read_timeout(Some(FINISH_MAX)).doing("set a time limit")?;
        match self.stream.read(&mut [0]).doing("wait for the end")? {
            0 => Ok(()),
            _ => Err(Fault::Ended),
        }
    }

    fn counts(&mut self) -> Counts {
        let mut counts = counts_of_stack(&self.stack);
        let devices = self.stack.devices().unwrap_or_default();
        if !devices.is_empty() {
            counts.extend(adapters::counts(&devices));
        }
        counts
    }
}
