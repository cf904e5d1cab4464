//! Doorbells whose other ends ring, pass descriptors and close as a script directs.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fabric::path::{Receiver, Sender};
use os::doorbell::{Doorbell, Listen};
use os::storage::{Storage, StorageOptions};
use rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, openat,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, TERMS, Watch};
use crate::bare::{Bare, Facing, code, face, label};

/// Descriptors of one ring, at most.
const PASSED_MAX: usize = 12;

/// Tags of descriptors that are passed: most are of queues that do not exist.
pub(super) const TAGS: [u8; 6] = [0, 0, 1, 7, 8, 255];

/// How we send ourselves: without waiting, and without a signal when nobody is there.
pub(super) const QUIETLY: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A descriptor of some kind: storage as it should be, and much that is none.
///
/// # Panics
/// If the machine has no descriptors left.
pub(super) fn descriptor(script: &mut Script<'_>) -> OwnedFd {
    let open = |path: &str, flags: OFlags| {
        openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).expect("it is there")
    };
    match script.below(12) {
        0..3 => Storage::create("siga bare", 4096, StorageOptions::default()).expect("storage").1,
        3..8 => memory_file(script),
        8 => rustix::pipe::pipe().expect("a pipe").0,
        9 => Doorbell::ends().expect("a doorbell").0,
        10 => open("/dev/null", OFlags::RDONLY),
        _ => match script.below(2) {
            0 => open("/", OFlags::RDONLY | OFlags::DIRECTORY),
            _ => open("/proc/self/exe", OFlags::PATH),
        },
    }
}

/// A memory file with some size and some seals.
fn memory_file(script: &mut Script<'_>) -> OwnedFd {
    match script.below(8) {
        0 => sealed(script.pick(&[0, 2 << 20]), MemfdFlags::HUGETLB, SEALS),
        1 => sealed(4096, MemfdFlags::empty(), SEALS | SealFlags::WRITE | SealFlags::EXEC),
        2..5 => sealed(script.pick(&[0, 5000, 8192, 1 << 20]), MemfdFlags::empty(), SEALS),
        _ => unsealed(script),
    }
}

/// What storage needs.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A memory file that would be storage, if it were not for one seal.
pub(super) fn unsealed(script: &mut Script<'_>) -> OwnedFd {
    let seals =
        [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL, SEALS];
    sealed(4096, MemfdFlags::empty(), SEALS - script.pick(&seals))
}

fn sealed(bytes: u64, kind: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // A machine may have no huge pages at all.
    let created = memfd_create("siga bare", flags | kind);
    let file = created.or_else(|_| memfd_create("siga bare", flags)).expect("a memory file");
    // Neither does each kind know each size, nor each kernel each seal.
    let _ = ftruncate(&file, bytes).and_then(|()| fcntl_add_seals(&file, seals));
    file
}

/// Makes a file smaller than it was when it was passed, if its seals allow it. Whoever borrowed it all the
/// same is ended by its next read.
pub(super) fn spoil(file: &OwnedFd) {
    let _ = ftruncate(file, 0);
}

/// Rings without end, descriptors of all kinds, one or many at a time, and an end that is hung up and
/// rung all the same, at both ends of a path whose words are honest.
///
/// # Panics
/// If it does harm.
pub fn doorbell_abuse(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let Facing { mut bare, mut receiver, mut sender, .. } = face(TERMS);
        let mut lent = 0;
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            match script.below(4) {
                0 => listen(&mut script, &mut receiver, &mut sender),
                1 => {
                    // What an honest peer does, so that there is a path to abuse.
                    lent += 1;
                    let _ = bare.lend(lent % 1024, 4096);
                    bare.prime_bytes(label::MESSAGE, 0, b"honest");
                    if lent > 4 {
                        bare.control(code::RETIRE, u64::from(lent - 4), 0);
                    }
                }
                _ => abuse(&mut script, &bare),
            }
            // What has not been asked for waits here, and no more than that.
            assert!(super::descriptors() < watch.descriptors + 64);
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        neighbour.visit();
    }
    watch.stop();
}

fn listen(script: &mut Script<'_>, receiver: &mut Receiver, sender: &mut Sender) {
    match script.below(6) {
        0 => drop(receiver.receive().is_ok()),
        1 => drop(receiver.hear(Listen::Now)),
        2 => drop(sender.hear(Listen::Now)),
        3 => {
            receiver.announce_sleep();
            receiver.wake();
        }
        4 => {
            sender.announce_sleep();
            sender.wake();
        }
        // Lends storage, with a ring of its own.
        _ => drop(sender.send(&[], &[1; 70_000]).is_ok()),
    }
}

fn abuse(script: &mut Script<'_>, bare: &Bare) {
    let bell = if script.below(3) == 0 { &bare.returns } else { &bare.arrivals };
    match script.below(16) {
        0..4 => drop(bell.ring()),
        4..8 => drop(bell.pass(descriptor(script).as_fd(), script.pick(&TAGS))),
        8..12 => pass_many(script, bell),
        12 => drop(send(bell, &[0; 60_000], QUIETLY)),
        13 => drop(send(bell, &[0; 100], QUIETLY)),
        14 => drop(bell.hear(Listen::Now)),
        _ => {
            if script.below(8) == 0 {
                bell.hang_up();
            }
        }
    }
}

fn pass_many(script: &mut Script<'_>, bell: &Doorbell) {
    let passed: Vec<OwnedFd> = (0..script.below(PASSED_MAX)).map(|_| descriptor(script)).collect();
    let mut passed: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
    if script.below(4) == 0 {
        // A doorbell passed through itself.
        passed.push(bell.as_fd());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX + 1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    let rings = vec![script.pick(&TAGS); 1 + script.below(100)];
    let _ = sendmsg(bell, &[IoSlice::new(&rings)], &mut ancillary, QUIETLY);
}
