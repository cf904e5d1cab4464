//! The thread that closes what nobody wanted and nobody else may wait for: see [`os::foreign`].

use std::io;
use std::thread;

use os::foreign::{close_on_a_thread, close_refused};

/// Stack of the thread, which calls nothing deep.
const STACK_BYTES: usize = 64 << 10;

/// Lets a thread close descriptors that peers pass and that are not wanted. It is started when the first one
/// is refused; it does not keep the process from ending. A host and all that attach to one say this by
/// themselves.
pub fn close_refused_on_a_thread() {
    close_on_a_thread(start);
}

fn start() -> io::Result<()> {
    let thread = thread::Builder::new().name("siga refused".into()).stack_size(STACK_BYTES);
    // Nobody joins it: what it waits for may never come.
    thread.spawn(|| -> () { close_refused() }).map(drop)
}
