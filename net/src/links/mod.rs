//! Line drivers: packets of IP over a line between two guests, one hop apart.
//!
//! A line has two ends and nobody else on it: no addresses below IP, no broadcast. Its driver puts packets into messages
//! ([`Framing`]), has one message under way at a time, and collects packets meanwhile, which go as one message when that one is
//! complete. So what a message costs is shared by more packets the busier the line is. Who carries the messages is the caller's: a path of
//! IUCV, or channel programs of a channel-to-channel adapter. A [`Driver`] has no thread and no clock, as everything here. The reasons
//! are in `docs/design/lines.md`.

mod channels;
mod connector;
mod counters;
mod driver;
mod ends;
mod framing;
pub mod gauge;
mod greeting;

pub use channels::{CTC_SERVER, Channel, Channels, Ended, FIRST_BLOCK, Step};
pub use connector::{Act, Answer, CONNECT_NS, Connector, State, Unconnected};
pub use counters::{Counter, Counters};
pub use driver::{
    CTCM_MTU_MAX, Driver, MTU, MTU_MIN, NETIUCV_MTU_MAX, NotTaken, Offer, PACKET_BYTES_MAX, Terms,
    WIDE_MTU_MAX,
};
pub use ends::{MTU_MIN_V6, is_of_end, mtu_min};
pub use framing::{
    CTCM_BYTES, CTCM_BYTES_MAX, Collected, Framing, Malformed, Message, NETIUCV_BYTES_MAX,
    WIDE_BYTES_MAX, Walk,
};
pub use greeting::{Greeting, MESSAGES_MAX};
