//! The host: the parts of siga that live.
//!
//! It names guests, authorises and brokers paths, and notices deaths. It is one part that is polled
//! ([`Host`]), driven by a daemon ([`run`]) or by a thread inside a program ([`Embedded`]). What it is to
//! allow stands in a system file ([`system`]); what watchers are told in [`report`].

pub mod config;
mod plane;
pub mod report;
mod run;
pub mod system;

pub use plane::{Handle, Host};
pub use run::{Embedded, run};
