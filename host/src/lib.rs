//! The host of siga.
//!
//! It names guests, authorises and brokers paths, and notices deaths. It is one part that is polled
//! ([`Host`]), driven by a daemon ([`run`]) or by a thread inside a program ([`Embedded`]). A system file
//! ([`system`]) states what it allows; [`profile`] makes one of a mainframe's TCP/IP profile; [`report`] is what it reports to observers.
//! [`near`] finds words that were meant.

pub mod config;
pub mod near;
mod plane;
pub mod profile;
pub mod report;
mod run;
pub mod system;

pub use plane::{Handle, Host};
pub use run::{Embedded, run, run_until};
