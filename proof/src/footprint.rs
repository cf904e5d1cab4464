//! What a process holds: descriptors, mappings, memory.

use std::fmt;
use std::io;

use os::memory::{descriptors, resident, storage_mappings};

/// Growth of memory that is not called a leak: the allocator and the kernel round up.
const GROWTH_BYTES_MAX: u64 = 12 << 20;

/// Growth of shared memory that is not called a leak: pages touched for the first time.
const SHARED_GROWTH_BYTES_MAX: u64 = 1 << 20;

/// What a process holds at a quiet moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings of boards, own and lent.
    pub boards: usize,
    /// Mappings of lines.
    pub lines: usize,
    /// Mappings of anything else of siga's, data storage above all.
    pub others: usize,
    /// Resident memory.
    pub bytes: u64,
    /// Of this, shared memory.
    pub shared_bytes: u64,
}

impl Footprint {
    /// Of process `number`.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(number: u32) -> io::Result<Footprint> {
        let mappings = storage_mappings(number, "siga ")?;
        let resident = resident(number)?;
        let count = |prefix: &str| {
            mappings.iter().filter(|mapping| mapping.name.starts_with(prefix)).count()
        };
        let (boards, lines) = (count("siga board"), count("siga lines"));
        Ok(Footprint {
            descriptors: descriptors(number)?,
            boards,
            lines,
            others: mappings.len() - boards - lines,
            bytes: resident.bytes,
            shared_bytes: resident.shared_bytes,
        })
    }

    /// Takes the least of both for all that is counted one by one: the other was taken when something was still on its way out.
    pub fn lower_to(&mut self, other: &Footprint) {
        let Footprint { descriptors, boards, lines, others, bytes: _, shared_bytes: _ } = other;
        self.descriptors = self.descriptors.min(*descriptors);
        self.boards = self.boards.min(*boards);
        self.lines = self.lines.min(*lines);
        self.others = self.others.min(*others);
    }

    /// What is more than in `before`, in words; empty if nothing is.
    pub fn leaks_since(&self, before: &Footprint) -> Vec<String> {
        let mut leaks = Vec::new();
        for (what, now, then) in [
            ("descriptors", self.descriptors, before.descriptors),
            ("mapped boards", self.boards, before.boards),
            ("mapped lines", self.lines, before.lines),
            ("mapped storages", self.others, before.others),
        ] {
            if now != then {
                leaks.push(format!("{now} {what}: must be {then}"));
            }
        }
        for (what, now, then, most) in [
            ("resident", self.bytes, before.bytes, GROWTH_BYTES_MAX),
            ("shared", self.shared_bytes, before.shared_bytes, SHARED_GROWTH_BYTES_MAX),
        ] {
            if now > then + most {
                let most = (then + most) >> 10;
                leaks.push(format!("{} KiB {what}: must be at most {most}", now >> 10));
            }
        }
        leaks
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Footprint { descriptors, boards, lines, others, bytes, shared_bytes } = self;
        write!(
            formatter,
            "{descriptors} descriptors, {boards} boards, {lines} lines, {others} other storages, {} KiB, {} KiB shared",
            bytes >> 10,
            shared_bytes >> 10
        )
    }
}
