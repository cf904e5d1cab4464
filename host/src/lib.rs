//! The host: the parts of siga that live.
#![forbid(unsafe_code)]

pub mod config;
mod plane;
pub mod report;
mod run;
pub mod system;

pub use plane::{Handle, Host, PENDING_MAX};
pub use run::{Embedded, default_socket, run};
