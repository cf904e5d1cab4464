//! What a program cannot bring about by itself: failures inside of the stack.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use fabric::control::Kind;
use host::Embedded;
use host::system::System;
use os::poller::wait_any;

use super::asynchronous::AsyncUdpSocket;
use super::core::Worker;
use super::{
    ClientOptions, Drive, Machine, MachineOptions, Routing, Stack, StackOptions, TcpListener,
    TcpStream, UdpSocket,
};
use crate::guest::Guest;
use crate::lan::{Address, Lan, LanOptions};
use crate::options::PathOptions;

const LONG: Duration = Duration::from_secs(20);

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

/// A socket of a stack without a thread, and its address.
fn bound(stack: &Stack) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(stack, (stack.addresses()[0], 53)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn program_at_the_descriptor_and_tasks_learn_that_the_thread_has_failed() {
    let host = Embedded::start(System::open()).unwrap();
    let (one, other) = (stack(&host, "ONE", Drive::Inline), stack(&host, "OTHER", Drive::Thread));
    // As if it had a thread.
    one.owner.enter().unwrap().worker = Worker::Rests;
    let ((socket, address), (sender, _)) = (bound(&one), bound(&other));
    let descriptor = one.descriptor().unwrap();
    let is_readable = || wait_any([Some(descriptor.as_fd())], Some(LONG)).unwrap();
    while one.prepare_wait().unwrap().is_zero() {}
    one.owner.give_up(Worker::Failed);
    assert_eq!(is_readable(), [true]);
    // From now on the program receives by itself what comes from the LAN.
    while one.prepare_wait().unwrap().is_zero() {}
    sender.send_to(b"x", address).unwrap();
    assert_eq!(is_readable(), [true]);
    socket.recv_from(&mut [0]).unwrap();
    let error = AsyncUdpSocket::new(socket).unwrap_err();
    assert_eq!(error.to_string(), "the stack's thread has failed, and tasks need it");
}

#[test]
fn verb_that_drives_waits_on_when_the_thread_has_failed() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "ALONE", Drive::Inline);
    let (socket, address) = bound(&stack);
    let (sender, done) = (UdpSocket::bind(&stack, "0.0.0.0:0").unwrap(), mpsc::channel());
    thread::spawn(move || while done.0.send(socket.recv_from(&mut [0]).unwrap().0).is_ok() {});
    // The first sleeps may end for reasons of their own.
    for _ in 0..20 {
        while stack.owner.enter().unwrap().asleep_until.is_none() {
            thread::yield_now();
        }
        stack.owner.give_up(Worker::Failed);
        sender.send_to(b"x", address).unwrap();
        assert_eq!(done.1.recv_timeout(LONG), Ok(1));
    }
}

#[test]
fn thread_that_could_not_wait_is_left_alone_until_it_tries_again() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = stack(&host, "ALONE", Drive::Inline);
    let (socket, _) = bound(&stack);
    stack.owner.give_up(Worker::Pauses);
    let socket = AsyncUdpSocket::new(socket).unwrap();
    let mut room = [0];
    let mut receiving = pin!(socket.recv_from(&mut room));
    // Nobody has called it, though a task waits that cannot drive.
    assert!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!stack.owner.rest.wait(Some(Duration::ZERO)));
    stack.owner.enter().unwrap().worker = Worker::Watches;
    assert!(stack.owner.rest.wait(Some(Duration::ZERO)));
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

/// A client of a machine that ends before this returns.
fn client_without_machine(host: &Embedded) -> Stack {
    let guest = Guest::attach_embedded(host, "TCPIP").unwrap();
    let lan = Guest::attach_embedded(host, "TCPIP1").unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lans = vec![Lan::join(lan, "hs0", &options).unwrap()];
    let (routing, options) = (Routing::default(), MachineOptions::default());
    let mut machine = Machine::new(guest, lans, Vec::new(), &routing, &options).unwrap();
    let stop = machine.stopper();
    let serving = thread::spawn(move || machine.serve().unwrap());
    let guest = Guest::attach_embedded(host, "CLIENT").unwrap();
    let options = ClientOptions { drive: Drive::Inline, ..ClientOptions::default() };
    let stack = Stack::of_machine(guest, "TCPIP", &options).unwrap();
    stop.stop();
    serving.join().unwrap();
    stack
}

#[test]
fn answer_of_the_next_machine_keeps_nobody_else_from_sleeping() {
    let host = Embedded::start(System::open()).unwrap();
    let stack = client_without_machine(&host);
    let descriptor = stack.descriptor().unwrap();
    let next = Guest::attach_embedded(&host, "TCPIP").unwrap();
    let options = PathOptions { kind: Kind::TCPIP, ..PathOptions::default() };
    let mut asked =
        stack.owner.with(|core| Ok(core.client()?.start_connecting(&options))).unwrap().unwrap();
    while stack.prepare_wait().unwrap().is_zero() {}
    let _path = next.accept_with(&options).unwrap();
    assert_eq!(wait_any([Some(descriptor.as_fd())], Some(LONG)).unwrap(), [true]);
    // Who waits for the answer is told of it once, and takes it when its turn comes.
    let sleeps = (0..100).any(|_| !stack.prepare_wait().unwrap().is_zero());
    assert!(sleeps, "the answer is news as long as nobody has taken it");
    let taken = stack.owner.with(|core| Ok(core.client()?.guest().try_complete(&mut asked)));
    assert!(taken.unwrap().unwrap().is_some());
}
