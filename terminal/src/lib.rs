//! Terminals over TCP: both ends of a session of TN3270E, as the 3270 screens of a mainframe are used over a network. No I/O, no threads, no clock, no unsafe code.
//!
//! In the order in which a byte passes them:
//!
//! | module | what it is |
//! |---|---|
//! | [`telnet`] | commands, records, and which options are agreed on |
//! | [`tn3270e`] | the header of a record, device types and functions (RFC 2355) |
//! | [`stream`] | the 3270 data stream: addresses, attributes, the display that both ends have |
//! | [`ebcdic`] | code page 37 |
//! | [`server`] | the end of a program: it shows screens and gets what was typed |
//! | [`client`] | the end of a terminal |
//! | [`transaction`] | a program with one screen, and a session that runs it |
//!
//! Whoever has a connection gives an end the bytes that came ([`Server::receive`](server::Server::receive)) and sends the bytes that the end has to send
//! (`output`, `sent`). Everything that comes is checked. What breaks a rule ends the session with the reason ([`Violation`]), and nothing else. Everything that is kept has
//! a bound: records, subnegotiations, and output, without room for which nothing more is taken. The reasons are in `docs/design/terminal.md`.

pub mod client;
pub mod ebcdic;
pub mod server;
pub mod stream;
pub mod telnet;
pub mod tn3270e;
pub mod transaction;

mod violation;

pub use violation::Violation;
