//! Ports: unmodified programs on a LAN of siga, or at an adapter.
//!
//! A port is a process with a TAP device, whose interface is in the network of one program, and which is a member of a LAN
//! like any other. The program's own kernel does TCP/IP; the port moves frames.
//!
//! | module | what it is for |
//! |---|---|
//! | [`member`] | the port as a member of its LAN |
//! | [`setup`] | what is set up for the program, and where |
//! | [`outside`] | starting the process that sets it up |
//! | [`inside`] | that process, which becomes the program |
//! | [`adopted`] | processes that the program leaves behind |
//! | [`guard`] | ending what a killed port would leave behind |
//! | [`link`] | interfaces, addresses and routes, by netlink |
//! | [`head`] | between the kernel's head of a frame and the LAN's |
//! | [`agent`] | moving frames between an interface and a LAN |
//! | [`adapter`] | the same of an adapter's device, and the device |
//! | [`bridge`] | packets between a LAN and the port of an adapter |
//! | `neighbours` | what the kernel believes of the others' MAC addresses |
//! | [`hosts`] | the names of other members, for the program |
//! | [`serve`] | the agent's wait, the program's signals and end |
//! | [`watch`] | noticing that an existing namespace is gone |
//! | [`wire`] | a wire with faults between two devices |
//! | [`wires`] | the bodies of an adapter's wire: AF_XDP, macvtap, TAP |
//!
//! The reasons are in `docs/design/port.md`, those of the last in `docs/design/wires.md`.

pub mod adapter;
pub mod adopted;
pub mod agent;
mod backlog;
pub mod bridge;
pub mod guard;
pub mod head;
pub mod hosts;
pub mod inside;
pub mod link;
pub mod member;
mod neighbours;
pub mod outside;
pub mod serve;
pub mod setup;
pub mod watch;
pub mod wire;
pub mod wires;
