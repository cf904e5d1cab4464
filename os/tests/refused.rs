//! Descriptors that a peer passed and nobody wants: who closes them, and who does not.
//!
//! One test in a process of its own: the queue of refused descriptors is one for all.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use os::doorbell::{Doorbell, Listen};
use os::foreign::{self, Foreign};
use os::poller::wait_any;
use os::storage::{Borrowed, Storage, StorageOptions};

static STARTS: AtomicUsize = AtomicUsize::new(0);

/// Fails at first, as on a machine that has no thread left.
fn start() -> io::Result<()> {
    if STARTS.fetch_add(1, Ordering::Relaxed) == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    foreign::spawn_closer()
}

/// A descriptor whose close may wait, for all that is known of it; and what reads its end once it is closed.
fn passed() -> (Foreign, io::PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    (Foreign::from(OwnedFd::from(writer)), reader)
}

fn is_closed(reader: &io::PipeReader) -> bool {
    wait_any([Some(reader.as_fd())], Some(Duration::ZERO)).unwrap() == [true]
}

#[test]
fn what_may_wait_is_closed_by_the_thread_for_it_and_all_else_at_once() {
    let (unregistered, reader) = passed();
    drop(unregistered);
    assert!(is_closed(&reader), "nobody else would close it");

    foreign::close_on_a_thread(start);
    let (_own, descriptor) = Storage::create("test", 4 << 20, StorageOptions::default()).unwrap();
    let lent = Foreign::from(descriptor.try_clone().unwrap());
    drop(Borrowed::borrow(lent, 4 << 20..=4 << 20).unwrap());
    let (ours, theirs) = Doorbell::pair().unwrap();
    for _ in 0..16 {
        theirs.ring();
        theirs.pass(descriptor.as_fd(), 0);
    }
    drop(ours);
    drop(Foreign::from(descriptor));
    // What a guest gets for a path that it gives up: its peer has to know at once.
    let (end, far) = Doorbell::ends().unwrap();
    drop(Foreign::from(end));
    assert!(Doorbell::adopt(far).unwrap().hear(Listen::Now).gone);
    assert_eq!(
        (STARTS.load(Ordering::Relaxed), foreign::waiting()),
        (0, 0),
        "memory files, and an end in which nothing lies"
    );

    let (first, mut first_reader) = passed();
    drop(first);
    assert_eq!((STARTS.load(Ordering::Relaxed), foreign::waiting()), (1, 1), "no thread to be had");
    assert!(!is_closed(&first_reader), "whoever drops it does not close it");

    let (second, mut second_reader) = passed();
    drop(second);
    for reader in [&mut first_reader, &mut second_reader] {
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "closed once there is a thread");
    }
    let (mut own, descriptor) =
        Storage::create("test", 4 << 20, StorageOptions::default()).unwrap();
    own.bytes_mut(0, 4 << 20).fill(1);
    drop(Foreign::from(descriptor));
    let (third, mut third_reader) = passed();
    drop(third);
    assert_eq!(third_reader.read(&mut [0]).unwrap(), 0);
    while foreign::waiting() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(STARTS.load(Ordering::Relaxed), 2, "one thread for all");
}
