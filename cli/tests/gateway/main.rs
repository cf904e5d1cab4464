//! `siga gateway`: the gateway of a LAN. Elsewhere is a network namespace with two addresses, in which the gateway runs beside a server.

#[path = "../common/mod.rs"]
mod common;
mod elsewhere;
mod ends;
mod flood;
#[path = "../common/lacking.rs"]
mod lacking;
#[path = "../common/lasting.rs"]
mod lasting;
mod reached;
