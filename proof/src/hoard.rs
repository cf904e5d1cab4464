//! Exhaustions: a [`Hoard`] uses up a resource of this process and frees it when it is dropped.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use os::foreign::Foreign;
use os::memory::own_address_space_bytes;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use serde::{Deserialize, Serialize};

/// The resource that is used up.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    clap::ValueEnum,
    Serialize,
    Deserialize,
)]
pub enum Exhaustion {
    /// Descriptors of the process.
    Descriptors,
    /// Address space of the process.
    Memory,
    /// Mappings of the process.
    Mappings,
    /// Descriptors that the user may have on their way to other processes.
    Passing,
    /// Bytes of storage that may be lent over a path.
    Storage,
    /// Storages that may be lent over a path.
    Segments,
    /// What may be lent and rung for before the other side hears.
    Unclaimed,
}

impl Exhaustion {
    /// All of them.
    pub const ALL: [Exhaustion; 7] = [
        Exhaustion::Descriptors,
        Exhaustion::Memory,
        Exhaustion::Mappings,
        Exhaustion::Passing,
        Exhaustion::Storage,
        Exhaustion::Segments,
        Exhaustion::Unclaimed,
    ];

    /// The exhaustions that this machine can bring about.
    pub fn possible() -> Vec<Exhaustion> {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let most = most.ok().and_then(|most| most.trim().parse::<usize>().ok());
        let has_few_mappings = most.is_some_and(|most| most < MAPPINGS_MAX);
        let is_possible = |kind: &Exhaustion| *kind != Exhaustion::Mappings || has_few_mappings;
        Exhaustion::ALL.into_iter().filter(is_possible).collect()
    }

    /// The state of the process in words, as the report counts it.
    pub fn words(self) -> &'static str {
        match self {
            Exhaustion::Descriptors => "without descriptors",
            Exhaustion::Memory => "without memory",
            Exhaustion::Mappings => "without mappings",
            Exhaustion::Passing => "with too many descriptors on their way",
            Exhaustion::Storage => "at the limit of bytes lent",
            Exhaustion::Segments => "at the limit of storages lent",
            Exhaustion::Unclaimed => "with unclaimed rings and storages",
        }
    }
}

/// Bytes of address space that are left to a process without memory: enough for small allocations, too few for
/// storage.
const LEFT_BYTES: u64 = 512 << 10;

/// The limit of descriptors while they are used up.
const DESCRIPTORS_MAX: u64 = 100;

/// Bytes that the allocator keeps for this program, and the size of the allocations that make it keep them:
/// the allocator does not map each by itself. Each mapping needs less than a hundred bytes.
const KEPT_BYTES: usize = 16 << 20;
const PIECE_BYTES: usize = 16 << 10;

/// Mappings that are made at most: if the kernel allows more, they cannot be used up.
const MAPPINGS_MAX: usize = 1 << 17;

/// Descriptors that are passed and not received, and the limit that they exceed. Other processes of the user may
/// have far more on their way.
const ON_THEIR_WAY: usize = 200;
const ON_THEIR_WAY_MAX: u64 = 150;

/// What is held so that a resource is used up. Dropping it frees the resource.
#[derive(Debug)]
pub enum Hoard {
    /// The limit of descriptors before it was lowered, and the files that take all below the new one.
    Descriptors(Rlimit, Vec<File>),
    /// The limit of address space before it was lowered.
    Memory(Rlimit),
    /// A page and its mappings.
    Mappings(Foreign, Vec<Borrowed>),
    /// Descriptors on their way, the limit before it was lowered, and this thread's capabilities before.
    Passing(Vec<UnixStream>, Rlimit, CapabilitySets),
    /// A path lacks the resource: nothing of the process is held.
    OfPath,
}

impl Hoard {
    /// Uses the resource up, unless it belongs to a path.
    ///
    /// # Errors
    /// The resource cannot be used up on this machine.
    pub fn take(exhaustion: Exhaustion) -> io::Result<Hoard> {
        let mut hoard = Hoard::start(exhaustion)?;
        hoard.take_the_rest()?;
        Ok(hoard)
    }

    /// Uses descriptors up, except for `left` of them.
    ///
    /// # Errors
    /// The limit cannot be lowered.
    ///
    /// # Panics
    /// If fewer than `left` descriptors were free below the lowered limit.
    pub fn take_descriptors_but(left: usize) -> io::Result<Hoard> {
        let mut hoard = Hoard::take(Exhaustion::Descriptors)?;
        if let Hoard::Descriptors(_, files) = &mut hoard {
            let kept = files.len().checked_sub(left).expect("so many were free");
            files.truncate(kept);
        }
        Ok(hoard)
    }

    fn start(exhaustion: Exhaustion) -> io::Result<Hoard> {
        match exhaustion {
            Exhaustion::Descriptors => {
                let limit = getrlimit(Resource::Nofile);
                let lowered = Rlimit { current: Some(DESCRIPTORS_MAX), ..limit };
                setrlimit(Resource::Nofile, lowered)?;
                Ok(Hoard::Descriptors(limit, Vec::with_capacity(DESCRIPTORS_MAX as usize)))
            }
            Exhaustion::Memory => Ok(Hoard::Memory(getrlimit(Resource::As))),
            Exhaustion::Mappings => {
                let (storage, descriptor) =
                    Storage::create("page", STORAGE_GRAIN_BYTES, StorageOptions::default())?;
                let page = Foreign::from(descriptor);
                drop(storage);
                // The table is allocated while there still is a mapping for it.
                Ok(Hoard::Mappings(page, Vec::with_capacity(MAPPINGS_MAX)))
            }
            Exhaustion::Passing => {
                let (holding, held) = UnixStream::pair()?;
                let null = OwnedFd::from(File::open("/dev/null")?);
                let many = [null.as_fd(); ON_THEIR_WAY];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(&many)), "room for all");
                let bytes = [IoSlice::new(&[0])];
                sendmsg(&holding, &bytes, &mut ancillary, SendFlags::empty())?;
                let (limit, can) = (getrlimit(Resource::Nofile), capabilities(None)?);
                let lowered = Rlimit { current: Some(ON_THEIR_WAY_MAX), ..limit };
                setrlimit(Resource::Nofile, lowered)?;
                // With these capabilities, root may have any number on their way.
                let without = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
                let fewer = CapabilitySets { effective: can.effective - without, ..can };
                set_capabilities(None, fewer)?;
                Ok(Hoard::Passing(vec![holding, held], limit, can))
            }
            Exhaustion::Storage | Exhaustion::Segments | Exhaustion::Unclaimed => Ok(Hoard::OfPath),
        }
    }

    /// Uses up what has become free since.
    ///
    /// # Errors
    /// The resource cannot be used up on this machine.
    pub fn take_the_rest(&mut self) -> io::Result<()> {
        match self {
            Hoard::Descriptors(_, files) => {
                while let Ok(file) = File::open("/dev/null") {
                    files.push(file);
                }
            }
            Hoard::Memory(limit) => {
                let bytes = own_address_space_bytes()? + LEFT_BYTES;
                setrlimit(Resource::As, Rlimit { current: Some(bytes), ..*limit })?;
            }
            Hoard::Mappings(page, mappings) => {
                while let Ok(mapping) = Borrowed::borrow(&*page, 1..=STORAGE_GRAIN_BYTES) {
                    mappings.push(mapping);
                    if mappings.len() == MAPPINGS_MAX {
                        return Err(io::Error::other("the kernel allows more mappings"));
                    }
                }
            }
            Hoard::Passing(..) | Hoard::OfPath => {}
        }
        Ok(())
    }
}

/// Makes the allocator keep free memory, for what this program needs while none can be mapped. To be called
/// once, before much else is allocated.
pub fn keep_some_memory() {
    let mut pieces: Vec<Vec<u8>> =
        (0..KEPT_BYTES / PIECE_BYTES).map(|_| vec![1; PIECE_BYTES]).collect();
    // The last allocation is never freed: the allocator returns only memory at the end of its heap.
    std::mem::forget(black_box(pieces.pop()));
}

impl Drop for Hoard {
    fn drop(&mut self) {
        let back = "a process may raise a limit to where it was";
        match self {
            Hoard::Descriptors(limit, files) => {
                files.clear();
                setrlimit(Resource::Nofile, *limit).expect(back);
            }
            Hoard::Memory(limit) => setrlimit(Resource::As, *limit).expect(back),
            Hoard::Passing(ends, limit, can) => {
                ends.clear();
                set_capabilities(None, *can).expect("a thread may do again what it could");
                setrlimit(Resource::Nofile, *limit).expect(back);
            }
            Hoard::Mappings(_, mappings) => mappings.clear(),
            Hoard::OfPath => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use os::memory::own_storage_mappings;

    use super::*;

    #[test]
    fn page_can_be_mapped_again_and_again_without_its_mappings_becoming_one() {
        let (_storage, descriptor) =
            Storage::create("page", STORAGE_GRAIN_BYTES, StorageOptions::default()).unwrap();
        let page = Foreign::from(descriptor);
        let count = || own_storage_mappings("page").unwrap().len();
        let before = count();
        let borrow = || Borrowed::borrow(&page, 1..=STORAGE_GRAIN_BYTES).unwrap();
        let mappings: Vec<_> = (0..10).map(|_| borrow()).collect();
        assert_eq!(count() - before, 10);
        drop(mappings);
        assert_eq!(count(), before);
    }
}
