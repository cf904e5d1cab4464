//! Transports of other programs. `siga-peers` opens their ends, see [`crate::peers`].

use super::{Can, KERNEL, MessageBytes, Opening, Transport};
use crate::fault::Fault;
use crate::quantity::Report;

pub(super) const AERON: Transport = Transport {
    name: "aeron",
    meaning: "Aeron IPC, each message offered: built by the program and copied into the log",
    // Its media driver.
    needs_host: true,
    // Its IPC has no way to sleep.
    waits: &["spin"],
    ..PEER
};

pub(super) const AERON_CLAIM: Transport = Transport {
    name: "aeron-claim",
    meaning: "Aeron IPC, each message built in the log",
    // A claim is one frame: 65504 B less a header of 32 B.
    bytes: MessageBytes::Most(65_472),
    ..AERON
};

pub(super) const ICEORYX2: Transport = Transport {
    name: "iceoryx2",
    meaning: "publish and subscribe of iceoryx2, built in the publisher's memory and read there",
    waits: &["spin", "block"],
    ..PEER
};

const PEER: Transport =
    Transport { can: &[Can::Stream, Can::Exchange, Can::Peer], carry: refuse, ..KERNEL };

/// The lab starts `siga-peers` for these transports, not this program.
fn refuse(opening: Opening<'_>) -> Result<Report, Fault> {
    let transport = opening.order.word("transport");
    Err(Fault::Unable(format!("{transport} is measured by siga-peers")))
}
