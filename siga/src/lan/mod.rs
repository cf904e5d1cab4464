//! LANs: Ethernet frames between the members of a network that is memory.
//!
//! A guest becomes a member of one LAN with [`Lan::join`], and is given a MAC address. Frames go straight from one
//! member's memory to another's, over a path that the first frame between two members makes. The host keeps the
//! address table, and lends it to all members.
//!
//! ```no_run
//! use siga::Guest;
//! use siga::lan::{Lan, LanOptions, Offload};
//!
//! let guest = Guest::attach(siga::default_socket()?, "ALICE")?;
//! let mut lan = Lan::join(guest, "hs0", &LanOptions::default())?;
//! let to = lan.members().find(|member| member.name.as_str() == "BOB").map(|member| member.mac);
//! if let Some(to) = to {
//!     let frame = [&to.0[..], &lan.mac().0, &[0x88, 0xb5], b"hello"].concat();
//!     lan.send(Offload::NONE, &frame)?;
//! }
//! while let Some(frame) = lan.receive_within(std::time::Duration::from_secs(1))? {
//!     println!("{} bytes", frame.bytes.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A guest that the system file lets capture becomes a member with [`Capture::join`] instead, and is given a copy of each
//! frame that any member sends, with the time. It slows nobody: copies that it leaves no room for are lost and counted.

mod capture;
mod capturer;
mod churn;
mod error;
mod following;
mod joining;
mod member;
mod mesh;
#[cfg(feature = "tcpip")]
mod stack;
#[cfg(all(test, feature = "embedded"))]
mod tests;

pub use capture::{Capture, Captured};
pub use error::{JoinLanError, SendFrameError, TrySendFrameError};
pub use fabric::control::WantedAddress as Address;
pub use fabric::name::{LanName, NoLanName};
pub use member::{Lan, LanOptions};
#[cfg(feature = "tcpip")]
pub(crate) use mesh::FoundInPlace;
pub use net::lan::admission::Refused;
pub use net::lan::counters::Counter;
pub use net::lan::frame::{Mac, NoMac};
pub use net::lan::link::{Frame, FrameInPlace};
pub use net::lan::neighbour::answer as answer_neighbour;
pub use net::lan::offload::{
    BadFrame, Checksum, FRAME_BYTES_MAX, Kind, Offload, Segmentation, complete_checksum, segment,
};
pub use net::lan::table::Member;
#[cfg(feature = "tcpip")]
pub(crate) use stack::Registration;
