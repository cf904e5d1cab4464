//! What a program cannot bring about by itself: failures inside of the stack.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use host::Embedded;
use host::system::System;

use super::{Drive, Stack, StackOptions, TcpListener, TcpStream};
use crate::guest::Guest;
use crate::lan::{Address, Lan, LanOptions};

/// A stack of a guest of its own.
fn stack(host: &Embedded, name: &str, drive: Drive) -> Stack {
    let guest = Guest::attach_embedded(host, name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(guest, "hs0", &options).unwrap();
    Stack::new(lan, &StackOptions { drive, ..StackOptions::default() }).unwrap()
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "it needs checks of overflow")]
fn panic_of_a_thread_that_leaves_the_stack_leaves_it_free() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "ALONE", Drive::Inline);
    let leaving = || {
        let mut turn = stack.owner.enter().unwrap();
        // One more than it can count.
        (turn.activity, turn.has_worked) = (u64::MAX, true);
    };
    catch_unwind(AssertUnwindSafe(leaving)).unwrap_err();
    stack.poll().unwrap();
}

#[test]
fn write_to_a_connection_that_cannot_be_woken_fails() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "ALONE", Drive::Inline);
    let _listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let stream = TcpStream::connect(&stack, (stack.addresses()[0], 7)).unwrap();
    // As if there were room, and then no state machine to fill.
    let failed = stream.write_when(|_, _| None::<()>);
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::BrokenPipe);
}
