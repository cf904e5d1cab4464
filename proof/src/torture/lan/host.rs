//! The host of a LAN that is tortured: a real host.

use std::process::ExitCode;

use host::Host;
use host::system::System;

use super::super::birth::Birth;
use crate::crew;

/// Lives until it is killed, or its parent is.
pub fn run(birth: &Birth) -> ExitCode {
    birth.die_with_parent();
    let (mut host, _handle) = Host::new(System::open()).expect("a host");
    host.listen(&crew::host_socket(&birth.directory)).expect("nobody else listens there");
    host::run(host).expect("nothing keeps it from waiting");
    ExitCode::SUCCESS
}
