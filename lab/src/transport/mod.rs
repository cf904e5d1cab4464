//! Transports: ways for messages to go from one process to another.
//!
//! Paths, the kernel's own ways, what memory and processors allow at most, and other programs' ways. Each is a
//! file here and a line in [`TRANSPORTS`], which says what it can. Workloads take their levels from there.

pub(crate) mod adapters;
mod appc;
mod batch;
mod bytes;
pub(crate) mod cable;
mod dial;
mod inline;
mod iucv;
pub(crate) mod lan;
mod line;
mod network;
pub(crate) mod osa;
mod packets;
mod path;
mod peer;
mod relay;
mod ring;
pub(crate) mod stacks;
mod tcpip;
mod wake;
pub(crate) mod watched;
pub(crate) mod wire;

use std::os::fd::{AsFd, OwnedFd};

use host::report::Counts;

use crate::control::{Control, Order};
use crate::factor::{Factors, Level, number};
use crate::fault::Fault;
use crate::quantity::Report;
use crate::role::ADAPTER;
use crate::workload::{exchange, stream};

pub(crate) use dial::{Dials, DialsMany, KernelDials, Receive, StackDials};
pub(crate) use iucv::{connect_iucv, counts_of_iucv};
pub(crate) use line::OneLineEnd;
pub(crate) use path::{attach, connect, counts_of, ended, wait};

/// A transport: an entry of the table.
#[derive(Debug)]
pub struct Transport {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What it can do.
    can: &'static [Can],
    /// Runs the ordered workload over it.
    carry: fn(Opening<'_>) -> Result<Report, Fault>,
    /// Whether it is no way to send anything, but what the machine allows at most.
    is_reference: bool,
    /// Whether a trial needs a host, or a party in its place, as Aeron's media driver.
    needs_host: bool,
    /// OSA adapters between the two parties, or threads in their place. They are one party, with a thread for each.
    adapters: usize,
    /// Whether one of the two parties serves an adapter of its own.
    has_own_adapter: bool,
    /// Serves them until the others are done.
    serve: fn(&Order, &mut Control) -> Result<Report, Fault>,
    /// The factors of [`OPTIONAL_FACTORS`] that apply.
    factors: &'static [&'static str],
    /// How a side can wait. A side that cannot wait as asked waits in the first of these ways.
    waits: &'static [&'static str],
    /// How long messages can be.
    bytes: MessageBytes,
}

/// Factors that apply to some transports alone.
const OPTIONAL_FACTORS: [&str; 6] =
    ["ring", "mtu", "slip_ns", "adapter_wait", "hold_off_us", "gap_us"];

/// How long the messages of a transport can be.
#[derive(Clone, Copy, Debug)]
enum MessageBytes {
    /// As long as the factor `bytes` allows.
    Any,
    /// At most this many bytes.
    Most(u64),
    /// Always this many bytes: the factor `bytes` does not apply.
    Fixed(usize),
}

/// All transports, in the order in which they are listed.
pub const TRANSPORTS: &[Transport] = &[
    path::PATH,
    path::PATH_SEND,
    path::PATH_IN_PLACE,
    iucv::IUCV,
    iucv::IUCV_SEND,
    appc::APPC,
    lan::LAN,
    tcpip::TCP_LAN,
    tcpip::TCP_LAN_IN_PLACE,
    tcpip::TCP_LAN_THREAD,
    bytes::UNIX_STREAM,
    batch::UNIX_STREAM_BATCHED,
    packets::UNIX_SEQPACKET,
    bytes::PIPE,
    network::TCP_LOOPBACK,
    network::TCP_PORT,
    network::TCP_VETH,
    network::TCP_VETH_BIG,
    network::TCP_VETH_PLAIN,
    wire::TCP_WIRE,
    wire::TCP_WIRE_OUT,
    wire::TCP_WIRE_IN,
    wire::TCP_WIRE_STACK,
    osa::TCP_OSA,
    osa::TCP_OSA_PLAIN,
    osa::TCP_XDP_OUT,
    osa::TCP_XDP_IN,
    osa::TCP_MACVTAP_OUT,
    osa::TCP_MACVTAP_IN,
    inline::TCP_OSA_INLINE,
    inline::TCP_OSA_INLINE_PLAIN,
    inline::TCP_XDP_INLINE_OUT,
    inline::TCP_XDP_INLINE_IN,
    inline::TCP_MACVTAP_INLINE_OUT,
    inline::TCP_MACVTAP_INLINE_IN,
    osa::TCP_MACVTAP_KERNEL_OUT,
    osa::TCP_MACVTAP_KERNEL_IN,
    ring::COPY_LIMIT,
    line::CACHE_LINE_1,
    line::CACHE_LINE_2,
    wake::WAKE,
    peer::AERON,
    peer::AERON_CLAIM,
    peer::ICEORYX2,
];

/// The workloads of messages between two parties.
const MESSAGES: &[Can] = &[Can::Stream, Can::Exchange, Can::Request];

/// The same, and many pairs of parties.
const MESSAGES_AND_PAIRS: &[Can] = &[Can::Stream, Can::Exchange, Can::Request, Can::Pairs];

/// The fields that an entry leaves out: those of a transport of the kernel.
const KERNEL: Transport = Transport {
    name: "",
    meaning: "",
    can: MESSAGES_AND_PAIRS,
    carry: |opening| unreachable!("{:?} over no transport", opening.what),
    is_reference: false,
    needs_host: false,
    adapters: 0,
    has_own_adapter: false,
    serve: |order, _| unreachable!("{} at no adapter", order.role),
    factors: &[],
    waits: &["block", "spin"],
    bytes: MessageBytes::Any,
};

/// What a transport may be able to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Can {
    Stream,
    Exchange,
    Request,
    /// Many pairs in a trial, each with a connection of its own.
    Pairs,
    /// A stream over a wire with faults, which is in the place of a host.
    Wire,
    /// Be measured by `siga-peers`, because another program provides it.
    Peer,
}

impl Transport {
    const fn can(&self, what: Can) -> bool {
        let mut at = 0;
        while at < self.can.len() {
            if self.can[at] as u8 == what as u8 {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// How many transports can do this.
pub(crate) const fn count(what: Can) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < TRANSPORTS.len() {
        count += TRANSPORTS[at].can(what) as usize;
        at += 1;
    }
    count
}

/// The names of the transports that can do this: as many as [`count`] says.
pub(crate) const fn names<const N: usize>(what: Can) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut count, mut at) = (0, 0);
    while at < TRANSPORTS.len() {
        if TRANSPORTS[at].can(what) {
            names[count] = TRANSPORTS[at].name;
            count += 1;
        }
        at += 1;
    }
    names
}

/// The transport under these levels, if they name one.
pub(crate) fn of(factors: &Factors) -> Option<&'static Transport> {
    let Some(Level::Word(word)) = factors.get("transport") else { return None };
    TRANSPORTS.iter().find(|transport| transport.name == word)
}

/// Whether these levels are of what the machine allows at most, with which transports are compared.
pub(crate) fn is_reference(factors: &Factors) -> bool {
    of(factors).is_some_and(|transport| transport.is_reference)
}

/// Takes out the factors that do not apply to the transport, and sets those in which it has no choice.
pub(crate) fn fit(factors: &mut Factors) {
    let Some(transport) = of(factors) else { return };
    for factor in OPTIONAL_FACTORS.iter().filter(|factor| !transport.factors.contains(factor)) {
        factors.remove(*factor);
    }
    if matches!(transport.bytes, MessageBytes::Fixed(_)) {
        factors.remove("bytes");
    }
    let can_wait = |level: &Level| transport.waits.contains(&&*level.to_string());
    if factors.get("wait").is_some_and(|level| !can_wait(level)) {
        factors.insert("wait".to_owned(), Level::Word(transport.waits[0].to_owned()));
    }
}

/// Checks that messages are not too long for the transport, and that its LAN or its adapters can have the MTU.
///
/// # Errors
/// The most bytes that a message can have, or which MTU there can be.
pub(crate) fn check(factors: &Factors) -> Result<(), String> {
    let is_at_adapter =
        of(factors).is_some_and(|transport| transport.adapters > 0 || transport.has_own_adapter);
    let mtu = number(factors, "mtu").filter(|_| is_at_adapter);
    if let Some(mtu) = mtu {
        return adapters::check_mtu(mtu);
    }
    if let (Some(Transport { name, needs_host: true, .. }), Some(Level::Number(level))) =
        (of(factors), factors.get("mtu"))
        && !is_for(Can::Wire, factors)
        && lan::mtu(*level).is_none()
    {
        return Err(format!("mtu = {level}: the LAN of {name} has one of at least 8192"));
    }
    match (of(factors), factors.get("bytes")) {
        (
            Some(Transport { name, bytes: MessageBytes::Most(most), .. }),
            Some(Level::Number(bytes)),
        ) if bytes > most => Err(format!("{bytes} B: a message of {name} has at most {most} B")),
        _ => Ok(()),
    }
}

/// How many hosts a trial needs.
pub(crate) fn hosts(factors: &Factors) -> usize {
    usize::from(of(factors).is_some_and(|transport| transport.needs_host))
}

/// How many parties serve adapters in a trial: one, or none.
pub(crate) fn adapters(factors: &Factors) -> usize {
    usize::from(of(factors).is_some_and(|transport| transport.adapters > 0))
}

/// Whether a party serves an adapter of its own.
pub(crate) fn has_own_adapter(factors: &Factors) -> bool {
    of(factors).is_some_and(|transport| transport.has_own_adapter)
}

/// Whether source and target have an adapter each.
pub(crate) fn has_peer_adapter(factors: &Factors) -> bool {
    of(factors).is_some_and(|transport| transport.adapters > 1)
}

/// Whether the transport under these levels can do this.
pub(crate) fn is_for(what: Can, factors: &Factors) -> bool {
    of(factors).is_some_and(|transport| transport.can(what))
}

/// The bytes of a message of this order.
pub(crate) fn message_bytes(order: &Order) -> usize {
    match of(&order.factors).map(|transport| transport.bytes) {
        Some(MessageBytes::Fixed(bytes)) => bytes,
        _ => order.number("bytes") as usize,
    }
}

/// Runs a workload over the ordered transport, with room for messages of `bytes`.
///
/// # Errors
/// [`Fault`]: what the lab is to hear.
pub(crate) fn carry(
    what: Can,
    order: &Order,
    control: &mut Control,
    bytes: usize,
) -> Result<Report, Fault> {
    let transport = of(&order.factors).filter(|transport| transport.can(what));
    let transport = transport.expect("levels are those that the table has for the workload");
    if order.role == ADAPTER {
        return (transport.serve)(order, control);
    }
    (transport.carry)(Opening { what, order, control, bytes })
}

/// One end of a transport that carries messages of one size.
///
/// Its verbs are called once for each message and are to be inlined: the loops around them are made anew
/// for each transport.
pub trait End {
    /// Sends a message of `bytes` that `build` makes. Waits while the receiver is too far behind.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be sent.
    fn send(&mut self, bytes: usize, build: impl FnMut(&mut [u8])) -> Result<(), Fault>;

    /// Hands over what may have been held back, because nothing follows for now.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be sent.
    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Waits for the next message of `bytes` and shows it to `read`, piece by piece, each with the place
    /// where it starts. False if the other end has finished.
    ///
    /// # Errors
    /// [`Fault`]: nothing more can be received.
    fn receive(&mut self, bytes: usize, read: impl FnMut(usize, &[u8])) -> Result<bool, Fault>;

    /// Whether [`show`](End::show) shows several messages in one call.
    const SHOWS_MANY: bool = false;

    /// The same as [`receive`](End::receive), of all messages that are there and where they lie: one of another program's
    /// transport that cannot be asked for one message. False if the other end has finished behind them.
    ///
    /// # Errors
    /// As [`receive`](End::receive).
    fn show(&mut self, bytes: usize, read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        self.receive(bytes, read)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be said.
    fn finish(&mut self) -> Result<(), Fault>;

    /// What was counted so far.
    fn counts(&mut self) -> Counts {
        Counts::new()
    }

    /// What the transport was set to.
    fn settings(&self) -> Counts {
        Counts::new()
    }
}

/// Large messages are checked in pieces of this many bytes: what was copied is in cache then.
const PIECE_BYTES: usize = 64 << 10;

/// Whether a peer polls again and again instead of sleeping in the kernel.
fn spins(order: &Order) -> bool {
    order.word("wait") == "spin"
}

/// What opening an end needs.
pub(crate) struct Opening<'a> {
    /// The workload.
    pub(crate) what: Can,
    pub(crate) order: &'a Order,
    pub(crate) control: &'a mut Control,
    /// The size of the longest messages.
    pub(crate) bytes: usize,
}

impl Opening<'_> {
    /// Opens an end, and runs the workload over it. Compiled for each end, as the loops of the workloads are.
    fn over<E: End>(
        self,
        open: impl FnOnce(&mut Opening<'_>) -> Result<E, Fault>,
    ) -> Result<Report, Fault> {
        let mut opening = self;
        let end = open(&mut opening)?;
        let Opening { what, order, control, .. } = opening;
        match what {
            Can::Stream | Can::Wire => stream::run(end, order, control),
            Can::Exchange => exchange::run::<E, false>(end, order, control),
            Can::Request => exchange::run::<E, true>(end, order, control),
            Can::Pairs | Can::Peer => unreachable!("{what:?} is no workload"),
        }
    }

    /// This party's end of what the source makes: the source passes the other end to the target.
    fn end<E: AsFd + From<OwnedFd>>(
        &mut self,
        make: impl FnOnce() -> Result<(E, E), Fault>,
    ) -> Result<E, Fault> {
        if !self.order.is_source() {
            let [ours] = self.control.descriptors()?;
            return Ok(E::from(ours));
        }
        let (ours, theirs) = make()?;
        self.control.pass("end", &[theirs.as_fd()])?;
        Ok(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(levels: &[(&str, Level)]) -> Factors {
        levels.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
    }

    #[test]
    fn factors_that_do_not_apply_are_left_out() {
        let fitted = |transport: &str, wait: &str| {
            let levels = [("transport", transport), ("wait", wait), ("ring", "4"), ("bytes", "64")];
            let mut factors =
                factors(&levels.map(|(name, level)| (name, Level::Word(level.into()))));
            fit(&mut factors);
            crate::factor::describe(&factors, &["wait", "ring", "bytes"])
        };
        for (transport, wait, wanted) in [
            ("path-send", "adaptive", "adaptive, 64"),
            ("iucv", "spin", "spin, 64"),
            ("pipe", "adaptive", "block, 64"),
            ("pipe", "spin", "spin, 64"),
            ("unix-stream-batched", "spin", "block, 64"),
            ("copy-limit", "block", "spin, 4, 64"),
            ("cache-line-2", "block", "spin"),
            ("wake", "spin", "block"),
            ("aeron-claim", "block", "spin, 64"),
            ("iceoryx2", "block", "block, 64"),
            ("iceoryx2", "adaptive", "spin, 64"),
        ] {
            assert_eq!(fitted(transport, wait), wanted, "{transport}, {wait}");
        }
        let mut open = factors(&[("transport", Level::Word("pipe".into()))]);
        fit(&mut open);
        assert_eq!(open.len(), 1, "what is left open stays open");
    }

    #[test]
    fn levels_that_a_transport_cannot_have_are_refused_with_the_limit() {
        let checked = |transport: &str, bytes| {
            let transport = Level::Word(transport.into());
            check(&factors(&[("transport", transport), ("bytes", Level::Number(bytes))]))
        };
        assert_eq!(checked("aeron", 65_473), Ok(()));
        assert_eq!(checked("aeron-claim", 65_472), Ok(()));
        let mtu = |transport: &str, level| {
            let transport = Level::Word(transport.into());
            check(&factors(&[("transport", transport), ("mtu", Level::Number(level))]))
        };
        assert_eq!((mtu("tcp-lan", 9000), mtu("tcp-veth", 1500)), (Ok(()), Ok(())));
        assert_eq!((mtu("tcp-osa", 1500), mtu("tcp-xdp-in", 8992)), (Ok(()), Ok(())));
        let error = mtu("tcp-xdp-out", 9001).unwrap_err();
        assert_eq!(error, "mtu = 9001: that of an adapter is 576 to 9000");
        let error = mtu("tcp-lan", 1500).unwrap_err();
        assert_eq!(error, "mtu = 1500: the LAN of tcp-lan has one of at least 8192");
        let error = checked("aeron-claim", 65_473).unwrap_err();
        assert_eq!(error, "65473 B: a message of aeron-claim has at most 65472 B");
    }

    #[test]
    fn transports_have_names_of_their_own_and_can_do_what_they_are_for() {
        for (at, transport) in TRANSPORTS.iter().enumerate() {
            let name = transport.name;
            assert!(TRANSPORTS[..at].iter().all(|other| other.name != name), "{name}");
            assert!(!transport.meaning.is_empty(), "{name}");
            let is_used =
                [Can::Stream, Can::Exchange, Can::Wire].iter().any(|what| transport.can(*what));
            assert!(is_used, "{name}");
            // Pairs do both.
            let is_both = transport.can(Can::Stream) && transport.can(Can::Exchange);
            assert!(is_both || !transport.can(Can::Pairs), "{name}");
        }
    }
}
